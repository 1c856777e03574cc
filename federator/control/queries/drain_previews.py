"""What draining a site would come to, as far as is known now: what ends by itself, what would be stopped, when the site is empty, what is lost."""

import asyncio
from collections.abc import Callable

from federator.control.record.records import Records
from federator.model.jobs import Job
from federator.model.placements import Placement
from federator.wire.http import JobRow
from federator.wire.sites import DrainPreview, Stopped

MOST = 500
"""Jobs that are named; all are counted."""
AT_A_TIME = 100
"""Jobs that are looked at before others have their turn."""


async def drain_preview(
    records: Records, site: str, by_at: float | None, now: float, row_of: Callable[[Job], JobRow]
) -> DrainPreview:
    """Nothing is changed. `by_at` None: what runs there goes on to its end."""
    stopped: list[Stopped] = []
    ends: list[float | None] = []
    at_work = [each for each in records.open_placements.values() if each.site == site and not each.ended]
    for number, placement in enumerate(at_work):
        if number % AT_A_TIME == AT_A_TIME - 1:
            await asyncio.sleep(0)
        job = records.jobs.get(placement.job)
        if job is None:
            continue  # forgotten in the meantime
        row = row_of(job)
        end_at = row.expected_finish_at
        if by_at is not None and (end_at is None or end_at > by_at):
            stopped.append(_stopped(records, placement, job, row, max(now, by_at)))
            end_at = max(now, by_at)
        ends.append(end_at)
    stopped.sort(key=lambda each: (-each.lost_gpu_s, each.job))
    known = [at for at in ends if at is not None]
    return DrainPreview(
        jobs=len(ends),
        ends_alone=len(ends) - len(stopped),
        stops=len(stopped),
        stopped=tuple(stopped[:MOST]),
        empty_at=max([now, *known]) if len(known) == len(ends) else None,
        lost_gpu_s=sum(each.lost_gpu_s for each in stopped),
        lost_usd=sum(each.lost_usd for each in stopped),
    )


def _stopped(records: Records, placement: Placement, job: Job, row: JobRow, at: float) -> Stopped:
    """One that has to leave: without a checkpoint all that it has done here is done again."""
    saves = records.spec(job.spec_hash).checkpoint is not None
    begun_at = placement.started_at
    lost_gpu_s = 0.0 if saves or begun_at is None else (at - begun_at) * placement.gpus
    return Stopped(
        job=job.id,
        name=job.label,
        owner=job.owner,
        gpus=placement.gpus,
        would_end_at=row.expected_finish_at,
        saves=saves,
        lost_gpu_s=lost_gpu_s,
        lost_usd=lost_gpu_s / 3600 * placement.price_usd_gpu_h,
    )
