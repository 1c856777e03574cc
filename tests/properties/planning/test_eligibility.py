"""Filters that are asked once for all jobs that are alike in what they read say the same as when they are asked of each."""

from hypothesis import HealthCheck, given, settings

from federator.model.snapshot import Problem
from federator.planning.rules.eligibility import Gates
from federator.planning.rules.feasibility import FILTERS, reject
from federator.planning.world.problem import World
from tests.bench.solver.instances import Instance, Parameters
from tests.support.examples import examples
from tests.support.worlds import worlds_at_random

at_random = settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _agree(problem: Problem) -> None:
    world = World(problem)
    gates = Gates(world.places, world.context, FILTERS)
    for job in problem.snapshot.jobs:
        passing = [p for p, at in enumerate(world.places) if reject(job, at, world.context) is None]
        assert list(gates.open_to(job)) == passing, job


@at_random
@given(problem=worlds_at_random(most_jobs=12))
def test_places_are_open_as_the_filters_say(problem: Problem) -> None:
    _agree(problem)


def test_in_a_federation_of_many_kinds_of_work() -> None:
    _agree(Instance(Parameters(jobs=200, sites=10, classes=200)).problem())
