"""Promise 6, budgets hold: the worst case of every rental is recomputed from its offer and stays below each hard cap."""

from collections.abc import Iterator

from federator.model.plans import Place, Rent
from federator.model.rules import CapUnit
from federator.model.snapshot import JobView
from federator.planning.checks.context import (
    TOLERANCE,
    CheckContext,
    Target,
    amount,
    lease_share_usd,
    worst_case_usd,
)

MONEY = (CapUnit.USD, CapUnit.USD_PER_H, CapUnit.INSTANCES)


def check_rent(context: CheckContext, job: JobView, target: Target, action: Rent) -> Iterator[str]:
    """The rental ends (`max_duration`), commits its worst case, and fits the job's own cap and every policy's."""
    if job.max_duration_s is None:
        yield "a job without max_duration cannot be rented for: nothing bounds what it costs"
        return
    worst = action.machines * worst_case_usd(job, target)
    if action.committed_usd < worst - TOLERANCE:
        yield f"the plan commits {action.committed_usd:.4f} USD, the worst case is {worst:.4f} USD"
    yield from check_own_cap(job, worst + target.moved(job).usd)
    yield from _moves(job, target, action)
    yield from _caps(context, job, target, action)


def check_place(context: CheckContext, job: JobView, target: Target, action: Place) -> Iterator[str]:
    """On a lease, too, the job must end; what it adds to the rent, and its share of it, must stay within the caps."""
    pool, moves_usd = target.pool, target.moved(job).usd
    yield from _moves(job, target, action)
    if pool is None or target.owned:
        if moves_usd:
            yield from check_own_cap(job, moves_usd)
            yield from _caps(context, job, target, action)
        return
    if job.max_duration_s is None:
        yield f"a job without max_duration cannot use {target.key}, which is rented: nothing bounds what it costs"
        return
    yield from check_own_cap(job, lease_share_usd(job, target) + moves_usd)
    yield from _caps(context, job, target, action)


def _caps(context: CheckContext, job: JobView, target: Target, action: Place | Rent) -> Iterator[str]:
    for index in context.caps_on(job, target):
        cap = context.caps[index]
        if cap.unit not in MONEY:
            continue
        more = amount(cap, job, target, action, context.now)
        if more and context.cap_use[index] + more > cap.limit + TOLERANCE:
            yield (
                f"policy {cap.policy} caps {cap.unit} at {cap.limit:g}: "
                f"{context.cap_use[index]:.4g} are taken, this adds {more:.4g}"
            )


def _moves(job: JobView, target: Target, action: Place | Rent) -> Iterator[str]:
    """The plan says of every byte that is moved what it costs, for that is what will be booked."""
    moved, said = target.moved(job), action.moves
    told = (said.moved_bytes, said.usd) if said is not None else (0, 0.0)
    if told[0] != moved.moved_bytes or abs(told[1] - moved.usd) > TOLERANCE:
        yield f"the plan moves {told[0]} bytes for {told[1]:.4f} USD, it takes {moved.moved_bytes} for {moved.usd:.4f} USD"


def check_own_cap(job: JobView, worst: float) -> Iterator[str]:
    """What it may cost at worst, with what was spent on it, is within the job's `max_cost`."""
    if job.max_cost_usd is not None and job.spent_usd + worst > job.max_cost_usd + TOLERANCE:
        yield f"the job may cost {job.max_cost_usd:.4g} USD: {job.spent_usd:.4g} are spent, this adds {worst:.4g} in the worst case"
