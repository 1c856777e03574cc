"""What the fast path starts is what greedy would start; and what a forecast might keep from starting, it leaves alone."""

from hypothesis import given, settings

from federator.model.plans import Plan
from federator.model.snapshot import JobView, PoolView, Problem, Snapshot
from federator.planning.checks import check
from federator.planning.plans.greedy import QUICK, plan_greedily, plan_quickly
from federator.solving.decide import decide
from tests.properties.planning.test_window import fleets, lines
from tests.support.examples import examples
from tests.support.worlds import HOUR, NOW, a_job, a_pool


def a_problem(jobs: list[JobView], pools: list[PoolView]) -> Problem:
    """These jobs and pools, and nothing to rent."""
    return Problem(
        snapshot=Snapshot(taken_at=NOW, incarnation="i", revision=1, jobs=tuple(jobs), pools=tuple(pools)),
        decision="dec-1",
    )


def started(plan: Plan) -> dict[str, object]:
    """The plan's actions by job."""
    return {action.job: action for action in plan.actions}


@settings(max_examples=examples(25), deadline=None)
@given(jobs=lines(), pools=fleets())
def test_it_starts_what_greedy_starts(jobs: list[JobView], pools: list[PoolView]) -> None:
    problem = a_problem(jobs, pools)
    quick = plan_quickly(problem)
    assert started(quick) == started(plan_greedily(problem))
    assert not [finding for finding in check(problem, quick) if finding.severity == "fatal"]


@settings(max_examples=examples(10), deadline=None)
@given(jobs=lines(), pools=fleets())
def test_it_replays_by_its_stage(jobs: list[JobView], pools: list[PoolView]) -> None:
    problem = a_problem(jobs, pools)
    quick = plan_quickly(problem, 3)
    assert [stage.stage for stage in quick.stages] == [QUICK]
    assert decide(problem, seed=3, stages=(QUICK,)) == quick


def test_a_job_that_would_be_late_is_left_to_the_whole_decision() -> None:
    late = a_job("job-late", run_s=HOUR, deadline_at=NOW + 60.0, value_usd=10.0)
    soon = a_job("job-soon", run_s=HOUR, deadline_at=NOW + 2 * HOUR, value_usd=10.0)
    assert list(started(plan_quickly(a_problem([late, soon], [a_pool()])))) == ["job-soon"]
