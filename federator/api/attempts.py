"""A job's attempts, as its owner looks at them, and how the log of the last that failed ends."""

import asyncio

from federator.api.exchange import Call
from federator.api.log_offsets import last_lines
from federator.kernel.errors import NotFound
from federator.model.jobs import Job, JobStatus
from federator.model.placements import Placement, PlacementStatus
from federator.model.rights import MAY_READ
from federator.wire.addresses import names_array, one_task
from federator.wire.http import AttemptRow

SHOWN = 20
"""Of more attempts, the newest are shown."""
LINES = 10
LINES_BYTES = 4096


def log_name(placement: str, rank: int) -> str:
    """Under which a rank's log is kept."""
    return f"{placement}/{rank}"


async def refuse_array(call: Call, verb: str) -> None:
    """Raise `Invalid` where the path names all tasks of an array, and `verb` is about one: of the newest, nobody has asked."""
    if names_array(call.path("id"), call.job):
        array = await call.core.views.array(call.caller, call.job)
        raise one_task(array.name, array.indices, sum(array.tasks.values()), array.ended, verb)


async def attempts_of(call: Call, job: Job) -> list[Placement]:
    """All of them that are on record, oldest first. The job's timeline names them: placements are not kept by job."""
    records = call.core.records
    now = records.known_placement(job.placement)
    if job.epoch <= 1 and now is not None:
        return [now]
    names = {event.placement for event in await call.core.views.events(job.id, None)}
    found = map(records.known_placement, names)
    return sorted(
        (each for each in found if each is not None and each.job == job.id), key=lambda each: each.epoch
    )


async def attempt(call: Call, number: int) -> Placement:
    """The attempt with that number. Raises `NotFound`."""
    found = await attempts_of(call, call.job)
    for each in found:
        if each.epoch == number:
            return each
    numbers = ", ".join(str(each.epoch) for each in found[-SHOWN:])
    raise NotFound(
        f"{call.job.name} has no attempt {number}",
        remedy=f"its attempts are {numbers}" if numbers else "it has not been started yet",
    )


async def attempt_rows(call: Call, job: Job) -> tuple[AttemptRow, ...]:
    """As they are shown: the last that failed with the end of its log, for those who may read that."""
    found = (await attempts_of(call, job))[-SHOWN:]
    failed = next((each for each in reversed(found) if each.status is PlacementStatus.FAILED), None)
    may_read = call.core.authority.now.relations(call.caller, job) & MAY_READ
    lines, rank = "", 0
    if failed is not None and job.status is not JobStatus.SUCCEEDED and may_read:
        rank = _failed_rank(failed)
        name = log_name(failed.id, rank)
        lines = await asyncio.to_thread(last_lines, call.core.blobs, name, LINES, LINES_BYTES)
    now = call.core.clock.now()
    return tuple(_row(each, lines if each is failed else "", rank, now) for each in found)


def _failed_rank(placement: Placement) -> int:
    ended = [part.rank for part in placement.parts if part.status is PlacementStatus.FAILED]
    return next((rank.rank for rank in ended if rank is not None), 0)


def _row(placement: Placement, lines: str, rank: int, now: float) -> AttemptRow:
    ran_s = max(0.0, (placement.ended_at or now) - placement.started_at) if placement.started_at else 0.0
    price = placement.price_usd_gpu_h
    return AttemptRow(
        attempt=placement.epoch,
        placement=placement.id,
        site=placement.site,
        model=placement.model,
        market=placement.market,
        status=placement.status,
        pool=placement.pool,
        members=placement.members,
        gpus=placement.gpus,
        lease=placement.lease or "",
        assigned_at=placement.assigned_at or None,
        started_at=placement.started_at,
        usd=ran_s / 3600.0 * placement.gpus * price if price else None,
        ended_at=placement.ended_at,
        cause=placement.cause or "",
        exit_code=placement.exit_code,
        detail=placement.detail,
        last_lines=lines,
        last_lines_of=rank,
    )
