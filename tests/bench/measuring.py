"""Reads what the operating system knows of processes, times the calibration loops, and sums up."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from tests.bench.figures import Calibration

LOOP_STEPS = 2_000_000
FSYNCS = 100
_TICKS_S = os.sysconf("SC_CLK_TCK")

__all__ = ["calibrate", "child", "cpu_s", "median", "percentile", "resident_mb"]


def calibrate(folder: Path) -> Calibration:
    """Time the two loops: some 0.2 s of pure Python, and a hundred durable appends of 1 KiB."""
    begun = time.perf_counter()
    total = 0
    for step in range(LOOP_STEPS):
        total += step & 7
    loop_s = time.perf_counter() - begun
    file = folder / "calibration"
    block = b"x" * 1024
    with file.open("wb", buffering=0) as out:
        begun = time.perf_counter()
        for _ in range(FSYNCS):
            out.write(block)
            os.fsync(out.fileno())
        fsync_s = time.perf_counter() - begun
    file.unlink()
    return Calibration(LOOP_STEPS / loop_s / 1e6, FSYNCS / fsync_s)


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
