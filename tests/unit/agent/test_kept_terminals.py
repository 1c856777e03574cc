"""Terminals that outlive their tunnel: who sees what, and when they end."""

import asyncio
from collections import deque

import pytest

from federator.kernel.errors import NotFound
from federator.wire import tunnel
from federator.wire.tunnel import END, RESIZE, STDIN, STDOUT, End, Size
from federator_agent import kept_terminals
from federator_agent.kept_terminals import RECENT_BYTES, KeptTerminals
from federator_agent.runtime import Tasks
from tests.support.waiting import PATIENCE_S, until

KEY = ("plc", 0)


class Shell:
    """A command that says what the test lets it say."""

    def __init__(self) -> None:
        self.says: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.told: deque[bytes] = deque()
        self.closed = False

    async def receive(self) -> bytes | None:
        return await self.says.get()

    async def send(self, frame: bytes) -> None:
        self.told.append(frame)

    def close(self) -> None:
        self.closed = True


def out(data: bytes) -> bytes:
    return bytes((STDOUT,)) + data


async def test_the_last_of_what_was_written_without_anybody_there_is_shown() -> None:
    tasks, shell = Tasks(), Shell()
    kept = KeptTerminals(tasks, lambda *_: False)
    kept.keep(KEY, shell).close()
    for _ in range(5):
        shell.says.put_nowait(out(b"x" * (RECENT_BYTES // 4)))
    shell.says.put_nowait(out(b"last"))
    await until(shell.says.empty, "it to be read though nobody looks")
    view = await kept.attach(KEY, Size(90, 30))
    assert [tunnel.read_resize(each) for each in shell.told] == [Size(90, 29), Size(90, 30)]
    shown = b"".join([(await view.receive() or b"")[1:] for _ in range(2)])
    assert (len(shown), shown[-5:]) == (RECENT_BYTES, b"xlast")
    await view.send(bytes((STDIN,)) + b"typed")
    assert shell.told[-1][1:] == b"typed"
    shell.says.put_nowait(tunnel.end_frame(End(exit_code=3)))
    assert await asyncio.wait_for(view.receive(), PATIENCE_S) == tunnel.end_frame(End(exit_code=3))
    assert await view.receive() is None
    await until(lambda: shell.closed, "it to be let go")
    with pytest.raises(NotFound, match="no terminal to attach to"):
        await kept.attach(KEY, Size())
    await tasks.end_all()


async def test_who_attaches_takes_it_from_who_does_not_read() -> None:
    tasks, shell = Tasks(), Shell()
    kept = KeptTerminals(tasks, lambda *_: False)
    first = kept.keep(KEY, shell)
    for _ in range(3):
        shell.says.put_nowait(out(b"much"))
    await until(lambda: shell.says.qsize() == 1, "it to wait for its reader")
    second = await kept.attach(KEY, Size())
    await until(shell.says.empty, "it to go on")
    frames = [await first.receive()]
    while frames[-1] is not None and frames[-1][0] != END:
        frames.append(await first.receive())
    assert tunnel.read_end(frames[-1] or b"").error == "another terminal has attached"
    await first.send(bytes((STDIN,)) + b"lost")
    first.close()
    shell.says.put_nowait(out(b"more"))
    seen = b""
    while b"more" not in seen:
        seen += (await asyncio.wait_for(second.receive(), PATIENCE_S) or b"")[1:]
    assert all(each[0] == RESIZE for each in shell.told), "who was cut off types nothing"
    await tasks.end_all()


async def test_it_ends_with_its_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_terminals, "LOOK_S", 0.01)
    monkeypatch.setattr(kept_terminals, "LINGER_S", 0.01)
    tasks, shell, over = Tasks(), Shell(), False
    kept = KeptTerminals(tasks, lambda *_: over)
    view = kept.keep(KEY, shell)
    over = True
    end = await asyncio.wait_for(view.receive(), PATIENCE_S)
    assert (tunnel.read_end(end or b"").error, shell.closed) == ("the job has ended", True)
    await tasks.end_all()


async def test_a_rank_has_one() -> None:
    """Else somebody could fill the host with those that nobody finds again."""
    tasks, first, second = Tasks(), Shell(), Shell()
    kept = KeptTerminals(tasks, lambda *_: False)
    kept.keep(KEY, first).close()
    kept.keep(KEY, second).close()
    await until(lambda: first.closed, "the first to be hung up on")
    view = await kept.attach(KEY, Size())
    second.says.put_nowait(out(b"second"))
    assert await asyncio.wait_for(view.receive(), PATIENCE_S) == out(b"second")
    assert not second.closed
    await tasks.end_all()
