"""What people asked to be told of their jobs: each thing once, in few messages, and nobody waits for it."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import pytest

from federator.control.messages import notifications
from federator.control.messages.alerts import MARK
from federator.control.submission.reruns import request_again
from federator.kernel.errors import Invalid, Unavailable
from federator.model.events import Alert, AlertKind
from federator.model.identity import OwnAddress
from federator.model.jobs import Notify
from federator.settings import NotificationSettings
from federator.simulation.virtual_time import VirtualLoop, run
from federator.store.memory import MemoryStore
from tests.support.dispatch import ADA, BOB, World, make_world
from tests.support.waiting import until

Make = Callable[..., Awaitable[World]]


class Post:
    """Takes messages to Ada, and to nobody else."""

    def __init__(self) -> None:
        self.messages: list[Alert] = []
        self.fails = False

    def reach(self, person: str, own: OwnAddress | None) -> "Post | None":
        return self if person == "ada" or own is not None else None

    async def deliver(self, alert: Alert) -> None:
        self.messages.append(alert)
        if self.fails:
            raise Unavailable("the mail server is dead")


@pytest.fixture
def post() -> Post:
    return Post()


@pytest.fixture
def make(post: Post) -> Make:
    """A dispatcher that tells, with a site."""

    async def world(store: MemoryStore | None = None, *, per_hour: float = 1e9) -> World:
        given = NotificationSettings(gather_s=0.0, per_hour=per_hour)
        made = await make_world(store, notifications=given, reach=post.reach)
        made.core.records.subscribe(made.core.notifications.note)
        if store is None:
            await made.add_site("north", gpus=4)
        return made

    return world


@pytest.fixture
async def world(make: Make) -> World:
    return await make()


@asynccontextmanager
async def told(world: World) -> AsyncIterator[None]:
    running = asyncio.create_task(world.core.notifications.run())
    yield
    running.cancel()


async def ended(world: World, exit_code: int = 0, **fields: Any) -> str:
    job = await world.submit(resources={"gpus": 1}, **fields)
    await world.turn()
    await world.sites["north"].finish(job, exit_code=exit_code)
    return job


def _is_told(world: World, job: str) -> bool:
    return bool(world.job(job).notified)


async def test_each_thing_is_told_once(world: World, post: Post) -> None:
    async with told(world):
        good = await ended(world, notify=["end", "fail"])
        bad = await ended(world, 3, notify=["end", "fail"])
        await ended(world)
        await until(lambda: len(world.job(bad).notified) == 1)
    texts = "\n".join(message.text for message in post.messages)
    assert texts.count(good) == texts.count(bad) == 1
    assert f"({bad}) is FAILED: " in texts
    assert "exit code 3" in texts
    assert world.job(good).notified == (Notify.END,)


async def test_only_what_was_asked_for(world: World, post: Post) -> None:
    async with told(world):
        await ended(world, notify=["fail"])
        job = await ended(world, notify=["start"])
        await until(lambda: world.job(job).notified == (Notify.START,))
    assert [message.job for message in post.messages] == [job]
    assert "has started" in post.messages[0].text


async def test_what_happens_together_comes_in_one_message(world: World, post: Post) -> None:
    jobs = [await ended(world, notify=["end"]) for _ in range(30)]
    async with told(world):
        await until(lambda: all(world.job(job).notified for job in jobs))
    (message,) = post.messages
    lines = message.text.splitlines()
    assert lines[0] == "30 things about your jobs:"
    assert len(lines) == 1 + notifications.LINES + 1
    assert lines[-1].startswith("- and 10 more")


async def test_a_flood_waits_for_the_next_message(make: Make, post: Post) -> None:
    world = await make(per_hour=1.0)
    async with told(world):
        first = await ended(world, notify=["end"])
        await until(lambda: bool(world.job(first).notified))
        second = await ended(world, notify=["end"])
        await asyncio.sleep(0)
        assert len(post.messages) == 1
        assert not world.job(second).notified


def test_a_third_of_an_hours_messages_come_as_things_happen(post: Post) -> None:
    """Who runs three jobs in a row hears of each, and of a flood twelve messages an hour."""

    async def story(_: VirtualLoop) -> None:
        given = NotificationSettings(gather_s=0.0, per_hour=12.0)
        world = await make_world(notifications=given, reach=post.reach)
        world.core.records.subscribe(world.core.notifications.note)
        await world.add_site("north", gpus=4)
        async with told(world):
            for job in range(4):
                await ended(world, notify=["end"])
                await asyncio.sleep(1.0)
                assert len(post.messages) == job + 1
            await ended(world, notify=["end"])
            await asyncio.sleep(400.0)
            assert len(post.messages) == 4
            await asyncio.sleep(60.0)
            assert len(post.messages) == 5
            for _again in range(60):
                await ended(world, notify=["end"])
                await asyncio.sleep(52.0)
            assert len(post.messages) <= 12
            await asyncio.sleep(600.0)
            assert sum(message.text.count("SUCCEEDED") for message in post.messages) + _more(post) == 65

    run(story)


def _more(post: Post) -> int:
    counts = (re.search(r"and (\d+) more", message.text) for message in post.messages)
    return sum(int(count[1]) for count in counts if count)


def test_what_is_gathered_goes_out_when_its_time_has_come_though_nothing_else_happens(post: Post) -> None:
    async def story(_: VirtualLoop) -> None:
        given = NotificationSettings(gather_s=60.0, per_hour=1.0)
        world = await make_world(notifications=given, reach=post.reach)
        world.core.records.subscribe(world.core.notifications.note)
        await world.add_site("north", gpus=4)
        async with told(world):
            await ended(world, notify=["end"])
            await asyncio.sleep(59.0)
            assert not post.messages
            await asyncio.sleep(2.0)
            assert len(post.messages) == 1
            await ended(world, notify=["end"])
            await asyncio.sleep(3500.0)
            assert len(post.messages) == 1
            await asyncio.sleep(100.0)
            assert len(post.messages) == 2

    run(story)


async def test_what_cannot_be_delivered_is_given_up_and_the_next_is_tried(world: World, post: Post) -> None:
    async with told(world):
        post.fails = True
        first = await ended(world, notify=["end"])
        await until(lambda: bool(world.job(first).notified))
        post.fails = False
        second = await ended(world, notify=["end"])
        await until(lambda: bool(world.job(second).notified))
    assert len(post.messages) == 2


async def test_after_a_restart_what_was_not_told_is(world: World, make: Make, post: Post) -> None:
    store = cast("MemoryStore", world.core.records.store)
    job = await ended(world, notify=["end"])
    for _ in range(2):
        again = await make(store)
        async with told(again):
            await until(partial(_is_told, again, job))
    assert len(post.messages) == 1


async def test_a_deadline_at_risk(world: World, post: Post) -> None:
    made = world.core.notifications
    async with told(world):
        quiet, loud = await world.submit(), await world.submit(notify=["deadline-at-risk"])
        for job in (quiet, loud):
            for _ in range(2):
                made.note_alert(Alert(kind=AlertKind.DEADLINE, text=f"{job} is late", at=1.0, job=job))
        made.note_alert(Alert(kind=AlertKind.LEASE, text="x", at=1.0, job=loud))
        await until(lambda: world.job(loud).notified == (Notify.AT_RISK,))
    assert [message.text for message in post.messages] == [f"{loud} is late"]


async def test_after_a_restart_an_alert_that_was_not_told_is(world: World, make: Make, post: Post) -> None:
    store = cast("MemoryStore", world.core.records.store)
    quiet, loud = [await world.submit(notify=[event]) for event in ("end", "idle-gpus")]
    for job in (quiet, loud):
        alert = Alert(kind=AlertKind.IDLE, text=f"{job} does nothing", at=world.clock.now(), job=job)
        await world.core.alerts.write({f"{MARK}{AlertKind.IDLE}/{job}/pl-1": alert})
    for _ in range(2):
        again = await make(store)
        async with told(again):
            await until(partial(_is_told, again, loud))
    assert [message.text for message in post.messages] == [f"{loud} does nothing"]


async def test_who_cannot_be_reached_hears_it_at_the_submission(world: World) -> None:
    with pytest.raises(Invalid, match="no address for bob") as refused:
        await world.submit(BOB, notify=["end"])
    assert refused.value.field == "$.notify"


async def test_what_is_run_again_tells_again(world: World) -> None:
    job = world.job(await ended(world, 3, notify=["fail"]))
    again = request_again(world.core.records, ADA, [job], failed=True, now=world.clock.now())
    assert again.notify == (Notify.FAIL,)
