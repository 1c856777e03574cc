"""A dispatcher on a restored store: it does nothing before it has heard everybody, and makes up what the store has forgotten."""

import asyncio
from typing import Any

import msgspec

from federator import __version__
from federator.control.maintenance.reconciliation import FLAG, SPARED
from federator.control.record.records import Changes, Flag
from federator.model.capacity import LaunchRequest
from federator.model.jobs import JobStatus
from federator.model.placements import PlacementReport, PlacementStatus, RankStatus
from federator.store.memory import MemoryStore
from tests.support.dispatch import OFFER, FakeSite, World, make_world
from tests.support.waiting import PATIENCE_S


async def restored(world: World, backup: MemoryStore) -> World:
    """Another dispatcher on what the backup held, adopted."""
    again = await make_world(store=backup, clock=world.clock)
    again.provider.machines = world.provider.machines
    changes = Changes()
    changes.put(Flag(FLAG, on=True, who="store adopt", at=world.clock.now()))
    await again.core.records.transact(lambda: changes)
    return again


def backed_up(world: World) -> MemoryStore:
    """What the store holds now, as it was."""
    store = MemoryStore(world.clock)
    original = world.core.records.store
    assert isinstance(original, MemoryStore)
    store.items, store.keys = dict(original.items), list(original.keys)
    store.revision = original.revision
    return store


def back(again: World, site: FakeSite) -> FakeSite:
    """The site's agent has found the new dispatcher; it has what it had."""
    site = FakeSite(again, site.name, site.pool, site.seq, site.counted)
    again.sites[site.name] = site
    member = again.core.records.members[site.name]
    again.core.inventory.opened(member, "again", __version__)
    return site


def told(world: World, job: str, status: PlacementStatus, **fields: Any) -> PlacementReport:
    """What the agent says of a job's attempt, as the first dispatcher knew it."""
    placement = world.placement(job)
    return PlacementReport(
        placement=placement.id,
        epoch=placement.epoch,
        seq=100,
        status=status,
        at=world.clock.now(),
        started_at=world.clock.now(),
        ranks=tuple(RankStatus(rank=n, node=f"lab/node-{n}") for n in range(placement.nodes)),
        job=job,
        pool=placement.pool,
        **fields,
    )


async def say_all(again: World, site: FakeSite, *reports: PlacementReport) -> None:
    await again.core.reconciliation.absorb(site.name, reports)
    report = msgspec.structs.replace(again_report(again, site), counted=tuple(r.placement for r in reports))
    again.core.inventory.report(site.name, "again", report)


def again_report(again: World, site: FakeSite) -> Any:
    site.report()
    report = again.core.inventory.members[site.name].report
    assert report is not None
    return report


async def finished(again: World, within_s: float = PATIENCE_S) -> bool:
    """Whether the phase comes to its end within so many real seconds."""
    try:
        async with asyncio.timeout(within_s):
            await again.core.reconciliation.finish()
    except TimeoutError:
        return False
    return True


async def test_it_ends_only_when_every_member_has_reported() -> None:
    world = await make_world()
    lab, edge = await world.add_site("lab"), await world.add_site("edge")
    again = await restored(world, backed_up(world))
    await say_all(again, back(again, lab))
    assert not await finished(again, within_s=0.5)
    assert again.core.reconciliation.on
    await say_all(again, back(again, edge))
    assert await finished(again)
    assert not again.core.reconciliation.on


async def test_a_site_that_is_declared_dead_is_not_waited_for() -> None:
    world = await make_world()
    lab = await world.add_site("lab")
    await world.add_site("edge")
    again = await restored(world, backed_up(world))
    await say_all(again, back(again, lab))
    again.core.reconciliation.declared_dead("edge")
    assert await finished(again)


async def test_one_dead_host_is_not_waited_for_and_the_others_of_its_site_are() -> None:
    world = await make_world()
    lab = await world.add_site("lab")
    await world.add_member("lab", "lab-2")
    again = await restored(world, backed_up(world))
    again.core.reconciliation.declared_dead("lab", "lab-2")
    assert not await finished(again, within_s=0.5)
    await say_all(again, back(again, lab))
    assert await finished(again)


