"""A site's owner has the last word: jobs are evicted, and a drain may have a deadline."""

import pytest

from federator.kernel.errors import Forbidden, Invalid, NotFound
from federator.model.identity import Caller, Role
from federator.model.jobs import JobStatus
from federator.model.placements import Order
from tests.support.dispatch import ADMIN, World, make_world

OWNER = Caller("olga", Role.SITE_ADMIN, ("lab",))
CHECKPOINT = {"signal": "TERM", "grace": "60s"}


@pytest.fixture
async def world() -> World:
    world = await make_world()
    await world.add_site("lab", nodes=2, gpus=4)
    return world


async def running(world: World) -> str:
    job = await world.submit(resources={"gpus": 4}, checkpoint=CHECKPOINT)
    await world.turn()
    assert world.job(job).status is JobStatus.RUNNING
    return job


async def test_an_evicted_job_is_told_at_once_and_waits_for_another_place(world: World) -> None:
    job, other = await running(world), await running(world)
    told = await world.core.sites.evict(OWNER, "lab", job=job, why="the fans are changed")
    assert [each.id for each in told] == [job]
    await world.core.turn.once()
    assert world.placement(job).order is Order.STOP
    assert world.placement(job).grace_s == pytest.approx(60.0, abs=1.0), "with the grace that it asks for"
    assert "evicted from lab by olga: the fans are changed" in world.job(job).because
    await world.obey()
    await world.turn()
    assert world.job(job).status is JobStatus.PENDING, "it does not come straight back"
    assert "lab has evicted or repeatedly refused it" in world.core.views.row(world.job(job)).because
    assert world.job(other).status is JobStatus.RUNNING


async def test_an_evicted_job_that_saved_nothing_at_the_site_starts_elsewhere(world: World) -> None:
    job = await world.submit(resources={"gpus": 4})
    await world.turn()
    await world.core.sites.evict(OWNER, "lab", job=job, why="the fans are changed")
    await world.core.turn.once()
    await world.obey()
    await world.turn()
    assert world.job(job).status is JobStatus.PENDING
    await world.add_site("hall", nodes=1, gpus=4)
    await world.turn()
    assert world.placement(job).site == "hall"


async def test_who_is_evicted_comes_back_after_an_hour_where_there_is_no_other_place(world: World) -> None:
    job = await running(world)
    await world.core.sites.evict(OWNER, "lab", job=job, why="a test")
    await world.core.turn.once()
    await world.obey()
    world.clock.advance(3600.0 + 120.0)
    world.report()
    await world.turn()
    assert world.job(job).status is JobStatus.RUNNING


async def test_with_a_deadline_it_is_told_in_time_to_save_itself(world: World) -> None:
    job = await running(world)
    await world.core.sites.evict(OWNER, "lab", by="10m", why="maintenance")
    await world.core.turn.once()
    assert world.placement(job).order is Order.RUN, "it may use the time that is left"
    world.clock.advance(600.0 - 60.0 - 29.0)
    world.report()
    await world.core.turn.once()
    assert world.placement(job).order is Order.STOP


async def test_where_less_time_is_left_than_its_grace_it_has_what_is_left(world: World) -> None:
    job = await running(world)
    await world.core.sites.evict(OWNER, "lab", by="5s", why="smoke")
    await world.core.turn.once()
    assert world.placement(job).order is Order.STOP
    assert world.placement(job).grace_s == pytest.approx(5.0, abs=1.0)


async def test_a_drain_with_a_deadline_stops_what_still_runs_and_an_undrain_takes_it_back(
    world: World,
) -> None:
    job = await running(world)
    site = await world.core.sites.drain(OWNER, "lab", by="2h", why="a new rack")
    assert site.drain_by_at == pytest.approx(world.clock.now() + 7200.0)
    await world.core.turn.once()
    assert world.placement(job).order is Order.RUN
    site = await world.core.sites.undrain(OWNER, "lab")
    assert (site.draining, site.drain_by_at) == (False, None)
    await world.core.sites.drain(OWNER, "lab", by="2h", why="a new rack")
    world.clock.advance(7200.0 - 80.0)
    world.report()
    await world.core.turn.once()
    assert world.placement(job).order is Order.STOP
    assert "lab is drained by olga: a new rack" in world.job(job).because
    row = world.core.views.site("lab")
    assert row.drain_by_at == pytest.approx(world.clock.now() + 80.0)


async def test_more_jobs_than_one_transaction_holds_all_leave() -> None:
    world = await make_world()
    await world.add_site("farm", nodes=10, gpus=10)
    for _ in range(100):
        await world.submit(resources={"gpus": 1})
    await world.turn()
    told = await world.core.sites.evict(ADMIN, "farm", why="flood")
    assert len(told) == 100
    await world.core.turn.once()
    orders = [world.placement(job.id).order for job in told]
    assert orders == [Order.STOP] * 100


async def test_nobody_evicts_from_a_site_of_others(world: World) -> None:
    job = await running(world)
    for caller in (
        Caller("eve", Role.USER),
        Caller("pat", Role.PLATFORM),
        Caller("sam", Role.SITE_ADMIN, ("x",)),
    ):
        with pytest.raises(Forbidden):
            await world.core.sites.evict(caller, "lab", job=job, why="mine")
    with pytest.raises(Invalid, match=r"why"):
        await world.core.sites.evict(OWNER, "lab", job=job, why=" ")
    with pytest.raises(NotFound, match="does not run at lab"):
        await world.core.sites.evict(OWNER, "lab", job="job-none", why="gone")
    with pytest.raises(Invalid, match=r"by"):
        await world.core.sites.evict(OWNER, "lab", job=job, by="soon", why="gone")
    assert world.placement(job).leave_by_at is None
