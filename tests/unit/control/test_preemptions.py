"""Preemption rules: who makes room for whom, and who is spared."""

from typing import Any

from tests.support.dispatch import World, make_world

QUEUES = """
apiVersion: federator/v1
kind: Queue
metadata: {name: urgent}
spec: {}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: batch}
spec: {}
---
"""
RULE = """
apiVersion: federator/v1
kind: Preemption
metadata: {name: urgent-first}
spec: {who: {queues: [urgent]}, may_displace: {queues: [batch]}, %s}
"""
HOUR = 3600.0


async def a_world(rule: str, *, hosts: int = 1) -> World:
    world = await make_world()
    await world.add_site("lab", nodes=hosts, gpus=4)
    await world.policies(QUEUES + RULE % rule)
    return world


async def batch(world: World, gpus: int = 4, **fields: Any) -> str:
    """A job of the queue that makes room, running."""
    fields = {"estimate": "20h", "priority": 30, **fields}
    job = await world.submit(queue="batch", resources={"gpus": gpus}, **fields)
    await world.turn()
    return job


async def urgent(world: World, **fields: Any) -> str:
    return await world.submit(
        queue="urgent", resources={"gpus": 4}, estimate="1h", **{"priority": 80, **fields}
    )


async def turns(world: World) -> None:
    """Decide, let sites stop, decide again."""
    await world.turn()
    await world.turn()


def statuses(world: World, *jobs: str) -> list[str]:
    return [world.job(job).status for job in jobs]


async def test_who_may_displace_is_let_in_and_told_by_which_policy() -> None:
    world = await a_world("minimum_run: 10m")
    running = await batch(world)
    world.clock.advance(HOUR)
    job = await urgent(world)
    await turns(world)
    assert statuses(world, running, job) == ["PENDING", "RUNNING"]
    texts = [event.text for event in await world.core.views.events(running, None)]
    assert any("policy Preemption/urgent-first" in text for text in texts), texts


async def test_nobody_is_displaced_before_the_minimum_run() -> None:
    world = await a_world("minimum_run: 2h")
    running = await batch(world)
    world.clock.advance(HOUR)
    job = await urgent(world)
    await turns(world)
    assert statuses(world, running, job) == ["RUNNING", "PENDING"]
    world.clock.advance(HOUR)
    await turns(world)
    assert statuses(world, running, job) == ["PENDING", "RUNNING"]


async def test_the_gap_in_priority_counts() -> None:
    world = await a_world("minimum_run: 1s, priority_gap: 60")
    running, job = await batch(world), await urgent(world)
    world.clock.advance(60)
    await turns(world)
    assert statuses(world, running, job) == ["RUNNING", "PENDING"]


async def test_who_was_displaced_is_left_alone_for_a_while() -> None:
    world = await a_world("minimum_run: 1m, cool_down: 5h")
    running = await batch(world)
    world.clock.advance(HOUR)
    first = await urgent(world)
    await turns(world)
    await world.sites["lab"].finish(first)
    await turns(world)
    world.clock.advance(HOUR)
    second = await urgent(world)
    await turns(world)
    assert statuses(world, running, second) == ["RUNNING", "PENDING"]
    world.clock.advance(4 * HOUR)
    await turns(world)
    assert statuses(world, running, second) == ["PENDING", "RUNNING"]


async def test_a_short_wait_is_put_up_with() -> None:
    world = await a_world("minimum_run: 1m, after_wait: 2h")
    running = await batch(world, estimate="1h", max_duration="1h")
    world.clock.advance(600)
    job = await urgent(world)
    await turns(world)
    assert statuses(world, running, job) == ["RUNNING", "PENDING"]


async def test_who_has_saved_itself_lately_makes_room_before_who_started_later() -> None:
    """Of equal priority: the one that would lose two minutes, not the one that would lose an hour."""
    world = await a_world("minimum_run: 1m", hosts=2)
    saved = await batch(world, checkpoint={"every": "10m"})
    world.clock.advance(2 * HOUR + 120)
    unsaved = await batch(world)
    world.clock.advance(HOUR)
    job = await urgent(world)
    await turns(world)
    assert statuses(world, saved, unsaved, job) == ["PENDING", "RUNNING", "RUNNING"]


async def test_who_cannot_save_itself_and_ran_longest_is_spared() -> None:
    world = await a_world("minimum_run: 1m", hosts=2)
    longer = await batch(world)
    world.clock.advance(HOUR)
    later = await batch(world)
    world.clock.advance(HOUR)
    job = await urgent(world)
    await turns(world)
    assert statuses(world, longer, later, job) == ["RUNNING", "PENDING", "RUNNING"]
