"""Several schedulers on the same jobs, over several seeds: what is run, and what it comes to side by side.

A seed decides the users' errors, what comes of a load that is no whole number, spot interruptions, capacity failures, and the chance in schedulers. All
schedulers see the same draws of the first four.
"""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence

import msgspec

from federator.simulation.accounting import Figures, figures
from federator.simulation.loads import LoadOptions, prepared
from federator.simulation.running import Moment, Outcome, simulate
from federator.simulation.schedulers import Scheduler
from federator.simulation.work import TraceJob
from federator.simulation.world import WorldSpec

Watch = Callable[[str, int, Moment], None]
COMPARED = (
    "missed_share", "met_share_by_gpu_h", "wait_mean_s", "wait_p95_s", "slowdown_mean", "owned_usd", "rented_usd", "loss_usd",
    "utilisation",
)  # fmt: skip
"""Figures whose means over seeds are compared."""
T_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093,
)  # fmt: skip
"""Student's t for a two-sided 95 % interval, of 1, 2, … 19 degrees of freedom: with three seeds an interval is twice as wide as the normal one."""
Z_95 = 1.96


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One simulation, as it is reported; the schedule itself is written as a table."""

    figures: Figures


class Mean(msgspec.Struct, frozen=True):
    """A mean over seeds, and half the width of its 95 % interval (Student's t; 0 with one seed)."""

    value: float
    half_width: float


class Summary(msgspec.Struct, frozen=True):
    """One scheduler over all seeds."""

    scheduler: str
    seeds: int
    means: dict[str, Mean]


class Study(msgspec.Struct, frozen=True, kw_only=True):
    """What was simulated, with which options, and what it came to."""

    world: str
    gpus: int
    trace: str
    options: LoadOptions
    capacity: float
    runs: tuple[Run, ...]
    summaries: tuple[Summary, ...]


def runs(
    world: WorldSpec,
    trace: Sequence[TraceJob],
    options: LoadOptions,
    schedulers: Sequence[Scheduler],
    seeds: Sequence[int],
    watch: Watch | None = None,
) -> Iterator[tuple[Run, Outcome]]:
    """Simulate each scheduler with each seed, one after another. Raises `Invalid`, before anything is run, for jobs that a scheduler cannot take."""
    for seed in seeds:  # all of it before the first run: what is wrong with the last must not cost the others
        for bind in (each.bind for each in schedulers if each.bind):
            for job in prepared(trace, options, seed, world):
                bind(job, world, seed)
    for seed in seeds:
        jobs = prepared(trace, options, seed, world)
        for each in schedulers:
            heard = None if watch is None else _named(watch, each.name, seed)
            outcome = simulate(world, jobs, each, seed=seed, watch=heard)
            yield Run(figures=figures(outcome, world, jobs)), outcome


def _named(watch: Watch, name: str, seed: int) -> Callable[[Moment], None]:
    return lambda moment: watch(name, seed, moment)


def study_of(
    world: WorldSpec, trace: str, options: LoadOptions, done: Sequence[Run], capacity: float = 1.0
) -> Study:
    """Runs as a study, with each scheduler's means in the order in which they were run first."""
    names = dict.fromkeys(run.figures.scheduler for run in done)
    return Study(
        world=world.name,
        gpus=world.gpus,
        trace=trace,
        options=options,
        capacity=capacity,
        runs=tuple(done),
        summaries=tuple(
            _summary(name, [run.figures for run in done if run.figures.scheduler == name]) for name in names
        ),
    )


def mean_of(values: Sequence[float]) -> Mean:
    """Their mean, with its interval as if they were drawn from one normal distribution."""
    freedom = len(values) - 1
    if freedom < 1:
        return Mean(statistics.fmean(values), 0.0)
    t = T_95[freedom - 1] if freedom <= len(T_95) else Z_95
    return Mean(statistics.fmean(values), t * statistics.stdev(values) / math.sqrt(len(values)))


def _summary(name: str, found: Sequence[Figures]) -> Summary:
    means = {field: mean_of([float(getattr(each, field)) for each in found]) for field in COMPARED}
    return Summary(name, len(found), means)
