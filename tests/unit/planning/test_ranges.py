"""Between when a job may start and end, as people and plan files are told."""

import pytest

from federator.planning.explanations.ranges import Between, ranges
from federator.planning.scheduling.forecast import RunForecast, lasts_s
from tests.support.worlds import HOUR, NOW, a_job

JOB = a_job("one", run_low_s=HOUR / 1.35 / 1.67, run_high_s=HOUR / 1.35 * 1.67)
"""Planned with an hour, it more likely takes three quarters of it."""


def test_what_starts_now_ends_within_the_range_of_its_run() -> None:
    start, finish = ranges(JOB, NOW, NOW, NOW + HOUR, waits=False)
    assert start == Between(NOW, NOW)
    assert finish == pytest.approx((NOW + JOB.run_low_s, NOW + JOB.run_high_s))


def test_what_is_rented_is_there_when_it_is_said_to_be() -> None:
    start, _ = ranges(JOB, NOW, NOW + 540.0, NOW + 540.0 + HOUR, waits=False)
    assert start == Between(NOW + 540.0, NOW + 540.0)


@pytest.mark.parametrize("wait_s", [1.0, 60.0, 600.0, 601.0, HOUR, 10 * HOUR, 100 * HOUR])
def test_a_range_holds_the_middle_and_nothing_is_told_of_the_past(wait_s: float) -> None:
    start, finish = ranges(JOB, NOW, NOW + wait_s, NOW + wait_s + HOUR, waits=True)
    assert NOW <= start.low_at < NOW + wait_s < start.high_at
    assert start.low_at < finish.low_at < NOW + wait_s + HOUR < finish.high_at
    assert finish.high_at <= start.high_at + JOB.run_high_s
    assert finish.low_at >= start.low_at + JOB.run_low_s


def test_of_waits_four_in_five_take_between_a_quarter_and_two_and_a_half_times_as_long() -> None:
    start, finish = ranges(JOB, NOW, NOW + 4 * HOUR, NOW + 5 * HOUR, waits=True)
    assert start == pytest.approx((NOW + HOUR, NOW + 9.9 * HOUR))
    # Wait and run are seldom both short: 3 h and 0.56 h less are together 3.05 h less.
    assert finish.low_at == pytest.approx(NOW + 1.95 * HOUR, abs=36.0)
    assert finish.high_at == pytest.approx(NOW + 10.9 * HOUR, abs=36.0)


def test_a_short_wait_may_be_over_at_once_or_take_some_times_as_long() -> None:
    start, _ = ranges(JOB, NOW, NOW + 20.0, NOW + 20.0 + HOUR, waits=True)
    assert start == pytest.approx((NOW, NOW + 107.0))


def test_the_longer_the_wait_the_wider_the_range() -> None:
    widths = [
        between.high_at - between.low_at
        for wait_s in (60.0, 600.0, HOUR, 10 * HOUR)
        for between in ranges(JOB, NOW, NOW + wait_s, NOW + wait_s + HOUR, waits=True)[:1]
    ]
    assert widths == sorted(set(widths))


def test_of_those_that_last_so_long_that_share_ends_before() -> None:
    forecast = RunForecast(HOUR, HOUR / 2, 2 * HOUR)
    assert [lasts_s(forecast, 0.0, share) for share in (0.1, 0.5, 0.9)] == pytest.approx(
        [HOUR / 2, HOUR, 2 * HOUR], rel=1e-4
    )
    for ran_s in (HOUR / 10, HOUR, 2 * HOUR, 20 * HOUR):
        low_s, middle_s, high_s = (lasts_s(forecast, ran_s, share) for share in (0.1, 0.5, 0.9))
        assert ran_s <= low_s < middle_s < high_s
        assert middle_s == lasts_s(forecast, ran_s)
