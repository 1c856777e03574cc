"""The compiled kernel and the oracle in plain Python come to one schedule: every booking, reason, look and cent of it, whatever the world."""

from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from federator.model.rules import GuaranteeRow, Opening, PoolSelector, Window
from federator.model.snapshot import Problem
from federator.planning.scheduling import list_schedule
from federator.planning.scheduling.list_schedule import Booking, ListSchedule, at_home
from federator.planning.scheduling.objective import Evaluator, Scored
from federator.planning.world.problem import World
from tests.bench.solver.instances import Instance, Parameters
from tests.support import plain_schedule as plain
from tests.support.examples import examples
from tests.support.plain_price import score_plainly
from tests.support.worlds import HOUR, NOW, a_job, a_pool, a_world, an_offer, bursting, worlds_at_random

at_random = settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _same(world: World, found: Mapping[str, Booking], expected: Mapping[str, Booking]) -> None:
    assert list(found) == list(expected)
    for job, booking in expected.items():
        assert found[job] == booking, world.by_id[job]


def _agree(evaluator: Evaluator, starts: Mapping[str, int]) -> Scored:
    """One decision both ways."""
    found, expected = evaluator.score(starts), score_plainly(evaluator, starts)
    _same(evaluator.world, found.bookings, expected.bookings)
    assert dict(found.blocks) == expected.blocks
    assert found.attempts == expected.attempts
    assert list(found.starts.items()) == list(expected.starts.items())
    assert found.caps.used == expected.caps.used
    assert dict(found.costs) == expected.costs
    assert dict(found.later) == expected.later
    assert found.terms == expected.terms
    assert found.total == expected.total
    return found


def _trials(evaluator: Evaluator, scored: Scored) -> list[dict[str, int]]:
    """What could be decided instead: each rental that there is a case for, and some starts."""
    world = evaluator.world
    rentals = [{job.id: case.place} for job in world.jobs for case in evaluator.bursting.cases(job)]
    together = {job: place for trial in rentals for job, place in trial.items()}
    moved = {job.id: world.home(job)[-1] for job in world.jobs if world.home(job)}
    there = {job.id: world.leases(job)[-1] for job in world.jobs if world.leases(job)}
    return [*rentals[:4], together, moved, moved | together, moved | there, scored.starts]


@at_random
@given(problem=worlds_at_random(most_jobs=12))
def test_whatever_is_decided(problem: Problem) -> None:
    evaluator = Evaluator(World(problem))
    _same(evaluator.world, at_home(evaluator.world), plain.schedule(evaluator.world, None).bookings)
    scored = _agree(evaluator, {})
    for starts in _trials(evaluator, scored):
        _agree(evaluator, starts)
    backwards = {job.id: -turn for turn, job in enumerate(evaluator.world.jobs)}
    for starts in ({}, scored.starts):
        _agree(evaluator.in_order(backwards), starts)


@at_random
@given(problem=worlds_at_random(most_jobs=12))
def test_what_starts_now(problem: Problem) -> None:
    world = World(problem)
    found, expected = ListSchedule(world, None, {}, whole=False), plain.starts_now(world)
    _same(world, found.bookings(), expected.bookings)
    assert dict(found.blocks()) == expected.blocks


@pytest.mark.parametrize("limit", [0, 3, 25])
@at_random
@given(problem=worlds_at_random(most_jobs=12), evaluations=st.booleans())
def test_beyond_the_limits_of_work(limit: int, problem: Problem, evaluations: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(list_schedule, "EVALUATIONS" if evaluations else "ATTEMPTS", limit)
        _agree(Evaluator(World(problem)), {})


@at_random
@given(
    problem=worlds_at_random(most_jobs=12),
    closes=st.sampled_from([NOW - HOUR, NOW, NOW + 600.0, NOW + 5000.0]),
    hours=st.sampled_from([0.5, 3.0, 400.0]),
    stops=st.booleans(),
)
def test_where_calendars_close_places(problem: Problem, closes: float, hours: float, stops: bool) -> None:
    shut = Opening(
        "lessons",
        PoolSelector(sites=("home",)),
        closed=(Window(first_at=closes, until_at=closes + hours * HOUR),),
        stops=stops,
    )
    snapshot = replace(problem.snapshot, rules=(*problem.snapshot.rules, shut))
    _agree(Evaluator(World(replace(problem, snapshot=snapshot))), {})


@at_random
@given(
    problem=worlds_at_random(most_jobs=12),
    gpus=st.integers(0, 4),
    cpus_milli=st.sampled_from([0, 6000, 60_000]),
    memory_mib=st.sampled_from([0, 8192, 100_000]),
)
def test_where_cores_or_memory_are_guaranteed(
    problem: Problem, gpus: int, cpus_milli: int, memory_mib: int
) -> None:
    row = GuaranteeRow("share", "research", gpus, cpus_milli=cpus_milli, memory_mib=memory_mib)
    snapshot = replace(problem.snapshot, rules=(*problem.snapshot.rules, row))
    _agree(Evaluator(World(replace(problem, snapshot=snapshot))), {})


def test_what_is_to_be_rented_against_waiting_once_a_job_may_start() -> None:
    """Without a deadline, too, the rental is put off and priced as such."""
    job = a_job(gpus=8, not_before_at=NOW + 60.0, max_duration_s=2 * HOUR)
    rules = [bursting(for_waiting=True)]
    evaluator = Evaluator(World(a_world([job], [a_pool("edge", gpus_per_node=1)], [an_offer(gpus=8)], rules)))
    assert set(_agree(evaluator, {}).later) == {job.id}


@pytest.mark.parametrize("seed", [0, 1])
def test_a_federation_of_many(seed: int) -> None:
    problem = Instance(Parameters(jobs=150, sites=8, seed=seed)).problem()
    evaluator = Evaluator(World(problem))
    scored = _agree(evaluator, {})
    for starts in _trials(evaluator, scored):
        _agree(evaluator, starts)
    mixed = {job.id: 7 * turn % 151 for turn, job in enumerate(evaluator.world.jobs)}
    _agree(evaluator.in_order(mixed), scored.starts)


def test_a_start_where_the_job_may_not_be_is_left_to_the_rest() -> None:
    problem = Instance(Parameters(jobs=20, sites=3, seed=0)).problem()
    evaluator = Evaluator(World(problem))
    world = evaluator.world
    shut = next(
        (job, place)
        for job in world.jobs
        for place in range(len(world.places))
        if place not in world.open_to(job) and world.places[place].offer is None
    )
    starts = {shut[0].id: shut[1]}
    assert _agree(evaluator, starts).starts == evaluator.score({}).starts
