"""What ranks on this host really use: processor time and memory by their control groups or processes, GPUs by the driver.

`federator_agent.usage` adds it up.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from federator.model.jobs import WHOLE_MILLI
from federator_agent.core.lent_capacity import Slot
from federator_agent.gpus import Gpu
from federator_agent.local import cgroups, traces
from federator_agent.usage import GpuUse, Reading, Readings

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")


class Rank(NamedTuple):
    """One rank here: what it holds, and its directory."""

    slot: Slot
    directory: Path


def readings(running: Mapping[str, Sequence[Rank]], gpus: Mapping[int, Gpu]) -> Readings:
    """What the ranks here use now. Blocks for some milliseconds."""
    ranks = [rank for each in running.values() for rank in each]
    pids = traces.processes_of(rank.directory for rank in ranks if not cgroups.of(rank.directory))
    return {
        name: {
            rank.slot.rank: _taken(rank.directory, pids.get(rank.directory, ()))._replace(
                gpus=_held(rank, gpus)
            )
            for rank in each
        }
        for name, each in running.items()
    }


def _held(rank: Rank, gpus: Mapping[int, Gpu]) -> tuple[GpuUse, ...] | None:
    found = [gpus.get(number) for number in rank.slot.gpus]
    known = tuple(
        GpuUse(gpu.utilisation_percent, gpu.used_mib, _power_w(rank.slot, gpu))
        for gpu in found
        if gpu is not None and (gpu.mig or gpu.utilisation_percent is not None)
    )
    return known if len(known) == len(found) else None


def _power_w(slot: Slot, gpu: Gpu) -> float | None:
    """Of a GPU that several share each is charged with its part; of an instance that is told already."""
    if gpu.power_w is None or gpu.mig or not slot.share_milli:
        return gpu.power_w
    return gpu.power_w * slot.share_milli / WHOLE_MILLI


def _taken(directory: Path, pids: Iterable[int]) -> Reading:
    """By its control groups where it has some, else by its processes."""
    groups = cgroups.of(directory)
    if not groups:
        found = [_of_process(pid) for pid in pids]
        return Reading(sum(each.cpu_s for each in found), sum(each.memory_bytes for each in found))
    cpu_s, memory_bytes = 0.0, 0
    for folder in groups:
        cpu = _words(folder / "cpu.stat")
        memory = _words(folder / "memory.stat")
        cpu_s = max(cpu_s, cpu.get("usage_usec", 0) / 1e6, _number(folder / "cpuacct.usage") / 1e9)
        memory_bytes = max(memory_bytes, memory.get("anon", memory.get("rss", 0)))
    if cpu_s == 0.0:  # the old hierarchy counts it in groups that ranks may not have
        inside = {pid for folder in groups for pid in _pids(folder / "cgroup.procs")}
        cpu_s = sum(_of_process(pid).cpu_s for pid in inside)
    return Reading(cpu_s, memory_bytes)


def _pids(file: Path) -> set[int]:
    with suppress(OSError, ValueError):
        return {int(word) for word in file.read_text().split()} - {0}
    return set()


def _of_process(pid: int) -> Reading:
    """With the children that it has waited for."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return Reading(sum(map(int, fields[11:15])) / _TICKS, int(fields[21]) * _PAGE)
    except (OSError, ValueError, IndexError):
        return Reading(0.0, 0)


def _words(file: Path) -> dict[str, int]:
    with suppress(OSError, ValueError):
        lines = (line.split() for line in file.read_text().splitlines())
        return {words[0]: int(words[1]) for words in lines if len(words) == 2}
    return {}


def _number(file: Path) -> int:
    with suppress(OSError, ValueError):
        return int(file.read_text())
    return 0
