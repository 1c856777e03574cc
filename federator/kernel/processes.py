"""What the kernel tells of the processes of this host, from /proc."""

import time
from pathlib import Path

_PROC = Path("/proc")
_WITHOUT_MEMORY = 0x00200000 | 0x00000004
"""PF_KTHREAD and PF_EXITING among the flags of a process (include/linux/sched.h)."""
_STATE, _FLAGS, _ENV_START, _ENV_END = 0, 6, 47, 48
"""Fields 3, 9, 50 and 51 of /proc/PID/stat, counted from behind the name (proc(5))."""
_LOOKS, _LOOK_AGAIN_S = 250, 0.001


def environment_of(pid: int) -> bytes:
    """The environment that a process was started with, `NAME=VALUE` with a zero byte behind each; empty: it has none, has ended, or is another user's.

    In the middle of `execve` there is nothing to read for a moment: the kernel has taken the old memory away and not filled the new one. Who took
    that for a process without an environment would overlook what is being started. So it is looked for again, for a quarter of a second at most.
    """
    for _ in range(_LOOKS):
        try:
            found = (_PROC / str(pid) / "environ").read_bytes()
            if found or _has_none(pid):
                return found
        except OSError:
            return b""
        time.sleep(_LOOK_AGAIN_S)
    return b""


def _has_none(pid: int) -> bool:
    """Whether a process without an environment stays so. Raises `OSError` for one that has gone."""
    fields = (_PROC / str(pid) / "stat").read_text(encoding="latin-1").rpartition(")")[2].split()
    if fields[_STATE] in ("Z", "X") or int(fields[_FLAGS]) & _WITHOUT_MEMORY:
        return True
    return fields[_ENV_START] == fields[_ENV_END] != "0"
