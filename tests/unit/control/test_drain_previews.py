"""What draining a site would come to."""

import asyncio
from typing import Any

import pytest

from federator.control.queries.drain_previews import drain_preview
from federator.wire.sites import DrainPreview
from tests.support.dispatch import World, make_world


async def a_site(**checkpoint: Any) -> tuple[World, list[str]]:
    """A job of an hour with two GPUs that begins anew, and one of four hours with four that may save itself."""
    world = await make_world()
    await world.add_site("north", gpus=8)
    short = await world.submit(name="short", estimate="1h", resources={"gpus": 2})
    long = await world.submit(name="long", estimate="4h", resources={"gpus": 4}, **checkpoint)
    await world.turn()
    await world.sites["north"].run_all()
    world.clock.advance(600)
    return world, [short, long]


async def preview(world: World, after_s: float | None) -> DrainPreview:
    core, now = world.core, world.clock.now()
    by_at = None if after_s is None else now + after_s
    return await drain_preview(core.records, "north", by_at, now, core.views.row)


async def test_without_a_deadline_nothing_is_stopped_and_the_last_end_counts() -> None:
    world, (_, long) = await a_site()
    found = await preview(world, None)
    assert (found.jobs, found.ends_alone, found.stops, found.lost_gpu_s) == (2, 2, 0, 0.0)
    assert found.empty_at == world.core.views.row(world.job(long)).expected_finish_at


async def test_what_would_be_stopped_is_told_with_what_is_done_again() -> None:
    world, (_, long) = await a_site()
    found = await preview(world, 7200.0)
    (stopped,) = found.stopped
    assert (found.ends_alone, found.stops, stopped.job, stopped.saves) == (1, 1, long, False)
    assert found.lost_gpu_s == pytest.approx(4 * (600 + 7200), rel=0.01)
    assert found.empty_at == pytest.approx(world.clock.now() + 7200)
    assert all(not site.draining for site in world.core.records.sites.values())


async def test_what_saves_itself_loses_nothing() -> None:
    world, _ = await a_site(checkpoint={"grace": "60s"})
    found = await preview(world, 60.0)
    assert found.stops == 2
    assert {each.name: each.lost_gpu_s > 0 for each in found.stopped} == {"short": True, "long": False}


async def test_a_long_list_lets_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    world, _ = await a_site()
    monkeypatch.setattr("federator.control.queries.drain_previews.AT_A_TIME", 1)
    looked = asyncio.ensure_future(preview(world, None))
    await asyncio.sleep(0)
    assert not looked.done()
    assert (await looked).jobs == 2
