"""Who gets the seat of a member: after a reboot, against a copy of itself, and when everybody comes at once."""

import asyncio
from typing import Any

import pytest

from federator.hub import handshake
from federator.hub.frames import Ended
from federator.kernel.errors import Unauthenticated
from federator.model.placements import Cause, Order, PlacementStatus
from federator.model.sites import Member, SiteStatus
from federator.wire import link
from tests.support.dispatch import ADMIN, World
from tests.unit.hub.agents import Agent, a_world, job_of, placement, report, seated


def another(agent: Agent, **fields: Any) -> Agent:
    """A process with the same key."""
    given = {"instance": agent.instance, "host": agent.host, "boot_id": agent.boot_id} | fields
    return Agent(agent.hub, agent.member, agent.key, **given)


def status(world: World) -> SiteStatus:
    return world.core.inventory.status(world.core.records.members["north"])


async def has(world: World, placement_id: str, status: PlacementStatus, **fields: Any) -> None:
    row = placement(placement_id, "north", status=status, **fields)
    await world.put(row, job_of(row))


# -- Two agents of one identity -------------------------------------------------------------------------------------------


async def test_a_copy_is_turned_away_while_the_seats_agent_answers() -> None:
    world, agents = await a_world("north")
    first = agents["north"]
    first.instance, first.host = "one", "host a"
    await seated(first)
    copy = another(first, instance="two", host="host b")
    opening = asyncio.create_task(copy.open())
    await first.told()  # it is asked by being told once more, and acknowledges
    refusal = await opening
    assert isinstance(refusal, link.Refusal)
    assert refusal.code == "duplicate"
    assert refusal.retry_after_s is None, "it comes back only after long"
    assert "host a" in refusal.detail
    assert "host b" in refusal.detail
    assert await copy.hear() is None
    assert first.welcome is not None
    assert world.core.inventory.members["north"].session == first.welcome.session
    assert await first.silent(), "nothing has happened to the one who sits there"


async def test_the_site_says_so_and_gets_nothing_new_until_an_admin_has_looked() -> None:
    world, agents = await a_world("north")
    first = agents["north"]
    first.instance, first.host = "one", "host a"
    await seated(first)
    assert world.core.inventory.closed_because(world.core.records.members["north"]) == ""
    opening = asyncio.create_task(another(first, instance="two", host="host b").open())
    await first.told()
    await opening
    first.say(report(at=2.0))
    await first.silent()
    assert status(world) is SiteStatus.DEGRADED
    because = world.core.inventory.closed_because(world.core.records.members["north"])
    assert "host a" in because
    assert "host b" in because
    assert "federator site trust north --member north" in because
    world.clock.advance(1000.0)
    first.say(report(at=3.0))
    await first.silent()
    assert status(world) is SiteStatus.DEGRADED, "time alone does not make it right"
    await world.core.sites.trust(ADMIN, "north", "north")
    first.say(report(at=4.0))
    await first.silent()
    assert status(world) is SiteStatus.READY


async def test_a_seat_whose_agent_does_not_answer_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "ANSWERS_WITHIN_S", 0.05)
    world, agents = await a_world("north")
    dead = agents["north"]
    dead.instance = "one"
    await dead.open()
    heir = another(dead, instance="two", boot_id="boot-2")
    assert isinstance(await heir.open(), link.Welcome)
    assert heir.welcome is not None
    assert world.core.inventory.members["north"].session == heir.welcome.session


async def test_a_key_that_is_revoked_while_it_waits_for_its_turn_opens_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, agents = await a_world("north")
    waits, go_on = asyncio.Event(), asyncio.Event()

    async def turn() -> None:
        waits.set()
        await go_on.wait()

    monkeypatch.setattr(world.core.hub.turns, "take", turn)
    opening = asyncio.create_task(agents["north"].open())
    await waits.wait()
    await world.core.sites.revoke(ADMIN, "north", "north")
    world.core.hub.dismiss("north", "its key was revoked")
    go_on.set()
    refusal = await opening
    assert isinstance(refusal, link.Refusal)
    assert refusal.code == "unauthenticated"
    heard = world.core.inventory.members.get("north")
    assert heard is None or not heard.session


async def test_the_ticket_of_a_revoked_key_is_worth_nothing_though_its_holder_takes_nothing() -> None:
    world, agents = await a_world("north")
    agent = agents["north"]
    await seated(agent)
    assert agent.welcome is not None
    hub = world.core.hub
    assert hub.session_of(agent.welcome.ticket).member == "north"
    agent.pipe.stuck = True
    await world.core.sites.revoke(ADMIN, "north", "north")
    hub.dismiss("north", "its key was revoked")
    await agent.silent()
    with pytest.raises(Unauthenticated):
        hub.session_of(agent.welcome.ticket)


@pytest.mark.parametrize(("instance", "boot_id"), [("one", "boot-1"), ("", "boot-1")])
async def test_an_agent_that_comes_back_over_another_connection_need_not_wait(
    instance: str, boot_id: str
) -> None:
    """The old connection may look alive for a while: the network took it away without a word."""
    world, agents = await a_world("north")
    agent = agents["north"]
    agent.instance = instance
    await agent.open()
    back = another(agent, boot_id=boot_id)
    assert isinstance(await back.open(), link.Welcome)
    assert world.core.records.members["north"].contested == ""


