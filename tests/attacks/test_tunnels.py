"""Tunnels into jobs: who opens none, who finds no other's, and that a side that says too much, too little or nothing harms only itself."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from aiohttp import ClientWebSocketResponse, WSCloseCode, WSMsgType, WSServerHandshakeError

from federator.api import tunnels as serving
from federator.api.tunnels import TUNNELS, Tunnels
from federator.control.administration import tunnels as accounting
from federator.model.jobs import JobStatus
from federator.model.placements import Placement, PlacementStatus
from federator.wire import link, tunnel
from federator.wire.tunnel import END, STDERR, STDIN, STDOUT, Exec, Forward, Request
from tests.integration.api.rig import HttpAgent, Rig
from tests.integration.api.test_agents import placed
from tests.support.waiting import PATIENCE_S, until

CAT = Exec(("/usr/bin/cat", "a secret"))


async def running(rig: Rig, *members: str) -> Placement:
    """A job of ada's that runs."""
    placement = await placed(rig, *members)
    job = rig.world.job(placement.job)
    await rig.world.put(
        msgspec.structs.replace(placement, status=PlacementStatus.RUNNING),
        msgspec.structs.replace(job, status=JobStatus.RUNNING),
    )
    return placement


@pytest.fixture
async def agent(rig: Rig) -> AsyncIterator[HttpAgent]:
    agent = await rig.agent(knows=(link.TUNNELS,))
    yield agent
    assert agent.socket is not None
    await agent.socket.close()


@pytest.fixture
async def job(rig: Rig, agent: HttpAgent) -> str:
    return (await running(rig, "north")).job


def tunnels_of(rig: Rig) -> Tunnels:
    return rig.client.server.app[TUNNELS]  # type: ignore[attr-defined, no-any-return]


@asynccontextmanager
async def asked(
    rig: Rig, job: str, request: Request | None = CAT, who: str = "ada"
) -> AsyncIterator[ClientWebSocketResponse]:
    """A person's end."""
    socket = await rig.client.ws_connect(f"/v1/jobs/{job}/tunnel", headers=rig.headers(who))
    async with socket:
        if request is not None:
            await socket.send_str(tunnel.request_text(request))
        yield socket


async def told(agent: HttpAgent) -> link.Dial:
    """What the agent is to dial."""
    while not isinstance(message := await agent.hear(), link.Dial):
        pass
    return message


async def dial(rig: Rig, agent: HttpAgent, name: str) -> ClientWebSocketResponse:
    """The agent's end."""
    assert agent.welcome is not None
    headers = {"Authorization": f"Bearer {agent.welcome.ticket}"}
    return await rig.client.ws_connect(f"{tunnel.PATH}/{name}", headers=headers)


@asynccontextmanager
async def coupled(
    rig: Rig, agent: HttpAgent, job: str, request: Request = CAT
) -> AsyncIterator[tuple[ClientWebSocketResponse, ClientWebSocketResponse]]:
    async with (
        asked(rig, job, request) as person,
        await dial(rig, agent, (await told(agent)).tunnel) as inside,
    ):
        yield person, inside


async def frame(socket: ClientWebSocketResponse) -> bytes:
    message = await socket.receive(timeout=PATIENCE_S)
    assert message.type is WSMsgType.BINARY, message
    data: bytes = message.data
    return data


async def end(socket: ClientWebSocketResponse) -> tunnel.End:
    """How a tunnel ends, after all else."""
    while (found := await frame(socket))[0] != END:
        pass
    assert (await socket.receive(timeout=PATIENCE_S)).type is WSMsgType.CLOSE
    return tunnel.read_end(found)


async def timeline(rig: Rig, job: str) -> list[str]:
    events = (await rig.ask("GET", f"/v1/jobs/{job}/events?follow=false")).json()
    return [each["text"] for each in events if each["kind"] in ("exec", "port-forward")]


