"""A schedule over time, and by kinds of jobs: what plots need. All of it comes from the rows of the schedule."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from federator.simulation.accounting import quantile
from federator.simulation.schedule import DONE, Attempt, Schedule
from federator.simulation.work import TraceJob
from federator.simulation.world import WorldSpec
from federator.simulation.worth import valued

BINS = 240
SLACKS = ((0.0, 1.5), (1.5, 2.0), (2.0, 4.0), (4.0, 8.0), (8.0, float("inf")))
"""Bands of deadlines: time until the deadline, over the run time."""
QUANTILES = (*(n / 50 for n in range(50)), 0.99)
MOST_ENDED = 0.99
MOST_BARS = 400
"""Leases that a timeline shows, the longest first."""


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One simulation as lines and bars. Times in seconds; shares from 0 to 1."""

    scheduler: str
    seed: int
    times_s: tuple[float, ...]
    utilisation: dict[str, tuple[float, ...]]
    """Of each site's own GPUs, in each bin of time."""
    waiting: tuple[float, ...]
    """Jobs that have been submitted and do not run, at each of the times."""
    rented_gpus: tuple[float, ...]
    """GPUs that are rented, at each of the times."""
    met_by_slack: tuple[tuple[str, int, float], ...]
    """Of each band of deadlines: its name, how many jobs, and the share that met theirs."""
    waits_s: tuple[float, ...]
    """Waits at `QUANTILES`."""
    slowdowns: tuple[float, ...]
    usd: dict[str, float]
    """What was paid and lost for what."""
    leases: tuple[tuple[str, float, float, float], ...]
    """Offer, start, end and cost."""


def series(
    schedule: Schedule, world: WorldSpec, jobs: Sequence[TraceJob], scheduler: str, seed: int
) -> Series:
    """What a schedule looks like."""
    by_name = {job.name: job for job in jobs}
    ends = {row.job: row.end_s for row in schedule.attempts if row.outcome == DONE}
    span_s = _span_s(schedule.attempts, jobs)
    times = tuple(span_s * n / BINS for n in range(BINS + 1))
    started = {row.job: row for row in reversed(schedule.attempts) if row.start_s is not None}
    return Series(
        scheduler=scheduler,
        seed=seed,
        times_s=times,
        utilisation=_utilisation(schedule.attempts, world, span_s),
        waiting=_levels(_waits(schedule.attempts), times),
        rented_gpus=_levels(
            [
                (lease.start_s, lease.end_s or span_s, lease.gpus)
                for lease in schedule.leases
                if lease.start_s is not None
            ],
            times,
        ),
        met_by_slack=tuple(_met(jobs, ends)),
        waits_s=_spread((row.start_s or 0.0) - row.submit_s for row in started.values()),
        slowdowns=_spread(
            (end_s - by_name[name].submit_s) / max(10.0, by_name[name].run_s)
            for name, end_s in ends.items()
            if end_s is not None
        ),
        usd=_usd(schedule, valued(jobs, world), ends),
        leases=_bars(schedule, span_s),
    )


def _span_s(attempts: Sequence[Attempt], jobs: Sequence[TraceJob]) -> float:
    """What is plotted: up to the last submission, and until all but the last few attempts have ended: one long job must not hide the rest."""
    ends = sorted(row.end_s for row in attempts if row.end_s is not None)
    return max(quantile(ends, MOST_ENDED), max((job.submit_s for job in jobs), default=0.0), 1.0)


