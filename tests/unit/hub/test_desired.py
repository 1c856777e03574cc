"""Desired sets: what members are told, in which portions, and what happens when an agent holds something else."""

import random

import msgspec
import pytest

from federator.control.record.records import Changes, row_key
from federator.hub import desired
from federator.model.placements import Order, Part, Placement, PlacementReport, PlacementStatus
from federator.wire import link
from tests.unit.hub.agents import Agent, a_world, job_of, placement


async def test_an_entry_says_what_the_placement_and_its_spec_say() -> None:
    world, agents = await a_world("north", "north-2")
    row = placement("plc-1", "north-2", "north", "north-2", max_duration_s=60.0)
    await world.put(row, job_of(row, array="job-a", array_index=4, resume_site="north"))
    await agents["north-2"].open()
    entry = (await agents["north-2"].told()).entries[0]
    assert (entry.placement, entry.job, entry.order, entry.ranks) == ("plc-1", row.job, Order.RUN, (0, 2))
    assert (entry.signal, entry.grace_s, entry.max_duration_s) == ("USR1", 7.0, 60.0)
    assert (entry.array_index, entry.resume, entry.job_name) == (4, True, "train")


async def test_changes_come_as_deltas_to_the_members_they_touch_and_to_nobody_else() -> None:
    world, agents = await a_world("north", "north-2")
    for agent in agents.values():
        await agent.open()
        await agent.told()
    row = placement("plc-1", "north")
    await world.put(row, job_of(row))
    message = await agents["north"].told()
    assert not message.whole
    assert set(agents["north"].held) == {"plc-1"}
    assert await agents["north-2"].silent()
    stop = msgspec.structs.replace(row, order=Order.STOP, order_reason="cancelled by ada")
    await world.put(stop)
    await agents["north"].told()
    assert agents["north"].held["plc-1"].order is Order.STOP
    assert agents["north"].held["plc-1"].reason == "cancelled by ada"
    await world.put(msgspec.structs.replace(stop, status=PlacementStatus.STOPPED, stop_acknowledged=True))
    assert (await agents["north"].told()).forget == ("plc-1",)
    assert agents["north"].held == {}


async def test_a_placement_whose_row_is_dropped_is_forgotten() -> None:
    world, agents = await a_world("north")
    row = placement("plc-1", "north")
    await world.put(row, job_of(row))
    await agents["north"].open()
    await agents["north"].told()

    def drop() -> Changes:
        return Changes(deletes=[row_key(row)])

    await world.core.records.transact(drop)
    assert (await agents["north"].told()).forget == ("plc-1",)


async def test_a_change_that_says_nothing_new_is_not_sent() -> None:
    world, agents = await a_world("north")
    row = placement("plc-1", "north")
    await world.put(row, job_of(row))
    await agents["north"].open()
    await agents["north"].told()
    await world.put(msgspec.structs.replace(row, detail="staging"))
    assert await agents["north"].silent()


async def test_while_one_message_is_on_its_way_changes_gather_into_the_next() -> None:
    world, agents = await a_world("north")
    agent = agents["north"]
    await agent.open()
    first = await agent.told(acknowledge=False)
    for number in range(5):
        row = placement(f"plc-{number}", "north")
        await world.put(row, job_of(row))
    assert await agent.silent()
    agent.acknowledge(first)
    assert len((await agent.told()).entries) == 5
    assert await agent.silent()


async def test_a_placement_that_came_and_went_in_between_is_never_mentioned() -> None:
    world, agents = await a_world("north")
    agent = agents["north"]
    await agent.open()
    first = await agent.told(acknowledge=False)
    row = placement("plc-1", "north")
    await world.put(row, job_of(row))
    await world.put(msgspec.structs.replace(row, status=PlacementStatus.REVOKED, stop_acknowledged=True))
    agent.acknowledge(first)
    assert await agent.silent()


async def test_large_changes_come_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desired, "DELTA_ENTRIES", 2)
    world, agents = await a_world("north")
    agent = agents["north"]
    await agent.open()
    await agent.told()
    rows = [placement(f"plc-{number}", "north") for number in range(5)]
    await world.put(*rows, *(job_of(row) for row in rows))
    sizes = [len((await agent.told()).entries) for _ in range(3)]
    assert sizes == [2, 2, 1]
    assert len(agent.held) == 5


async def test_an_agent_that_holds_another_set_is_sent_the_whole() -> None:
    world, agents = await a_world("north")
    agent = agents["north"]
    row = placement("plc-1", "north")
    await world.put(row, job_of(row))
    await agent.open()
    await agent.told()
    second = placement("plc-2", "north")
    await world.put(second, job_of(second))
    message = await agent.told(acknowledge=False)
    del agent.held["plc-1"]
    agent.acknowledge(message)
    again = await agent.told()
    assert again.whole
    assert set(agent.held) == {"plc-1", "plc-2"}


