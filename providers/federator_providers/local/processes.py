"""Ending a tree of processes so that nothing of it is left, from /proc alone.

Whoever calls `kill_descendants` must be a *subreaper* (`become_subreaper`): then a process that forks twice, calls setsid or
loses its parent is handed to the caller by the kernel and stays its descendant. No process can leave a tree whose root is
a living subreaper; that is why this needs neither cgroups nor namespaces nor root.
"""

import ctypes
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from federator.kernel.processes import environment_of

_PR_SET_CHILD_SUBREAPER = 36
_PAUSE_S = 0.005


def become_subreaper() -> None:
    """From now on orphans below this process become its children. Not inherited by fork."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def kill_descendants() -> None:
    """SIGKILL everything below this process, and return when nothing is left. Needs `become_subreaper` before."""
    me = os.getpid()

    def below() -> set[int]:
        reap()
        return descendants({me}) - {me}

    _kill_all(below)


def kill_tagged(variable: str, value: str) -> None:
    """SIGKILL every process whose environment at its start had `variable=value`, and all below them."""
    wanted = f"{variable}={value}".encode()

    def tagged() -> set[int]:
        return descendants({pid for pid in _pids() if wanted in environment_of(pid).split(b"\0")}) - {
            os.getpid()
        }

    _kill_all(tagged)


def descendants(roots: set[int]) -> set[int]:
    """`roots` and all living processes below them; zombies do not count."""
    children: dict[int, list[int]] = {}
    for pid in _pids():
        state, parent = _state_and_parent(pid)
        if state not in ("Z", "X", ""):
            children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    todo = list(roots)
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo.extend(children.get(pid, ()))
    return found


def reap() -> set[int]:
    """Collect the children that have ended, adopted ones too; their pids."""
    ended: set[int] = set()
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.add(pid)


def _kill_all(find: Callable[[], set[int]]) -> None:
    """Stop first, until no new process turns up, so that nothing can fork while it is being killed."""
    refused: set[int] = set()
    while found := find() - refused:
        stopped: set[int] = set()
        while new := found - stopped - refused:
            refused |= {pid for pid in new if not _signal(pid, signal.SIGSTOP)}
            stopped |= new
            found = find()
        for pid in stopped - refused:
            _signal(pid, signal.SIGKILL)
        time.sleep(_PAUSE_S)


def _signal(pid: int, number: signal.Signals) -> bool:
    """False when the process is not ours to end (it has become another user)."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return True


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _state_and_parent(pid: int) -> tuple[str, int]:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="latin-1").rpartition(")")[2].split()
    except OSError:
        return "", 0
    return fields[0], int(fields[1])
