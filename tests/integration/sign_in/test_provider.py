"""Signing in at a real provider: by browser, by device code, as a service; refreshed by several commands at once, ended, and with new keys."""

import asyncio
import os
import stat
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp.test_utils import TestClient, TestServer

from federator import oidc
from federator.api.server import build_app
from federator.control.administration.sign_in import SignIn
from federator.oidc import OidcKeys
from federator.settings import OidcSettings
from federator.wire.sign_in import Credential
from tests.integration.api.rig import Rig
from tests.support.dispatch import make_world
from tests.testbeds import oidc as testbed
from tests.testbeds.required import need

FIELDS: dict[str, Any] = {
    "client_id": "federator-cli",
    "scopes": ("openid", "offline_access"),
    "roles": {"research": "user", "ops": "platform", "service-ci": "user"},
    "service_claim": "client_id",
}
ACCESS = {"audience": testbed.RESOURCE, "parameters": {"resource": testbed.RESOURCE}}


@dataclass
class Scene:
    """A provider, a dispatcher that believes it, and a user's home."""

    provider: testbed.TestProvider
    rig: Rig
    home: Path
    keys: OidcKeys

    @property
    def url(self) -> str:
        return str(self.rig.client.make_url("")).rstrip("/")

    def keep_up(self) -> None:
        """The provider's clock is the machine's: on a slow one, a token would be signed in the dispatcher's future."""
        self.rig.world.clock.advance(max(0.0, time.time() - self.rig.world.clock.now()))

    async def command(self, *words: str) -> asyncio.subprocess.Process:
        self.keep_up()
        environ = {"HOME": str(self.home), "PATH": os.environ["PATH"]}
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "federator", *words, env=environ, stdout=pipe, stderr=pipe
        )

    async def said(self, *words: str) -> tuple[int, str]:
        """Exit code and output of a command."""
        process = await self.command(*words)
        out, err = await process.communicate()
        return process.returncode or 0, (out + err).decode()

    async def log_in(self, name: str, *options: str) -> tuple[int, str]:
        """The command in one hand, the browser in the other."""
        process = await self.command("login", self.url, "--no-browser", *options)
        assert process.stdout is not None
        opened = (await process.stdout.readline()).decode().split()
        assert opened[:1] == ["open"], (opened, await process.communicate())
        page = await testbed.sign_in(opened[1], name)
        self.keep_up()
        out, err = await process.communicate()
        return process.returncode or 0, page + (out + err).decode()

    @property
    def file(self) -> Path:
        (found,) = (self.home / ".local/state/federator/sign-ins").glob("*.json")
        return found

    def kept(self) -> Credential:
        return msgspec.json.decode(self.file.read_bytes(), type=Credential)

    def expire(self) -> None:
        """The next command has to refresh."""
        old = msgspec.structs.replace(self.kept(), expires_at=time.time())
        self.file.write_bytes(msgspec.json.encode(old))

    async def ask(self, token: str) -> Any:
        self.keep_up()
        return await self.rig.ask("GET", "/v1/whoami", None, headers={"Authorization": f"Bearer {token}"})


@pytest.fixture
def provider() -> Any:
    need(testbed.lacking())
    provider = testbed.TestProvider()
    provider.start()
    yield provider
    provider.stop()


BOTH = pytest.mark.parametrize("scene", [{}, ACCESS], ids=["ID token", "access token"], indirect=True)
"""What the dispatcher is shown: by default the ID token."""


@pytest.fixture
async def scene(
    request: pytest.FixtureRequest, provider: testbed.TestProvider, tmp_path: Path
) -> AsyncIterator[Scene]:
    given = getattr(request, "param", {})
    settings = OidcSettings(**FIELDS, **given, issuer=provider.url)
    world = await make_world()
    world.clock.advance(time.time() - world.clock.now())
    world.core.hub.start(term=1)
    world.core.ready = True
    keys = OidcKeys(settings, world.clock)
    await keys.fetch()
    world.core.sign_in = SignIn(world.core.admission, settings, keys)
    world.core.settings = msgspec.structs.replace(world.core.settings, oidc=settings)
    client = TestClient(TestServer(build_app(world.core)))
    await client.start_server()
    yield Scene(provider, Rig(world, client), tmp_path, keys)
    await client.close()


