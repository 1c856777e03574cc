"""What a schedule comes to, and whether it can be true.

Every figure is computed from the rows of the schedule and the jobs of the trace alone. The laws of conservation are looked at from both sides: what
the dispatcher wrote down against what jobs needed, what sites have, and what clouds charge.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import msgspec

from federator.model.capacity import IN_PARTS
from federator.model.datasets import BYTES_PER_GB
from federator.simulation.data_moves import book_of
from federator.simulation.running import Outcome
from federator.simulation.schedule import DONE, Attempt, Schedule
from federator.simulation.work import RESUMING_S, TraceJob
from federator.simulation.world import WorldSpec
from federator.simulation.worth import valued

Times = Mapping[str, float | None]
TOLERANCE_S = 1.0
CENT_USD = 0.01
TOLERANCE_GB = 0.001
SHORTEST_S = 10.0
"""Slowdowns count no run as shorter than this."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One simulation in numbers. Money in USD; waits are from submission to the first start, of jobs that started."""

    scheduler: str
    seed: int
    jobs: int
    finished: int
    deadlines: int
    missed: int
    missed_share: float
    met_share_by_gpu_h: float
    missed_value_usd: float
    wait_mean_s: float
    wait_median_s: float
    wait_p95_s: float
    slowdown_mean: float
    wait_usd: float
    owned_usd: float
    rented_usd: float
    used_usd: float
    """Of the rent, for the GPUs and hours that jobs had: the rest went into booting, idling, and GPUs that nobody used."""
    egress_usd: float
    loss_usd: float
    """Value of missed deadlines, and all money."""
    leases: int
    gpu_h: float
    """That attempts have held, lost ones included."""
    lost_gpu_h: float
    """Of these, by attempts that did not succeed."""
    utilisation: float
    """Of the owned GPUs, from the first submission to the last end."""
    span_s: float
    violations: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


def figures(outcome: Outcome, world: WorldSpec, jobs: Sequence[TraceJob]) -> Figures:
    """All of them, and what is wrong."""
    jobs = valued(jobs, world)
    rows = _by_job(outcome.schedule)
    ends = {job.name: _end(rows.get(job.name, ())) for job in jobs}
    starts = {job.name: _start(rows.get(job.name, ())) for job in jobs}
    missed = [job for job in jobs if job.deadline_s is not None and _late(job, ends[job.name])]
    attempts = outcome.schedule.attempts
    span_s = max((row.end_s for row in attempts if row.end_s is not None), default=0.0)
    owned_h = sum(row.gpu_h for row in attempts if row.market == "owned")
    return Figures(
        scheduler=outcome.scheduler,
        seed=outcome.seed,
        jobs=len(jobs),
        finished=sum(end is not None for end in ends.values()),
        leases=len(outcome.schedule.leases),
        gpu_h=sum(row.gpu_h for row in attempts),
        lost_gpu_h=sum(row.gpu_h for row in attempts if row.outcome != DONE),
        utilisation=_share(owned_h * 3600.0, world.gpus * span_s),
        span_s=span_s,
        violations=tuple(violations(outcome, world, jobs)),
        faults=outcome.faults,
        **_deadlines(jobs, missed),
        **_waits(jobs, starts, ends),
        **_usd(outcome.schedule, missed),
    )


def _deadlines(jobs: Sequence[TraceJob], missed: Sequence[TraceJob]) -> dict[str, Any]:
    due = [job for job in jobs if job.deadline_s is not None]
    due_h = sum(job.gpu_h for job in due)
    return {
        "deadlines": len(due),
        "missed": len(missed),
        "missed_share": _share(len(missed), len(due)),
        "met_share_by_gpu_h": _share(due_h - sum(job.gpu_h for job in missed), due_h),
    }


def _waits(jobs: Sequence[TraceJob], starts: Times, ends: Times) -> dict[str, Any]:
    waited = [(job, start - job.submit_s) for job in jobs if (start := starts[job.name]) is not None]
    waits = sorted(wait_s for _, wait_s in waited)
    slowdowns = [
        (end - job.submit_s) / max(SHORTEST_S, job.run_s)
        for job in jobs
        if (end := ends[job.name]) is not None
    ]
    return {
        "wait_mean_s": _share(sum(waits), len(waits)),
        "wait_median_s": quantile(waits, 0.5),
        "wait_p95_s": quantile(waits, 0.95),
        "slowdown_mean": _share(sum(slowdowns), len(slowdowns)),
        "wait_usd": sum((job.wait_usd_h or 0.0) * wait_s / 3600.0 for job, wait_s in waited),
    }


