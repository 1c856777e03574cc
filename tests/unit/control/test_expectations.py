"""What lists, `show` and `explain` say of when a job starts and ends, and between when."""

import pytest

from tests.support.dispatch import World, make_world

HOUR = 3600.0
TIMES = (
    "expected_start_at", "expected_finish_at", "start_low_at", "start_high_at", "finish_low_at", "finish_high_at",
)  # fmt: skip


async def one_runs_one_waits() -> tuple[World, str, str]:
    world = await make_world()
    await world.add_site("north", gpus=4)
    runs = await world.submit(resources={"gpus": 4}, estimate="1h")
    await world.turn()
    waits = await world.submit(resources={"gpus": 4}, estimate="1h")
    await world.turn()
    return world, runs, waits


async def test_lists_show_and_explain_say_the_same_of_one_that_waits() -> None:
    world, _, waits = await one_runs_one_waits()
    row = world.core.views.row(world.job(waits))
    low, middle, high = row.start_low_at, row.expected_start_at, row.start_high_at
    assert low is not None
    assert middle is not None
    assert high is not None
    assert world.clock.now() <= low < middle < high
    assert (row.finish_low_at or 0.0) > low
    assert (row.finish_high_at or 0.0) > high
    detail = world.core.views.detail(world.job(waits))
    told = await world.core.views.explain(world.job(waits))
    for name in TIMES:
        assert getattr(row, name) == getattr(detail, name) == getattr(told, name), name


async def test_one_that_runs_has_a_range_of_its_end_which_moves_with_it() -> None:
    world, runs, _ = await one_runs_one_waits()
    began_at = world.clock.now()
    first = world.core.views.row(world.job(runs))
    assert first.start_low_at is None
    assert (first.finish_low_at or 0.0) - began_at == pytest.approx(0.6 * HOUR, rel=0.02)
    assert (first.finish_high_at or 0.0) - began_at == pytest.approx(1.67 * HOUR, rel=0.02)
    assert (first.expected_finish_at or 0.0) - began_at == pytest.approx(1.35 * HOUR, rel=0.02)
    world.clock.advance(3 * HOUR)
    world.report()
    now = world.clock.now()
    late = world.core.views.row(world.job(runs))
    assert now < (late.finish_low_at or 0.0) < (late.expected_finish_at or 0.0) < (late.finish_high_at or 0.0)
    told = await world.core.views.explain(world.job(runs))
    assert (told.expected_start_at, told.finish_low_at) == (world.job(runs).started_at, late.finish_low_at)
    assert told.finish_high_at == late.finish_high_at


async def test_nothing_runs_beyond_its_limit() -> None:
    world = await make_world()
    await world.add_site("north", gpus=4)
    runs = await world.submit(resources={"gpus": 4}, estimate="1h", max_duration="75m")
    await world.turn()
    began_at = world.clock.now()
    row = world.core.views.row(world.job(runs))
    assert (row.finish_high_at or 0.0) - began_at == pytest.approx(1.25 * HOUR, abs=2.0)
    assert (row.expected_finish_at or 0.0) <= (row.finish_high_at or 0.0) + 2.0


async def test_what_is_over_is_expected_no_more() -> None:
    world, runs, _ = await one_runs_one_waits()
    await world.sites["north"].finish(runs)
    row = world.core.views.row(world.job(runs))
    assert [getattr(row, name) for name in TIMES] == [None] * len(TIMES)
