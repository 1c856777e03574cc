"""Settings that exist for simulations above all: no fast path, no window, no record of decisions. Each changes what it says, and nothing else."""

from typing import Any

import msgspec

from federator.control.turns.waiting_line import WaitingLine
from federator.model.reasons import GreedyAlone
from federator.settings import RetentionSettings, TurnSettings
from tests.support.dispatch import World, make_world

SHORT: dict[str, Any] = {"resources": {"gpus": "A100:1"}, "estimate": "10s"}


async def world_with(**turn: bool) -> World:
    world = await make_world()
    await world.add_site("home")
    world.core.turn.settings = msgspec.structs.replace(TurnSettings(solver=False), **turn)
    return world


async def test_without_the_fast_path_short_work_is_started_by_the_whole_plan() -> None:
    fast, whole = await world_with(), await world_with(fast_path=False)
    for world, expected in ((fast, True), (whole, False)):
        job = await world.submit(**SHORT)
        await world.turn()
        assert (world.placement(job).winner_reason == GreedyAlone(situation="fast-path")) is expected


async def test_no_decision_is_recorded_where_none_is_to_be_kept() -> None:
    world = await world_with()
    await world.submit(**SHORT)
    await world.turn()
    assert len(world.core.decisions.rows()) == 1
    world.core.decisions.retention = RetentionSettings(decisions=0)
    await world.submit(**SHORT)
    await world.turn()
    assert len(world.core.decisions.rows()) == 1


async def test_a_line_without_a_window_shows_a_decision_every_job_that_waits() -> None:
    seen = []
    for whole in (False, True):
        world = await world_with()
        line = WaitingLine(world.core.records, world.core.history, lambda _: True, whole=whole)
        line.evaluations = 4
        for number in range(5):
            await world.submit(resources={"gpus": "A100:4"}, estimate=f"{1000 + number}s")
        seen.append(len(await line.window(list, world.clock.now())))
    assert seen[0] < 5
    assert seen[1] == 5
