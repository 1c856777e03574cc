"""Whatever the world, the planners' own plans have nothing fatal in them, explain every job, and rent only with a reason."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, event, given, settings
from msgspec.structs import replace

from federator.model.plans import Finding, Plan, Rent, Severity
from federator.model.rules import BurstMode, Effect, Filter
from federator.model.snapshot import Problem
from federator.planning.checks import check
from federator.planning.plans.greedy import plan_greedily
from federator.solving.decide import decide
from tests.support.examples import examples
from tests.support.worlds import bursting, changed, worlds_at_random

PLANNERS = [pytest.param(plan_greedily, id="greedy"), pytest.param(decide, id="solver")]
at_random = settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
Planner = Callable[[Problem], Plan]


@pytest.mark.parametrize("planner", PLANNERS)
@at_random
@given(problem=worlds_at_random())
def test_nothing_fatal_and_every_job_has_an_action_or_a_reason(planner: Planner, problem: Problem) -> None:
    plan = planner(problem)
    for action in plan.actions:
        event(type(action).__name__)
    findings = [
        f
        for f in check(problem, plan)
        if not (f.severity is Severity.REMARK and _on_purpose(problem, plan, f))
    ]
    assert findings == []


@pytest.mark.parametrize("planner", PLANNERS)
@at_random
@given(problem=worlds_at_random(most_jobs=12))
def test_each_job_is_in_the_plan_exactly_once(planner: Planner, problem: Problem) -> None:
    plan = planner(problem)
    started = [
        action.job for action in plan.actions if action.job in {job.id for job in problem.snapshot.jobs}
    ]
    waiting = [entry.job for entry in plan.waiting]
    assert sorted(started + waiting) == sorted(job.id for job in problem.snapshot.jobs)


@pytest.mark.parametrize("planner", PLANNERS)
@at_random
@given(problem=worlds_at_random())
def test_a_job_without_deadline_is_rented_for_only_where_a_policy_says_so(
    planner: Planner, problem: Problem
) -> None:
    deadlines = {job.id: job.deadline_at for job in problem.snapshot.jobs}
    for action in planner(problem).actions:
        if isinstance(action, Rent) and deadlines[action.job] is None:
            assert any(
                _rents_without_deadline(rule) for rule in problem.snapshot.rules if isinstance(rule, Filter)
            )


@pytest.mark.parametrize("planner", PLANNERS)
@at_random
@given(problem=worlds_at_random())
def test_without_deadlines_an_economic_policy_rents_nothing(planner: Planner, problem: Problem) -> None:
    jobs = tuple(replace(job, deadline_at=None) for job in problem.snapshot.jobs)
    rules = tuple(
        rule
        for rule in problem.snapshot.rules
        if not (isinstance(rule, Filter) and rule.effect is Effect.ALLOW)
    )
    plan = planner(changed(problem, jobs=jobs, rules=(*rules, bursting())))
    assert not any(isinstance(action, Rent) for action in plan.actions)


@pytest.mark.parametrize("planner", PLANNERS)
@at_random
@given(problem=worlds_at_random())
def test_whatever_the_checker_blames_in_a_later_world_the_rest_still_holds(
    planner: Planner, problem: Problem
) -> None:
    """What the committer does: the plan meets a world in which half of everything has moved."""
    plan = planner(problem)
    pools = tuple(replace(pool, free=pool.free[:1]) for pool in problem.snapshot.pools)
    jobs = tuple(
        replace(job, revision=job.revision + (number == 0))
        for number, job in enumerate(problem.snapshot.jobs)
    )
    later = changed(problem, pools=pools, jobs=jobs, taken_at=problem.snapshot.taken_at + 5.0)
    blamed = {finding.subject for finding in check(later, plan) if finding.severity is Severity.FATAL}
    rest = replace(plan, actions=tuple(action for action in plan.actions if action.job not in blamed))
    assert not any(finding.severity is Severity.FATAL for finding in check(later, rest))


def _on_purpose(problem: Problem, plan: Plan, finding: Finding) -> bool:
    """A job may be rented for beside GPUs that are held for a gang which waits."""
    waiting = {entry.job for entry in plan.waiting}
    return finding.promise == 11 and any(
        job.gpus_total > 1 for job in problem.snapshot.jobs if job.id in waiting
    )


def _rents_without_deadline(rule: Filter) -> bool:
    return rule.effect is Effect.ALLOW and (
        rule.for_waiting or rule.mode in (BurstMode.THRESHOLD, BurstMode.ALWAYS)
    )