def _utilisation(
    attempts: Sequence[Attempt], world: WorldSpec, span_s: float
) -> dict[str, tuple[float, ...]]:
    """Busy GPU-seconds of each bin over what the site has in it."""
    width_s = span_s / BINS
    have = {site.name: sum(p.nodes * p.gpus_per_node for p in site.pools) for site in world.sites}
    busy: dict[str, list[float]] = {name: [0.0] * BINS for name in have}
    for row in attempts:
        if row.start_s is None or row.site not in have:
            continue
        end_s = span_s if row.end_s is None else row.end_s
        first, last = int(row.start_s / width_s), min(BINS - 1, int(end_s / width_s))
        for number in range(first, last + 1):
            overlap_s = min(end_s, (number + 1) * width_s) - max(row.start_s, number * width_s)
            busy[row.site][number] += row.gpus * max(0.0, overlap_s)
    return {
        name: tuple(round(value / (have[name] * width_s), 4) if have[name] else 0.0 for value in values)
        for name, values in busy.items()
    }


def _waits(attempts: Iterable[Attempt]) -> list[tuple[float, float, float]]:
    """From the submission, or the end of the attempt before, to the start."""
    ready: dict[str, float] = {}
    found = []
    for row in attempts:
        since_s = ready.get(row.job, row.submit_s)
        if row.start_s is not None:
            found.append((since_s, row.start_s, 1.0))
            ready[row.job] = float("inf") if row.end_s is None else row.end_s
        elif row.outcome == "waiting":
            found.append((since_s, float("inf"), 1.0))
    return found


def _levels(spans: Iterable[tuple[float, float, float]], times: Sequence[float]) -> tuple[float, ...]:
    """How much there is at each of the times, of things that are there from one time to another."""
    steps: defaultdict[float, float] = defaultdict(float)
    for start_s, end_s, size in spans:
        steps[start_s] += size
        steps[end_s] -= size
    ordered = sorted(steps.items())
    levels, level, at = [], 0.0, 0
    for time_s in times:
        while at < len(ordered) and ordered[at][0] <= time_s:
            level += ordered[at][1]
            at += 1
        levels.append(level)
    return tuple(levels)


def _met(jobs: Iterable[TraceJob], ends: dict[str, float | None]) -> Iterable[tuple[str, int, float]]:
    due = [(job, (job.deadline_s - job.submit_s) / job.run_s) for job in jobs if job.deadline_s is not None]
    for low, high in SLACKS:
        band = [job for job, slack in due if low <= slack < high]
        met = sum((ends.get(job.name) or float("inf")) <= (job.deadline_s or 0.0) for job in band)
        name = (
            f"under {high:g} ×"
            if low == 0
            else f"{low:g} × and more"
            if high == float("inf")
            else f"{low:g} to {high:g} ×"
        )
        yield name, len(band), met / len(band) if band else 0.0


def _spread(values: Iterable[float]) -> tuple[float, ...]:
    ordered = sorted(values)
    return tuple(round(quantile(ordered, share), 3) for share in QUANTILES)


def _usd(schedule: Schedule, jobs: Iterable[TraceJob], ends: dict[str, float | None]) -> dict[str, float]:
    """Rent is split into what jobs used of it, and the rest: booting, idle and ending machines."""
    used = sum(row.price_usd for row in schedule.attempts if row.market not in ("owned", ""))
    rent = sum(lease.cost_usd for lease in schedule.leases)
    lost = sum(
        job.value_usd or 0.0
        for job in jobs
        if job.deadline_s is not None and (ends.get(job.name) or float("inf")) > job.deadline_s
    )
    return {
        "owned GPUs": sum(row.price_usd for row in schedule.attempts if row.market == "owned"),
        "rent, used": min(used, rent),
        "rent, boot and idle": max(0.0, rent - used),
        "data moved": sum(row.egress_usd for row in schedule.attempts),
        "missed deadlines": lost,
    }


def _bars(schedule: Schedule, span_s: float) -> tuple[tuple[str, float, float, float], ...]:
    bars = [
        (lease.offer, lease.start_s, span_s if lease.end_s is None else lease.end_s, lease.cost_usd)
        for lease in schedule.leases
        if lease.start_s is not None
    ]
    longest = sorted(bars, key=lambda bar: bar[1] - bar[2])[:MOST_BARS]
    return tuple(sorted(longest, key=lambda bar: (bar[0], bar[1])))
