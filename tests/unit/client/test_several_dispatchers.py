"""A client that was given several addresses: whoever leads is found, and whoever does not is left, without a word to the user."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from aiohttp import web

from federator.client import Verbs
from federator.client import transport as transport_module
from federator.client.blocking import BlockingTransport
from federator.client.pooled import PooledTransport
from federator.kernel import errors
from federator.kernel.route import Way
from federator.retry import Backoff
from federator.wire.administration import PolicyVerdict
from federator.wire.http import Problem
from tests.support.fake_dispatcher import FakeDispatcher, fake_dispatcher

Opened = Callable[..., AbstractAsyncContextManager[Verbs]]
STANDBY = Problem("about:blank", "Service Unavailable", 503, "http://b leads", code="not-leading")


@pytest.fixture
def other() -> Iterator[FakeDispatcher]:
    with fake_dispatcher() as running:
        yield running


@pytest.fixture(params=[PooledTransport, BlockingTransport])
def opened(request: pytest.FixtureRequest) -> Opened:
    """Makes a client for these addresses, over each transport."""

    @asynccontextmanager
    async def make(servers: str, patience_s: float = 0.0, way: Way | None = None) -> AsyncIterator[Verbs]:
        client = Verbs(request.param(servers, "secret", patience_s=patience_s, way=way))
        yield client
        await client.close()

    return make


def both(one: FakeDispatcher, two: FakeDispatcher) -> str:
    return f"{one.url},{two.url}"


async def test_one_that_stands_by_is_left_for_good(
    opened: Opened, fake: FakeDispatcher, other: FakeDispatcher
) -> None:
    fake.answer("GET /v1/sites", STANDBY, status=503)
    other.answer("GET /v1/sites", [])
    async with opened(both(fake, other)) as client:
        assert await client.sites() == []
        assert await client.sites() == []
    assert len(fake.of("GET /v1/sites")) == 1
    assert len(other.of("GET /v1/sites")) == 2


async def test_one_that_is_gone_is_left(opened: Opened, other: FakeDispatcher) -> None:
    other.answer("GET /v1/sites", [])
    async with opened(f"http://127.0.0.1:9, {other.url}/") as client:
        assert await client.sites() == []


async def test_when_none_leads_all_are_asked_again_while_patience_lasts(
    opened: Opened, fake: FakeDispatcher, other: FakeDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport_module, "BACKOFF", Backoff(0.01, 1.0))
    for _ in range(2):
        fake.answer("GET /v1/sites", STANDBY, status=503)
    other.answer("GET /v1/sites", STANDBY, status=503)
    fake.answer("GET /v1/sites", [])
    async with opened(both(fake, other), 60.0) as client:
        assert await client.sites() == []
    async with opened(both(other, other)) as client:
        with pytest.raises(errors.NotLeading, match="http://b leads"):
            await client.sites()


async def test_what_may_not_be_repeated_is_repeated_only_where_nothing_was_done(
    opened: Opened, fake: FakeDispatcher, other: FakeDispatcher
) -> None:
    fake.answer("POST /v1/policies", STANDBY, status=503)
    other.answer("POST /v1/policies", PolicyVerdict(version=1))
    async with opened(both(fake, other)) as client:
        assert (await client.apply_policies("", "why")).version == 1
    fake.drops = 1
    async with opened(both(fake, other), 5.0) as client:
        with pytest.raises(errors.Unavailable):
            await client.apply_policies("", "why")
    assert len(other.of("POST /v1/policies")) == 1


async def test_one_that_hangs_is_left_when_another_leads(
    opened: Opened, fake: FakeDispatcher, other: FakeDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is stopped, or a machine that is gone: the connection stands, and nobody answers."""
    monkeypatch.setattr(transport_module, "SILENT_S", 0.05)

    async def hang(_request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(3600)
        return web.Response()

    fake.handle("GET /v1/sites", hang)
    other.answer("GET /v1/sites", [])
    other.answer("GET /readyz", {"status": "standby"}, status=503)
    other.answer("GET /readyz", {"status": "ready"})
    async with opened(both(fake, other)) as client:
        async with asyncio.timeout(60):
            assert await client.sites() == []
    assert len(other.of("GET /readyz")) >= 2, "it is asked again until it leads"


async def test_one_that_leads_is_found_behind_a_proxy_too(
    opened: Opened, fake: FakeDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport_module, "SILENT_S", 0.05)

    async def sites(request: web.Request) -> web.StreamResponse:
        if request.url.host == "one.example":
            await asyncio.sleep(3600)
        return web.json_response([])

    async def ready(request: web.Request) -> web.StreamResponse:
        return web.Response(status=200 if request.url.host == "two.example" else 404)

    fake.handle("GET /v1/sites", sites)
    fake.handle("GET /readyz", ready)
    async with opened("http://one.example,http://two.example", way=Way(proxy=fake.url)) as client:
        async with asyncio.timeout(60):
            assert await client.sites() == []


async def test_one_that_is_slow_is_waited_for_while_no_other_leads(
    opened: Opened, fake: FakeDispatcher, other: FakeDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport_module, "SILENT_S", 0.02)
    other.answer("GET /readyz", {"status": "standby"}, status=503)

    async def take_long(_request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.3)
        return web.json_response([])

    fake.handle("GET /v1/sites", take_long)
    async with opened(both(fake, other)) as client:
        assert await client.sites() == []
    assert other.of("GET /v1/sites") == []
