"""Carry a plan out, and ask again at the same moment: there is nothing left to start, to rent or to stop.

A second plan that finds something says that the first left a GPU idle beside a job that fits it, or rented, or stopped, less than it wanted. The world in between is
`tests.support.aftermath`: what started holds its hosts until its expected end, rentals boot with what they committed, stopped work is going.
"""

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace

from federator.model.plans import Place, Rent
from federator.model.snapshot import Problem
from federator.planning.plans.greedy import plan_greedily
from federator.solving.decide import decide
from tests.properties.planning.test_plans_pass_the_checker import Planner
from tests.support.aftermath import aftermath
from tests.support.examples import examples
from tests.support.worlds import HOUR, NOW, a_job, a_world, an_offer, bursting, worlds_at_random

PLANNERS = [pytest.param(plan_greedily, id="greedy"), pytest.param(decide, id="solver")]
quietly = settings(
    max_examples=examples(25),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("planner", PLANNERS)
def test_a_second_plan_at_once_does_nothing(planner: Planner) -> None:
    @quietly
    @given(worlds_at_random())
    def ask_twice(problem: Problem) -> None:
        assert planner(aftermath(problem, planner(problem))).actions == ()

    ask_twice()


@pytest.mark.parametrize("planner", PLANNERS)
def test_a_start_that_is_left_undone_is_decided_again(planner: Planner) -> None:
    """Else the test above could pass because the aftermath is a world in which nothing can start."""
    missed: list[bool] = []

    @quietly
    @given(worlds_at_random())
    def leave_one_out(problem: Problem) -> None:
        plan = planner(problem)
        places = [action for action in plan.actions if isinstance(action, Place)]
        for left_out in places[-1:]:
            others = tuple(action for action in plan.actions if action is not left_out)
            again = planner(aftermath(problem, replace(plan, actions=others)))
            missed.append(not any(isinstance(action, Place) for action in again.actions))

    leave_one_out()
    assert len(missed) >= 5
    assert not any(missed)


@quietly
@given(worlds_at_random())
def test_the_same_turn_twice_is_the_same_plan_and_its_own_prices_do_not_change_what_it_costs(
    problem: Problem,
) -> None:
    """The prices of a turn are what the next begins with; of the same problem they may choose among equals, and no more."""
    plan = decide(problem)
    assert msgspec.json.encode(decide(problem)) == msgspec.json.encode(plan)
    warm = decide(replace(problem, warm_prices=plan.prices))
    assert warm.objective_usd == pytest.approx(plan.objective_usd, abs=0.006)


@pytest.mark.parametrize("planner", PLANNERS)
def test_a_rental_that_boots_is_not_rented_again_for_whom_it_also_serves(planner: Planner) -> None:
    """Two jobs share a machine, and the second waits for it to boot: later turns see it coming."""
    by = NOW + HOUR + 620.0
    jobs = [a_job(f"job-{n}", gpus=2, deadline_at=by, value_usd=500.0) for n in range(2)]
    problem = a_world(jobs, offers=[an_offer()], rules=[bursting()])
    plan = planner(problem)
    assert [type(action) for action in plan.actions] == [Rent]
    assert planner(aftermath(problem, plan)).actions == ()
