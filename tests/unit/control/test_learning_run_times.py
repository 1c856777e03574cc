"""What jobs of one name took corrects the estimates of those of that name that still wait."""

from typing import Any

import pytest
from msgspec.structs import replace

from federator.control.reports.history import History
from federator.model.snapshot import JobView
from tests.support.dispatch import World, make_world

JOB: dict[str, Any] = {"resources": {"gpus": 4}, "estimate": "1h", "name": "train"}
HOUR = 3600.0


async def two_at_once(learn: bool = True) -> tuple[World, str, str]:
    """One that runs on the only host, and a namesake that waits for it."""
    world = await make_world()
    world.core.history.corrects = learn
    await world.add_site("lab", nodes=1, gpus=4)
    first = await world.submit(**JOB)
    await world.turn()
    second = await world.submit(**JOB)
    await world.sites["lab"].run_all()
    return world, first, second


def seen(world: World, job: str) -> JobView:
    views = {view.id: view for view in world.core.turn.observer.snapshot().jobs}
    return views[job]


async def test_a_run_of_twice_its_estimate_is_remembered() -> None:
    world, first, second = await two_at_once()
    before = seen(world, second)
    assert before.run_s == pytest.approx(1.35 * HOUR)
    world.clock.advance(2 * HOUR)
    await world.sites["lab"].finish(first)
    after = seen(world, second)
    assert after.run_s > 1.7 * HOUR
    assert after.run_high_s / after.run_low_s < before.run_high_s / before.run_low_s


async def test_a_namesake_that_still_runs_past_its_estimate_tells_something_already() -> None:
    world, _, second = await two_at_once()
    world.clock.advance(0.7 * HOUR)
    assert seen(world, second).run_s == pytest.approx(1.35 * HOUR)
    world.clock.advance(1.3 * HOUR)
    assert seen(world, second).run_s > 2.0 * HOUR


async def test_who_does_not_want_corrections_gets_the_estimate_and_its_margin() -> None:
    world, first, second = await two_at_once(learn=False)
    world.clock.advance(2 * HOUR)
    assert seen(world, second).run_s == pytest.approx(1.35 * HOUR)
    await world.sites["lab"].finish(first)
    assert seen(world, second).run_s == pytest.approx(1.35 * HOUR)


async def test_run_times_are_compared_at_speed_one() -> None:
    world = await make_world()
    await world.add_site("lab", nodes=1, gpus=4, model="A100")
    job = await world.submit(**JOB, speed={"A100": 2.0})
    await world.turn()
    await world.sites["lab"].run_all()
    world.clock.advance(0.5 * HOUR)
    await world.sites["lab"].finish(job)
    record = world.job(job)
    (run_s,) = world.core.history.runs(record.queue, "train")
    assert run_s == pytest.approx(HOUR, rel=0.01)
    assert world.core.history.leaning(
        record.queue, "train", record.owner, {"A100": 2.0}
    ).shift == pytest.approx(0.0, abs=0.01)


async def test_what_was_learned_is_there_after_a_restart() -> None:
    world, first, _ = await two_at_once()
    world.clock.advance(2 * HOUR)
    await world.sites["lab"].finish(first)
    again = History()
    again.load(world.core.records)
    record = world.job(first)
    key: tuple[str, str, str, dict[str, float]] = (record.queue, record.name, record.owner, {})
    assert again.leaning(*key) == world.core.history.leaning(*key)
    assert again.leaning(*key).shift > 0.3


async def test_a_thousand_tasks_of_one_name_are_one_mistake_of_their_owner() -> None:
    world, first, _ = await two_at_once()
    world.clock.advance(2 * HOUR)
    await world.sites["lab"].finish(first)
    record = world.job(first)
    one = world.core.history.leaning(record.queue, "another", record.owner, {})
    for number in range(20):
        world.core.history.learn(replace(record, id=f"again-{number}"), world.core.records)
    assert world.core.history.leaning(record.queue, "another", record.owner, {}) == one
    assert 0.0 < one.shift < 0.1
