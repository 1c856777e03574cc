"""Filters about renting, policies and money: what may be rented for the job, what a policy forbids it, and what it may cost.

Money counts in the worst case: a rented machine is paid until its work is made to end, and bytes once they have moved.
"""
# ruff: noqa: ARG001 - every filter is asked with the same three arguments, whichever it needs

import math

from federator.model import rejections as why
from federator.model.capacity import Market
from federator.model.rules import BurstMode, Filter
from federator.model.snapshot import JobView
from federator.planning.kernels.start_cost import machines_usd
from federator.planning.places.candidates import Candidate, machines
from federator.planning.rules.filters import Answer, FilterContext
from federator.planning.rules.openings import open_at
from federator.planning.rules.rulebook import RuleBook

EAGER = frozenset((BurstMode.THRESHOLD, BurstMode.ALWAYS))
"""Modes that rent whatever it costs."""
LIMIT_STEP_S = 300.0
"""A max_duration that is proposed is a multiple of this."""


def burst_paused(job: JobView, at: Candidate, context: FilterContext) -> Answer:
    """An operator has paused renting."""
    paid = at.standing.paid_until_at if at.standing else None
    if not context.snapshot.burst_paused or not at.rented:
        return None
    if at.offer is None and (paid is None or ends_by(job, at, context.snapshot.taken_at) <= paid):
        return None
    return why.RentingPaused()


def home_away(job: JobView, at: Candidate, context: FilterContext) -> Answer:
    """Only a site that the job may use is waited for. What is away is home, and home is never of kind `cloud`."""
    if at.offer is None or (job.kinds and set(job.kinds) <= {"cloud"}):
        return None
    away = tuple(
        site
        for site in context.snapshot.away
        if (not job.sites or site in job.sites) and site not in job.not_sites
    )
    return why.HomeAway(sites=away) if away else None


def avoided(job: JobView, at: Candidate, context: FilterContext) -> Answer:
    """The offer has failed lately."""
    now = context.snapshot.taken_at
    if at.offer is None or at.offer.avoid_until_at is None or at.offer.avoid_until_at <= now:
        return None
    return why.OfferAvoided(until_at=at.offer.avoid_until_at, said=at.offer.avoid_because)


def spot_policy(job: JobView, at: Candidate, context: FilterContext) -> Answer:
    """The job takes spot only, or on-demand only."""
    other = (at.market is Market.SPOT and job.spot_policy == "on-demand") or (
        at.market is Market.ON_DEMAND and job.spot_policy == "spot"
    )
    return why.OtherMarket(market=at.market.value) if other else None


def denied(job: JobView, at: Candidate, context: FilterContext) -> Answer:
    """A policy forbids the job this place."""
    rule = context.book.denial(job, at)
    return None if rule is None else why.Denied(policy=rule.policy, said=rule.reason)


def no_right(job: JobView, at: Candidate, context: FilterContext) -> Answer:
    """The right by which it was admitted to its queue is without renting."""
    if job.may_rent or not at.rented:
        return None
    return why.NoRightToRent(queue=job.queue)


def no_permit(job: JobView, at: Candidate, context: FilterContext) -> Answer:
    """Rented capacity is closed unless a burst policy in force opens it."""
    if not at.rented:
        return None
    permits = context.book.permits_for(job, at)
    advisers = context.book.advisers_for(job, at)
    if advisers and not permits:
        return why.OnlyAdvises(policy=advisers[0].policy)
    if not permits and (kept := context.book.kept_by(job, at)):
        return why.DataKept(policy=kept[0].policy)
    if not permits:
        return why.NoBurstPolicy(queue=job.queue)
    off = next((p for p in permits if p.mode is BurstMode.OFF and open_at(p.window, context.book.at)), None)
    if off is not None:
        return why.PolicyOff(policy=off.policy)
    open_ones = [permit for permit in permits if permit.mode is not BurstMode.OFF]
    if (at.offer is None and open_ones) or any(context.book.in_force(permit) for permit in open_ones):
        return None
    return why.PolicyHours(policy=permits[0].policy)


