"""The independent plan checker: proves a plan against a snapshot, without knowing who made it.

It shares no code with planner or solver: what a plan may do is written here a second time, from the records alone, so that one mistake
cannot both make and pass a plan. The turn proves a plan against the plan's own snapshot, and the committer against
a fresh one; it drops the actions that a fatal finding names as stale. Remarks are for `federator solver check` and tests: no turn makes them.

Actions are judged in order. One with a fatal finding is not applied, so every later action is judged as if it were not there: what is left
after dropping all blamed actions is valid as it stands. No action may count on what a `Preempt` of the same plan frees.

| promise | held by | what it holds |
|---|---|---|
| 2 never two at once | `identity` | the job waits in the snapshot at that revision, nothing of it runs, one action per job |
| 3 gangs are whole | `capacity` | one member for every rank, all at one site in pools of one name and make; what is rented holds the whole gang |
| 4 capacity | `capacity`, `packing` | each rank's pool known, open, ready, same session; CPU, memory and GPUs fit host by host after earlier actions |
| 5 quotas | `quotas`, `preemption` | caps on GPUs and jobs, borrowing limits; a victim is one that a guarantee or rule gives up |
| 5 in time | `overdue_guarantees` | nobody waits beyond the reclaim time while a borrower has his place (remark) |
| 6 budgets | `money` | worst case recomputed from the offer; caps on USD, USD per hour and instances; the job's own `max_cost` |
| 10 reasons | `completeness` | every job has an action or a reason (remark) |
| 11 rentals pay | `completeness` | nobody is rented for while owned capacity would do in time (remark) |
| 13 no idle GPU | `completeness`, `reservations` | no free, owned, permitted GPUs beside a waiting job that fits them, but for a reservation that holds (remark) |
| 0 permission | `permission`, `evidence`, `identity` | the job's own constraints, what sites lend, filters, burst modes and their evidence, backoff |

Promise 0 is this module's word for permission: what users, sites and policies forbid has no number of its own in the list of promises.

What it cannot see: why a lease was rented once it is there (the committer keeps that), and whether a forecast of a home finish is right; of
that it holds only what follows from the evidence itself.
"""

from collections.abc import Iterable, Iterator

from federator.model.plans import Action, Finding, Place, Plan, Preempt, Rent, Severity
from federator.model.snapshot import JobView, Problem
from federator.planning.checks import (
    capacity,
    completeness,
    evidence,
    identity,
    money,
    permission,
    preemption,
    quotas,
)
from federator.planning.checks.context import (
    PERMISSION,
    CheckContext,
    Fault,
    Target,
    target_of_offer,
    target_of_pool,
)


def check(problem: Problem, plan: Plan) -> tuple[Finding, ...]:
    """Everything that is wrong with `plan` in the world of `problem.snapshot`; `Finding.subject` is the job of the action at fault."""
    context = CheckContext(problem.snapshot, plan)
    return (*_judge_all(context), *completeness.remarks(context))


def check_actions(problem: Problem, plan: Plan) -> tuple[Finding, ...]:
    """As `check`, but only what the actions do wrong: for part of a plan, about whose other jobs nothing can be said."""
    return tuple(_judge_all(CheckContext(problem.snapshot, plan)))


def _judge_all(context: CheckContext) -> Iterator[Finding]:
    for action in context.plan.actions:
        faults = list(_judge(context, action))
        yield from (Finding(Severity.FATAL, fault.promise, action.job, fault.text) for fault in faults)
        context.acted.add(action.job)
        if not faults:
            context.accepted.append(action)


def _judge(context: CheckContext, action: Action) -> Iterator[Fault]:
    """All faults of one action; it is applied to the context when there is none."""
    if isinstance(action, Preempt):
        faults = list(preemption.check_preempt(context, action))
        if not faults:
            preemption.apply_preempt(context, action)
        yield from faults
        return
    faults = list(identity.check_identity(context, action))
    job = context.jobs.get(action.job)
    if job is not None and not 0 <= action.form <= len(job.forms):
        yield Fault(3, f"the plan runs form {action.form}, the job has {1 + len(job.forms)}, from 0")
        return
    job = None if job is None else job.as_form(action.form)
    target = _target(context, action)
    if target is None:
        faults.append(capacity.unknown_target(action))
    elif job is not None:
        faults += _judge_start(context, job, target, action)
        if not faults:
            # Packing is last, and takes the hosts when it succeeds: a fault found before it must not leave them taken.
            faults += capacity.take_hosts(context, job, target, action)
        if not faults:
            context.apply(job, target, action)
    yield from faults


def _judge_start(
    context: CheckContext, job: JobView, target: Target, action: Place | Rent
) -> Iterator[Fault]:
    """The faults of starting a job that waits at a place that exists, its packing excepted."""
    yield from _of(PERMISSION, permission.check_permission(context, job, target))
    yield from _of(5, quotas.check_quotas(context, job, target))
    if isinstance(action, Place):
        yield from capacity.check_place(context, job, target, action)
        yield from _of(6, money.check_place(context, job, target, action))
    else:
        yield from capacity.check_rent(context, target, action)
        yield from _of(6, money.check_rent(context, job, target, action))
        yield from _of(PERMISSION, evidence.check_evidence(context, job, target, action))


def _of(promise: int, texts: Iterable[str]) -> Iterator[Fault]:
    return (Fault(promise, text) for text in texts)


def _target(context: CheckContext, action: Place | Rent) -> Target | None:
    if isinstance(action, Rent):
        offer = context.offers.get(f"{action.provider}/{action.offer}")
        return None if offer is None else target_of_offer(offer, context.moving)
    member = action.members[0] if action.members else ""
    pool = context.pools.get(f"{action.site}/{member}/{action.pool}")
    return None if pool is None else target_of_pool(pool, context.moving)
