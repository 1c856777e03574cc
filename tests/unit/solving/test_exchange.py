"""Small changes find what the linear model cannot say, are never worse, and end."""

import pytest

from federator.model.capacity import Shape
from federator.model.snapshot import Problem
from federator.planning.scheduling.objective import Evaluator
from federator.planning.world.problem import World
from federator.solving import exchange
from federator.solving.decide import decide
from tests.support.worlds import HOUR, NOW, a_job, a_pool, a_world


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
    found, _, trials = exchange.improve(judge, before)
    assert "gang" in found.starts
    assert found.total < before.total - 200.0
    assert 0 < trials <= exchange.TRIALS
    assert "gang" in {action.job for action in decide(gang_behind_small_ones()).actions}


def test_it_stops_at_its_limit_and_keeps_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Evaluator(World(gang_behind_small_ones()))
    before = judge.score({"one": 0, "two": 0})
    monkeypatch.setattr(exchange, "TRIALS", 0)
    assert exchange.improve(judge, before) == (before, judge, 0)


def test_what_nobody_pays_for_is_left_alone() -> None:
    judge = Evaluator(World(a_world([a_job("one")], [a_pool()])))
    best = judge.score({"one": 0})
    assert exchange.improve(judge, best) == (best, judge, 0)