@BOTH
async def test_one_signs_in_by_browser_is_known_and_signs_out(scene: Scene) -> None:
    code, told = await scene.log_in("ada")
    assert (code, "You are signed in" in told) == (0, True), told
    assert f"signed in at {scene.url} as ada, platform" in told
    assert stat.S_IMODE(scene.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(scene.file.parent.stat().st_mode) == 0o700
    code, told = await scene.said("whoami", "-o", "json")  # no address: the one that was signed in to
    who = msgspec.json.decode(told)
    assert (code, who["name"], who["groups"]) == (0, "ada", ["research", "ops"])
    refresh_token = scene.kept().refresh_token
    assert refresh_token
    assert (await scene.said("logout"))[1] == f"signed out at {scene.url}\n"
    code, told = await scene.said("whoami", "--server", scene.url)
    assert (code, "no bearer token" in told) != (0, True)
    assert not list(scene.home.rglob("*.json"))


async def test_one_signs_in_by_a_code_where_there_is_no_browser(scene: Scene) -> None:
    code, told = await scene.log_in("bob", "--device")
    assert code == 0, told
    assert "as bob, user" in told


async def test_who_has_no_role_is_told_at_once_and_nothing_is_kept(scene: Scene) -> None:
    code, told = await scene.log_in("eve")
    assert code != 0
    assert "no group of eve has a role here" in told
    assert not list(scene.home.rglob("*.json"))


@BOTH
async def test_commands_that_refresh_at_once_use_each_refresh_token_once(scene: Scene) -> None:
    """The provider ends a sign-in of which a refresh token is shown twice: that is how it is seen."""
    await scene.log_in("ada")
    for _ in range(2):
        scene.expire()
        before = scene.kept().refresh_token
        told = await asyncio.gather(*(scene.said("whoami", "-o", "json") for _ in range(3)))
        assert [code for code, _ in told] == [0, 0, 0], told
        assert scene.kept().refresh_token != before


async def test_a_sign_in_that_the_provider_has_ended_says_what_to_do(scene: Scene) -> None:
    await scene.log_in("ada")
    scene.provider.stop()
    scene.provider.start("two")  # it has forgotten everybody
    scene.expire()
    code, told = await scene.said("whoami")
    assert code != 0
    assert "your sign-in has expired" in told
    assert "federator login" in told


async def test_a_token_ends_in_the_midst_of_a_session_and_new_keys_are_found(scene: Scene) -> None:
    await scene.log_in("ada")
    token = scene.kept().token
    assert (await scene.ask(token)).status == 200
    scene.provider.stop()
    scene.provider.start("two")
    await scene.log_in("ada")  # fails at first: the key is not known yet
    scene.rig.world.clock.advance(oidc.GAP_S)
    assert await scene.keys.fetch()
    code, told = await scene.log_in("ada")
    assert code == 0, told
    assert (await scene.ask(scene.kept().token)).status == 200
    answer = await scene.ask(token)
    while answer.status == 503:  # on a slow machine: they were asked for long ago
        assert answer.headers["Retry-After"]
        assert await scene.keys.fetch()
        answer = await scene.ask(token)
    assert answer.status == 401  # its key is gone
    scene.rig.world.clock.advance(331)
    assert (await scene.ask(scene.kept().token)).status == 401


@pytest.mark.parametrize("scene", [ACCESS], ids=["access token"], indirect=True)
async def test_a_service_shows_a_token_of_its_own(scene: Scene) -> None:
    answer = await scene.ask(await scene.provider.service_token())
    assert answer.status == 200, answer.data
    who = answer.json()
    assert (who["name"], who["role"], who["groups"]) == ("service-ci", "user", ["service-ci"])


async def test_a_service_token_for_another_audience_is_refused(scene: Scene) -> None:
    assert (await scene.ask(await scene.provider.service_token())).status == 401
