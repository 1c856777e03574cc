"""What people were told first of each job, kept with it: so that what came of it can be held against that."""

from collections.abc import Iterator
from itertools import islice

from msgspec.structs import replace

from federator.control.record.records import Changes, Records
from federator.control.turns.job_views import JobViews
from federator.model.capacity import Market
from federator.model.jobs import FirstForecast, Job, JobStatus
from federator.model.placements import Placement
from federator.model.plans import Plan
from federator.planning.explanations.ranges import ranges

MOST = 100
"""Jobs of one turn that wait and whose forecast is written down; the others' turn comes later."""


async def note_first_forecasts(records: Records, jobs: JobViews, plan: Plan, now: float) -> None:
    """Keep what this plan says of jobs that wait, where it is the first that says anything."""

    def compute() -> Changes:
        changes = Changes(quiet=True)
        changes.put(*islice(_with_forecasts(records, jobs, plan, now), MOST))
        return changes

    await records.transact(compute)


def _with_forecasts(records: Records, jobs: JobViews, plan: Plan, now: float) -> Iterator[Job]:
    for waiting in plan.waiting:
        start_at, finish_at = waiting.expected_start_at, waiting.expected_finish_at
        job = records.jobs.get(waiting.job)
        if job is None or job.status is not JobStatus.PENDING or job.first_forecast is not None:
            continue
        if start_at is not None and finish_at is not None:
            yield replace(job, first_forecast=_forecast(jobs, job, now, start_at, finish_at, waits=True))


def with_first_forecast(jobs: JobViews, job: Job, placement: Placement, now: float) -> Job:
    """A job that is placed before anybody was told anything: it starts now, or once its machine is there."""
    if job.first_forecast is not None or placement.expected_end_at is None:
        return job
    rented, end_at = placement.market is not Market.OWNED, placement.expected_end_at
    start_at = max(now, end_at - jobs.of(job).run_s) if rented else now
    found = _forecast(jobs, job, now, start_at, end_at, waits=False)
    gpu_h = placement.gpus * max(0.0, end_at - now) / 3600
    rent_usd = placement.price_usd_gpu_h * gpu_h if rented else 0.0
    data_usd = placement.moves.usd if placement.moves is not None else 0.0
    return replace(job, first_forecast=replace(found, spent_usd=rent_usd + data_usd))


def _forecast(
    jobs: JobViews, job: Job, now: float, start_at: float, finish_at: float, *, waits: bool
) -> FirstForecast:
    start, finish = ranges(jobs.of(job), now, start_at, finish_at, waits=waits)
    return FirstForecast(
        at=now,
        start_at=start_at,
        start_high_at=start.high_at,
        finish_at=finish_at,
        finish_high_at=finish.high_at,
    )
