"""Promises 5, 10, 11 and 13, as remarks: guarantees are back in time, every job has a reason, no rental without need, and no idle GPU beside a job that fits it."""

from collections.abc import Iterator, Sequence
from itertools import islice

from federator.model.plans import Finding, Rent, Reservation, Severity
from federator.model.snapshot import JobView, PoolView
from federator.planning.checks import reservations
from federator.planning.checks.context import CheckContext, Target, expected_run_s, forms_of
from federator.planning.checks.money import check_own_cap
from federator.planning.checks.overdue_guarantees import overdue
from federator.planning.checks.packing import Size, rank_of
from federator.planning.checks.permission import check_permission
from federator.planning.checks.quotas import check_quotas
from federator.planning.checks.reservations import Option

Rooms = dict[tuple[str, Size, bool], int]
"""How many ranks of a size a place of several members has room for, once all actions are judged."""
MANY = 1_000_000


def remarks(context: CheckContext) -> Iterator[Finding]:
    """What could be said against the plan as a whole, job by job, once all its actions are judged."""
    yield from _reasons(context)
    yield from _idle(context)
    yield from overdue(context)


def _reasons(context: CheckContext) -> Iterator[Finding]:
    """Every job of the snapshot has an action, or waits with a reason."""
    reasons = {
        waiting.job: waiting.why is not None or bool(waiting.because.strip())
        for waiting in context.plan.waiting
    }
    for job in context.snapshot.jobs:
        if job.id in context.acted:
            continue
        if job.id not in reasons:
            yield Finding(
                Severity.REMARK, 10, job.id, "the plan neither starts this job nor says why it waits"
            )
        elif not reasons[job.id]:
            yield Finding(Severity.REMARK, 10, job.id, "the job waits without a reason")


def _idle(context: CheckContext) -> Iterator[Finding]:
    """No job waits, or is rented for, beside free owned GPUs that it fits, may use, and finishes on in time; but for a reservation that holds."""
    reserved = {waiting.job: waiting.reserved for waiting in context.plan.waiting}
    started = {action.job for action in context.accepted}
    rented = {action.job for action in context.accepted if isinstance(action, Rent)}
    known: dict[object, list[Option]] = {}
    rooms: Rooms = {}
    for job in context.snapshot.jobs:
        renting = job.id in rented
        if (job.id in started and not renting) or (job.not_before_at or 0.0) > context.now:
            continue
        kept = None if renting else reserved.get(job.id)
        alike = _likeness(job, with_deadline=renting), kept is None
        if alike not in known:
            options = _options(context, job, rooms, in_time=renting)
            known[alike] = list(islice(options, 1) if kept is None else options)
        free = known[alike]
        if free and renting:
            yield Finding(
                Severity.REMARK,
                11,
                job.id,
                f"rented for, though {free[0][1].key} is free, owned, and soon enough",
            )
        elif free and _wants_gpus(job):
            yield from _unreserved(context, job, kept, free)


def _unreserved(
    context: CheckContext, job: JobView, kept: Reservation | None, free: Sequence[Option]
) -> Iterator[Finding]:
    """What leaves these free GPUs alone without a reservation that holds."""
    text = "waits" if kept is None else reservations.broken(context, job, kept, free)
    if text is not None:
        where = f"though {free[0][1].key} has free GPUs that it fits and may use"
        yield Finding(Severity.REMARK, 13, job.id, f"{text}, {where}")


def _options(context: CheckContext, job: JobView, rooms: Rooms, *, in_time: bool) -> Iterator[Option]:
    """What it could start on now."""
    for form in forms_of(job):
        for target in context.targets:
            if _could_use(context, form, target, rooms, in_time=in_time):
                yield form, target


def _wants_gpus(job: JobView) -> bool:
    return all(gpus > 0 for gpus in (job.gpus, *(form.resources.gpus.count for form in job.forms)))


def _could_use(context: CheckContext, job: JobView, target: Target, rooms: Rooms, *, in_time: bool) -> bool:
    pool = target.pool
    if pool is None or not target.owned or not context.takes_work(pool):
        return False
    if (
        in_time
        and job.deadline_at is not None
        and context.now + expected_run_s(job, target) > job.deadline_at
    ):
        return False
    if not _would_hold(context, job, pool, rooms):
        return False
    return not (
        any(check_permission(context, job, target))
        or any(check_quotas(context, job, target))
        or any(check_own_cap(job, target.moved(job).usd))
    )


def _would_hold(context: CheckContext, job: JobView, pool: PoolView, rooms: Rooms) -> bool:
    """Whether it fits that pool, alone or with the rest of its place, as things lie."""
    rank, pools = rank_of(job), context.alike[pool.key]
    if job.nodes == 1 or len(pools) == 1:
        return context.room(job, [pool]) == job.nodes
    key = pools[0].key, rank, job.apart
    if key not in rooms:
        opened = [each for each in pools if each.open]
        rooms[key] = sum(context.hosts[each.key].more(rank, MANY, apart=job.apart) for each in opened)
    return rooms[key] >= job.nodes


def _likeness(job: JobView, *, with_deadline: bool) -> object:
    """Jobs that differ in nothing that matters here are looked at once."""
    return (
        job.whose,
        tuple(sorted(job.labels.items())),
        (job.nodes, job.gpus, job.shared, job.together, job.cpus_milli, job.memory_mib),
        (job.models, job.gpu_memory_mib, job.kinds, job.sites, job.not_sites, job.refused),
        (tuple(sorted(job.site_labels.items())), job.needs, job.needs_fencing, job.inputs),
        job.forms,
        (job.deadline_at, job.run_s, tuple(sorted(job.speed.items()))) if with_deadline else None,
    )
