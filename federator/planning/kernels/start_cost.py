"""What a start costs, in USD: the one place where it is written.

Scheduler, linear program, rental cases and explanations call these functions; only the checker reckons by itself, on purpose. They are plain functions of numbers: compiled code calls them
compiled (`compiled.shared`), Python as they stand, which needs no numba; those that only multiply take arrays, too. What the terms mean is said in `world.prices`, which has them for a job and a place.
"""

from typing import Any

from federator.planning.kernels.chances import late_share

H = 3600.0


def opened_at(closes_at: float, opens_at: float, start_at: float) -> float:
    """When a start that is planned for that moment is possible: as planned, or when a calendar opens the place again."""
    return opens_at if closes_at <= start_at < opens_at else start_at


def gpus_usd(usd_gpu_h: Any, gpus: Any, run_s: Any) -> Any:
    """So many GPUs for so long (s)."""
    return usd_gpu_h * gpus * run_s / H


def machines_usd(usd_h: Any, machines: Any, paid_s: Any) -> Any:
    """The bill of so many machines that are paid for so long (s)."""
    return usd_h * machines * paid_s / H


def beyond_usd(usd_h: float, start_at: float, run_s: float, committed_until: float) -> float:
    """A run on a machine that is rented already: what of it lies beyond the time until which the machine is needed anyway."""
    return usd_h * max(0.0, start_at + run_s - max(start_at, committed_until)) / H


def waited_usd(usd_h: Any, waits_s: Any) -> Any:
    """So long a wait (s)."""
    return usd_h * waits_s / H


def wait_usd(usd_h: float, waits_s: float, longer_s: float) -> float:
    """A wait, and what the run takes longer than in the fastest form."""
    usd: float = waited_usd(usd_h, max(0.0, waits_s) + longer_s)
    return usd


def is_late(value_usd: float, deadline_at: float, begins_at: float, run_s: float) -> bool:
    """Whether it is planned to end after a deadline that is worth something."""
    return value_usd > 0.0 and begins_at + run_s > deadline_at


def start_usd(  # noqa: PLR0917 - numbers alone, as compiled code wants them
    now: float,
    start_at: float,
    run_s: float,
    closes_at: float,
    opens_at: float,
    rent_usd_h: float,
    committed_until: float,
    wait_usd_h: float,
    longer_s: float,
    value_usd: float,
    deadline_at: float,
    typical: float,
    steep: float,
    waits_s: float,
) -> tuple[float, float, float]:
    """What depends on when a job starts: rent beyond what is committed, wait, and the value of its deadline times the chance that it is missed.

    What would start from `closes_at` on starts when the place opens; `waits_s`: so long it waits for others' work (0: for a machine that is rented for it).
    """
    begins_at = opened_at(closes_at, opens_at, start_at)
    rent = beyond_usd(rent_usd_h, start_at, run_s, committed_until)
    wait = wait_usd(wait_usd_h, begins_at - now, longer_s)
    miss = 0.0
    if value_usd != 0.0:
        miss = value_usd * late_share(deadline_at, begins_at, run_s, waits_s, typical, steep)
    return rent, wait, miss


def total_usd(run: float, rent: float, wait: float, miss: float, egress: float) -> float:
    """The terms together; always in this order, so that it comes out the same wherever it is added."""
    return run + rent + wait + miss + egress
