"""Starts a process with a session keyring of its own.

The kernel keeps keys for programs: tickets, passwords of file systems. What a process starts inherits its session keyring, and who has a keyring may read the keys in it, whoever
its user is; no namespace changes that. So jobs that inherit the agent's could read its keys, and each other's. A keyring belongs to a thread: the one that starts
the process takes a new one, and the agent's own threads keep theirs.
"""

import ctypes
import errno
import logging
import os
import platform
import signal
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

KEYCTL = {"x86_64": 250, "aarch64": 219}
"""The number of the system call, by machine."""
JOIN_SESSION_KEYRING = 1
Action = tuple[int, int, int] | tuple[int, int, str, int, int]
"""What posix_spawn does to a descriptor: have it be another one, or open a file."""
IGNORED_HERE = (signal.SIGPIPE, signal.SIGXFSZ)
"""By Python, which passes that on: `yes | head` would complain."""
log = logging.getLogger("federator_agent.local")
_starting = ThreadPoolExecutor(max_workers=1, thread_name_prefix="starting")


def spawn(
    words: Sequence[str],
    environment: Mapping[str, str],
    actions: Sequence[Action],
    *,
    apart: bool,
) -> int:
    """Start `/bin/sh` with these words in a session of its own, reading nothing. `apart`: with a keyring of its own. Its process id. Raises `OSError`."""
    if not apart:
        return _spawn(words, environment, actions)
    return _starting.submit(_spawn_apart, words, environment, actions).result()


def _spawn_apart(words: Sequence[str], environment: Mapping[str, str], actions: Sequence[Action]) -> int:
    number = KEYCTL.get(platform.machine())
    if number is not None:
        c = ctypes.CDLL(None, use_errno=True)
        # A kernel without keys, or one that forbids them to the agent, forbids them to its jobs.
        if c.syscall(number, JOIN_SESSION_KEYRING, None) == -1 and ctypes.get_errno() == errno.EDQUOT:
            log.warning("a job shares its keyring with the one before: this user's quota of keys is used up")
    return _spawn(words, environment, actions)


def _spawn(words: Sequence[str], environment: Mapping[str, str], actions: Sequence[Action]) -> int:
    nothing = (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)
    return os.posix_spawn(
        "/bin/sh",
        list(words),
        dict(environment),
        file_actions=[nothing, *actions],
        setsid=True,
        setsigdef=IGNORED_HERE,
    )
