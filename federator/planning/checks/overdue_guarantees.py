"""Promise 5 in time, as a remark: who is owed a guarantee has waited for no longer than its queue is to wait, while work that borrows could have been stopped.

It says only what is sure whatever lies where: one borrower has a rank there at least as large as the one rank of the job, and nothing there stops already.
"""

from collections.abc import Iterator

from federator.model.plans import Finding, Preempt, Severity
from federator.model.snapshot import BusyView, JobView
from federator.planning.checks.context import CheckContext, Target
from federator.planning.checks.packing import rank_of
from federator.planning.checks.permission import check_permission
from federator.planning.checks.quotas import check_quotas
from federator.planning.checks.shares import beyond, covered

LATE_S = 1.0
"""Time that passes between the moment and the turn."""


def overdue(context: CheckContext) -> Iterator[Finding]:
    """Jobs that are past their queue's reclaim time, with who could have been stopped for them."""
    if not context.guarantees:
        return
    served = {action.beneficiary for action in context.plan.actions if isinstance(action, Preempt)}
    moving = {
        target.key for target, busy in context.parts if busy.stopping or busy.placement in context.stopped
    }
    for job in context.snapshot.jobs:
        if job.id in context.acted or job.id in served or (job.not_before_at or 0.0) > context.now:
            continue
        for target, busy in context.parts:
            late_s = _late_s(context, job, target) if target.key not in moving else 0.0
            if late_s > LATE_S and _makes_room(context, job, target, busy):
                text = f"is owed its guarantee since {late_s:.0f} s, and {busy.placement} borrows its place at {target.key}"
                yield Finding(Severity.REMARK, 5, job.id, text)
                break


def _late_s(context: CheckContext, job: JobView, target: Target) -> float:
    """For how long it should have had its place there; nothing, where no guarantee covers it."""
    rows = [
        context.guarantees[index].reclaim_s
        for index in context.guarantees_on(job, target)
        if covered(job, context.share_use[index], context.dues[index])
    ]
    began_at = job.submitted_at if job.waits_since_at is None else job.waits_since_at
    return max((context.now - began_at - reclaim_s for reclaim_s in rows), default=0.0)


def _makes_room(context: CheckContext, job: JobView, target: Target, busy: BusyView) -> bool:
    if job.nodes > 1 or any(has < wants for has, wants in zip(rank_of(busy), rank_of(job), strict=True)):
        return False
    theirs, mine = set(context.guarantees_on(busy, target)), set(context.guarantees_on(job, target))
    borrows = mine - theirs and all(
        beyond(busy, context.share_use[index], context.dues[index]) for index in theirs
    )
    return bool(
        borrows
        and target.pool is not None
        and target.pool.open
        and not any(check_permission(context, job, target))
        and not any(check_quotas(context, job, target))
    )
