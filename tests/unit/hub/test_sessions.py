"""Sessions: who gets one, and how it ends."""

import asyncio

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from federator.hub import frames, sessions
from federator.kernel.errors import Unauthenticated, Unavailable
from federator.model.placements import PlacementReport, PlacementStatus
from federator.model.sites import SiteReport
from federator.wire import link
from tests.support.waiting import PATIENCE_S
from tests.unit.hub.agents import Agent, a_world, job_of, placement


async def test_an_agent_that_proves_its_key_is_welcome_and_gets_the_whole_set_first() -> None:
    world, agents = await a_world("north")
    welcome = await agents["north"].open()
    assert isinstance(welcome, link.Welcome)
    assert welcome.incarnation == world.core.records.store.incarnation
    assert welcome.term == 3
    first = await agents["north"].told()
    assert first.whole
    assert first.entries == ()
    assert world.core.inventory.members["north"].session == welcome.session


async def test_a_wrong_key_and_an_unknown_member_are_refused_in_the_same_words() -> None:
    world, agents = await a_world("north")
    other = Agent(world.core.hub, "north", Ed25519PrivateKey.generate())
    stranger = Agent(world.core.hub, "nobody", agents["north"].key)
    refusals = [await other.open(), await stranger.open()]
    assert refusals[0] == refusals[1]
    assert isinstance(refusals[0], link.Refusal)
    assert refusals[0].code == "unauthenticated"
    assert refusals[0].retry_after_s is None
    assert await other.hear() is None


async def test_a_signature_for_another_challenge_is_worth_nothing() -> None:
    _, agents = await a_world("north")
    agent = agents["north"]
    agent.dial()
    agent.say(link.Hello(link.PROTOCOL, "north", "boot-1", "test", "local"))
    challenge = await agent.hear()
    assert isinstance(challenge, link.Challenge)
    replayed = link.Challenge("another nonce", challenge.incarnation)
    agent.say(link.Proof(agent.key.sign(link.challenge_bytes(replayed, "north")).hex()))
    assert isinstance(await agent.hear(), link.Refusal)


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        '{"type":"statuses","reports":[]}',
        link.encode(link.Hello(99, "north", "b", "v", "local")).decode(),
    ],
)
async def test_whoever_does_not_begin_as_agreed_is_refused(text: str) -> None:
    _, agents = await a_world("north")
    agents["north"].dial()
    agents["north"].pipe.up.put_nowait(text)
    assert isinstance(await agents["north"].hear(), link.Refusal)


async def test_of_two_sessions_of_one_member_the_newest_wins_and_the_old_may_not_come_back() -> None:
    world, agents = await a_world("north")
    old = agents["north"]
    await old.open()
    await old.told()
    new = Agent(world.core.hub, "north", old.key)
    await new.open()
    await new.told()
    refusal = await old.hear()
    assert isinstance(refusal, link.Refusal)
    assert refusal.code == "replaced"
    assert refusal.retry_after_s is None
    assert await old.hear() is None
    assert old.welcome is not None
    assert new.welcome is not None
    assert world.core.inventory.members["north"].session == new.welcome.session
    assert world.core.hub.session_of(new.welcome.ticket).member == "north"
    with pytest.raises(Unauthenticated):
        world.core.hub.session_of(old.welcome.ticket)


async def test_reports_reach_the_inventory_and_the_end_of_the_session_too() -> None:
    world, agents = await a_world("north")
    agent = agents["north"]
    await agent.open()
    agent.say(link.Report(SiteReport(taken_at=5.0, pools=())))
    await agent.silent()
    heard = world.core.inventory.members["north"]
    assert heard.report is not None
    assert heard.report.taken_at == 5.0
    await agent.pipe.close()
    assert agent.served is not None
    await asyncio.wait_for(agent.served, PATIENCE_S)
    assert heard.session == ""
    assert agent.welcome is not None
    with pytest.raises(Unauthenticated):
        world.core.hub.session_of(agent.welcome.ticket)


async def test_statuses_are_acknowledged_only_once_they_are_durable() -> None:
    world, agents = await a_world("north")
    row = placement("plc-1", "north")
    await world.put(row, job_of(row))
    agent = agents["north"]
    await agent.open()
    await agent.told()
    gate = asyncio.Event()
    commit = world.core.records.store.commit

    async def slow_commit(transaction: object) -> int:
        await gate.wait()
        return await commit(transaction)  # type: ignore[arg-type]

    world.core.records.store.commit = slow_commit  # type: ignore[method-assign]
    report = PlacementReport(placement="plc-1", epoch=1, seq=9, status=PlacementStatus.ACCEPTED, at=1.0)
    agent.say(link.Statuses((report,)))
    assert await agent.silent()
    gate.set()
    assert await agent.hear() == link.StatusAck(9)
    assert world.core.records.placements["plc-1"].status is PlacementStatus.ACCEPTED


async def test_when_the_store_fails_nothing_is_acknowledged_and_the_agent_may_come_back() -> None:
    world, agents = await a_world("north")
    row = placement("plc-1", "north")
    await world.put(row, job_of(row))
    agent = agents["north"]
    await agent.open()
    await agent.told()

    async def failing(_transaction: object) -> int:
        raise Unavailable("disk full", retry_after_s=10.0)

    world.core.records.store.commit = failing  # type: ignore[assignment, method-assign]
    report = PlacementReport(placement="plc-1", epoch=1, seq=9, status=PlacementStatus.ACCEPTED, at=1.0)
    agent.say(link.Statuses((report,)))
    refusal = await agent.hear()
    assert isinstance(refusal, link.Refusal)
    assert refusal.retry_after_s == 10.0


async def test_too_many_statuses_in_one_message_end_the_session() -> None:
    _, agents = await a_world("north")
    agent = agents["north"]
    await agent.open()
    await agent.told()
    report = PlacementReport(placement="plc-1", epoch=1, seq=1, status=PlacementStatus.ACCEPTED, at=1.0)
    agent.say(link.Statuses((report,) * (link.MAX_STATUSES + 1)))
    assert isinstance(await agent.hear(), link.Refusal)


async def test_an_agent_that_takes_nothing_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "SEND_S", 0.01)
    world, agents = await a_world("north")
    agent = agents["north"]
    await agent.open()
    await agent.told()
    agent.pipe.stuck = True
    row = placement("plc-1", "north")
    await world.put(row, job_of(row))
    assert agent.served is not None
    await asyncio.wait_for(agent.served, PATIENCE_S)
    assert world.core.inventory.members["north"].session == ""


async def test_an_agent_that_acknowledges_nothing_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "ACKNOWLEDGE_S", 0.01)
    _, agents = await a_world("north")
    await agents["north"].open()
    await agents["north"].told(acknowledge=False)
    refusal = await agents["north"].hear()
    assert isinstance(refusal, link.Refusal)
    assert refusal.code == "slow"


async def test_when_the_dispatcher_stops_agents_are_told_to_come_back() -> None:
    world, agents = await a_world("north")
    await agents["north"].open()
    await agents["north"].told()
    await world.core.hub.close()
    refusal = await agents["north"].hear()
    assert isinstance(refusal, link.Refusal)
    assert refusal.retry_after_s is not None
    late = Agent(world.core.hub, "north", agents["north"].key)
    assert isinstance(await late.open(), link.Refusal)
