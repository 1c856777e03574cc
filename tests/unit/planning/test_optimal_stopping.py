"""When a job stops waiting for home: what may be saved against what is put at risk."""

import math

import numpy as np
import pytest

from federator.model.snapshot import JobView
from federator.planning import kernels
from federator.planning.world.chances import spread_of
from tests.support.worlds import HOUR, NOW, a_job

UNSURE = {"run_s": HOUR, "run_low_s": HOUR / 1.35 / 1.67, "run_high_s": HOUR / 1.35 * 1.67}
"""Planned with an hour; three quarters of it are as likely too little as too much."""
BOOT_S = 540.0
SPARE_S = 3 * HOUR
"""So long until a rented run of an hour would just meet the deadline."""
RENT_USD = 10.0


def waits_s(value_usd: float, ahead_s: float, **fields: float) -> float:
    job = a_job("one", deadline_at=NOW + SPARE_S + BOOT_S + HOUR, **(fields or UNSURE))
    return put_off_s(job, ahead_s, value_usd)


def put_off_s(job: JobView, ahead_s: float, value_usd: float, later_s: float = 0.0) -> float:
    """As it is said so much later, when nothing has changed but the time."""
    told = (
        job.deadline_at, *spread_of(job), ahead_s - later_s, HOUR, NOW + BOOT_S + later_s, HOUR, RENT_USD, value_usd, SPARE_S - later_s,
    )  # fmt: skip
    return float(kernels.put_off_s(NOW + later_s, *(np.array([each], dtype=np.float64) for each in told))[0])


def test_a_run_that_is_certain_is_rented_for_as_late_as_is_safe() -> None:
    certain = {"run_s": HOUR, "run_low_s": HOUR, "run_high_s": HOUR}
    assert waits_s(1000.0, 4 * HOUR, **certain) == SPARE_S
    assert waits_s(1000.0, math.inf, **certain) == SPARE_S


def test_the_more_a_deadline_is_worth_the_sooner_it_is_made_sure() -> None:
    found = [waits_s(value_usd, 4 * HOUR) for value_usd in (5.0, 50.0, 500.0, 50_000.0)]
    assert found == sorted(found, reverse=True)
    assert found[0] == SPARE_S
    assert found[-1] < found[0] / 2


def test_the_sooner_home_may_be_free_the_longer_it_is_waited_for() -> None:
    found = [waits_s(100.0, hours * HOUR) for hours in (3.5, 8.0, 100.0)]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1]


@pytest.mark.parametrize("value_usd", [30.0, 100.0, 500.0])
def test_when_that_moment_has_come_it_is_still_the_moment(value_usd: float) -> None:
    job = a_job("one", deadline_at=NOW + SPARE_S + BOOT_S + HOUR, **UNSURE)
    found = put_off_s(job, 8 * HOUR, value_usd)
    assert 0.0 < found < SPARE_S
    assert put_off_s(job, 8 * HOUR, value_usd, found) == 0.0
