"""Floods of connections: they displace themselves, and who has signed in notices nothing."""

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from aiohttp import ClientSession, WSMsgType

from federator.api.connections import LEAST, Connection, Connections, places
from federator.api.listener import serving
from federator.api.server import build_app
from federator.api.tally import EVERY_S, MOST_KEYS, OTHERS, Tally
from federator.model.rights import TeamRule
from federator.settings import ConnectionSettings
from federator.telemetry import METRICS
from federator.wire import link
from tests.integration.api.rig import ROOT, HttpAgent, Rig
from tests.integration.api.test_agents import placed
from tests.support.waiting import PATIENCE_S


class Clock:
    """Time that goes on when it is told to."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Wire(asyncio.Transport):
    """A transport that only knows whether it was cut."""

    cut: bool = False
    unsent: int = 0

    def abort(self) -> None:
        self.cut = True

    def was_cut(self) -> bool:
        return self.cut

    def get_write_buffer_size(self) -> int:
        return self.unsent


class World:
    """Connections without sockets, on a clock of their own."""

    def __init__(self, **settings: Any) -> None:
        self.clock = Clock()
        self.all = Connections(ConnectionSettings(**settings), 1024, self.clock)

    def come(self, address: str = "10.0.0.1") -> tuple[Connection, Wire]:
        connection, wire = Connection(self.all, asyncio.Protocol(), address), Wire()
        self.all.arrived(connection)
        connection.connection_made(wire)
        return connection, wire

    def later(self, seconds: float) -> None:
        self.clock.now_s += seconds
        self.all.look()


def test_places_follow_from_the_files_that_may_be_open() -> None:
    few, many = places(ConnectionSettings(), 1024), places(ConnectionSettings(), 65_536)
    assert (few.most, many.most) == (768, 65_024)
    assert many.strangers == many.most // 2
    assert many.each_address == many.each_caller == many.most // 8
    assert places(ConnectionSettings(), 20).each_caller == LEAST
    assert places(ConnectionSettings(most=10, each=3), 1024).each_caller == 3


def test_a_flood_of_strangers_displaces_the_oldest_of_them_and_nobody_who_has_signed_in() -> None:
    world = World(most=20, strangers=10, strangers_each=10)
    signed, wires = [], []
    for number in range(5):
        connection, wire = world.come("10.0.0.2")
        assert connection.signed_in(f"user u{number}", lambda: True)
        signed.append(wire)
    wires = [world.come(f"10.1.0.{number % 200}")[1] for number in range(1000)]
    assert not any(wire.was_cut() for wire in signed)
    assert [wire.was_cut() for wire in wires] == [True] * 990 + [False] * 10
    assert len(world.all) == 15


def test_one_address_displaces_its_own_unless_it_is_a_trusted_proxy() -> None:
    world = World(most=100, strangers=100, strangers_each=3, proxies=("10.9.0.0/16",))
    _, other = world.come("10.0.0.2")
    mine = [world.come("10.0.0.1")[1] for _ in range(10)]
    proxied = [world.come("10.9.1.1")[1] for _ in range(10)]
    assert not other.was_cut()
    assert [wire.was_cut() for wire in mine] == [True] * 7 + [False] * 3
    assert not any(wire.was_cut() for wire in proxied)
    assert world.all.origin("10.9.1.1", "1.2.3.4, 5.6.7.8") == "5.6.7.8"
    assert world.all.origin("10.9.1.1", "nonsense\n") == "10.9.1.1"
    assert world.all.origin("10.0.0.1", "5.6.7.8") == "10.0.0.1", "only proxies are believed"


def test_one_user_displaces_their_own_idle_ones_and_is_refused_when_all_are_busy() -> None:
    world = World(most=100, each=2)
    (first, wire), (second, _), (third, _) = (world.come() for _ in range(3))
    for connection in (first, second):
        connection.begin()
        assert connection.signed_in("user ada", lambda: True)
    third.begin()
    assert not third.signed_in("user ada", lambda: True)
    assert third.signed_in("user bob", lambda: True)
    first.end()
    fourth, _ = world.come()
    assert fourth.signed_in("user ada", lambda: True)
    assert wire.was_cut()


def test_when_all_places_are_busy_with_callers_nothing_more_is_taken() -> None:
    world = World(most=2, each=2)
    (first, _), (second, _) = world.come(), world.come()
    for connection in (first, second):
        connection.begin()
        connection.signed_in("user ada", lambda: True)
    assert world.all.full
    first.end()
    assert not world.all.full, "an idle one goes for the next"


def test_half_a_head_is_waited_for_only_so_long() -> None:
    world = World(header_s=15.0, idle_s=75.0)
    connection, wire = world.come()
    world.later(10.0)
    connection.data_received(b"GET / HT")
    world.later(4.0)
    assert not wire.was_cut()
    connection.data_received(b"TP")
    world.later(1.0)
    assert wire.was_cut(), "a byte now and then does not prolong it"
    kept, wire = world.come()
    kept.begin()
    world.later(1000.0)
    assert not wire.was_cut()
    kept.end()
    world.later(60.0)
    assert not wire.was_cut()
    kept.data_received(b"GET")
    world.later(15.0)
    assert wire.was_cut()


def test_an_answer_that_is_taken_slowly_is_not_cut() -> None:
    world = World(idle_s=75.0)
    connection, wire = world.come()
    connection.begin()
    connection.end()
    for wire.unsent in (3000, 2000, 1000):
        world.later(75.0)
        assert not wire.was_cut()
    world.later(75.0)
    assert wire.was_cut(), "it was not taken any more"


def test_what_is_open_by_a_credential_ends_with_it() -> None:
    world = World()
    good = True
    busy, wire = world.come()
    busy.begin()
    busy.signed_in("user ada", lambda: good)
    world.later(1.0)
    assert not wire.was_cut()
    good = False
    world.later(1.0)
    assert wire.was_cut()


def test_a_tally_tells_the_first_at_once_and_the_rest_once_a_minute() -> None:
    told: list[tuple[str, int]] = []
    tally = Tally(lambda key, count: told.append((key, count)))
    for number in range(1000):
        tally.note("a", number / 1000)
    tally.look(59.0)
    assert told == [("a", 1)]
    tally.look(60.0)
    assert told == [("a", 1), ("a", 999)]
    tally.look(60.0 + EVERY_S)
    tally.look(60.0 + 2 * EVERY_S)
    assert len(told) == 2
    for number in range(MOST_KEYS + 50):
        tally.note(str(ipaddress.ip_address(number)), 500.0)
    assert len(told) == 2 + MOST_KEYS + 1
    assert told[-1] == (OTHERS, 1), "strangers with many addresses are bounded, too"


# ------------------------------------------------------------------------------------- over a real port


@dataclass
class Port:
    """The rig's dispatcher, served as a dispatcher's process does it."""

    rig: Rig
    connections: Connections
    number: int
    held: list[asyncio.StreamWriter] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.number}"

    async def say(self, data: bytes = b"") -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.number)
        writer.write(data)
        self.held.append(writer)
        return reader


@asynccontextmanager
async def port(rig: Rig, **settings: Any) -> AsyncIterator[Port]:
    given = ConnectionSettings(**settings)
    core = rig.world.core
    core.settings = msgspec.structs.replace(core.settings, connections=given)
    connections = Connections(given, 1024, asyncio.get_running_loop().time)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with serving(build_app(core, connections), listener, connections):
            served = Port(rig, connections, listener.getsockname()[1])
            try:
                yield served
            finally:
                for writer in served.held:
                    writer.close()


async def ended(reader: asyncio.StreamReader) -> bytes:
    """All that comes until the other side hangs up."""
    async with asyncio.timeout(PATIENCE_S):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


async def test_a_flood_leaves_callers_probes_and_agents_alone(rig: Rig) -> None:
    async with port(rig, most=40, strangers=10, strangers_each=10) as served:
        agent = await rig.agent()
        async with ClientSession(served.url) as mine:
            async with mine.get("/v1/queues", headers=rig.headers("ada")) as answer:
                assert answer.status == 200
            async with mine.ws_connect("/agent/v1/link") as socket_:
                await shake_hands(agent, socket_)
                for _ in range(200):
                    await served.say(b"GET /v1/jobs HTTP/1.1\r\nX-Half: ")
                for path in ("/healthz", "/readyz", "/metrics"):
                    async with ClientSession(served.url) as probe, probe.get(path) as answer:
                        assert answer.status == 200
                async with mine.get("/v1/queues", headers=rig.headers("ada")) as answer:
                    assert answer.status == 200
                assert not socket_.closed
                assert len(served.connections) <= 40
        assert (METRICS.value("federator_connections_closed_total", cause="displaced") or 0) >= 190


async def shake_hands(agent: HttpAgent, socket_: Any) -> None:
    assert agent.joined is not None
    await socket_.send_str(
        link.encode(link.Hello(link.PROTOCOL, agent.joined.member, "boot", "test", "local")).decode()
    )
    challenge = link.decode_down(await socket_.receive_str())
    assert isinstance(challenge, link.Challenge)
    signature = agent.key.sign(link.challenge_bytes(challenge, agent.joined.member)).hex()
    await socket_.send_str(link.encode(link.Proof(signature)).decode())
    assert isinstance(link.decode_down(await socket_.receive_str()), link.Welcome)


async def test_an_unproven_agent_may_not_say_much(rig: Rig) -> None:
    async with port(rig) as served, ClientSession(served.url) as stranger:
        async with stranger.ws_connect("/agent/v1/link") as socket_:
            await socket_.send_str("x" * 2**16)
            message = await socket_.receive(timeout=PATIENCE_S)
            assert message.type in (WSMsgType.CLOSED, WSMsgType.ERROR)
        assert METRICS.value("federator_connections_closed_total", cause="message")


@pytest.mark.parametrize("what", ["events", "all events", "changes", "log"])
@pytest.mark.parametrize("how", ["revoked", "expired"])
async def test_a_token_that_ends_ends_what_is_open_by_it(rig: Rig, what: str, how: str) -> None:
    row = await placed(rig, "north")
    path = {
        "events": f"/v1/jobs/{row.job}/events",
        "all events": "/v1/events",
        "changes": "/v1/changes",
        "log": f"/v1/jobs/{row.job}/logs?follow=true",
    }[what]
    async with port(rig) as served:
        request = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {rig.secrets['ada']}\r\n\r\n"
        reader = await served.say(request.encode())
        assert b"200 OK" in await reader.readline()
        admission = rig.world.core.admission
        if how == "revoked":
            await admission.revoke(ROOT, "ada")
        else:
            rows = [token for token in rig.world.core.records.tokens.values() if token.name == "ada"]
            await rig.world.put(*(msgspec.structs.replace(token, expires_at=1.0) for token in rows))
        await ended(reader)
        again = await served.say(request.encode())
        assert b" 401 " in await again.readline()


async def test_who_leaves_a_team_reads_no_more_of_its_logs(rig: Rig) -> None:
    """A stream that a right has opened ends with the right, as with the token."""
    row = await placed(rig, "north")
    core = rig.world.core
    team = TeamRule(policy="vision", team="vision", members=("ada", "bob"))
    await rig.world.put(
        msgspec.structs.replace(core.records.jobs[row.job], team="vision"),
        msgspec.structs.replace(core.records.policies, rules=(team,)),
    )
    path = f"/v1/jobs/{row.job}/logs?follow=true"
    async with port(rig) as served:
        request = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {rig.secrets['bob']}\r\n\r\n"
        reader = await served.say(request.encode())
        assert b"200 OK" in await reader.readline()
        served.connections.look()
        left = msgspec.structs.replace(
            core.records.policies, rules=(msgspec.structs.replace(team, members=("ada",)),)
        )
        assert len(served.connections) == 1
        await rig.world.put(left)
        await ended(reader)
        again = await served.say(request.encode())
        assert b" 403 " in await again.readline()
