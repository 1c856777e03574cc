"""The longest wait of a queue as a deadline: when it is, and that only the start counts."""

import pytest

from federator.planning.rules.max_wait import bounded
from federator.planning.world.chances import late_share
from tests.support.worlds import HOUR, NOW, a_job

WAIT_S = 900.0


@pytest.mark.parametrize(
    ("waited_s", "ahead_s"), [(0.0, 900.0), (600.0, 300.0), (900.0, 900.0), (2000.0, 700.0)]
)
def test_who_has_waited_for_longer_is_to_start_within_as_long_again(waited_s: float, ahead_s: float) -> None:
    job = bounded(a_job(submitted_at=NOW - waited_s), WAIT_S, NOW)
    assert (job.start_by_at, job.deadline_at) == (NOW + ahead_s, NOW + ahead_s + HOUR)


def test_a_start_in_time_is_in_time_however_uncertain_the_run_is() -> None:
    job = bounded(a_job(submitted_at=NOW, run_low_s=HOUR / 4, run_high_s=4 * HOUR), WAIT_S, NOW)
    assert late_share(job, NOW + WAIT_S, HOUR, WAIT_S) == 0.0
    assert late_share(job, NOW + WAIT_S + 1.0, HOUR, WAIT_S) == 1.0


def test_slow_gpus_are_no_reason_to_be_late_but_by_as_much_again_at_most() -> None:
    job = a_job(submitted_at=NOW, speed={"T4": 0.9, "H100": 1.0})
    assert bounded(job, WAIT_S, NOW).deadline_at == pytest.approx(NOW + WAIT_S + HOUR / 0.9)
    slow = a_job(submitted_at=NOW, speed={"T4": 0.1})
    assert bounded(slow, WAIT_S, NOW).deadline_at == NOW + 2 * WAIT_S + HOUR
    named = a_job(submitted_at=NOW, speed={"T4": 0.1}, models=("A100",))
    assert bounded(named, WAIT_S, NOW).deadline_at == NOW + WAIT_S + HOUR


def test_an_own_deadline_that_is_earlier_or_must_be_met_stays() -> None:
    early = a_job(submitted_at=NOW, deadline_at=NOW + HOUR)
    assert bounded(early, WAIT_S, NOW) is early
    must = a_job(submitted_at=NOW, deadline_at=NOW + 9 * HOUR, must=True)
    assert bounded(must, WAIT_S, NOW) is must
    late = bounded(a_job(submitted_at=NOW, deadline_at=NOW + 9 * HOUR, value_usd=7.0), WAIT_S, NOW)
    assert (late.deadline_at, late.value_usd) == (NOW + WAIT_S + HOUR, 7.0)
