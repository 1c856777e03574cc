"""A dispatcher to talk to, and a client that does not wait for long."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from federator.client import Verbs
from federator.client import jobs as jobs_module
from federator.client import transport as transport_module
from federator.client.blocking import BlockingTransport
from federator.client.pooled import PooledTransport
from federator.client.transport import Transport
from federator.retry import Backoff
from tests.support.fake_dispatcher import FakeDispatcher, fake_dispatcher


@pytest.fixture
def fake() -> Iterator[FakeDispatcher]:
    with fake_dispatcher() as running:
        yield running


@pytest_asyncio.fixture(params=[PooledTransport, BlockingTransport])
async def client(
    fake: FakeDispatcher, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AsyncIterator[Verbs]:
    """The verbs over each transport: they mean the same over both."""
    monkeypatch.setattr(transport_module, "BACKOFF", Backoff(0.01, 0.01))
    monkeypatch.setattr(jobs_module, "POLL_S", 0.01)
    transport: Transport = request.param(fake.url, "secret", patience_s=5.0)
    opened = Verbs(transport)
    yield opened
    await opened.close()
