"""What a service tells its supervisor: systemd, by the one datagram of sd_notify(3), and probes of Kubernetes, by a file; and that it ends when it is told to, whoever has told it."""

import asyncio
import faulthandler
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

READY = "READY=1"
STOPPING = "STOPPING=1"
ALIVE = "WATCHDOG=1"
LIFE_EVERY_S = 5.0
GRACE_S = 15.0
"""Real seconds between being told to stop and the end. Units and charts leave 20 or more."""


def tell(state: str) -> None:
    """Say so; to nobody where no supervisor has asked to be told."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
        link.connect("\0" + address[1:] if address.startswith("@") else address)
        link.sendall(state.encode())


async def beat() -> None:
    """Tell the watchdog that the loop of this process turns, for ever; return at once where none listens."""
    asked_s = int(os.environ.get("WATCHDOG_USEC") or 0) / 1e6
    if not asked_s or os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return
    while True:
        tell(ALIVE)
        await asyncio.sleep(asked_s / 3)


async def show_life(path: Path, word: Callable[[], str]) -> None:
    """Keep a file young while the loop turns, with a word in it, for ever: what probes look at of a process that opens no port."""
    while True:
        with suppress(OSError):  # a full disk is told of elsewhere
            path.write_text(f"{word()}\n")  # noqa: ASYNC240 - a word, into memory
        await asyncio.sleep(LIFE_EVERY_S)


def end_soon() -> None:
    """Say that the process stops, and have it end itself with the traces of all its threads if it has not ended by `GRACE_S`.

    What is on disk is enough to go on from, so a thread that waits for a slow disk or bucket is not worth a kill without a word.
    """
    tell(STOPPING)
    faulthandler.dump_traceback_later(GRACE_S, exit=True)
