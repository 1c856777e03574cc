"""Who is before a job that waits: what runs where it is to start, and what the plan starts before it."""

import math
from collections.abc import Callable, Iterator
from heapq import nsmallest

from federator.control.administration.visibility import ANOTHERS
from federator.control.record.records import Records
from federator.control.turns.turn import Turn
from federator.model.jobs import Job, JobStatus
from federator.model.plans import Ahead, Explanation

SHOWN = 3
OPEN = ("", "busy", "held")
"""Filters of pools that it may run in once others have left."""
SLACK_S = 60.0
"""A place where it would start so much later is none where it is to start."""


def ahead_of(
    records: Records,
    turn: Turn,
    job: Job,
    told: Explanation,
    *,
    finish_at: Callable[[Job], float | None],
    may_see: Callable[[Job], bool],
) -> tuple[Ahead, ...]:
    """At most `SHOWN` of each sort; of what runs, what should end first. `finish_at`: when that is. Of others' jobs that may not be seen, no names."""
    start_at = told.expected_start_at
    if job.status is not JobStatus.PENDING or start_at is None:
        return ()
    places = [site for site in told.sites if site.filter in OPEN]
    then = [site for site in places if site.start_at is not None and site.start_at <= start_at + SLACK_S]
    pools = {(site.site, site.pool) for site in then or places}
    found = [*_running(records, pools, finish_at), *_waiting(records, turn, job, start_at)]
    return tuple(_masked(each, owner, may_see) for each, owner in found)


def _running(
    records: Records, pools: set[tuple[str, str]], finish_at: Callable[[Job], float | None]
) -> Iterator[tuple[Ahead, Job]]:
    placed = [
        (placement, records.jobs[placement.job])
        for placement in records.open_placements.values()
        if not placement.ended
        and (placement.site, placement.pool) in pools
        and placement.job in records.jobs
        and placement.gpus
    ]
    first = nsmallest(SHOWN, placed, key=lambda pair: (pair[0].expected_end_at or math.inf, -pair[0].gpus))
    for placement, holder in first:
        until_at = finish_at(holder)
        ahead = Ahead(
            job=holder.id,
            name=holder.label,
            owner=holder.owner,
            gpus=placement.gpus,
            site=placement.site,
            until_at=until_at,
        )
        yield ahead, holder


def _waiting(records: Records, turn: Turn, job: Job, start_at: float) -> Iterator[tuple[Ahead, Job]]:
    """What is planned to start before it: where, the plan keeps to itself."""
    before = [
        (waiting.expected_start_at, records.jobs[waiting.job])
        for waiting in turn.waiting.values()
        if waiting.job != job.id
        and waiting.expected_start_at is not None
        and waiting.expected_start_at < start_at
        and waiting.job in records.jobs
    ]
    for _, other in sorted(before, key=lambda pair: (-pair[0], pair[1].id))[:SHOWN]:
        gpus = records.spec(other.spec_hash).gpus_total
        yield Ahead(job=other.id, name=other.label, owner=other.owner, gpus=gpus, waits=True), other


def _masked(ahead: Ahead, job: Job, may_see: Callable[[Job], bool]) -> Ahead:
    if may_see(job):
        return ahead
    return Ahead(
        job="",
        name=ANOTHERS,
        owner="",
        gpus=ahead.gpus,
        site=ahead.site,
        until_at=ahead.until_at,
        waits=ahead.waits,
    )