async def test_agents_that_do_not_name_their_process_are_told_apart_by_their_hosts() -> None:
    _, agents = await a_world("north")
    await seated(agents["north"])
    opening = asyncio.create_task(another(agents["north"], boot_id="boot-2").open())
    await agents["north"].told()
    refusal = await opening
    assert isinstance(refusal, link.Refusal)
    assert refusal.code == "duplicate"
    assert "boot-2" in refusal.detail


# -- Another boot of the host ---------------------------------------------------------------------------------------------


@pytest.fixture
async def rebooted() -> tuple[World, Agent]:
    """`north` was heard in another boot, and had `p1` running, `p2` accepted and `p3` just assigned."""
    world, agents = await a_world("north")
    member = world.core.records.members["north"]
    await world.put(Member(id="north", site="north", public_key=member.public_key, boot_id="boot-0"))
    await has(world, "p1", PlacementStatus.RUNNING)
    await has(world, "p2", PlacementStatus.ACCEPTED, order=Order.RUN)
    await has(world, "p3", PlacementStatus.ASSIGNED)
    return world, agents["north"]


async def test_what_an_agent_without_memory_had_is_lost_with_its_boot_and_not_begun_again(
    rebooted: tuple[World, Agent],
) -> None:
    world, agent = rebooted
    await agent.open()
    assert await agent.silent(), "it is told nothing before it has said what it knows"
    agent.say(report())
    desired = await agent.told()
    assert [entry.placement for entry in desired.entries] == ["p3"]
    lost = world.core.records.placements["p1"]
    assert lost.status is PlacementStatus.LOST
    assert lost.cause is Cause.NODE_LOST
    assert "restarted" in lost.detail
    assert world.core.records.placements["p2"].status is PlacementStatus.LOST
    assert world.core.records.placements["p3"].status is PlacementStatus.ASSIGNED
    assert world.core.records.members["north"].boot_id == "boot-1"


async def test_what_the_agent_remembers_is_its_own_to_tell(rebooted: tuple[World, Agent]) -> None:
    world, agent = rebooted
    await agent.open()
    agent.say(report("p1", "p2"))
    desired = await agent.told()
    assert {entry.placement for entry in desired.entries} == {"p1", "p2", "p3"}
    assert world.core.records.placements["p1"].status is PlacementStatus.RUNNING


async def test_the_boot_of_a_clusters_agent_proves_nothing(rebooted: tuple[World, Agent]) -> None:
    """Its pods and batch jobs live elsewhere."""
    world, agent = rebooted
    agent.runtime = "kube"
    await agent.open()
    agent.say(report())
    await agent.told()
    assert world.core.records.placements["p1"].status is PlacementStatus.RUNNING
    assert world.core.records.members["north"].boot_id == "boot-1"


async def test_in_the_same_boot_absence_proves_nothing(rebooted: tuple[World, Agent]) -> None:
    world, agent = rebooted
    agent.boot_id = "boot-0"
    await agent.open()
    await agent.told()
    agent.say(report())
    await agent.silent()
    assert world.core.records.placements["p1"].status is PlacementStatus.RUNNING


async def test_a_session_that_breaks_before_its_report_leaves_the_reboot_to_be_noticed(
    rebooted: tuple[World, Agent],
) -> None:
    world, agent = rebooted
    await agent.open()
    await agent.pipe.close()
    assert agent.served is not None
    await asyncio.wait_for(agent.served, 60)
    back = another(agent)
    await back.open()
    back.say(report())
    await back.told()
    assert world.core.records.placements["p1"].status is PlacementStatus.LOST


# -- Everybody at once ----------------------------------------------------------------------------------------------------


async def test_seats_are_given_at_a_bounded_rate_and_who_would_wait_too_long_is_sent_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handshake, "LONGEST_QUEUE_S", 0.2)
    turns = handshake.Turns()
    answers = await asyncio.gather(*(turns.take() for _ in range(100)), return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, Ended)]
    assert len(answers) - len(refused) == pytest.approx(0.2 * handshake.SEATS_PER_S, abs=2)
    assert all(ended.refusal and ended.refusal.retry_after_s for ended in refused)
    await turns.take()  # the queue has been waited for: there is room again


async def test_a_stranger_takes_nobodys_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "LONGEST_QUEUE_S", 0.0)
    monkeypatch.setattr(handshake, "SEATS_PER_S", 0.001)
    world, agents = await a_world("north", "south")
    stranger = Agent(world.core.hub, "north", agents["south"].key)
    refusal = await stranger.open()
    assert isinstance(refusal, link.Refusal)
    assert refusal.code == "unauthenticated"
    assert isinstance(await agents["north"].open(), link.Welcome)
    refusal = await agents["south"].open()
    assert isinstance(refusal, link.Refusal)
    assert refusal.code == "busy"
