"""Small changes find what the linear model cannot say, are never worse, and end."""

import pytest

from federator.model.capacity import Shape
from federator.model.snapshot import Problem
from federator.planning.scheduling.objective import Evaluator
from federator.planning.world.problem import World
from federator.solving import local_search
from federator.solving.decide import decide
from tests.support.worlds import HOUR, NOW, a_job, a_pool, a_world, an_offer, bursting, busy


def gang_behind_small_ones() -> Problem:
    """Two hosts; a gang needs both now to be in time, and two small jobs of higher standing hold them for two hours."""
    runs = {"run_s": 2 * HOUR, "run_low_s": 2 * HOUR, "run_high_s": 2 * HOUR, "max_duration_s": 4 * HOUR}
    small = [
        a_job("one", gpus=2, priority=70, deadline_at=NOW + 2.2 * HOUR, value_usd=50.0, **runs),
        a_job("two", gpus=2, deadline_at=NOW + 2.2 * HOUR, value_usd=5.0, **runs),
    ]
    gang = a_job("gang", gpus=2, nodes=2, deadline_at=NOW + 1.2 * HOUR, value_usd=300.0)
    free = (Shape(3, 64_000, 262_144), Shape(2, 64_000, 262_144))
    return a_world([*small, gang], [a_pool(free=free)])


def test_a_gang_takes_the_place_of_all_that_stand_in_its_way() -> None:
    judge = Evaluator(World(gang_behind_small_ones()))
    before = judge.score({"one": 0, "two": 0})
    assert before.costs["gang"].late
    found, _, trials = local_search.improve(judge, before)
    assert "gang" in found.starts
    assert found.total < before.total - 200.0
    assert 0 < trials <= local_search.TRIALS
    assert "gang" in {action.job for action in decide(gang_behind_small_ones()).actions}


def test_it_stops_at_its_limit_and_keeps_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Evaluator(World(gang_behind_small_ones()))
    before = judge.score({"one": 0, "two": 0})
    monkeypatch.setattr(local_search, "TRIALS", 0)
    assert local_search.improve(judge, before) == (before, judge, 0)


def test_what_nobody_pays_for_is_left_alone() -> None:
    judge = Evaluator(World(a_world([a_job("one")], [a_pool()])))
    best = judge.score({"one": 0})
    assert local_search.improve(judge, best) == (best, judge, 0)


def test_a_gang_is_rented_for_at_once_in_place_of_those_that_take_the_last_machines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tight = {"gpus": 4, "deadline_at": NOW + 1.2 * HOUR}
    small = [a_job(name, priority=70, value_usd=40.0, **tight) for name in ("one", "two")]
    gang = a_job("gang", nodes=2, value_usd=900.0, **tight)
    running = busy("p", "j", gpus=4, ends_at=NOW + 2 * HOUR)
    full = a_pool(nodes=2, busy=(running,), free=(Shape(0, 64_000, 262_144, count=2),))
    judge = Evaluator(World(a_world([*small, gang], [full], [an_offer(available=2)], [bursting()])))
    offer = next(place for place, at in enumerate(judge.world.places) if at.offer is not None)
    before = judge.score({"one": offer, "two": offer})
    assert set(before.rents) == {"one", "two"}
    monkeypatch.setattr(local_search, "TRIALS", 2)  # at home it does not fit
    found, _, _ = local_search.improve(judge, before)
    assert found.rents == ("gang",)
