"""Where it is said of a job as a whole that nothing is rented for it, no place has a case for it; and no more is paid on what is rented than a deadline is worth."""

import pytest
from hypothesis import HealthCheck, event, given, settings

from federator.model.snapshot import Problem
from federator.planning.rentals.candidate import BurstCandidate
from federator.planning.rules.permits import only_deadlines
from federator.planning.scheduling.objective import Evaluator
from federator.planning.world.problem import World
from federator.solving.decide import decide
from tests.support.examples import examples
from tests.support.plain_price import score_plainly
from tests.support.worlds import HOUR, NOW, a_job, a_lease, a_pool, a_world, bursting, busy, worlds_at_random

at_random = settings(max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.too_slow])


@at_random
@given(problem=worlds_at_random(most_jobs=8))
def test_no_place_has_a_case(problem: Problem) -> None:
    evaluator = Evaluator(World(problem))
    world, bursting = evaluator.world, evaluator.bursting
    for job in world.jobs:
        rented = (*world.leases(job), *world.offers(job))
        cases = [case for place in rented if isinstance(case := bursting.case(job, place), BurstCandidate)]
        event(f"{len(cases)} cases, {'no need' if bursting.no_need(job) else 'a need'}")
        assert not (cases and bursting.no_need(job))
        assert {case.place for case in bursting.cases(job)} == {
            case.place for case in cases if world.places[case.place].offer is not None
        }


@at_random
@given(problem=worlds_at_random(most_jobs=8))
def test_whatever_is_decided_nobody_starts_on_a_machine_whose_rent_is_more_than_the_deadline_is_worth(
    problem: Problem,
) -> None:
    evaluator = Evaluator(World(problem))
    world = evaluator.world
    there = [(job, place) for job in world.jobs for place in world.leases(job)]
    for starts in ({job.id: place for job, place in there}, *({job.id: place} for job, place in there)):
        scored = evaluator.score(starts)
        for name, place in scored.starts.items():
            job, price = world.by_id[name], scored.costs[name]
            if name not in scored.rents and world.places[place].rented and only_deadlines(world.book, job):
                assert price.rent <= world.book.value_usd(job) - price.miss + 1e-6


@pytest.mark.parametrize("value_usd", [9.0, 11.0])
def test_a_start_on_a_machine_that_is_rented_already_pays_whoever_decides_it(value_usd: float) -> None:
    """It costs 10 USD an hour, and nobody else needs it."""
    job = a_job("late", gpus=2, deadline_at=NOW + 1.5 * HOUR, value_usd=value_usd)
    home = a_pool(nodes=1, free=(), busy=(busy("p", "j", gpus=4, ends_at=NOW + 9 * HOUR),))
    problem = a_world([job], [home, a_lease()], rules=[bursting()])
    evaluator = Evaluator(World(problem))
    (place,) = evaluator.world.leases(evaluator.world.jobs[0])
    pays = value_usd > 10.0
    for scored in (evaluator.score({"late": place}), score_plainly(evaluator, {"late": place})):
        assert scored.starts == ({"late": place} if pays else {})
    assert len(decide(problem).actions) == pays