async def test_work_that_the_store_does_not_know_is_adopted_and_not_started_again() -> None:
    world = await make_world()
    lab = await world.add_site("lab")
    job = await world.submit(resources={"gpus": 2})
    backup = backed_up(world)
    await world.turn()
    placement = world.placement(job)
    again = await restored(world, backup)
    assert again.job(job).status is JobStatus.PENDING
    await say_all(again, back(again, lab), told(world, job, PlacementStatus.RUNNING))
    assert await finished(again)
    assert again.job(job).status is JobStatus.RUNNING
    assert again.placement(job).id == placement.id
    assert again.placement(job).gpus_per_node == 2
    await again.core.turn.once()
    assert len(again.core.records.placements) == 1


async def test_work_that_has_ended_meanwhile_counts_as_what_it_was() -> None:
    world = await make_world()
    lab = await world.add_site("lab")
    job = await world.submit()
    backup = backed_up(world)
    await world.turn()
    again = await restored(world, backup)
    await say_all(again, back(again, lab), told(world, job, PlacementStatus.SUCCEEDED, exit_code=0))
    assert await finished(again)
    assert again.job(job).status is JobStatus.SUCCEEDED


async def test_what_was_over_of_jobs_that_are_gone_is_passed_over() -> None:
    """Agents tell of all that ended lately, of jobs too that the store has dropped since, or that have gone on."""
    world = await make_world()
    lab = await world.add_site("lab")
    again = await restored(world, backed_up(world))
    ended = PlacementReport(
        placement="pl-long-ago", epoch=1, seq=7, status=PlacementStatus.SUCCEEDED, at=world.clock.now(), job="job-gone"
    )  # fmt: skip
    site = back(again, lab)
    assert await again.core.reconciliation.absorb(site.name, (ended,)) == 7
    await say_all(again, site, ended)
    assert await finished(again)
    assert again.core.progress.anomalies == 0


async def test_an_older_attempt_gives_way_to_the_later_one_that_is_found() -> None:
    """The store has the first attempt; its end and the second attempt came after the backup."""
    world = await make_world()
    lab = await world.add_site("lab")
    job = await world.submit(retry={"on": ["error"], "max": 3, "backoff": "0s"})
    await world.turn()
    first = world.placement(job)
    backup = backed_up(world)
    await lab.finish(job, exit_code=1)
    world.clock.advance(60)
    lab.report()
    await world.turn()
    assert world.placement(job).id != first.id
    again = await restored(world, backup)
    await say_all(again, back(again, lab), told(world, job, PlacementStatus.RUNNING))
    assert await finished(again)
    assert again.placement(job).id == world.placement(job).id
    assert again.job(job).status is JobStatus.RUNNING
    assert again.core.records.placements[first.id].status is PlacementStatus.LOST


async def test_what_the_store_has_and_the_site_has_not_waits_again() -> None:
    """Told of it, the site would begin it anew under the old name; lost, it is planned anew."""
    world = await make_world()
    lab = await world.add_site("lab")
    job = await world.submit()
    await world.turn()
    again = await restored(world, backed_up(world))
    await say_all(again, back(again, lab))
    assert await finished(again)
    assert again.job(job).status is JobStatus.PENDING
    assert again.core.records.placements[world.placement(job).id].status is PlacementStatus.LOST


async def test_work_of_a_job_that_the_store_does_not_know_is_left_alone() -> None:
    world = await make_world()
    lab = await world.add_site("lab")
    backup = backed_up(world)
    job = await world.submit()
    await world.turn()
    again = await restored(world, backup)
    await say_all(again, back(again, lab), told(world, job, PlacementStatus.RUNNING))
    assert await finished(again)
    assert again.core.records.jobs == {}
    assert not again.core.hub.held("lab"), "nothing is said of it, so it goes on"


async def test_what_nobody_says_the_job_of_is_waited_for() -> None:
    """An agent of before this version: it may be any waiting job's, so none is started while it lasts."""
    world = await make_world()
    lab = await world.add_site("lab")
    job = await world.submit()
    backup = backed_up(world)
    await world.turn()
    again = await restored(world, backup)
    nameless = msgspec.structs.replace(told(world, job, PlacementStatus.RUNNING), job="")
    site = back(again, lab)
    await say_all(again, site, nameless)
    assert not await finished(again, within_s=0.5)
    await say_all(again, site)
    assert await finished(again)


async def test_machines_that_no_lease_knows_are_spared_by_the_sweeper() -> None:
    world = await make_world()
    backup = backed_up(world)
    request = LaunchRequest(name="lease-new", offer=OFFER, federation="federation", tags={}, user_data="")
    await world.provider.launch(request)
    again = await restored(world, backup)
    assert await finished(again)
    assert again.core.records.flags[SPARED + "lease-new"].on
    for _ in range(3):
        assert await again.core.sweeper.end_leaks() == []
