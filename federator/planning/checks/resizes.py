"""Promise 5 for elastic jobs: one goes on wider within all limits, together with all others that do; and narrower only for a job that room would help.

A job that a limit keeps gains nothing from GPUs that others give up for it: they would idle, and the job would ask for more of them at the next turn.
What is said of a job that is helped holds of the whole plan: others may narrow for it, too.
"""

from collections.abc import Iterator

from federator.model.plans import Preempt
from federator.model.rules import CapUnit
from federator.model.snapshot import JobView, PoolView
from federator.planning.checks.context import NO_CHANGES, Changes, CheckContext, Target, forms_of
from federator.planning.checks.packing import Size, rank_of
from federator.planning.checks.permission import check_permission
from federator.planning.checks.quotas import check_quotas, over_borrowing, over_cap


def check_wider(context: CheckContext, action: Preempt) -> Iterator[str]:
    """No cap on GPUs and no limit on borrowing is exceeded by what all take that go on wider."""
    adds = change_of(context, action)
    for index, more in adds.caps.items():
        yield from over_cap(context, index, more, context.changes)
    for index, more in adds.guarantees.items():
        yield from over_borrowing(context, index, more, context.changes)


def check_helped(context: CheckContext, job: JobView, action: Preempt) -> Iterator[str]:
    """The job that others make room for may run there, has no room yet, and then has it and is within its limits."""
    victims = [target for target, _ in context.running[action.placement]]
    pools = [pool for pool in context.alike[victims[0].key] if context.takes_work(pool)]
    views = [view for view in forms_of(job) if pools and _permitted(context, view, pools[0])]
    if not views:
        yield f"{job.id} may not run where this job does"
    elif any(context.room(view, pools) >= view.nodes for view in views):
        yield f"{job.id} has room there without this job"
    elif not (within := [view for view in views if not _over(context, view, victims[0])]):
        yield f"a limit keeps {job.id}, and room does not help it"
    elif not any(_would_fit(context, view, pools) for view in within):
        yield f"{job.id} would have no room there then, either"


def _permitted(context: CheckContext, view: JobView, pool: PoolView) -> bool:
    target = next(target for target in context.targets if target.pool is pool)
    return not any(check_permission(context, view, target))


def _over(context: CheckContext, view: JobView, target: Target) -> bool:
    """Whether a cap in use at once or a limit on borrowing keeps it, once all have narrowed that do."""
    return any(check_quotas(context, view, target, _narrowed(context)[1]))


def _would_fit(context: CheckContext, view: JobView, pools: list[PoolView]) -> bool:
    """Whether what is free and what those give up is enough in all: nobody says on which hosts they are."""
    keys = {pool.key for pool in pools}
    left = [sum(parts) for parts in zip(*(context.hosts[pool.key].free for pool in pools), strict=True)]
    for action in _narrowed(context)[0]:
        parts = [busy for target, busy in context.running[action.placement] if target.key in keys]
        then = _then(context, action)
        if not parts or then is None:
            continue
        for busy in parts:
            left = _plus(left, busy.nodes, rank_of(busy))
        left = _plus(left, -then.nodes, rank_of(then))
    return min(_plus(left, -view.nodes, rank_of(view))) >= 0


def _plus(left: list[int], ranks: int, rank: Size) -> list[int]:
    return [has + ranks * each for has, each in zip(left, rank, strict=True)]


def _then(context: CheckContext, action: Preempt) -> JobView | None:
    """The job in the form that it goes on in; None where it has none such."""
    whole, form = context.elastic_part(action.placement).waits_as, action.form
    return None if whole is None or form is None or form > len(whole.forms) else whole.as_form(form)


def change_of(context: CheckContext, action: Preempt) -> Changes:
    """GPUs that a change of form adds to each cap on GPUs, and to each guaranteed queue."""
    parts, then = context.running[action.placement], _then(context, action)
    if then is None:
        return NO_CHANGES
    target, more = parts[0][0], then.gpus_total - sum(busy.gpus_total for _, busy in parts)
    caps = [index for index in context.caps_on(then, target) if context.caps[index].unit is CapUnit.GPUS]
    return Changes(dict.fromkeys(caps, more), dict.fromkeys(context.guarantees_on(then, target), more))


def _narrowed(context: CheckContext) -> tuple[list[Preempt], Changes]:
    """The changes of form that make room for others, and what they come to."""
    if context.narrowed is None:
        stops = [a for a in context.plan.actions if isinstance(a, Preempt) and a.form is not None]
        found = [a for a in stops if a.beneficiary != a.job and a.placement in context.running]
        total = NO_CHANGES
        for action in found:
            total = total.plus(change_of(context, action))
        context.narrowed = found, total
    return context.narrowed
