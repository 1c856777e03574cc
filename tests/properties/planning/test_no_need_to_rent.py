"""Where it is said of a job as a whole that nothing is rented for it, no place has a case for it."""

from hypothesis import HealthCheck, event, given, settings

from federator.model.snapshot import Problem
from federator.planning.renting.burst import Case
from federator.planning.scheduling.objective import Evaluator
from federator.planning.world.problem import World
from tests.support.worlds import worlds_at_random

at_random = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@at_random
@given(problem=worlds_at_random(most_jobs=8))
def test_no_place_has_a_case(problem: Problem) -> None:
    evaluator = Evaluator(World(problem))
    world, bursting = evaluator.world, evaluator.bursting
    for job in world.jobs:
        rented = (*world.leases(job), *world.offered(job))
        cases = [case for place in rented if isinstance(case := bursting.case(job, place), Case)]
        event(f"{len(cases)} cases, {'no need' if bursting.no_need(job) else 'a need'}")
        assert not (cases and bursting.no_need(job))
        assert {case.place for case in bursting.cases(job)} == {
            case.place for case in cases if world.places[case.place].offer is not None
        }