def price_limit(job: JobView, at: Candidate, context: FilterContext) -> Answer:
    """Every burst policy that opens it admits cheaper instances only."""
    if at.offer is None:
        return None
    permits = [permit for permit in context.book.permits_for(job, at) if context.book.in_force(permit)]
    if any(p.max_price_usd_h is None or at.instance_usd_h <= p.max_price_usd_h for p in permits):
        return None
    dearest = max(permits, key=lambda p: (p.max_price_usd_h or 0.0, p.policy))
    return why.PriceLimit(
        policy=dearest.policy, price_usd_h=at.instance_usd_h, limit_usd_h=dearest.max_price_usd_h or 0.0
    )


def max_duration(job: JobView, at: Candidate, context: FilterContext) -> Answer:
    """Nothing bounds what a job without a limit would cost."""
    if not at.rented or job.bounded:
        return None
    # Enough for the run as it is forecast; a job in a slower form may run for longer than its file says.
    needs_s = max(job.run_s, job.run_high_s) * min(1.0, job.throughput)
    return why.NoMaxDuration(enough_s=math.ceil(needs_s / LIMIT_STEP_S) * LIMIT_STEP_S)


def worst_rent_s(job: JobView, at: Candidate) -> float:
    """For how long rent is paid in the worst case: boot, bringing its data, the job's whole limit and grace, slack, teardown, and at least the minimum billed."""
    run = at.run_s(job) if job.max_duration_s is None else at.transfer(job).seconds + job.max_duration_s
    run += job.grace_s
    if at.offer is None:
        return run + (at.standing.tail_s if at.standing else 0.0)
    offer = at.offer.offer
    return max(offer.minimum_billing_s, offer.delay_s + run + at.offer.slack_s + offer.teardown_s)


def rent_usd(job: JobView, at: Candidate, run_s: float) -> float:
    """What a run of that length is expected to cost on all its machines: boot, run and teardown, at least the minimum billed."""
    if at.offer is None:
        return float(machines_usd(at.instance_usd_h, 1, run_s))
    offer = at.offer.offer
    paid_s = max(offer.minimum_billing_s, offer.delay_s + run_s + offer.teardown_s)
    return float(machines_usd(at.instance_usd_h, machines(job, at), paid_s))


def worst_usd(job: JobView, at: Candidate) -> float:
    """The most that the job can cost there: the rent of all its machines, and moving its data. What is owned has no rent."""
    rent = machines_usd(at.instance_usd_h, machines(job, at), worst_rent_s(job, at))
    return float(rent) + at.transfer(job).usd


def max_cost(job: JobView, at: Candidate, context: FilterContext) -> Answer:
    """In the worst case the job would cost more than it may."""
    if job.max_cost_usd is None:
        return None
    moves = at.transfer(job)
    if not (at.rented or moves.usd):
        return None
    left, worst = job.max_cost_usd - job.spent_usd, worst_usd(job, at)
    if worst <= left + 1e-9:
        return None
    return why.MaxCost(
        worst_usd=worst,
        left_usd=left,
        rent_s=worst_rent_s(job, at) if at.rented else None,
        machines=machines(job, at),
        brought=moves.brought,
        policy=job.cost_policy,
    )


def ends_by(job: JobView, at: Candidate, now: float) -> float:
    """When the job has ended in the worst case, on what is rented already."""
    return max(now, at.ready_at or 0.0) + at.transfer(job).seconds + (job.max_duration_s or 0.0) + job.grace_s


def admits(permit: Filter, at: Candidate) -> bool:
    """Whether the policy lets something at this price be rented."""
    return permit.max_price_usd_h is None or at.instance_usd_h <= permit.max_price_usd_h


def only_deadlines(book: RuleBook, job: JobView) -> bool:
    """Whether all policies that rent for the job do so to meet its deadline, weighed in money, and for nothing else."""
    return not any(permit.for_waiting or permit.mode in EAGER for permit in book.permits_about(job))
