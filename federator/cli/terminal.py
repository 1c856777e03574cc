"""This terminal, lent to a program that runs elsewhere: every key goes there, its size follows, and at the end it is as it was."""

import asyncio
import contextlib
import os
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator

from federator.wire.tunnel import DATA_BYTES, Size

LEAVE = "Enter ~ ."
"""What is typed to leave a terminal whose other side hangs, as in ssh."""


def is_terminal() -> bool:
    """Whether a person sits there: both input and output are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def size() -> Size:
    """Its size now."""
    try:
        width, height = os.get_terminal_size(sys.stdin.fileno())
    except OSError:
        return Size()
    return Size(min(max(width, 1), 10_000), min(max(height, 1), 10_000))


@contextlib.contextmanager
def raw(resized: Callable[[], None]) -> Iterator[None]:
    """Every key goes to the program, Ctrl-C too; `resized` is called when the size has changed."""
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGWINCH, resized)
    tty.setraw(number, termios.TCSADRAIN)  # what has been typed already is kept
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
        termios.tcsetattr(number, termios.TCSADRAIN, before)


class Input:
    """Standard input as it comes, read in a thread: it may be a file, a pipe or a terminal. No more is read than is taken."""

    def __init__(self) -> None:
        self._parts: asyncio.Queue[bytes] = asyncio.Queue(1)
        self._loop = asyncio.get_running_loop()
        # A thread that reads cannot be ended: this one does not keep the process.
        threading.Thread(target=self._read, name="standard input", daemon=True).start()

    async def read(self) -> bytes:
        """The next part; empty at its end."""
        return await self._parts.get()

    def _read(self) -> None:
        data = b"-"
        while data:
            try:
                data = os.read(sys.stdin.fileno(), DATA_BYTES)
            except (OSError, ValueError):
                data = b""  # none was given, or it was closed
            try:
                asyncio.run_coroutine_threadsafe(self._parts.put(data), self._loop).result()
            except (RuntimeError, asyncio.CancelledError, TimeoutError):
                return  # the command is over


class Escape:
    """Finds `Enter ~ .` in what is typed."""

    def __init__(self) -> None:
        self._seen = b"\r"

    def left(self, typed: bytes) -> bool:
        """Whether these keys, after those before, say to leave."""
        self._seen = (self._seen + typed)[-3 - len(typed) :]
        found = b"\r~." in self._seen or b"\n~." in self._seen
        self._seen = self._seen[-2:]
        return found
