"""A timetable is the decision's own: each start and each wait at the plan's times, where the schedule that the plan was priced by has it, and nothing else."""

from hypothesis import HealthCheck, given, settings

from federator.model.plans import Place, Plan, Preempt, Rent
from federator.model.snapshot import Problem
from federator.model.timetable import BarState
from federator.planning.explanations.timetable import timetable
from federator.planning.plans.greedy import plan_greedily
from federator.planning.world.problem import World
from federator.solving.decide import decide
from tests.support.examples import examples
from tests.support.worlds import worlds_at_random

WAITS = (BarState.PLANNED, BarState.RESERVED)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(worlds_at_random(most_jobs=10))
def test_of_greedys_plans_and_of_the_solvers(problem: Problem) -> None:
    for plan in (plan_greedily(problem), decide(problem, seed=3)):
        _is_the_plans(problem, plan)


def _is_the_plans(problem: Problem, plan: Plan) -> None:
    found = timetable(problem, plan)
    planned = {bar.job: (bar.start_at, bar.end_at) for bar in found.bars if bar.state in WAITS}
    waits = [w for w in plan.waiting if w.expected_start_at is not None]
    assert planned == {w.job: (w.expected_start_at, w.expected_finish_at) for w in waits}
    assert found.unplanned == len(plan.waiting) - len(waits)
    starts = {
        a.job: (a.expected_start_at, a.expected_end_at) for a in plan.actions if not isinstance(a, Preempt)
    }
    by_id = {bar.id: bar for bar in found.bars if bar.job in {job.id for job in problem.snapshot.jobs}}
    assert {job: (by_id[job].start_at, by_id[job].end_at) for job in starts} == starts
    lanes = {lane.key: lane for lane in found.lanes}
    assert all(bar.lane in lanes for bar in found.bars)
    for action in plan.actions:
        if isinstance(action, Place):
            assert action.members[0] in lanes[by_id[action.job].lane].members
        elif isinstance(action, Rent):
            assert lanes[by_id[action.job].lane].offer == f"{action.provider}/{action.offer}"
    held = {busy.placement for pool in problem.snapshot.pools for busy in pool.busy if busy.placement}
    assert held == {bar.id for bar in found.bars if bar.id in held}
    world = World(problem)
    for job in planned:
        may = {world.places[choice].key for choice in world.open_to(world.by_id[job])}
        assert by_id[job].lane in may
