"""The agent's ends of tunnels: that none outlives who opened it."""

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import aiohttp
import pytest
from aiohttp import WSMsgType, web
from aiohttp.test_utils import TestServer
from yarl import URL

from federator.wire import tunnel
from federator.wire.link import Dial
from federator.wire.tunnel import DATA_BYTES, STDIN, Forward, Size
from federator_agent import tunnels
from federator_agent.channels import PortChannel, nobody_listens, open_process
from federator_agent.runtime import Channel
from federator_agent.tunnels import _couple
from tests.support.channels import Told
from tests.support.waiting import PATIENCE_S


class Stuck:
    """A command that neither reads nor writes."""

    async def receive(self) -> bytes | None:
        """Never."""
        await asyncio.Event().wait()
        return None

    async def send(self, frame: bytes) -> None:
        """Never."""
        await asyncio.Event().wait()

    def close(self) -> None:
        """Nothing is there."""


async def at_once(channel: Channel) -> Channel:
    """A job that is entered without waiting."""
    return channel


async def never() -> NoReturn:
    """What does not come."""
    await asyncio.Event().wait()
    raise AssertionError


class Dialled:
    """An agent's tunnels into one job, with the dispatcher's end of each."""

    def __init__(
        self, enter: Callable[[], Awaitable[Channel]], http: aiohttp.ClientSession, url: URL
    ) -> None:
        self.over = False
        running = cast("Any", SimpleNamespace())
        runtime = cast("Any", SimpleNamespace(enter=lambda *_: enter()))
        self._http, self._url = http, url
        around = cast("Any", SimpleNamespace(tasks=self, bulk=self))
        self._tunnels = tunnels.Tunnels(around, runtime, lambda *_: (running, running), lambda *_: self.over)
        self.holding: asyncio.Future[None] | None = None

    def open(self) -> None:
        """Have the agent dial."""
        self._tunnels.open(Dial("t", "plc", 0, Forward(1)))

    def tunnel(self, _: str) -> Any:
        """As the agent dials it."""
        return self._http.ws_connect(self._url)

    def spawn(self, task: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
        """The one task."""
        self.holding = asyncio.ensure_future(task)
        return self.holding


@asynccontextmanager
async def dialled(
    enter: Callable[[], Awaitable[Channel]],
) -> AsyncIterator[tuple[Dialled, web.WebSocketResponse]]:
    """One tunnel, and its end at the dispatcher."""
    met: asyncio.Queue[web.WebSocketResponse] = asyncio.Queue()
    left = asyncio.Event()

    async def meet(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        met.put_nowait(socket)
        await left.wait()
        return socket

    app = web.Application()
    app.router.add_get("/", meet)
    async with TestServer(app) as server, aiohttp.ClientSession() as http:
        made = Dialled(enter, http, server.make_url("/"))
        made.open()
        yield made, await met.get()
        left.set()
        assert made.holding is not None
        await asyncio.wait_for(made.holding, PATIENCE_S)


async def test_one_that_is_being_opened_ends_when_its_other_side_has_gone() -> None:
    async with dialled(never) as (made, dispatcher):
        await dispatcher.close()
        assert made.holding is not None
        await asyncio.wait_for(made.holding, PATIENCE_S)


async def test_one_that_is_being_opened_ends_with_its_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnels, "LOOK_S", 0.01)
    monkeypatch.setattr(tunnels, "LINGER_S", 0.01)
    async with dialled(never) as (made, dispatcher):
        made.over = True
        assert (await dispatcher.receive(timeout=PATIENCE_S)).type is WSMsgType.CLOSE


async def test_a_job_that_cannot_be_entered_in_time_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnels, "ENTER_S", 0.05)
    async with dialled(never) as (_, dispatcher):
        frame = await dispatcher.receive_bytes(timeout=PATIENCE_S)
        assert "could not be entered within 0.05 s" in tunnel.read_end(frame).error
        assert (await dispatcher.receive(timeout=PATIENCE_S)).type is WSMsgType.CLOSE


async def test_a_job_that_refuses_is_told_of_in_its_own_words() -> None:
    async def refuse() -> Channel:
        raise nobody_listens(80)

    async with dialled(refuse) as (_, dispatcher):
        frame = await dispatcher.receive_bytes(timeout=PATIENCE_S)
        assert tunnel.read_end(frame).error == nobody_listens(80).describe()
        assert (await dispatcher.receive(timeout=PATIENCE_S)).type is WSMsgType.CLOSE


