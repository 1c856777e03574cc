"""Why a rental is justified: the policy it names permits it, and the reason that policy asks for is there and true."""

import math
from collections.abc import Iterator

from federator.model.capacity import BurstEvidence, Market
from federator.model.plans import Rent
from federator.model.rules import BurstMode, Filter
from federator.model.snapshot import JobView
from federator.planning.checks.context import (
    TOLERANCE,
    CheckContext,
    Target,
    expected_run_s,
    forms_of,
    target_of_offer,
)
from federator.planning.checks.permission import renting_allows

SLACK_S = 1.0
"""Times computed twice may differ by this much."""
MOST_RISK = 0.5
"""What is planned in time is likelier in time than not."""
OF_RANGE = 1.702 * 2.5631
"""The steepness of a logistic curve, of which 80 of 100 lie within one."""
MOST_STEEP = 50.0


def check_evidence(context: CheckContext, job: JobView, target: Target, action: Rent) -> Iterator[str]:
    """The evidence is about this job and deadline, and justifies renting under the policy and mode that it names."""
    said = action.evidence
    if said.job != action.job:
        yield f"the evidence is about another job: {said.job}"
    if said.deadline_at != job.deadline_at:
        yield f"the evidence has deadline {said.deadline_at}, the job has {job.deadline_at}"
    permitting = renting_allows(context, job, target)
    if not permitting:
        return  # said by the check of filters
    named = [rule for rule in permitting if rule.policy == said.policy and _mode(rule) == said.mode]
    if not named:
        yield f"policy {said.policy!r} does not permit this rental in mode {said.mode!r}"
        return
    faults = [list(_unjustified(context, job, target, action, rule)) for rule in named]
    if all(faults):
        yield from faults[0]


def _mode(rule: Filter) -> str:
    """A filter that does not say how is read as the narrowest way."""
    return (rule.mode or BurstMode.ECONOMIC).value


def _unjustified(
    context: CheckContext, job: JobView, target: Target, action: Rent, rule: Filter
) -> Iterator[str]:
    if rule.approval_above_usd is not None and action.committed_usd > TOLERANCE + max(
        rule.approval_above_usd, job.approved_usd
    ):
        yield f"policy {rule.policy} wants {action.committed_usd:.4g} USD approved by a person, who approved {job.approved_usd:.4g}"
    if rule.mode is BurstMode.ALWAYS:
        return
    if rule.mode is BurstMode.THRESHOLD:
        waited = context.now - job.submitted_at
        if waited < (rule.after_wait_s or 0.0) - SLACK_S:
            yield f"policy {rule.policy} rents after {rule.after_wait_s:.0f} s of waiting, the job has waited {waited:.0f} s"
        return
    if not rule.for_waiting:
        yield from _deadline(context, job, target, action)


def _deadline(context: CheckContext, job: JobView, target: Target, action: Rent) -> Iterator[str]:
    """Only a deadline justifies renting: it is missed at home, or may be, which is worth the rent; and it is likelier than not met with this offer, or may be, which is worth the rent."""
    said = action.evidence
    if job.deadline_at is None:
        yield "in economic mode only a deadline justifies renting, and the job has none"
        return
    risk = 0.0 if _certain(job) else min(said.home_risk, MOST_RISK)
    at_risk = risk * said.value_usd > said.cost_usd - TOLERANCE
    if said.home_finish_at is not None and said.home_finish_at <= job.deadline_at and not at_risk:
        yield f"at home the job finishes {job.deadline_at - said.home_finish_at:.0f} s before its deadline: nothing to rent for"
    late_s = said.burst_finish_at - _margin_s(job, target) - job.deadline_at
    if (
        late_s > SLACK_S
        and _chance(job, target, said.burst_finish_at) * said.value_usd < said.cost_usd - TOLERANCE
    ):
        yield f"with this offer the job probably still misses its deadline by {late_s:.0f} s"
    delay_s = target.offer.offer.delay_s if target.offer is not None else 0.0
    soonest = context.plan.taken_at + delay_s + expected_run_s(job, target)
    if said.burst_finish_at < soonest - SLACK_S:
        yield f"the evidence finishes {soonest - said.burst_finish_at:.0f} s sooner than booting and running take"
    if target.market is Market.SPOT and job.spot_policy == "auto":
        yield from _fallback(context, job, target, said, job.deadline_at)


def _fallback(
    context: CheckContext, job: JobView, target: Target, said: BurstEvidence, deadline: float
) -> Iterator[str]:
    """Spot for a job that has not asked for it: after an interruption at the very end the deadline still holds."""
    if said.fallback_finish_at is None or said.fallback_finish_at > deadline + SLACK_S:
        yield f"{target.key} is spot, and an interruption would leave no time to start again"
        return
    on_demand = [view for view in context.snapshot.offers if view.offer.market is Market.ON_DEMAND]
    whole = job.of or job
    again = [
        _again_s(form, target_of_offer(view, context.moving))
        for view in on_demand
        for form in forms_of(whole)
    ]
    again_s = min(
        [*again, _again_s(job, target)]
    )  # on such a machine as this, where what is on demand is sold out
    if said.fallback_finish_at < said.burst_finish_at + again_s - SLACK_S:
        yield "the evidence does the work again in less time than booting and running take"


def _again_s(job: JobView, target: Target) -> float:
    """The least that another machine takes for what is lost at the end: all of the work, or what is kept nowhere else."""
    delay_s = target.offer.offer.delay_s if target.offer is not None else 0.0
    run_s = expected_run_s(job, target)
    return delay_s + (run_s if job.repeats_s is None else min(run_s, job.repeats_s))


def _margin_s(job: JobView, target: Target) -> float:
    """By how much the planned run is longer than the one that is as likely too long as too short."""
    whole = job.of or job
    if _certain(job):
        return 0.0
    return expected_run_s(job, target) * (1.0 - math.sqrt(whole.run_low_s * whole.run_high_s) / whole.run_s)


def _chance(job: JobView, target: Target, finish_at: float) -> float:
    """That a run which is planned to end then meets the deadline: the logarithm of a run is logistic, and 80 of 100 runs lie in its range. Written here again on purpose (the planner has it in `kernels.chances`)."""
    whole, run_s = job.of or job, expected_run_s(job, target)
    window_s = (job.deadline_at or 0.0) - (finish_at - run_s)
    if _certain(job) or window_s <= 0.0:
        return 0.0
    steep = min(OF_RANGE / math.log(whole.run_high_s / whole.run_low_s), MOST_STEEP)
    typical_s = run_s - _margin_s(job, target)
    return float(1.0 / (1.0 + (typical_s / window_s) ** steep))


def _certain(job: JobView) -> bool:
    """Whether its run time is forecast without a range, or only its start counts."""
    whole = job.of or job
    return whole.start_by_at is not None or not 0.0 < whole.run_low_s < whole.run_high_s
