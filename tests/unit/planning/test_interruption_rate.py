"""How often spot machines are taken back, and what that does to run times: against what chance itself does."""

import random

import pytest

from federator.model.capacity import Market
from federator.planning.places.interruption_rate import MOST_EXPECTED, PRIOR_RATE_H, Watched, rework
from federator.planning.world.model_arrays import numbers_of
from federator.planning.world.problem import World
from tests.support.worlds import a_job, a_world, an_offer, bursting


def test_an_offer_that_nobody_has_rented_has_the_published_rate() -> None:
    assert Watched().rate_h == PRIOR_RATE_H


def test_what_is_seen_outweighs_it_after_a_few_hours() -> None:
    assert Watched(45.0, 0).rate_h == pytest.approx(0.01)
    assert Watched(45.0, 30).rate_h == pytest.approx(0.61)


def test_a_rate_changes_by_steps() -> None:
    assert Watched(100.0, 3).rate_h == Watched(100.1, 3).rate_h


@pytest.mark.parametrize("expected", [0.1, 0.5, 1.0, 2.0])
def test_rework_is_what_repeating_after_each_interruption_comes_to(expected: float) -> None:
    """An hour of work that begins anew whenever its machine goes, ten thousand times."""
    chance, took_h = random.Random(1), 0.0
    for _ in range(10_000):
        while (lost_h := chance.expovariate(expected)) < 1.0:
            took_h += lost_h
        took_h += 1.0
    assert rework(expected) == pytest.approx(took_h / 10_000, rel=0.05)


def test_rework_begins_at_one_and_has_an_end() -> None:
    assert rework(0.0) == 1.0
    assert rework(1e-9) == pytest.approx(1.0)
    assert rework(0.3) == pytest.approx(1 + 0.3 / 2 + 0.3**2 / 6, rel=0.01)
    assert rework(1e6) == rework(MOST_EXPECTED)


@pytest.mark.parametrize("repeats_s", [None, 600.0])
@pytest.mark.parametrize("nodes", [1, 3])
def test_the_arrays_have_the_run_times_of_candidates(nodes: int, repeats_s: float | None) -> None:
    """In markets that take machines back often, seldom and never, for a gang that takes several machines and for a job that takes one."""
    spot = [
        an_offer(f"eu/{rate:g}", market=Market.SPOT, interruptions_h=rate) for rate in (0.0, 0.05, 0.7, 40.0)
    ]
    jobs = [a_job("job-a", gpus=4, nodes=nodes, repeats_s=repeats_s), a_job("job-b", run_s=90.0)]
    world = World(a_world(jobs, offers=[*spot, an_offer()], rules=[bursting()]))
    numbers = numbers_of(world)
    assert len(numbers.ways) == 2 * len(world.places)
    for way, klass in zip(numbers.ways, numbers.class_of_way.tolist(), strict=True):
        job = numbers.heads[klass]
        assert way["run_s"] == pytest.approx(world.places[way["place"]].run_s(job))
