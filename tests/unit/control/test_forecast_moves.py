"""What moved the forecast of a job: told from recorded decisions, without names that somebody may not see."""

from federator.control.queries.forecast_moves import forecast_moves
from federator.model.jobs import Job
from federator.wire.http import ForecastMove, JobPatch
from tests.support.dispatch import ADA, BOB, World, make_world

WHOLE = {"gpus": 4}


async def moves_of(world: World, job: str, since_at: float = 0.0, *, sees: bool = True) -> list[ForecastMove]:
    core = world.core

    def may_see(other: Job) -> bool:
        return sees or other.id == job

    return await forecast_moves(core.records, core.turn, core.decisions, world.job(job), since_at, may_see)


async def decided(world: World) -> None:
    """A turn that starts something: others are not recorded."""
    await world.submit(name="small", resources={"cpus": 1}, estimate="1m")
    await world.turn()


async def test_who_comes_before_and_who_ends_sooner_moves_it() -> None:
    world = await make_world()
    site = await world.add_site("lab", nodes=1, gpus=4)
    hog = await world.submit(name="hog", resources=WHOLE, estimate="2h")
    await world.turn()
    job = await world.submit(name="mine", resources=WHOLE, estimate="1h")
    await decided(world)
    (first,) = await moves_of(world, job)
    assert first.start_at is not None
    assert not first.because
    world.clock.advance(600.0)
    site.report()
    await world.submit(BOB, name="urgent", resources=WHOLE, estimate="3h", priority=90)
    await decided(world)
    *_, later = await moves_of(world, job)
    assert later.start_at is not None
    assert later.start_at > first.start_at + 3 * 3600
    assert "urgent of bob came, and is to start before it" in later.because
    *_, masked = await moves_of(world, job, sees=False)
    assert not any("urgent" in said or "bob" in said for said in masked.because)
    assert any("came, and is to start before it" in said for said in masked.because)
    began_at = world.clock.now()
    world.clock.advance(600.0)
    await site.finish(hog)
    await world.turn()
    *_, sooner = await moves_of(world, job)
    assert sooner.start_at is not None
    assert sooner.start_at < later.start_at
    assert "hog of ada ended sooner than expected" in sooner.because
    assert [move.at for move in await moves_of(world, job, began_at + 1)] == [sooner.at]


async def test_its_own_change_is_told() -> None:
    world = await make_world()
    await world.add_site("lab", nodes=1, gpus=4)
    await world.submit(name="hog", resources=WHOLE, estimate="2h")
    await world.turn()
    await world.submit(name="before", resources=WHOLE, estimate="2h")
    job = await world.submit(name="mine", resources=WHOLE, estimate="1h")
    await decided(world)
    world.clock.advance(60.0)
    await world.core.intake.update(ADA, job, JobPatch(priority=100))
    await decided(world)
    *_, moved = await moves_of(world, job)
    assert moved.because[0] == "its own priority changed"