async def test_what_is_said_before_the_job_is_entered_comes_there() -> None:
    channel = Told(goes_on=True)
    begin = asyncio.Event()

    async def enter() -> Channel:
        await begin.wait()
        return channel

    async with dialled(enter) as (_, dispatcher):
        await dispatcher.send_bytes(bytes((STDIN,)) + b"early")
        begin.set()
        assert await asyncio.wait_for(channel.heard.get(), PATIENCE_S) == bytes((STDIN,)) + b"early"
        await dispatcher.close()
    assert channel.closed


async def test_one_ends_when_its_other_side_is_gone_though_nobody_reads_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tunnel, "PING_S", 0.05)

    async def flood(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        with contextlib.suppress(TimeoutError):
            while True:
                async with asyncio.timeout(0.3):
                    await socket.send_bytes(bytes((STDIN,)) + bytes(DATA_BYTES))
        assert request.transport is not None
        request.transport.abort()
        return socket

    app = web.Application()
    app.router.add_get("/", flood)
    async with (
        TestServer(app) as server,
        aiohttp.ClientSession() as http,
        http.ws_connect(server.make_url("/")) as socket,
    ):
        await asyncio.wait_for(_couple(socket, at_once(Stuck()), never()), PATIENCE_S)


async def test_a_connection_is_hung_up_on_though_its_port_does_not_read() -> None:
    ended = asyncio.Event()

    async def sit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(1)  # meanwhile nothing is read
        with contextlib.suppress(ConnectionError):
            while await reader.read(2**16):
                pass
        writer.close()
        ended.set()

    async with await asyncio.start_server(sit, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
        channel = PortChannel(reader, writer)
        with contextlib.suppress(TimeoutError):
            while True:
                async with asyncio.timeout(0.2):
                    await channel.send(bytes((STDIN,)) + bytes(DATA_BYTES))
        channel.close()
        assert writer.transport.get_write_buffer_size() == 0
        await asyncio.wait_for(ended.wait(), PATIENCE_S)


def descriptors() -> set[str]:
    return {each.name for each in Path("/proc/self/fd").iterdir()}


def too_many(*_: object) -> NoReturn:
    raise OSError(errno.EMFILE, "too many open files")


@pytest.mark.parametrize("tty", [False, True])
def test_a_command_for_which_no_descriptors_are_left_leaves_none_open(
    monkeypatch: pytest.MonkeyPatch, *, tty: bool
) -> None:
    made: list[Any] = []
    pipe = os.pipe

    def twice() -> tuple[int, int]:
        made.append(pipe() if len(made) < 2 else too_many())
        found: tuple[int, int] = made[-1]
        return found

    monkeypatch.setattr(os, "pipe", twice)
    monkeypatch.setattr(os, "dup", too_many)
    before = descriptors()
    with pytest.raises(OSError, match="too many"):
        open_process(too_many, tty=tty, size=Size())
    assert descriptors() == before


def test_a_command_that_cannot_be_watched_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []

    def start(_: Sequence[tuple[int, int]]) -> int:
        started.append(os.posix_spawn("/bin/sleep", ["sleep", "600"], {}, setsid=True))
        return started[0]

    monkeypatch.setattr(os, "pidfd_open", too_many)
    before = descriptors()
    with pytest.raises(OSError, match="too many"):
        open_process(start, tty=False, size=Size())
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)
    assert descriptors() == before


async def test_what_does_not_end_with_its_rank_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm ends a step only with the whole job, of which other ranks may still run."""
    monkeypatch.setattr(tunnels, "LOOK_S", 0.01)
    monkeypatch.setattr(tunnels, "LINGER_S", 0.01)
    live = {0, 1}
    around = cast("Any", SimpleNamespace(tasks=None))
    made = tunnels.Tunnels(around, cast("Any", None), lambda *_: None, lambda _, rank: rank not in live)
    waiting = asyncio.create_task(made.until_over(Dial("t", "plc", 1, Forward(1))))
    live.discard(0)
    await asyncio.sleep(0.05)
    assert not waiting.done()
    live.discard(1)
    await asyncio.wait_for(waiting, PATIENCE_S)
