"""What is kept of series: their newest runs, the folders of runs to come, and their numbers as long as a run has one."""

import pytest

from federator.control.maintenance.series_retention import forgotten_series
from federator.ports import Transaction
from tests.support.dispatch import ADA
from tests.unit.control.series_story import HOUR, a_world, again_and_again, end_runs, names, runs, series


async def test_of_runs_that_are_over_the_newest_are_kept_and_all_for_seven_days() -> None:
    world = await a_world()
    await again_and_again(world, every={"interval": "24h", "keep": 3}, estimate="10m")
    for _ in range(14):
        await world.core.series_runs.look()
        await end_runs(world)
        world.clock.advance(24 * HOUR)
        await world.core.sweeper.sweep()
    days = [(world.clock.now() - (job.finished_at or 0.0)) / 24 / HOUR for job in runs(world)]
    assert len(days) == 7, "what is promised to all jobs is kept"
    world.clock.advance(5 * 24 * HOUR)
    await world.core.sweeper.sweep()
    assert names(world) == ["nightly-12", "nightly-13", "nightly-14"]


async def test_the_folder_of_runs_to_come_is_kept_and_an_ended_series_is_forgotten_after_its_runs() -> None:
    world = await a_world()
    folder = await world.upload(b"\x1f\x8b packed")
    await again_and_again(world, workdir=f"sha256:{folder}", every="0 3 1 12 *")
    world.clock.advance(3 * 24 * HOUR)
    await world.core.sweeper.sweep()
    assert world.core.blobs.has(folder)
    await world.core.series.end(ADA, series(world))
    world.clock.advance(24 * HOUR)
    await world.core.sweeper.sweep()
    assert not world.core.blobs.has(folder)
    assert world.core.records.series
    world.clock.advance(7 * 24 * HOUR)
    await world.core.sweeper.sweep()
    assert not world.core.records.series


async def test_a_series_that_is_submitted_again_just_before_it_is_forgotten_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await a_world()
    await again_and_again(world, every="0 3 1 12 *")
    await world.core.series.end(ADA, series(world))
    world.clock.advance(9 * 24 * HOUR)
    keys = forgotten_series(world.core.records, world.clock.now())
    assert keys
    commit = world.core.records.commit
    begun: list[str] = []

    async def meanwhile(transaction: Transaction) -> int:
        if not begun and keys[0] in transaction.deletes:
            begun.extend(keys)
            await again_and_again(world, every="0 3 1 12 *")
        return await commit(transaction)

    monkeypatch.setattr(world.core.records, "commit", meanwhile)
    await world.core.sweeper.sweep()
    assert begun
    assert series(world).ended_at is None
