"""What a rank leaves on this host: its files, its lock, its processes.

Processes are found by a variable of their environment, which everything that a job starts inherits, sessions and process
groups of its own (torchrun makes them) included. A program that wipes its environment *and* makes a session of its own escapes;
the group of its session leader is signalled besides.
"""

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from federator.kernel.files import try_lock
from federator.kernel.processes import environment_of
from federator_agent.local import cgroups

MARK = "FEDERATOR_RANK_DIR"
CONTAINED = "container"
"""In a rank's directory: there may be a container of it."""
_PROC = Path("/proc")
_LISTENS = "0A"
"""The state of a socket, as /proc/net/tcp has it."""


class Shim(NamedTuple):
    """The process that stands over a rank: `start` is its start time in ticks since boot, as /proc has it."""

    pid: int
    start: str
    boot_id: str
    real_at: float
    """When it said so, in real time."""


def boot_id() -> str:
    """The name of this boot of the host."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def read_exit(directory: Path) -> tuple[int, float] | None:
    """Exit code and real time of writing; None while it has not been written whole."""
    path = directory / "exit"
    try:
        text = path.read_text()
        written_at = path.stat().st_mtime
    except FileNotFoundError:
        return None
    return (int(text), written_at) if text.endswith("\n") else None


def read_shim(directory: Path) -> Shim | None:
    """Who stands, or stood, over the rank; None when it never got as far as saying so."""
    path = directory / "shim"
    try:
        lines = path.read_text().splitlines()
        real_at = path.stat().st_mtime
    except FileNotFoundError:
        return None
    if len(lines) < 2:
        return None
    return Shim(int(lines[0].split(" ", 1)[0]), start_time(lines[0]), lines[1], real_at)


def start_time(stat: str) -> str:
    """Field 22 of /proc/PID/stat; the name in the second field may have blanks and brackets."""
    return stat.rpartition(")")[2].split()[19]


def take_lock(directory: Path) -> int | None:
    """The rank's lock as a descriptor; None while a shim has it."""
    directory.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    if not try_lock(descriptor):
        os.close(descriptor)
        return None
    return descriptor


def processes(directory: Path) -> list[int]:
    """Pids of everything that the rank started and that still runs, the shim included. Zombies are not counted."""
    return processes_of((directory,))[directory]


def processes_of(directories: Iterable[Path]) -> dict[Path, list[int]]:
    """The same for many ranks, in one look at all processes of the host."""
    found: dict[Path, list[int]] = {directory: [] for directory in directories}
    marks = {f"{MARK}={directory}".encode(): pids for directory, pids in found.items()}
    for pid in process_ids():
        for mark in marks.keys() & set(environment_of(pid).split(b"\0")):
            marks[mark].append(pid)
    return found


def mark_of(pid: int) -> str:
    """The directory of the rank that a process belongs to; empty: of none, or it is not to be known."""
    mark = f"{MARK}=".encode()
    found = (each for each in environment_of(pid).split(b"\0") if each.startswith(mark))
    return next(found, mark).removeprefix(mark).decode(errors="replace")


def holder(directory: Path) -> int | None:
    """Number 1 of the process namespace that stands round a rank; None where there is none. It is the launcher's, and what it does is no affair of the job's.

    Until it has started something in there it still makes the view of the file system, and whoever entered would find half of that: it is not told before.
    """
    for pid in filter(_within(directory), processes(directory)):
        with contextlib.suppress(OSError):
            fields = dict(
                line.split(":", 1) for line in (_PROC / str(pid) / "status").read_text().splitlines()
            )
            numbers, users = fields.get("NSpid", "").split(), fields["Uid"].split()
            if len(numbers) == 2 and numbers[1] == "1" and set(users) == {str(os.geteuid())}:
                return pid if _has_child(pid) else None
    return None


def _has_child(pid: int) -> bool:
    try:
        return bool((_PROC / str(pid) / "task" / str(pid) / "children").read_text())
    except OSError:  # a kernel without that list
        return any(_parent(each) == pid for each in process_ids())


