"""Between when a job may start and end: what people and plan files are told beside each forecast.

A run has its own range. A wait is the sum of other work's runs, and others may come in between, so how far it is off is measured and not reckoned:
`python -m tests.lab report --looks` says what share of starts and ends came between the two. Nothing is decided by these ranges.
"""

import math
from typing import NamedTuple

from federator.model.snapshot import JobView

SOONER, LATER = 0.25, 2.35
"""Of 100 waits 80 take between so many times what is forecast;"""
SHORT_S = 600.0
"""one so short may be over at once,"""
OVERTAKEN_S = 1800.0
"""and any may take so much longer, but not more than `OVERTAKEN_TIMES` itself: who starts next may be overtaken."""
OVERTAKEN_TIMES = 3.0


class Between(NamedTuple):
    """Two moments: of 100 such jobs, ten come before the first and ten after the second."""

    low_at: float
    high_at: float


def ranges(
    job: JobView, now: float, start_at: float, finish_at: float, *, waits: bool
) -> tuple[Between, Between]:
    """Start and end of a job that is expected to run from then to then. `waits`: its start depends on others; else it is when it is said to be, for that is free, or rented."""
    start = _start(start_at, start_at - now) if waits and start_at > now else Between(start_at, start_at)
    low, high = _run_shares(job)
    run_s = finish_at - start_at
    # Wait and run are seldom both short, or both long: their errors add up as squares.
    sooner_s = math.hypot(start_at - start.low_at, run_s * (1.0 - low))
    later_s = math.hypot(start.high_at - start_at, run_s * (high - 1.0))
    return start, Between(finish_at - sooner_s, finish_at + later_s)


def _start(start_at: float, wait_s: float) -> Between:
    sooner_s = wait_s * (1.0 - SOONER) if wait_s > SHORT_S else wait_s
    later_s = wait_s * (LATER - 1.0) + min(OVERTAKEN_S, OVERTAKEN_TIMES * wait_s)
    return Between(start_at - sooner_s, start_at + later_s)


def _run_shares(job: JobView) -> tuple[float, float]:
    """The short and the long end of its run over the planned one."""
    whole = job.of or job
    if whole.run_s <= 0.0:
        return 1.0, 1.0
    return min(1.0, whole.run_low_s / whole.run_s), max(1.0, whole.run_high_s / whole.run_s)
