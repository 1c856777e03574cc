"""Two simulations of the same jobs, side by side: what a proposed policy, a purchase or another price would change, and for whom.

Both are run by one scheduler with one seed, so that chance is the same on both sides. Money is attributed to the job that caused it: owned GPUs to
the job that held them, a lease with its boot and idle time to the job that it was rented for.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from federator.simulation.accounting import Figures, figures
from federator.simulation.loads import LoadOptions, prepared
from federator.simulation.running import Moment, Outcome, simulate
from federator.simulation.schedule import DONE, Attempt
from federator.simulation.schedulers import scheduler
from federator.simulation.study import Run
from federator.simulation.work import TraceJob
from federator.simulation.world import WorldSpec
from federator.wire.contrast import Contrast, JobChange, JobFate, QueueContrast, SideSums

KEPT = 50
"""Jobs that changed most, as they are kept."""
FLIP_USD_GPU_H = 5.0
"""What a deadline counts for that only one side meets, by GPU-hour of its job, where the job does not say: to put changes in an order."""
WAIT_USD_GPU_H = 0.5
"""What a GPU-hour of waiting counts for, for the same."""
TURNS_APART = "turns are a minute apart here, and at once in life: waits of short jobs are up to a minute too long, on both sides"
SAME_S = 90.0
"""Waits that differ by less are the same: a simulated turn may be a minute late."""


class Progress(Protocol):
    """Who is told how far it is."""

    def watch(self, scheduler: str, seed: int, moment: Moment) -> None:
        """Now and then, of the side of that name."""

    def end(self, run: Run) -> None:
        """A side is done."""


class Side(NamedTuple):
    """What is run on one side."""

    name: str
    world: WorldSpec


class Contrasted(NamedTuple):
    """What came of it."""

    contrast: Contrast
    runs: tuple[Run, Run]
    outcomes: tuple[Outcome, Outcome]

    @property
    def troubles(self) -> tuple[str, ...]:
        """What cannot be true of either side, some of each."""
        return tuple(
            f"{run.figures.scheduler}: {trouble}"
            for run in self.runs
            for trouble in (*run.figures.violations[:5], *run.figures.faults[:5])
        )


def contrasted(
    sides: tuple[Side, Side],
    trace: Sequence[TraceJob],
    options: LoadOptions,
    *,
    by: str = "ours",
    seed: int = 0,
    changes: tuple[str, ...] = (),
    progress: Progress | None = None,
) -> Contrasted:
    """Run both sides, one after the other. Raises `Invalid` where a world or its policies cannot be."""
    jobs = prepared(trace, options, seed, sides[0].world)
    runs, outcomes = [], []
    for side in sides:
        run, outcome = _run(side, jobs, by, seed, progress)
        if progress is not None:
            progress.end(run)
        runs.append(run)
        outcomes.append(outcome)
    found = contrast((sides[0].name, sides[1].name), jobs, outcomes[0], outcomes[1], changes=changes)
    return Contrasted(found, (runs[0], runs[1]), (outcomes[0], outcomes[1]))


def _run(
    side: Side, jobs: Sequence[TraceJob], by: str, seed: int, progress: Progress | None
) -> tuple[Run, Outcome]:
    heard = None if progress is None else lambda moment: progress.watch(side.name, seed, moment)
    outcome = simulate(side.world, jobs, scheduler(by), seed=seed, watch=heard, tolerant=True)
    accepted = [job for job in jobs if job.name not in outcome.refused]
    made: Figures = msgspec.structs.replace(figures(outcome, side.world, accepted), scheduler=side.name)
    return Run(figures=made), outcome


def contrast(
    names: tuple[str, str],
    jobs: Sequence[TraceJob],
    before: Outcome,
    after: Outcome,
    *,
    changes: tuple[str, ...] = (),
) -> Contrast:
    """Two outcomes of the same jobs, compared job by job."""
    first, second = _fates(jobs, before), _fates(jobs, after)
    pairs = [(job, first[job.name], second[job.name]) for job in jobs]
    queues: defaultdict[str, list[TraceJob]] = defaultdict(list)
    for job in jobs:
        queues[job.queue].append(job)
    changed = [
        JobChange(
            job=job.name,
            queue=job.queue,
            owner=job.owner,
            gpus=job.gpus_total,
            before=old,
            after=new,
            weight_usd=weight,
        )
        for job, old, new in pairs
        if (weight := _weight_usd(job, old, new)) > 0.0
    ]
    changed.sort(key=lambda change: (-change.weight_usd, change.job))
    waits = [(old.wait_s, new.wait_s) for _, old, new in pairs]
    return Contrast(
        names=names,
        changes=changes,
        total=_row("", jobs, (before, first), (after, second)),
        queues=tuple(
            _row(queue, queues[queue], (before, first), (after, second)) for queue in sorted(queues)
        ),
        sooner=sum(o is not None and n is not None and n < o - SAME_S for o, n in waits),
        later=sum(o is not None and n is not None and n > o + SAME_S for o, n in waits),
        newly_met=sum(old.met is False and new.met is True for _, old, new in pairs),
        newly_missed=sum(old.met is True and new.met is not True for _, old, new in pairs),
        refused=dict(Counter(why for job, why in after.refused.items() if job not in before.refused)),
        jobs=tuple(changed[:KEPT]),
    )


def _fates(jobs: Sequence[TraceJob], outcome: Outcome) -> dict[str, JobFate]:
    attempts: defaultdict[str, list[Attempt]] = defaultdict(list)
    for row in outcome.schedule.attempts:
        attempts[row.job].append(row)
    rent: defaultdict[str, float] = defaultdict(float)
    for lease in outcome.schedule.leases:
        rent[lease.job] += lease.cost_usd
    return {job.name: _fate(job, attempts[job.name], rent[job.name], outcome) for job in jobs}


def _fate(job: TraceJob, rows: Sequence[Attempt], rent_usd: float, outcome: Outcome) -> JobFate:
    if job.name in outcome.refused:
        return JobFate(
            because=f"refused: {outcome.refused[job.name]}", met=None if job.deadline_s is None else False
        )
    ran = [row for row in rows if row.start_s is not None]
    end_s = next((row.end_s for row in rows if row.outcome == DONE), None)
    late = job.deadline_s is not None and (end_s is None or end_s > job.deadline_s)
    owned_usd = sum(row.price_usd for row in rows if row.market == "owned")
    return JobFate(
        site=ran[-1].site if ran else "",
        market=ran[-1].market if ran else "",
        wait_s=min(row.start_s for row in ran if row.start_s is not None) - job.submit_s if ran else None,
        met=None if job.deadline_s is None else not late,
        usd=owned_usd + rent_usd + sum(row.egress_usd for row in rows),
        attempts=len(ran),
        because=outcome.reasons.get(job.name, "it never ran"),
    )


def _weight_usd(job: TraceJob, old: JobFate, new: JobFate) -> float:
    """0 where nothing that a person would notice has changed."""
    waited_s = abs((old.wait_s or 0.0) - (new.wait_s or 0.0))
    weight = abs(old.usd - new.usd)
    weight += WAIT_USD_GPU_H * max(1, job.gpus_total) * waited_s / 3600.0 if waited_s > SAME_S else 0.0
    if old.met is not new.met or (old.site == "") is not (new.site == ""):
        weight += job.value_usd if job.value_usd is not None else FLIP_USD_GPU_H * max(0.01, job.gpu_h)
    if old.site != new.site:
        weight += 0.001
    return weight


def _row(
    queue: str,
    jobs: Sequence[TraceJob],
    before: tuple[Outcome, dict[str, JobFate]],
    after: tuple[Outcome, dict[str, JobFate]],
) -> QueueContrast:
    return QueueContrast(
        queue=queue,
        moved=sum(before[1][job.name].site != after[1][job.name].site for job in jobs),
        before=_sums(jobs, *before),
        after=_sums(jobs, *after),
    )


def _sums(jobs: Sequence[TraceJob], outcome: Outcome, fates: dict[str, JobFate]) -> SideSums:
    names = {job.name for job in jobs}
    mine = [fates[job.name] for job in jobs]
    waits = [fate.wait_s for fate in mine if fate.wait_s is not None]
    rows = [row for row in outcome.schedule.attempts if row.job in names]
    return SideSums(
        jobs=len(jobs),
        refused=sum(name in outcome.refused for name in names),
        deadlines=sum(fate.met is not None for fate in mine),
        met=sum(fate.met is True for fate in mine),
        wait_mean_s=sum(waits) / len(waits) if waits else 0.0,
        owned_usd=sum(row.price_usd for row in rows if row.market == "owned"),
        rented_usd=sum(lease.cost_usd for lease in outcome.schedule.leases if lease.job in names),
        egress_usd=sum(row.egress_usd for row in rows),
    )
