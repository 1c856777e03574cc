"""Ends one rank that is cut off for too long, whatever has become of the agent: killed, stopped, or hung.

The shim runs it before the rank's command exists, as `python -m federator_agent.local.watchdog RANK_DIR`. It looks at the clock once and
exits, 0 when there is time left; a child of it stays, in a session of its own, until the shim is gone. `fence` in the rank's directory says how long
the work may go on after a renewal; the agent keeps the newest renewal in one file for all ranks. The rank is asked to end a grace before its time is
over, unless the agent has done so, and killed when it is. No renewal counts once that has begun. Seconds are real ones of the boot clock.
"""

import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import NamedTuple

from federator_agent.local import traces
from federator_agent.local.traces import Shim

FENCE = "fence"
ASKED = "asked"
"""A file of this name in the rank's directory: the agent has asked it to end."""
TOO_LATE = 75
LOOK_S = 1.0
"""Longest sleep: timeouts of the kernel do not count while the host is suspended, the boot clock does."""
AFTER_AGENT_S = 0.5
"""So long after the agent should have asked the rank to end, at most a tenth of the grace, it is done here."""
KILL_PAUSE_S = 0.02


class Fence(NamedTuple):
    """How long a rank may go on after a renewal, and how it is ended. Real seconds."""

    renewals: str
    """The file in which the agent keeps the newest renewal."""
    stop_within_s: float
    grace_s: float
    signal: str

    def write(self, directory: Path) -> None:
        """Put it where the watchdog finds it. The rank is not started before."""
        (directory / FENCE).write_text(json.dumps(self._asdict()))


def read_renewal(path: Path) -> float | None:
    """When the last message that was answered in this boot was sent; None: nothing was, or it cannot be read."""
    try:
        kept = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return float(kept["boot_s"]) if kept["boot_id"] == traces.boot_id() else None


def main(directory: Path) -> int:
    """Look once, and stay as a child when there is time left."""
    shim = traces.read_shim(directory)
    fence = Fence(**json.loads((directory / FENCE).read_text()))
    renewed_s = read_renewal(Path(fence.renewals))
    if shim is None or renewed_s is None or _begins_s(fence, renewed_s) <= _boot_s():
        return TOO_LATE
    descriptor = os.pidfd_open(shim.pid)
    if os.fork() == 0:
        _let_go()
        _watch(directory, shim, fence, descriptor, renewed_s)
    return 0


def _let_go() -> None:
    """Hold nothing of the rank's: no terminal or log, no directory, no session."""
    os.setsid()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)


def _watch(directory: Path, shim: Shim, fence: Fence, descriptor: int, renewed_s: float) -> None:
    while (left_s := _begins_s(fence, renewed_s) - _boot_s()) > 0:
        if _over(directory, descriptor, left_s):
            return
        renewed_s = max(renewed_s, read_renewal(Path(fence.renewals)) or 0.0)
    if not (directory / ASKED).exists():
        traces.signal_group(directory, shim, signal.Signals[f"SIG{fence.signal}"])
    while (left_s := renewed_s + fence.stop_within_s - _boot_s()) > 0:
        if _over(directory, descriptor, left_s):
            return
    traces.signal_group(directory, shim, signal.SIGKILL)
    while traces.kill_all(directory, spare=shim.pid):
        time.sleep(KILL_PAUSE_S)


def _begins_s(fence: Fence, renewed_s: float) -> float:
    """When the rank is asked to end."""
    return renewed_s + fence.stop_within_s - fence.grace_s + min(AFTER_AGENT_S, fence.grace_s / 10)


def _over(directory: Path, descriptor: int, left_s: float) -> bool:
    """Wait a little; whether the shim, and all that it stood over, is gone. Without its shim, a rank is watched all the same."""
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    pause_s = min(left_s, LOOK_S)
    if not waiting.poll(pause_s * 1000):
        return False
    if not traces.processes(directory):
        return True
    time.sleep(pause_s)
    return False


def _boot_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
