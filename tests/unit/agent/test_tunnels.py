"""The agent's ends of tunnels: that none outlives who opened it."""

import asyncio
import contextlib
import errno
import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from federator.wire import tunnel
from federator.wire.link import Dial
from federator.wire.tunnel import DATA_BYTES, STDIN, Forward, Size
from federator_agent import tunnels
from federator_agent.channels import PortChannel, open_process
from federator_agent.tunnels import _couple
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
        await asyncio.wait_for(_couple(socket, Stuck(), Stuck().send(b"")), PATIENCE_S)


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
