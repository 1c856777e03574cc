"""Agents that say little: a report that still holds counts as one, and what they tell of their links is believed within limits."""

import pytest

from federator.cli.columns import link_columns
from federator.model.sites import LinkState, LinkTraffic, SiteReport, SiteStatus
from federator.wire import link
from tests.unit.hub.agents import a_world

REPORT = SiteReport(taken_at=1.0, pools=())
STATE = LinkState(
    (LinkTraffic("reports", 90_000, 60_000), LinkTraffic("bulk", 0, 5_000_000)),
    0.65,
    2**21,
    2**16,
    "01:00-05:00 UTC",
)


async def test_a_report_that_still_holds_is_heard_and_answered_as_one() -> None:
    world, agents = await a_world("m1")
    agent = agents["m1"]
    await agent.open()
    await agent.told()
    agent.say(link.Report(REPORT, 1.0))
    assert await agent.hear() == link.Heard(1.0)
    world.clock.advance(20.0)
    agent.say(link.Unchanged(21.0))
    assert await agent.hear() == link.Heard(21.0)
    world.clock.advance(20.0)
    world.core.inventory.refresh()
    assert world.core.inventory.members["m1"].status is SiteStatus.READY
    assert world.core.inventory.age_s("m1") == 20.0


async def test_of_a_session_without_a_report_none_can_still_hold() -> None:
    _, agents = await a_world("m1")
    agent = agents["m1"]
    await agent.open()
    await agent.told()
    agent.say(link.Unchanged(1.0))
    refusal = await agent.hear()
    assert isinstance(refusal, link.Refusal)
    assert refusal.code == "invalid"


async def test_the_state_of_a_link_is_shown_with_its_site() -> None:
    world, agents = await a_world("m1")
    agent = agents["m1"]
    await agent.open()
    await agent.told()
    agent.say(link.Report(REPORT, 1.0))
    agent.say(link.Samples((), link=STATE))
    assert await agent.hear() == link.Heard(1.0)
    assert await agent.silent()
    member = world.core.records.members["m1"]
    (host,) = world.core.views.site(member.site).hosts
    assert host.link == STATE
    cells = {column.title: str(column.value(host)) for column in link_columns()}
    assert cells["ROUND TRIP"] == "650 ms"
    assert cells["REPORTS, 1h"] == "90 kB up, 60 kB down"
    assert cells["BULK, 1h"] == "0 kB up, 5 MB down"
    assert cells["LOGS, 1h"] == "-"
    assert cells["BUDGET"] == "2.097 MB an hour"
    assert cells["BULK MOVES"] == "65.54 kB a second, 01:00-05:00 UTC"


@pytest.mark.parametrize(
    ("state", "field"),
    [
        (LinkState((LinkTraffic("reports", -1, 0),)), "hour[0].sent"),
        (LinkState((LinkTraffic("reports", 0, 2**62),)), "hour[0].received"),
        (LinkState((LinkTraffic("x" * 2**20, 0, 0),)), "hour[0].kind"),
        (LinkState((LinkTraffic("reports", 0, 0),) * 100), "hour"),
        (LinkState(round_trip_s=-1.0), "round_trip_s"),
        (LinkState(budget=-1), "budget"),
        (LinkState(rate=-1), "rate"),
        (LinkState(hours="x" * 2**20), "hours"),
    ],
)
async def test_a_link_that_cannot_be_so_ends_the_session(state: LinkState, field: str) -> None:
    world, agents = await a_world("m1")
    agent = agents["m1"]
    await agent.open()
    await agent.told()
    agent.say(link.Samples((), link=state))
    refusal = await agent.hear()
    assert isinstance(refusal, link.Refusal)
    assert f"$.link.{field}" in refusal.detail
    assert world.core.inventory.members["m1"].link is None
