"""What is held where: kept from one look to the next, and never older than the records."""

import msgspec

from federator.control.history import History
from federator.control.holdings import OVERDUE_S, Holdings
from federator.control.job_views import OVERDUE_SHARE, JobViews
from federator.model.placements import Order
from tests.support.dispatch import SharedClock, World, make_world


async def a_running_job() -> tuple[World, Holdings, str]:
    world = await make_world()
    await world.add_site("north")
    job = await world.submit(resources={"gpus": 2}, estimate="1h", checkpoint={"grace": "90s"})
    await world.turn()
    return world, Holdings(world.core.records, JobViews(world.core.records, History()).imagined), job


async def test_what_has_not_changed_is_not_made_anew() -> None:
    world, holdings, job = await a_running_job()
    (first,) = holdings.by_member()["north"]
    await world.submit(resources={"gpus": 1})
    (second,) = holdings.by_member()["north"]
    assert second is first
    assert first.view.job == job
    assert first.view.gpus == 2


async def test_a_change_of_the_placement_or_of_its_job_is_seen_at_once() -> None:
    world, holdings, job = await a_running_job()
    (before,) = holdings.by_member()["north"]
    await world.put(msgspec.structs.replace(world.job(job), priority=99))
    (after,) = holdings.by_member()["north"]
    assert (before.view.priority, after.view.priority) == (50, 99)
    assert after.view.revision == world.core.records.revision_of(world.job(job)) > before.view.revision
    await world.put(msgspec.structs.replace(world.placement(job), cpus_milli=7))
    (after,) = holdings.by_member()["north"]
    assert after.view.cpus_milli == 7
    await world.sites["north"].finish(job)
    assert holdings.by_member() == {}


async def test_a_pool_is_made_anew_when_what_holds_it_its_report_or_its_site_has_changed() -> None:
    world, _, job = await a_running_job()
    observer = world.core.turn._observer
    (before,) = observer.pools()
    await world.submit(resources={"gpus": 1})
    (after,) = observer.pools()
    assert after.busy is before.busy
    assert after.free is before.free
    world.sites["north"].report(price_usd_gpu_h=7.0, labels={"rack": "r1"})
    (after,) = observer.pools()
    assert (after.price_usd_gpu_h, after.labels) == (7.0, {"rack": "r1"})
    await world.put(msgspec.structs.replace(world.core.records.sites["north"], draining=True))
    (after,) = observer.pools()
    assert (after.open, after.closed_because) == (False, "the site is draining")
    await world.sites["north"].finish(job)
    (after,) = observer.pools()
    assert (after.busy, after.free[0].gpus) == ((), 4)


async def test_what_overruns_and_how_old_a_report_is_moves_with_time_though_nothing_has_changed() -> None:
    world, holdings, _ = await a_running_job()
    observer = world.core.turn._observer
    (holding,) = holdings.by_member()["north"]
    world.sites["north"].report()
    assert isinstance(world.clock, SharedClock)
    world.clock.listeners.clear()  # no report from here on
    for late_s in (5.0, 25.0):
        world.clock.advance(holding.view.ends_at + late_s - world.clock.now())
        (pool,) = observer.pools()
        assert pool.busy[0] == holding.seen(world.clock.now())
        assert pool.busy[0].ends_at >= world.clock.now() + OVERDUE_S
        assert pool.age_s == world.core.inventory.age_s("north") != 0.0


async def test_the_end_moves_with_time_where_it_must() -> None:
    world, holdings, job = await a_running_job()
    (holding,) = holdings.by_member()["north"]
    planned_at = holding.view.ends_at
    assert holding.seen(planned_at - 1.0).ends_at == planned_at
    late_at = planned_at + 5.0
    ran_s = late_at - holding.view.started_at
    assert holding.seen(late_at).ends_at == late_at + OVERDUE_SHARE * ran_s > late_at + OVERDUE_S
    hardly_begun = holding.view.started_at + 10.0
    short = holding._replace(view=msgspec.structs.replace(holding.view, ends_at=hardly_begun - 1.0))
    assert short.seen(hardly_begun).ends_at == hardly_begun + OVERDUE_S
    await world.put(msgspec.structs.replace(world.placement(job), order=Order.STOP))
    (holding,) = holdings.by_member()["north"]
    assert holding.seen(planned_at - 1000.0).ends_at == planned_at - 1000.0 + 90.0