async def test_an_agent_that_never_holds_what_it_is_sent_is_refused() -> None:
    _, agents = await a_world("north")
    agent = agents["north"]
    await agent.open()
    for _ in range(4):
        message = await agent.told(acknowledge=False)
        agent.say(link.DesiredAck(message.generation, "wrong"))
    refusal = await agent.hear()
    assert isinstance(refusal, link.Refusal)
    assert refusal.code == "digest"


async def test_generations_grow_over_sessions_and_over_restarts_of_the_dispatcher() -> None:
    world, agents = await a_world("north")
    await agents["north"].open()
    first = await agents["north"].told()
    again = Agent(world.core.hub, "north", agents["north"].key)
    await again.open()
    second = await again.told()
    restarted, others = await a_world("north")
    restarted.core.records.revision = world.core.records.revision + 1
    await others["north"].open()
    third = await others["north"].told()
    assert first.generation < second.generation < third.generation


async def test_work_given_up_without_the_sites_word_is_to_be_stopped_should_the_site_come_back() -> None:
    world, agents = await a_world("north")
    row = placement("plc-1", "north", status=PlacementStatus.LOST)
    await world.put(row, job_of(row))
    await agents["north"].open()
    assert (await agents["north"].told()).entries[0].order is Order.STOP


async def test_a_gangs_member_is_not_told_again_of_a_part_that_it_has_said_is_over() -> None:
    """With an empty disk it would begin its ranks a second time, while those of other members go on."""
    world, agents = await a_world("north", "north-2")
    over = Part(member="north", status=PlacementStatus.SUCCEEDED, stop_acknowledged=True)
    running = Part(member="north-2", status=PlacementStatus.RUNNING)
    row = placement("plc-1", "north", "north-2", status=PlacementStatus.RUNNING, parts=(over, running))
    await world.put(row, job_of(row))
    for agent in agents.values():
        await agent.open()
    assert (await agents["north"].told()).entries == ()
    assert [entry.order for entry in (await agents["north-2"].told()).entries] == [Order.RUN]


async def test_a_placement_is_not_forgotten_before_its_last_status_is_acknowledged() -> None:
    world, agents = await a_world("north")
    agent = agents["north"]
    row = placement("plc-1", "north")
    await world.put(row, job_of(row))
    await agent.open()
    await agent.told()
    report = PlacementReport(
        placement="plc-1", epoch=1, seq=3, status=PlacementStatus.SUCCEEDED, at=1.0, exit_code=0
    )
    agent.say(link.Statuses((report,)))
    assert await agent.hear() == link.StatusAck(3)
    assert (await agent.told()).forget == ("plc-1",)


async def test_an_agent_that_has_seen_a_later_set_than_we_ever_sent_is_sent_one_later_still() -> None:
    _, agents = await a_world("north")
    agent = agents["north"]
    await agent.open()
    ignored = await agent.told(acknowledge=False)
    seen = ignored.generation + 5000
    agent.say(link.DesiredAck(seen, "of that later set"))
    again = await agent.told()
    assert again.whole
    assert again.generation > seen


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_happens_in_whatever_order_the_agent_ends_up_with_what_is_wanted(seed: int) -> None:
    chance = random.Random(seed)
    world, agents = await a_world("north")
    agent = agents["north"]
    await agent.open()
    rows: dict[str, Placement] = {}
    for step in range(60):
        match chance.choice(["new", "new", "stop", "end", "hear", "hear", "forget", "reconnect"]):
            case "new":
                row = rows[f"plc-{step}"] = placement(f"plc-{step}", "north")
                await world.put(row, job_of(row))
            case "stop" if rows:
                name = chance.choice(sorted(rows))
                rows[name] = msgspec.structs.replace(rows[name], order=Order.STOP)
                await world.put(rows[name])
            case "end" if rows:
                row = rows.pop(chance.choice(sorted(rows)))
                await world.put(msgspec.structs.replace(row, status=PlacementStatus.STOPPED))
            case "hear" if not await agent.silent():
                await agent.told()
            case "forget" if agent.held:
                del agent.held[chance.choice(sorted(agent.held))]
            case "reconnect":
                agent = Agent(world.core.hub, "north", agent.key, held=agent.held)
                await agent.open()
    # One more change: what an agent has lost by itself shows at the next acknowledgement.
    last = rows["plc-last"] = placement("plc-last", "north")
    await world.put(last, job_of(last))
    while not await agent.silent():
        await agent.told()
    assert {name: entry.order for name, entry in agent.held.items()} == {
        name: row.order for name, row in rows.items()
    }