def _parent(pid: int) -> int:
    """Its parent's number; 0 where it is not known."""
    try:
        return int((_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def listens(directories: Iterable[Path], port: int) -> bool:
    """Whether a process of these ranks is whom a connection to that TCP port of 127.0.0.1 reaches."""
    sockets = _listening(port)
    for directory, pids in processes_of(directories).items():
        for pid in filter(_within(directory, _user(directory.parent / "work")), pids):
            with contextlib.suppress(OSError):
                for each in (_PROC / str(pid) / "fd").iterdir():
                    with contextlib.suppress(OSError):
                        if str(each.readlink()) in sockets:
                            return True
    return False


def _within(directory: Path, owner: int | None = None) -> Callable[[int], bool]:
    """Whether a process that says it is of this rank is, since it may say what it likes.

    Where the rank has control groups, it is in them. Where it has none, or runs in a container, which has its own, what started it says nothing else: of all
    processes above it the topmost that names a rank names this one. What remains there: who leaves all that started him, as a daemon does, and runs in no
    namespace of processes, is believed; as is what somebody runs in his own job through a tunnel. Both are kept from the ranks of others only by their user,
    `owner`, and not at all where all jobs run as one.
    """
    if (directory / CONTAINED).exists() or not (groups := cgroups.of(directory)):
        return lambda pid: _root_mark(pid) == str(directory) and owner in (None, _user(_PROC / str(pid)))
    present: set[int] = set()
    for group in groups:
        present |= cgroups.members(group)
    return present.__contains__


def _user(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except OSError:
        return None


def _root_mark(pid: int) -> str:
    """What the topmost of a process and those above it names as its rank, up to this agent."""
    found = ""
    while pid > 1 and pid != os.getpid():
        found = mark_of(pid) or found
        pid = _parent(pid)
    return found


def _listening(port: int) -> set[str]:
    """The sockets that a connection to 127.0.0.1 may reach there, as descriptors name them: the kernel prefers who listens on just that address, and those on no other family."""
    found: dict[str, set[str]] = {}
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (_PROC / "net" / name).read_text().splitlines()[1:]:
                fields = line.split()
                address, _, there = fields[1].rpartition(":")
                if fields[3] == _LISTENS and int(there, 16) == port:
                    found.setdefault(address, set()).add(f"socket:[{fields[9]}]")
    for addresses in (("127.0.0.1", "::ffff:127.0.0.1"), ("0.0.0.0", "::ffff:0.0.0.0"), ("::",)):  # noqa: S104 - looked for, not bound
        if sockets := set().union(*(found.get(_as_shown(each), set()) for each in addresses)):
            return sockets
    return set()


def _as_shown(address: str) -> str:
    """An address as /proc/net/tcp has it: words in the host's order of bytes."""
    raw = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    return "".join(f"{int.from_bytes(raw[at : at + 4], sys.byteorder):08X}" for at in range(0, len(raw), 4))


def process_ids() -> Iterator[int]:
    """Ids of all processes of this host but this one."""
    own = os.getpid()
    for name in os.listdir(_PROC):  # noqa: PTH208 - a scan of all processes must be cheap
        if name.isdigit() and int(name) != own:
            yield int(name)


def leader(directory: Path, shim: Shim) -> int | None:
    """The shim's child once it leads a session of its own: its group is the job's; None before that, and after its end."""
    for pid in processes(directory):
        try:
            _, parent, _, session = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(parent) == shim.pid and int(session) == pid:
            return pid
    return None


def signal_group(directory: Path, shim: Shim, number: signal.Signals) -> bool:
    """Signal the job's process group. False: there is none (yet, or any more)."""
    group = leader(directory, shim)
    if group is None:
        return False
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


def kill_all(directory: Path, spare: int | None) -> int:
    """Kill everything the rank started except `spare`, which is its shim; how many there were."""
    return _kill(pid for pid in processes(directory) if pid != spare)


def kill_all_of(directories: Iterable[Path]) -> set[Path]:
    """Kill everything that these ranks started; those of them of which something was still there."""
    found = processes_of(directories)
    return {directory for directory, pids in found.items() if _kill(pids)}


def _kill(pids: Iterable[int]) -> int:
    count = 0
    for pid in pids:
        count += 1
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return count
