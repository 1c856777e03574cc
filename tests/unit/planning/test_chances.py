"""What a deadline is worth is weighed with the chance that it is missed: run times are forecasts."""

import math

import pytest

from federator.model.plans import Place
from federator.planning.world.chances import late_share
from federator.solving.decide import decide
from tests.support.worlds import HOUR, NOW, a_job, a_pool, a_world

SURE = {"run_s": HOUR, "run_low_s": HOUR, "run_high_s": HOUR}
"""A job that runs for an hour, and one that is planned with an hour and more likely takes three quarters of it."""
UNSURE = {"run_s": HOUR, "run_low_s": HOUR / 1.35 / 1.67, "run_high_s": HOUR / 1.35 * 1.67}


def chance(window_h: float, **fields: float) -> float:
    return late_share(a_job("one", deadline_at=NOW + window_h * HOUR, **fields), NOW, HOUR)


def test_without_a_range_it_is_late_or_it_is_not() -> None:
    assert [chance(window_h, **SURE) for window_h in (0.99, 1.0, 5.0)] == [1.0, 0.0, 0.0]


def test_with_a_range_the_chance_falls_with_the_time_that_there_is() -> None:
    found = [chance(window_h, **UNSURE) for window_h in (0.0, 0.3, 1 / 1.35, 1.0, 2.0, 50.0)]
    assert found[0] == 1.0
    assert found[2] == pytest.approx(0.5)
    assert found[3] == pytest.approx(0.22, abs=0.02), "what is planned with is long enough for 77 of 100"
    assert found == sorted(found, reverse=True)
    assert 0.0 < found[-1] < 0.001


def test_a_start_that_is_ahead_may_slide_and_so_what_is_planned_in_time_may_be_late() -> None:
    """An hour's run and three hours of waiting, by a deadline in four hours and a half."""
    job = a_job("one", deadline_at=NOW + 4.5 * HOUR, **UNSURE)
    sure, waits = late_share(job, NOW + 3 * HOUR, HOUR), late_share(job, NOW + 3 * HOUR, HOUR, 3 * HOUR)
    assert sure < 0.06
    assert 0.3 < waits < 0.5
    nearly_free = late_share(job, NOW + 60.0, HOUR, 60.0)
    assert nearly_free == pytest.approx(late_share(job, NOW + 60.0, HOUR), abs=0.01)


def test_where_runs_are_certain_so_are_starts() -> None:
    job = a_job("one", deadline_at=NOW + 4.5 * HOUR, **SURE)
    assert late_share(job, NOW + 3 * HOUR, HOUR, 3 * HOUR) == 0.0


def test_who_has_no_deadline_is_never_late() -> None:
    assert late_share(a_job("one", **UNSURE), NOW, HOUR) == 0.0


def test_a_range_of_next_to_nothing_is_no_trouble() -> None:
    narrow = {"run_s": HOUR, "run_low_s": HOUR * (1 - 1e-12), "run_high_s": HOUR * (1 + 1e-12)}
    assert chance(1e9, **narrow) == pytest.approx(0.0, abs=1e-30)
    assert chance(1e-6, **narrow) == pytest.approx(1.0)
    assert all(math.isfinite(chance(10.0**power, **narrow)) for power in range(-9, 12))


def placed(**fields: float) -> str:
    """Where a job goes that has 2.1 hours: the slow place takes two as planned and is cheaper, the fast one takes one."""
    pools = [
        a_pool("slow", price_usd_gpu_h=0.1, model="L4"),
        a_pool("fast", price_usd_gpu_h=1.0, model="H100"),
    ]
    job = a_job("one", speed={"L4": 0.5, "H100": 1.0}, deadline_at=NOW + 2.1 * HOUR, value_usd=50.0, **fields)
    (action,) = decide(a_world([job], pools)).actions
    assert isinstance(action, Place)
    return action.site


def test_a_deadline_that_is_worth_much_is_not_left_to_a_chance_that_costs_cents_to_avoid() -> None:
    assert placed(**SURE) == "slow", "that it ends in time is sure there, so the cheaper place does"
    assert placed(**UNSURE) == "fast"
