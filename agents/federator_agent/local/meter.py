"""What ranks on this host really use: processor time and memory by their control groups or processes, GPUs by the driver.

Looked at every now and then and added up since the start of the placement, so that a message that is lost costs nothing. Why not at the end alone: a job
whose GPUs idle is to be told while it runs.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from federator.model.placements import Used
from federator_agent.core.lent_capacity import Slot
from federator_agent.local import cgroups, traces
from federator_agent.nvml import Gpu

IDLE_PERCENT = 5
"""A GPU that is less busy idles."""
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")


class Rank(NamedTuple):
    """One rank here: what it holds, and its directory."""

    slot: Slot
    directory: Path


class _Taken(NamedTuple):
    """Of one rank, or several: processor seconds so far, and bytes of memory now."""

    cpu_s: float
    memory_bytes: int


class Meter:
    """Adds up what placements use."""

    def __init__(self) -> None:
        self._used: dict[str, Used] = {}
        self._cpu_s: dict[Path, float] | None = None
        """Processor time of each rank, as it was read last; None: nobody has looked, and what runs already may have been counted by an earlier process."""

    def look(
        self,
        running: Mapping[str, Sequence[Rank]],
        gpus: Mapping[int, Gpu],
        passed_s: float,
        real_s: float,
    ) -> dict[str, Used]:
        """What the placements that run have used so far. `passed_s` since the last look, by the agent's clock, and `real_s` in truth. Blocks for some milliseconds."""
        ranks = [rank for each in running.values() for rank in each]
        pids = traces.processes_of(rank.directory for rank in ranks if not cgroups.of(rank.directory))
        taken = {rank.directory: _taken(rank.directory, pids.get(rank.directory, ())) for rank in ranks}
        pace = passed_s / real_s if real_s > 0 else 0.0
        now_s = {folder: found.cpu_s for folder, found in taken.items()}
        before_s = now_s if self._cpu_s is None else self._cpu_s
        # What ended meanwhile has taken its processor time with it where no group counts it.
        self._cpu_s = {folder: max(cpu_s, before_s.get(folder, 0.0)) for folder, cpu_s in now_s.items()}
        grown_s = {folder: cpu_s - before_s.get(folder, 0.0) for folder, cpu_s in self._cpu_s.items()}
        self._used = {
            name: self._after(
                self._used.get(name, Used()),
                each,
                taken,
                gpus,
                passed_s,
                pace * sum(grown_s[r.directory] for r in each),
            )
            for name, each in running.items()
        }
        return self._used

    def _after(
        self,
        before: Used,
        ranks: Sequence[Rank],
        taken: Mapping[Path, _Taken],
        gpus: Mapping[int, Gpu],
        passed_s: float,
        cpu_s: float,
    ) -> Used:
        memory_mib = sum(taken[rank.directory].memory_bytes for rank in ranks) >> 20
        after = replace(
            before,
            sampled_s=before.sampled_s + passed_s,
            cpu_s=before.cpu_s + cpu_s,
            memory_peak_mib=max(before.memory_peak_mib, memory_mib),
        )
        held = [gpus[number] for rank in ranks for number in rank.slot.gpus if number in gpus]
        busy = [gpu.utilisation_percent for gpu in held if gpu.utilisation_percent is not None]
        if not busy or len(busy) < sum(len(rank.slot.gpus) for rank in ranks):
            return after
        return replace(
            after,
            gpus_sampled_s=before.gpus_sampled_s + passed_s * len(busy),
            gpus_busy_s=before.gpus_busy_s + passed_s * sum(busy) / 100,
            gpu_memory_peak_mib=max(before.gpu_memory_peak_mib, *(gpu.used_mib for gpu in held)),
            idle_s=before.idle_s + passed_s if max(busy) < IDLE_PERCENT else 0.0,
        )


def _taken(directory: Path, pids: Iterable[int]) -> _Taken:
    """By its control groups where it has some, else by its processes."""
    groups = cgroups.of(directory)
    if not groups:
        found = [_of_process(pid) for pid in pids]
        return _Taken(sum(each.cpu_s for each in found), sum(each.memory_bytes for each in found))
    cpu_s, memory_bytes = 0.0, 0
    for folder in groups:
        cpu = _words(folder / "cpu.stat")
        memory = _words(folder / "memory.stat")
        cpu_s = max(cpu_s, cpu.get("usage_usec", 0) / 1e6, _number(folder / "cpuacct.usage") / 1e9)
        memory_bytes = max(memory_bytes, memory.get("anon", memory.get("rss", 0)))
    if cpu_s == 0.0:  # the old hierarchy counts it in groups that ranks may not have
        inside = {pid for folder in groups for pid in _pids(folder / "cgroup.procs")}
        cpu_s = sum(_of_process(pid).cpu_s for pid in inside)
    return _Taken(cpu_s, memory_bytes)


def _pids(file: Path) -> set[int]:
    with suppress(OSError, ValueError):
        return {int(word) for word in file.read_text().split()} - {0}
    return set()


def _of_process(pid: int) -> _Taken:
    """With the children that it has waited for."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return _Taken(sum(map(int, fields[11:15])) / _TICKS, int(fields[21]) * _PAGE)
    except (OSError, ValueError, IndexError):
        return _Taken(0.0, 0)


def _words(file: Path) -> dict[str, int]:
    with suppress(OSError, ValueError):
        lines = (line.split() for line in file.read_text().splitlines())
        return {words[0]: int(words[1]) for words in lines if len(words) == 2}
    return {}


def _number(file: Path) -> int:
    with suppress(OSError, ValueError):
        return int(file.read_text())
    return 0
