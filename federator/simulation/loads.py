"""What is done to a trace before it is run: a window cut, the load changed, deadlines set, users made to err.

Chance is drawn for each job from the seed and its name, so that one option changes nothing of what another one draws.
"""

import random
from collections.abc import Iterator, Sequence

import msgspec

from federator.kernel.errors import Invalid
from federator.simulation.work import TraceJob
from federator.simulation.world import WorldSpec


class LoadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a trace is used. Times in seconds from its first submission."""

    start_s: float = 0.0
    length_s: float | None = None
    """Jobs that are submitted from `start_s` on, for so long (None: all that follow), take part. Time 0 is that of `start_s`."""
    load: float = 1.0
    """Each job comes so many times: 0.5 takes every second one by chance, 2.5 each twice or three times."""
    deadline_k: float | None = None
    """Deadlines become submit + k × true run time; None: as the trace has them."""
    sigma: float | None = None
    """Users' estimates become the true run time × e^N(0, σ²); None: as the trace has them, or true where it has none."""
    limit: float | None = 4.0
    """`max_duration` is so many times the longer of estimate and true run time, on the slowest model that the job may use, where the trace has
    none: it ends nobody. None: a job without it has none, or its queue's."""
    value_usd_gpu_h: float | None = None
    """What a met deadline is worth, in USD per GPU-hour, where the trace does not say; None: what the queue's policy says."""


def prepared(
    jobs: Sequence[TraceJob], options: LoadOptions, seed: int, world: WorldSpec | None = None
) -> list[TraceJob]:
    """The jobs that are submitted, in order; without a world, all models are equally fast. Raises `Invalid` when there are none."""
    first_s = min(job.submit_s for job in jobs)
    start_s = first_s + options.start_s
    stop_s = float("inf") if options.length_s is None else start_s + options.length_s
    chosen = [job for job in jobs if start_s <= job.submit_s < stop_s]
    if not chosen:
        raise Invalid("no job of the trace is submitted in that window", field="--start")
    speeds = _speeds(world)
    made = [
        _equipped(copy, start_s, options, seed, speeds)
        for job in chosen
        for copy in _copies(job, options, seed)
    ]
    return sorted(made, key=lambda job: (job.submit_s, job.name))


def _copies(job: TraceJob, options: LoadOptions, seed: int) -> Iterator[TraceJob]:
    whole = int(options.load)
    more = _chance(seed, "load", job).random() < options.load - whole
    for number in range(whole + more):
        yield job if number == 0 else msgspec.structs.replace(job, name=f"{job.name}.{number}")


def _speeds(world: WorldSpec | None) -> dict[str, float]:
    """Of the models that there are."""
    if world is None:
        return {}
    models = {pool.model for site in world.sites for pool in site.pools}
    models |= {offer.model for offer in world.offers}
    return {model: world.speeds.get(model, 1.0) for model in models}


def _equipped(
    job: TraceJob, start_s: float, options: LoadOptions, seed: int, speeds: dict[str, float]
) -> TraceJob:
    submit_s = job.submit_s - start_s
    deadline_s = None if job.deadline_s is None else job.deadline_s - start_s
    if options.deadline_k is not None:
        deadline_s = submit_s + options.deadline_k * job.run_s
    estimate_s = job.run_s if job.estimate_s is None else job.estimate_s
    if options.sigma is not None:
        estimate_s = job.run_s * _chance(seed, "estimate", job).lognormvariate(0.0, options.sigma)
    limit_s = job.max_duration_s
    if limit_s is None and options.limit is not None:
        usable = [speed for model, speed in speeds.items() if not job.models or model in job.models]
        limit_s = options.limit * max(estimate_s, job.run_s, 60.0) / min([1.0, *usable])
    value_usd = job.value_usd
    if value_usd is None and deadline_s is not None and options.value_usd_gpu_h is not None:
        value_usd = options.value_usd_gpu_h * job.gpu_h
    return msgspec.structs.replace(
        job,
        submit_s=submit_s,
        deadline_s=deadline_s,
        estimate_s=max(1.0, estimate_s),
        max_duration_s=limit_s,
        value_usd=value_usd,
    )


def _chance(seed: int, what: str, job: TraceJob) -> random.Random:
    return random.Random(f"{seed}/{what}/{job.name}")
