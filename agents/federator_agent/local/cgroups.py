"""A control group of its own for each rank, where the agent may make some: memory as the job asked, CPUs by weight, and a bound on processes.

Both hierarchies of the kernel are known. In the old one the groups are made below the agent's own. In the unified one a group with processes of its own cannot limit others, so there
the agent has to be in a group `agent` below the one that was delegated to it, as systemd's `DelegateSubgroup=agent` does it.
A rank's directory names its groups, so that they are found and removed by a later life of the agent.
"""

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import SIGKILL
from types import MappingProxyType
from typing import NamedTuple

from federator_agent.local import memory

MARK = "cgroups"
"""In a rank's directory: the paths of its groups, one a line."""
CONTROLLERS = ("memory", "cpu", "pids")
SUBGROUP = "agent"
SHARES_OF_CPU = 1024
WEIGHT_OF_CPU = 100
LEAST_CPUS_MILLI = 250
"""A rank that asks for next to nothing still gets on when its host is full."""
_PROCS = "cgroup.procs"
_JOIN = 'while [ "$1" != -- ]; do echo 0 >"$1" || exit 74; shift; done; shift; exec "$@"'
"""The process that becomes the command enters its groups itself, so all that it starts is in them from its first instruction."""


class Limits(NamedTuple):
    """Of one rank. `memory_mib` 0: the job asked for none, and is not limited."""

    cpus_milli: int
    memory_mib: int
    processes: int


class Parents(NamedTuple):
    """Below which groups those of the ranks are made: by controller, or one for all (`unified`). Empty: none."""

    by_controller: Mapping[str, Path] = MappingProxyType({})
    unified: bool = False
    why: str = ""
    """Why there are none, for people."""


def parents(root: Path = Path("/")) -> Parents:
    """Find them, and try whether a group can be made there."""
    top = root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError as error:
        return Parents(why=f"the kernel does not say in which cgroup the agent is: {error.strerror}")
    found: dict[str, Path] = {}
    own = ""
    for line in lines:
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if not names:
            own = path
        for name in set(names.split(",")) & set(CONTROLLERS):
            found[name] = top / name / path.lstrip("/")
    if found:
        lacking = [name for name in CONTROLLERS if not (found.get(name, top) / _PROCS).exists()]
        if lacking:
            return Parents(why=f"there is no cgroup for {', '.join(lacking)}")
        return _tried(Parents(found))
    if Path(own).name != SUBGROUP:
        return Parents(
            why=f"no cgroup is delegated to the agent: set Delegate=yes and DelegateSubgroup={SUBGROUP} in its unit"
        )
    parent = top / Path(own).parent.relative_to("/")
    try:
        given = set((parent / "cgroup.controllers").read_text().split())
        if lacking := [name for name in CONTROLLERS if name not in given]:
            return Parents(why=f"{parent} has no controller {', '.join(lacking)}")
        (parent / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in CONTROLLERS))
    except OSError as error:
        return Parents(why=f"{parent} is not the agent's: {error.strerror}")
    return _tried(Parents(dict.fromkeys(CONTROLLERS, parent), unified=True))


def _tried(found: Parents) -> Parents:
    name = f"federator-trial-{os.getpid()}"
    for parent in set(found.by_controller.values()):
        try:
            (parent / name).mkdir()
            (parent / name).rmdir()
        except OSError as error:
            return Parents(why=f"no cgroup can be made in {parent}: {error.strerror}")
    return found


def make(found: Parents, directory: Path, name: str, limits: Limits) -> list[str]:
    """The groups of a rank whose directory that is; the words that go before its command. Raises `OSError`."""
    groups = {controller: parent / name for controller, parent in found.by_controller.items()}
    if not groups:
        return []
    folders = sorted(set(groups.values()))
    # Noted before they are made: what is made is always found again.
    (directory / MARK).write_text("".join(f"{folder}\n" for folder in folders))
    for folder in folders:
        folder.mkdir(exist_ok=True)
    for controller, file, value in _written(limits, unified=found.unified):
        (groups[controller] / file).write_text(value)
    return _joining(folders)


def join(directory: Path) -> list[str]:
    """The words that go before a command that is to run in the groups of that rank; none where it has none."""
    folders = of(directory)
    return _joining(folders) if folders else []


def _joining(folders: Sequence[Path]) -> list[str]:
    return ["/bin/sh", "-c", _JOIN, "sh", *(str(folder / _PROCS) for folder in folders), "--"]


def _written(limits: Limits, *, unified: bool) -> list[tuple[str, str, str]]:
    """Controller, file and value."""
    cpus_milli = max(LEAST_CPUS_MILLI, limits.cpus_milli)
    most = str(limits.memory_mib << 20)
    if unified:
        weight = min(10_000, cpus_milli * WEIGHT_OF_CPU // 1000)
        files = [("cpu", "cpu.weight", str(weight))]
    else:
        files = [("cpu", "cpu.shares", str(cpus_milli * SHARES_OF_CPU // 1000))]
    if limits.memory_mib:
        files.append(("memory", "memory.max" if unified else "memory.limit_in_bytes", most))
    return [*files, ("pids", "pids.max", str(limits.processes))]


def of(directory: Path) -> tuple[Path, ...]:
    """The groups of a rank, as far as they are there."""
    try:
        lines = (directory / MARK).read_text().splitlines()
    except OSError:
        return ()
    return tuple(folder for line in lines if (folder := Path(line)).is_dir())


def kills(groups: Sequence[Path]) -> int | None:
    """How many of its processes the kernel has killed for want of memory; None: no group says."""
    for file in (folder / name for folder in groups for name in ("memory.events", "memory.oom_control")):
        count = memory.read(file)
        if count is not None:
            return count
    return None


def members(group: Path) -> set[int]:
    """The processes in one. 0 stands for one that has no number here."""
    try:
        return {int(word) for word in (group / _PROCS).read_text().split()} - {0}
    except OSError:
        return set()


def clear(groups: Sequence[Path]) -> bool:
    """Kill what is left in them and remove them; whether all are gone."""
    gone = True
    for folder in groups:
        with contextlib.suppress(OSError):
            for pid in members(folder):  # to signal 0 would be to signal this agent
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, SIGKILL)
        try:
            folder.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            gone = False
    return gone
