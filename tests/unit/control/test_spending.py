"""What was spent under a cap over its period, from the ledger."""

import pytest

from federator.control.queries.spending import MOST_POINTS, capped, since_of, spending
from federator.kernel.errors import NotFound
from federator.wire.http import Spending
from tests.support.dispatch import World
from tests.unit.control.test_budgets import JOB, POLL_S, WORST_USD, a_world, budget, pass_time

POLICY = "Budget/lease_budget"


async def spent(world: World, period: str = "") -> Spending:
    records, now = world.core.records, world.core.clock.now()
    row = capped(records, now, POLICY, period, "")
    since = since_of(records, row, now)
    return await spending(records, row, world.core.views.ledger_lines(since=since), since, now)


@pytest.mark.parametrize("period", ["per_day", "per_month", "total"])
async def test_the_curve_ends_at_what_is_spent_and_never_falls(period: str) -> None:
    world = await a_world(budget(f"{{usd: {{{period}: {3 * WORST_USD:.0f}}}}}"))
    assert {point.usd for point in (await spent(world)).points} == {0.0}
    await world.submit(**JOB)
    await pass_time(world, 40)
    found = await spent(world)
    (lease,) = world.leases()
    assert found.cap.spent == pytest.approx(lease.billed_usd)
    assert found.points[0].usd == pytest.approx(0.0)
    assert found.points[-1].usd == pytest.approx(lease.billed_usd)
    assert found.points[-1].at == pytest.approx(world.clock.now())
    amounts, moments = [point.usd for point in found.points], [point.at for point in found.points]
    assert amounts == sorted(amounts)
    assert moments == sorted(moments)
    assert len(found.points) <= 2 * MOST_POINTS + 1
    if period == "total":  # its steps are fine enough to see when it was spent
        halfway = [point.usd for point in found.points if point.at <= world.clock.now() - 20 * POLL_S]
        assert 0.0 < halfway[-1] < lease.billed_usd


async def test_what_was_billed_before_the_period_is_where_it_begins() -> None:
    world = await a_world(budget(f"{{usd: {{per_day: {9 * WORST_USD:.0f}}}}}"))
    midnight = 86_400 - world.clock.now() % 86_400
    world.clock.advance(midnight - 30 * POLL_S)
    await world.submit(**JOB)
    await pass_time(world, 60)
    found = await spent(world)
    (lease,) = world.leases()
    assert 0.0 < found.points[0].usd < found.points[-1].usd
    assert found.points[-1].usd == pytest.approx(lease.billed_usd), (
        "a cap counts all of a machine that it counts at all"
    )


async def test_a_policy_without_a_cap_is_not_found() -> None:
    world = await a_world(budget("{usd: {per_day: 5}}"))
    with pytest.raises(NotFound):
        await spent(world, "month")