async def test_frames_pass_both_ways_and_the_timeline_says_so_without_arguments(
    rig: Rig, agent: HttpAgent, job: str
) -> None:
    async with asked(rig, job) as person:
        message = await told(agent)
        assert (message.rank, message.request) == (0, CAT)
        async with await dial(rig, agent, message.tunnel) as inside:
            await person.send_bytes(bytes((STDIN,)) + b"in")
            assert await frame(inside) == bytes((STDIN,)) + b"in"
            await inside.send_bytes(bytes((STDERR,)) + b"out")
            assert await frame(person) == bytes((STDERR,)) + b"out"
            await inside.send_bytes(tunnel.end_frame(tunnel.End(exit_code=3)))
            assert await end(person) == tunnel.End(exit_code=3)
    said = await timeline(rig, job)
    assert said == ["ada opened 'cat' in rank 0", "ada closed 'cat' in rank 0: exit code 3"]
    ledger = (await rig.ask("GET", "/v1/ledger", "pat")).json()
    whats = [line["what"] for line in ledger if line["job"] == job and line["who"] == "user:ada"]
    assert [what for what in whats if "cat" in what] == [line.removeprefix("ada ") for line in said]


async def test_an_agent_that_keeps_no_terminals_is_not_told_of_them(
    rig: Rig, agent: HttpAgent, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would refuse the message, and with it its whole session."""
    monkeypatch.setattr(serving, "DIAL_S", 0.5)
    async with asked(rig, job, Exec(("bash",), tty=True, keep=True)):
        assert (await told(agent)).request == Exec(("bash",), tty=True)
    async with asked(rig, job, tunnel.Attach()) as person:
        assert "keeps no terminals (have its site upgrade it" in (await end(person)).error
    async with asked(rig, job):
        assert (await told(agent)).request == CAT


@pytest.mark.parametrize("request_", [Exec(("bash",), tty=True, keep=True), tunnel.Attach()])
async def test_an_agent_that_keeps_terminals_is_told_so(
    rig: Rig, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "DIAL_S", 0.5)
    agent = await rig.agent(knows=(link.TUNNELS, link.TERMINALS))
    async with asked(rig, (await running(rig, "north")).job, request_):
        assert (await told(agent)).request == request_
    assert agent.socket is not None
    await agent.socket.close()


async def test_no_other_agent_takes_a_tunnel_and_none_twice(rig: Rig, agent: HttpAgent, job: str) -> None:
    other = await rig.agent("south", knows=(link.TUNNELS,))
    async with asked(rig, job):
        name = (await told(agent)).tunnel
        for who, which in ((other, name), (agent, "guessed"), (agent, name[:-1])):
            with pytest.raises(WSServerHandshakeError) as refused:
                await dial(rig, who, which)
            assert refused.value.status == 404
        async with await dial(rig, agent, name):
            with pytest.raises(WSServerHandshakeError) as refused:
                await dial(rig, agent, name)
            assert refused.value.status == 404
    assert other.socket is not None
    await other.socket.close()


async def test_an_agent_that_does_not_dial_is_not_waited_for_and_its_name_is_good_no_more(
    rig: Rig, agent: HttpAgent, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "DIAL_S", 0.05)
    async with asked(rig, job) as person:
        name = (await told(agent)).tunnel
        assert "did not dial back" in (await end(person)).error
        with pytest.raises(WSServerHandshakeError) as refused:
            await dial(rig, agent, name)
        assert refused.value.status == 404


async def test_an_older_agent_is_asked_nothing(rig: Rig) -> None:
    older = await rig.agent()
    placement = await running(rig, "north")
    answer = await rig.ask("GET", f"/v1/jobs/{placement.job}/tunnel")
    assert (answer.status, answer.problem["remedy"]) == (409, "have its site upgrade it")
    assert "is too old for exec and port-forward" in answer.problem["detail"]
    assert older.socket is not None
    await older.socket.close()
    await until(lambda: not rig.world.core.hub.sessions, "the session to end")
    assert (await rig.ask("GET", f"/v1/jobs/{placement.job}/tunnel")).status == 503


async def test_nobody_but_the_owner_is_let_in_whatever_the_role(rig: Rig, agent: HttpAgent, job: str) -> None:
    for who in ("bob", "sam", "pat", "root"):
        answer = await rig.ask("GET", f"/v1/jobs/{job}/tunnel", who)
        assert (answer.status, answer.problem["remedy"]) == (403, "ask them")


async def test_what_does_not_run_and_ranks_that_are_not_there(rig: Rig, agent: HttpAgent, job: str) -> None:
    assert (await rig.ask("GET", f"/v1/jobs/{job}/tunnel?rank=1")).problem["field"] == "?rank"
    assert (await rig.ask("GET", f"/v1/jobs/{job}/tunnel?rank=-1")).status == 400
    assert (await rig.ask("GET", f"/v1/jobs/{await rig.submit()}/tunnel")).status == 409
    assert (await rig.ask("GET", f"/v1/jobs/{job}/tunnel")).status == 400, "no WebSocket"


@pytest.mark.parametrize(
    "said",
    [
        "",
        "{",
        "[" * 10_000,
        '{"type":"exec","command":[]}',
        '{"type":"exec","command":["a"],"privileged":true}',
        '{"type":"exec","command":["a","b\\u0000c"]}',
        '{"type":"exec","command":["a"],"term":"x\\u001b]0;"}',
        '{"type":"forward","port":0}',
        '{"type":"forward","port":65536}',
        '{"type":"mount"}',
        msgspec.json.encode({"type": "exec", "command": ["a"] * 1001}).decode(),
    ],
    ids=range(11),
)
async def test_a_request_that_makes_no_sense_reaches_nobody(
    rig: Rig, agent: HttpAgent, job: str, said: str
) -> None:
    async with asked(rig, job, None) as person:
        await person.send_str(said)
        assert "$" in (await end(person)).error
    assert await timeline(rig, job) == []


async def test_who_asks_nothing_is_not_waited_for(
    rig: Rig, agent: HttpAgent, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "REQUEST_S", 0.05)
    async with asked(rig, job, None) as person:
        assert "no request came" in (await end(person)).error


async def test_a_frame_that_is_too_long_ends_the_tunnel(rig: Rig, agent: HttpAgent, job: str) -> None:
    long = bytes(tunnel.MAX_FRAME_BYTES + 1)
    async with coupled(rig, agent, job) as (person, inside):
        await person.send_bytes(long)
        message = await person.receive(timeout=PATIENCE_S)
        assert (message.type, message.data) == (WSMsgType.CLOSE, WSCloseCode.MESSAGE_TOO_BIG)
        assert (await inside.receive(timeout=PATIENCE_S)).type is WSMsgType.CLOSE
    async with coupled(rig, agent, job) as (person, inside):
        await inside.send_bytes(bytes((STDOUT,)) + long)
        assert "longer than" in (await end(person)).error


async def test_a_person_cannot_speak_as_the_job(rig: Rig, agent: HttpAgent, job: str) -> None:
    async with coupled(rig, agent, job) as (person, inside):
        for channel in (STDOUT, STDERR, END, 7):
            await person.send_bytes(bytes((channel,)) + b"{}")
        await person.send_bytes(b"")
        await person.send_bytes(bytes((STDIN,)) + b"in")
        assert await frame(inside) == bytes((STDIN,)) + b"in"


async def test_an_end_that_cannot_be_read_is_one(rig: Rig, agent: HttpAgent, job: str) -> None:
    async with coupled(rig, agent, job) as (person, inside):
        await inside.send_bytes(bytes((END,)) + b"\xff{{")
        assert "cannot be read" in (await end(person)).error


async def test_what_an_agent_says_of_an_end_is_cut_and_steers_no_terminal(
    rig: Rig, agent: HttpAgent, job: str
) -> None:
    async with coupled(rig, agent, job) as (person, inside):
        await inside.send_bytes(tunnel.end_frame(tunnel.End(error="\x1b]0;\n" + "x" * 50_000)))
        said = (await end(person)).error
    assert said.startswith(" ]0; xxx")
    assert len(said) == tunnel.MAX_ERROR_LETTERS
    assert (await timeline(rig, job))[-1] == f"ada closed 'cat' in rank 0: {said}"


async def test_a_nul_in_a_command_is_refused_by_its_place(rig: Rig, agent: HttpAgent, job: str) -> None:
    async with asked(rig, job, Exec(("a", "b\0c"))) as person:
        assert (await end(person)).error.startswith("$.command[1]: ")


async def test_who_does_not_read_stops_who_writes_and_nothing_piles_up(
    rig: Rig, agent: HttpAgent, job: str
) -> None:
    async with coupled(rig, agent, job) as (person, inside):
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 100_000_000:
                async with asyncio.timeout(0.5):
                    await person.send_bytes(bytes((STDIN,)) + bytes(tunnel.DATA_BYTES))
                sent += tunnel.DATA_BYTES
        assert sent < 40_000_000, "what the kernel holds of four connections' ends, and no more"
        await inside.close()


async def fill(socket: ClientWebSocketResponse, channel: int = STDIN) -> None:
    """Send until nobody takes it any more."""
    with contextlib.suppress(TimeoutError):
        while True:
            async with asyncio.timeout(0.5):
                await socket.send_bytes(bytes((channel,)) + bytes(tunnel.DATA_BYTES))


def cut(socket: ClientWebSocketResponse) -> None:
    """As when a program is killed."""
    connection = socket._response.connection  # noqa: SLF001 - aiohttp shows no transport that one could cut
    assert connection is not None
    assert connection.transport is not None
    connection.transport.abort()


async def test_who_leaves_while_the_agent_does_not_read_holds_no_place(
    rig: Rig, agent: HttpAgent, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnel, "PING_S", 0.05)
    monkeypatch.setattr(serving, "FLUSH_S", 0.2)
    async with coupled(rig, agent, job) as (person, inside):
        await fill(person)
        cut(person)
        await until(lambda: not tunnels_of(rig).present, "the place to be free again")

        async def cut_off() -> bool:
            with contextlib.suppress(ConnectionError):
                await inside.pong()
                return False
            return True

        await until(cut_off, "the agent to notice")


async def test_an_agent_that_is_cut_off_while_the_person_does_not_read_is_noticed(
    rig: Rig, agent: HttpAgent, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnel, "PING_S", 0.05)
    monkeypatch.setattr(serving, "FLUSH_S", 0.2)
    async with coupled(rig, agent, job) as (_, inside):
        await fill(inside, STDOUT)
        cut(inside)
        await until(lambda: not tunnels_of(rig).present, "the place to be free again")
    assert (await timeline(rig, job))[-1].endswith("the connection to the job's agent was lost")


async def test_a_person_who_does_not_read_is_cut_off_at_the_end(
    rig: Rig, agent: HttpAgent, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "FLUSH_S", 0.2)
    async with coupled(rig, agent, job) as (_, inside):
        await fill(inside, STDOUT)
        tunnels_of(rig).close()
        await until(lambda: not tunnels_of(rig).present, "the place to be free again")


@pytest.mark.parametrize("limit", ["tunnels_each", "tunnels_agent"])
async def test_there_are_only_so_many(
    rig: Rig, agent: HttpAgent, job: str, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "DIAL_S", 1.0)
    limits = tunnels_of(rig)
    limits.limits = msgspec.structs.replace(limits.limits, **{limit: 2})
    async with asked(rig, job), asked(rig, job):
        answer = await rig.ask("GET", f"/v1/jobs/{job}/tunnel")
        assert (answer.status, limit in answer.problem["remedy"]) == (429, True)
    await until(lambda: not limits.present, "the places to be free again")


async def test_one_that_is_idle_is_closed(rig: Rig, agent: HttpAgent, job: str) -> None:
    tunnels_of(rig).idle_s = 0.1
    async with coupled(rig, agent, job) as (person, inside):
        assert "nothing has come through it" in (await end(person)).error
        assert (await inside.receive(timeout=PATIENCE_S)).type is WSMsgType.CLOSE


async def test_when_the_agent_is_lost_it_is_said_and_when_the_person_is_the_agent_hears(
    rig: Rig, agent: HttpAgent, job: str
) -> None:
    async with coupled(rig, agent, job) as (person, inside):
        await inside.close()
        assert "the connection to the job's agent was lost" in (await end(person)).error
    async with coupled(rig, agent, job) as (person, inside):
        await person.close()
        assert (await inside.receive(timeout=PATIENCE_S)).type is WSMsgType.CLOSE

    async def both() -> bool:
        return (await timeline(rig, job))[-1].endswith(("the client has left", "the connection was lost"))

    await until(both, "the timeline to say so")


async def test_a_stopping_dispatcher_says_so(rig: Rig, agent: HttpAgent, job: str) -> None:
    async with coupled(rig, agent, job) as (person, _):
        stopping = asyncio.ensure_future(rig.client.server.close())
        assert await end(person) == tunnel.End(error="the dispatcher stops", lost=True)
        await stopping


async def test_a_hundred_connections_to_a_port_are_one_entry(
    rig: Rig, agent: HttpAgent, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounting, "LINGER_S", 0.2)
    for _ in range(20):
        async with coupled(rig, agent, job, Forward(8888)) as (person, inside):
            await inside.send_bytes(tunnel.end_frame(tunnel.End()))
            await end(person)

    async def closed() -> bool:
        return len(await timeline(rig, job)) > 1

    await until(closed, "the port to be closed")
    assert await timeline(rig, job) == [
        "ada opened port 8888 of rank 0",
        "ada closed port 8888 of rank 0: closed",
    ]
