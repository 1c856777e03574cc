"""Reads what the operating system knows of processes, times the calibration loops, and sums up."""

import asyncio
import contextlib
import os
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from tests.bench.figures import Calibration

LOOP_STEPS = 2_000_000
FSYNCS = 100
_TICKS_S = os.sysconf("SC_CLK_TCK")

__all__ = [
    "calibrate",
    "child",
    "cpu_s",
    "descendants",
    "first_at_the_processor",
    "loop_rate",
    "median",
    "percentile",
    "resident_mb",
    "turns",
]


def calibrate(folder: Path) -> Calibration:
    """Time the two loops: some 0.2 s of pure Python, and a hundred durable appends of 1 KiB."""
    rate = loop_rate()
    file = folder / "calibration"
    block = b"x" * 1024
    with file.open("wb", buffering=0) as out:
        begun = time.perf_counter()
        for _ in range(FSYNCS):
            out.write(block)
            os.fsync(out.fileno())
        fsync_s = time.perf_counter() - begun
    file.unlink()
    return Calibration(rate, FSYNCS / fsync_s)


def loop_rate() -> float:
    """Millions of steps a second of a loop of pure Python."""
    begun = time.perf_counter()
    total = 0
    for step in range(LOOP_STEPS):
        total += step & 7
    return LOOP_STEPS / (time.perf_counter() - begun) / 1e6


def first_at_the_processor(*pids: int) -> bool:
    """Schedule all threads of these processes, and what they start from now on, in real time: before all else of the machine, so that they are timed and not their neighbours. Whether that is allowed."""
    try:
        for pid in pids:
            for thread in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setscheduler(int(thread.name), os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        return False
    return True


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    parents = dict[int, int]()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for each in found:
        found += [other for other, parent in parents.items() if parent == each]
    return found[1:]


def cpu_s(pid: int, *, children: bool = False) -> float:
    """CPU seconds that a process has used so far; with `children`, also those of its children that have been waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11 : 15 if children else 13]) / _TICKS_S


def resident_mb(pid: int) -> float:
    """Memory of a process that is its own or shared and in use now, in MB (10^6 bytes)."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def child(pid: int, sign: str) -> int:
    """The child of a process whose command line has that text in it. Raises LookupError without one."""
    for entry in Path("/proc").iterdir():
        try:
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            line = (entry / "cmdline").read_bytes().decode(errors="replace")
        except (OSError, IndexError):
            continue
        if parent == str(pid) and sign in line:
            return int(entry.name)
    raise LookupError(f"process {pid} has no child {sign}")


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that `percent` of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


async def turns(server: str) -> tuple[float, float]:
    """How many turns a dispatcher has had, and their seconds in all."""

    def read() -> str:
        with urllib.request.urlopen(f"{server}/metrics") as answer:
            text: str = answer.read().decode()
            return text

    values = dict(
        line.rsplit(" ", 1) for line in (await asyncio.to_thread(read)).splitlines() if line[0] != "#"
    )
    return float(values["federator_turn_seconds_count"]), float(values["federator_turn_seconds_sum"])
