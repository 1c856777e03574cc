"""Spot is rented only where its deadline survives the worst interruption."""

import pytest

from federator.model.capacity import Market
from tests.support.worlds import HOUR, NOW, a_job, a_plan, a_world, an_offer, bursting, proof, rented
from tests.unit.checks.test_renting import blamed

SPOT_FINISH = NOW + 540.0 + HOUR
AGAIN = 540.0 + HOUR


@pytest.mark.parametrize(
    ("fallback_at", "on_demand", "expected"),
    [
        (None, True, {("job-a", 0)}),
        (SPOT_FINISH + AGAIN, True, set()),
        (SPOT_FINISH + AGAIN - 10.0, True, {("job-a", 0)}),
        (NOW + 3 * HOUR + 10.0, True, {("job-a", 0)}),
        (SPOT_FINISH + AGAIN, False, set()),
        (SPOT_FINISH + 60.0, False, {("job-a", 0)}),
    ],
)
def test_spot_is_justified_only_if_the_deadline_survives_an_interruption(
    fallback_at: float | None, on_demand: bool, expected: set[tuple[str, int]]
) -> None:
    """No fallback, one that is too good to be true, and one that is late."""
    spot = an_offer("spot", market=Market.SPOT)
    job = a_job(deadline_at=NOW + 3 * HOUR)
    world = a_world([job], offers=[spot, an_offer()] if on_demand else [spot], rules=[bursting()])
    evidence = proof(job, spot, burst_finish_at=SPOT_FINISH, fallback_finish_at=fallback_at)
    assert blamed(world, a_plan(rented(job, spot, evidence=evidence))) == expected


def test_a_job_that_asks_for_spot_needs_no_fallback() -> None:
    spot = an_offer("spot", market=Market.SPOT)
    job = a_job(deadline_at=NOW + 1.2 * HOUR, spot_policy="spot")
    world = a_world([job], offers=[spot], rules=[bursting()])
    evidence = proof(job, spot, burst_finish_at=SPOT_FINISH)
    assert blamed(world, a_plan(rented(job, spot, evidence=evidence))) == set()