def _usd(schedule: Schedule, missed: Sequence[TraceJob]) -> dict[str, Any]:
    parts = {
        "missed_value_usd": sum(job.value_usd or 0.0 for job in missed),
        "owned_usd": sum(row.price_usd for row in schedule.attempts if row.market == "owned"),
        "rented_usd": sum(lease.cost_usd for lease in schedule.leases),
        "egress_usd": sum(row.egress_usd for row in schedule.attempts),
    }
    used_usd = sum(row.price_usd for row in schedule.attempts if row.market != "owned")
    return {**parts, "loss_usd": sum(parts.values()), "used_usd": used_usd}


def violations(outcome: Outcome, world: WorldSpec, jobs: Sequence[TraceJob]) -> Iterator[str]:
    """What cannot be: each as a sentence."""
    by_name = {job.name: job for job in jobs}
    yield from _twice(outcome.schedule)
    yield from _work(outcome.schedule, world, by_name)
    yield from _capacity(outcome.schedule, world)
    yield from _stocks(outcome.schedule, world)
    yield from _money(outcome)
    yield from _moves(outcome.schedule, world, by_name)


def _twice(schedule: Schedule) -> Iterator[str]:
    """No job runs twice at once, or ends well twice; none starts before it is submitted."""
    for name, rows in _by_job(schedule).items():
        if sum(row.outcome == DONE for row in rows) > 1:
            yield f"{name} has succeeded twice"
        ran = sorted((row.start_s, row.end_s or math.inf) for row in rows if row.start_s is not None)
        if any(row.start_s is not None and row.start_s < row.submit_s - TOLERANCE_S for row in rows):
            yield f"{name} starts before it is submitted"
        if any(start_s < end_s - TOLERANCE_S for (_, end_s), (start_s, _) in pairwise(ran)):
            yield f"two attempts of {name} run at once"


def _work(schedule: Schedule, world: WorldSpec, jobs: Mapping[str, TraceJob]) -> Iterator[str]:
    """GPU-hours in = out: who succeeds has run for as long as it takes there, less what an earlier attempt had saved."""
    models = {(site.name, pool.name): pool.model for site in world.sites for pool in site.pools}
    for name, rows in _by_job(schedule).items():
        job = jobs.get(name)
        if job is None:
            yield f"{name} is not in the trace"
            continue
        last = next((row for row in rows if row.outcome == DONE), None)
        if last is None or last.start_s is None or last.end_s is None:
            continue
        forms = [number for number, gpus in enumerate(_widths(job)) if gpus == last.gpus]
        if not forms:
            yield f"{name} asked for {' or '.join(map(str, _widths(job)))} GPUs and had {last.gpus}"
            continue
        model = models.get((last.site, last.pool))
        if model is None:
            continue  # on a rented machine, whose model is with its lease
        needs_s = max(1.0, job.run_s / job.speed_on(model, world.speeds, forms[0]))
        ran_s = last.end_s - last.start_s
        reading_s = RESUMING_S if len(rows) > 1 else 0.0
        if ran_s > needs_s + reading_s + TOLERANCE_S or (len(rows) == 1 and ran_s < needs_s - TOLERANCE_S):
            yield f"{name} needs {needs_s:.0f} s there and ran {ran_s:.0f} s"


def _widths(job: TraceJob) -> list[int]:
    """The GPUs of each of its forms."""
    return [job.gpus_total, *(form.gpus_total for form in job.forms)]


def _capacity(schedule: Schedule, world: WorldSpec) -> Iterator[str]:
    """No pool ever has more GPUs in use than it has."""
    have = {
        (site.name, pool.name): pool.nodes * pool.gpus_per_node for site in world.sites for pool in site.pools
    }
    steps: defaultdict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
    for row in schedule.attempts:
        if row.start_s is not None and (row.site, row.pool) in have:
            end_s = schedule.end_s if row.end_s is None else row.end_s
            steps[row.site, row.pool] += [(row.start_s, row.gpus), (end_s, -row.gpus)]
    for pool, changes in steps.items():
        used = _most(changes)
        if used > have[pool]:
            yield f"{pool[0]}/{pool[1]} has {have[pool]} GPUs, and {used} are in use"


