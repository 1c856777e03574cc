"""What is held where: kept from one look to the next, and never older than the records."""

import msgspec
import pytest

from federator.control.reports.history import History
from federator.control.turns.job_views import OVERDUE_SHARE, JobViews
from federator.control.turns.occupancy import OVERDUE_S, STEPS, Occupancy
from federator.model.jobs import JobStatus
from federator.model.placements import Order
from tests.support.dispatch import SharedClock, World, make_world


async def a_running_job() -> tuple[World, Occupancy, str]:
    world = await make_world()
    await world.add_site("north")
    job = await world.submit(resources={"gpus": 2}, estimate="1h", checkpoint={"grace": "90s"})
    await world.turn()
    views = JobViews(world.core.records, History())
    return world, Occupancy(world.core.records, views.imagined, views.whole_run), job


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
    observer = world.core.turn.observer
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
    observer = world.core.turn.observer
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
    world, _, job = await a_running_job()
    (holding,) = unlearned(world).by_member()["north"]
    planned_at = holding.view.ends_at
    assert holding.seen(planned_at - 1.0).ends_at == planned_at
    late_at = planned_at + 5.0
    ran_s = late_at - holding.view.started_at
    assert holding.seen(late_at).ends_at == late_at + OVERDUE_SHARE * ran_s > late_at + OVERDUE_S
    hardly_begun = holding.view.started_at + 10.0
    short = holding._replace(view=msgspec.structs.replace(holding.view, ends_at=hardly_begun - 1.0))
    assert short.seen(hardly_begun).ends_at == hardly_begun + OVERDUE_S
    await world.put(msgspec.structs.replace(world.placement(job), order=Order.STOP))
    (holding,) = unlearned(world).by_member()["north"]
    assert holding.seen(planned_at - 1000.0).ends_at == planned_at - 1000.0 + 90.0


async def test_what_runs_is_forecast_by_how_long_it_has_run() -> None:
    """Half of the runs of an estimate end before it; of those that outlast it, half before 1.31 times; and so on."""
    _, holdings, _ = await a_running_job()
    (holding,) = holdings.by_member()["north"]
    began_at = holding.view.started_at
    assert (holding.seen(began_at + 1.0).ends_at - began_at) / 3600.0 == pytest.approx(1.0)
    ends = [
        (holding.seen(began_at + ran_s).ends_at - began_at) / 3600.0 for ran_s in (1800.0, 3600.0, 7200.0)
    ]
    assert ends == pytest.approx([1.02, 1.31, 2.25], abs=0.02)
    overdue_at = holding.view.ends_at + 1.0
    assert not holding.seen(overdue_at - 2.0).overdue
    assert holding.seen(overdue_at).overdue
    for ran_s in (10.0, 100.0, 3000.0, 50_000.0, 500_000.0):
        at = began_at + ran_s
        settled_at = holding.settled_until_at(at)
        assert at <= settled_at <= at + max(OVERDUE_S, ran_s / STEPS)
        assert holding.seen(settled_at - 0.1).ends_at == holding.seen(at).ends_at >= settled_at


async def test_what_runs_is_forecast_anew_by_what_others_of_its_name_took() -> None:
    world, _, job = await a_running_job()
    history = History()
    views = JobViews(world.core.records, history)
    (holding,) = Occupancy(world.core.records, views.imagined, views.whole_run).by_member()["north"]
    began_at = holding.view.started_at
    before_s = holding.seen(began_at + 60.0).ends_at - began_at
    other = await world.submit(resources={"gpus": 1}, estimate="1h", name=world.job(job).name)
    await world.turn()
    world.clock.advance(1200.0)
    await world.sites["north"].finish(other)
    history.learn(world.job(other), world.core.records)
    assert holding.seen(began_at + 60.0).ends_at - began_at < 0.7 * before_s


async def test_where_nothing_is_learned_work_is_to_end_as_planned() -> None:
    world, _, _ = await a_running_job()
    (holding,) = unlearned(world).by_member()["north"]
    assert holding.runs is None


def unlearned(world: World) -> Occupancy:
    views = JobViews(world.core.records, History(corrects=False))
    return Occupancy(world.core.records, views.imagined, views.whole_run)


async def test_what_runs_of_a_series_is_forecast_by_its_runs_before() -> None:
    world, _, job = await a_running_job()
    history = History()
    for name in ("nightly-1", "nightly-2"):
        done = {"name": name, "series": "nightly", "status": JobStatus.SUCCEEDED}
        history.learn(
            msgspec.structs.replace(world.job(job), **done, started_at=0.0, finished_at=600.0),
            world.core.records,
        )
    views = JobViews(world.core.records, history)
    run = msgspec.structs.replace(world.job(job), name="nightly-3", series="nightly")
    alone = msgspec.structs.replace(run, name="weekly-3", series="weekly")
    spec = world.core.records.spec(run.spec_hash)
    found, other = views.whole_run(run, spec, ""), views.whole_run(alone, spec, "")
    assert found is not None
    assert other is not None
    assert found.run_s < other.run_s
