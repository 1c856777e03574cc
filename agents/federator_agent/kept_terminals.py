"""Terminals that outlive their tunnel: `run --pty` whose client is lost, until somebody attaches again or the rank ends.

While nobody is there the output is read all the same, so the command goes on; the last of it is shown to who comes. One tunnel at a time has a terminal: a new
one takes the place of the old one, which is told. The agent holds them, so its own end is theirs.
"""

import asyncio
import contextlib
from collections.abc import Callable

from federator.kernel.errors import NotFound
from federator.kernel.tasks import cancel_and_wait
from federator.wire import tunnel
from federator.wire.tunnel import DATA_BYTES, END, STDOUT, Size
from federator_agent.runtime import Channel, Tasks

RECENT_BYTES = 2**16
"""So much of the output is shown to who attaches."""
LOOK_S = 1.0
LINGER_S = 5.0
"""Real seconds after a rank's end for which its terminal may say how it ended."""
Key = tuple[str, int]
"""Placement and rank."""


class KeptTerminals:
    """All of them, one for each rank. `over`: whether a rank has ended."""

    def __init__(self, tasks: Tasks, over: Callable[[str, int], bool]) -> None:
        self._tasks = tasks
        self._over = over
        self._kept: dict[Key, KeptTerminal] = {}
        self._holding: dict[Key, asyncio.Task[None]] = {}

    def keep(self, key: Key, channel: Channel) -> "View":
        """Keep a command with a terminal, and hang up on the one that the rank had; the first to see it."""
        if key in self._kept:
            self._kept[key].end()
            self._holding[key].cancel()
        kept = KeptTerminal(channel)
        self._kept[key] = kept
        self._holding[key] = self._tasks.spawn(self._hold(key, kept))
        return kept.view()

    async def _hold(self, key: Key, kept: "KeptTerminal") -> None:
        """Until it has ended, or some time after its rank has."""
        running = asyncio.ensure_future(kept.run())
        try:
            while not running.done() and not self._over(*key):
                await asyncio.wait((running,), timeout=LOOK_S)
            await asyncio.wait((running,), timeout=LINGER_S)
        finally:
            await cancel_and_wait(running)
            kept.end()
            if self._kept.get(key) is kept:
                del self._kept[key], self._holding[key]

    async def attach(self, key: Key, size: Size) -> "View":
        """The terminal of that rank. Raises `NotFound`."""
        kept = self._kept.get(key)
        if kept is None:
            raise NotFound(
                "the job has no terminal to attach to",
                remedy="federator logs --follow shows what it writes, federator exec opens a shell beside it",
            )
        view = kept.view()
        # A program draws its screen anew when the size changes.
        try:
            for each in (Size(size.width, max(size.height - 1, 1)), size):
                await kept.channel.send(tunnel.resize_frame(each))
        except BaseException:
            view.close()
            raise
        return view


class KeptTerminal:
    """One of them."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._recent = b""
        self._view: View | None = None

    async def run(self) -> None:
        """Read its output until it has ended."""
        while (frame := await self.channel.receive()) is not None:
            if frame[0] == STDOUT:
                self._recent = (self._recent + frame[1:])[-RECENT_BYTES:]
            if self._view is not None:
                await self._view.put(frame)
            if frame[0] == END:
                self._view = None
                return

    def end(self) -> None:
        """Hang up."""
        self.channel.close()
        if self._view is not None:
            self._view.cut("the job has ended")

    def view(self) -> "View":
        """For a tunnel, in the place of the one before."""
        if self._view is not None:
            self._view.cut("another terminal has attached")
        self._view = View(self, self._recent)
        return self._view

    def left(self, view: "View") -> None:
        """Nobody looks any more, unless another does already."""
        if self._view is view:
            self._view = None


class View:
    """A kept terminal, as a tunnel's channel."""

    def __init__(self, kept: KeptTerminal, recent: bytes) -> None:
        self._kept = kept
        self._first = [
            bytes((STDOUT,)) + recent[at : at + DATA_BYTES] for at in range(0, len(recent), DATA_BYTES)
        ]
        self._frames: asyncio.Queue[bytes] = asyncio.Queue(1)
        self._closed = asyncio.Event()
        self._over = False

    async def put(self, frame: bytes) -> None:
        """Wait until it is taken, or nobody takes it."""
        waiting = [asyncio.ensure_future(self._frames.put(frame)), asyncio.ensure_future(self._closed.wait())]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()

    def cut(self, why: str) -> None:
        """There is no more for this one."""
        self._closed.set()
        with contextlib.suppress(asyncio.QueueEmpty):
            self._frames.get_nowait()
        self._frames.put_nowait(tunnel.end_frame(tunnel.End(error=why)))

    async def receive(self) -> bytes | None:
        """The last of what was shown, then what comes."""
        if self._first:
            return self._first.pop(0)
        if self._over:
            return None
        frame = await self._frames.get()
        self._over = frame[0] == END
        return frame

    async def send(self, frame: bytes) -> None:
        """What is typed."""
        if not self._closed.is_set():
            await self._kept.channel.send(frame)

    def close(self) -> None:
        """Leave it as it is."""
        self._closed.set()
        self._kept.left(self)