def _stocks(schedule: Schedule, world: WorldSpec) -> Iterator[str]:
    """No cloud ever has more machines out than the stock that they are taken from holds."""
    drawing = {offer.name: (offer.provider, offer.stock) for offer in world.offers if offer.stock}
    have = {(provider, stock.name): stock for provider, stock in drawing.values()}
    steps: defaultdict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
    for lease in schedule.leases:
        name = lease.offer.removesuffix(IN_PARTS)
        if lease.start_s is not None and name in drawing:
            provider, stock = drawing[name]
            end_s = schedule.end_s if lease.end_s is None else lease.end_s
            steps[provider, stock.name] += [(lease.start_s, stock.each), (end_s, -stock.each)]
    for key, changes in steps.items():
        used, stock = _most(changes), have[key]
        if used > stock.left:
            yield f"stock {stock.name} has {stock.left} {stock.unit}, and {used} are rented"


def _most(changes: Iterable[tuple[float, int]]) -> int:
    """The most that is ever in use; at one moment, what ends goes before what begins."""
    return max(accumulate(change for _, change in sorted(changes)), default=0)


def _money(outcome: Outcome) -> Iterator[str]:
    """Money = Σ leases: each costs what its price makes of its time, and what its cloud has charged; nothing is charged without one."""
    leases = {lease.lease: lease for lease in outcome.schedule.leases}
    charged = {machine.name: machine.billed_usd for machine in outcome.instances}
    for name, usd in charged.items():
        if name not in leases:
            yield f"the cloud charges {usd:.2f} USD for {name}, which is not a lease"
    for name, lease in leases.items():
        if abs(lease.cost_usd - charged.get(name, 0.0)) > CENT_USD:
            yield f"{name} has cost {lease.cost_usd:.2f} USD, and the cloud charges {charged.get(name, 0.0):.2f}"
        if lease.start_s is None or lease.end_s is None:
            continue
        paid_s = max(lease.minimum_billing_s, math.ceil(lease.end_s - lease.start_s))
        usd = lease.usd_per_h * paid_s / 3600.0
        if abs(usd - lease.cost_usd) > CENT_USD + lease.usd_per_h / 3600.0:
            yield f"{name} has cost {lease.cost_usd:.2f} USD, and {paid_s:.0f} s cost {usd:.2f}"


def _moves(schedule: Schedule, world: WorldSpec, jobs: Mapping[str, TraceJob]) -> Iterator[str]:
    """Bytes moved = bytes priced: every attempt that began has moved what its place did not have, at the price of the cheapest way, and the ledger has all of it."""
    if not any(job.inputs for job in jobs.values()):
        return
    book = book_of(world)
    for row in schedule.attempts:
        job = jobs.get(row.job)
        if job is None or row.start_s is None:
            continue
        needs = book.to_site(job.inputs, row.site)
        if abs(needs.moved_bytes / BYTES_PER_GB - row.moved_gb) > TOLERANCE_GB:
            yield f"{row.job} reads {needs.moved_bytes / BYTES_PER_GB:.3f} GB that {row.site} does not have, and moved {row.moved_gb:.3f}"
        if abs(needs.usd - row.egress_usd) > CENT_USD:
            yield f"moving the data of {row.job} to {row.site} costs {needs.usd:.2f} USD, and {row.egress_usd:.2f} are priced"
    priced, booked = sum(row.egress_usd for row in schedule.attempts), schedule.ledger_moved_usd
    if booked is not None and abs(priced - booked) > CENT_USD:
        yield f"attempts have moved data for {priced:.2f} USD, and the ledger has {booked:.2f}"


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which that share lies, of values in growing order; 0 of none."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def _by_job(schedule: Schedule) -> dict[str, list[Attempt]]:
    found: defaultdict[str, list[Attempt]] = defaultdict(list)
    for row in schedule.attempts:
        found[row.job].append(row)
    return found


def _start(rows: Sequence[Attempt]) -> float | None:
    return min((row.start_s for row in rows if row.start_s is not None), default=None)


def _end(rows: Sequence[Attempt]) -> float | None:
    return next((row.end_s for row in rows if row.outcome == DONE), None)


def _late(job: TraceJob, end_s: float | None) -> bool:
    assert job.deadline_s is not None
    return end_s is None or end_s > job.deadline_s


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
