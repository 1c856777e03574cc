"""A dispatcher in memory behind a real HTTP server on loopback."""

from collections.abc import AsyncIterator

import pytest
from aiohttp.test_utils import TestClient, TestServer

from federator.api.server import build_app
from tests.integration.api.rig import Rig
from tests.support.dispatch import make_world


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    """The dispatcher, with tokens for one person of each role."""
    world = await make_world()
    world.core.hub.start(term=1)
    world.core.ready = True
    client = TestClient(TestServer(build_app(world.core)))
    await client.start_server()
    rig = Rig(world, client)
    await rig.make_tokens()
    yield rig
    await client.close()
