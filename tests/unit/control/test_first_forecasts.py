"""A receipt: what people were told first of a job stays with it, and is held against what came."""

import msgspec

from federator.control.record.records import Changes
from federator.model.jobs import FirstForecast, Job, JobStatus
from tests.support.dispatch import World, make_world

HOUR = 3600.0


async def one_runs_one_waits() -> tuple[World, str, str]:
    world = await make_world()
    await world.add_site("north", gpus=4)
    runs = await world.submit(resources={"gpus": 4}, estimate="1h")
    await world.turn()
    waits = await world.submit(resources={"gpus": 4}, estimate="1h")
    await world.turn()
    return world, runs, waits


def told(world: World, job: str) -> FirstForecast:
    found = world.job(job).first_forecast
    assert found is not None
    return found


async def test_the_first_word_stays_whatever_later_plans_say() -> None:
    world, runs, waits = await one_runs_one_waits()
    at_once, later = told(world, runs), told(world, waits)
    assert at_once.start_at == at_once.at
    assert at_once.finish_at > at_once.start_at
    assert at_once.spent_usd == 0.0
    assert later.start_at > later.at
    assert later.start_high_at > later.start_at
    assert later.spent_usd is None, "nobody knows yet where it will run"
    world.clock.advance(0.25 * HOUR)
    world.report()
    await world.sites["north"].finish(runs)
    await world.turn()
    assert world.job(waits).status is not JobStatus.PENDING
    assert told(world, waits) == later
    assert later.start_kept(world.clock.now())


async def test_it_outlives_a_restart() -> None:
    world, _, waits = await one_runs_one_waits()
    stored = await world.core.records.store.get(f"job/{waits}")
    assert stored is not None
    assert msgspec.json.decode(stored.value, type=Job).first_forecast == told(world, waits)


async def test_writing_it_down_is_no_occasion_for_a_turn() -> None:
    """Or a line of ten thousand would be planned a hundred times for it."""
    world, _, waits = await one_runs_one_waits()
    occasion = world.core.turn.occasion
    world.core.records.subscribe(occasion.note)
    occasion.begin()

    def again() -> Changes:
        changes = Changes(quiet=True)
        changes.put(msgspec.structs.replace(world.job(waits), first_forecast=None))
        return changes

    await world.core.records.transact(again)
    assert not occasion.woken


def test_late_is_what_comes_after_the_range() -> None:
    first = FirstForecast(at=0.0, start_at=100.0, start_high_at=200.0, finish_at=300.0, finish_high_at=400.0)
    assert first.start_kept(205.0)
    assert not first.start_kept(260.0)
    assert first.finish_kept(400.0)
    assert not first.finish_kept(460.0)
    assert first.cost_kept(5.0) is None, "nobody knew where it would run"
    told = msgspec.structs.replace(first, spent_usd=2.0)
    assert (told.cost_kept(0.0), told.cost_kept(2.009), told.cost_kept(2.02)) == (True, True, False)
