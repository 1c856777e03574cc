"""A host that is gone for good while its site lives: declared dead, shown so, and forgotten."""

import pytest

from federator.kernel.errors import Conflict
from federator.model.jobs import JobStatus
from tests.support.dispatch import ADMIN, World, make_world


@pytest.fixture
async def world() -> World:
    """Two hosts of a site with four GPUs each."""
    world = await make_world()
    await world.add_site("farm")
    await world.add_member("farm", "farm-2")
    return world


def away(world: World, name: str) -> None:
    world.core.inventory.closed(name, world.core.inventory.members[name].session)


async def test_what_a_host_may_still_run_keeps_it_until_it_is_declared_dead(world: World) -> None:
    gang = await world.submit(nodes=2, resources={"gpus": 4})
    await world.turn()
    placement = world.placement(gang)
    sites = world.core.sites
    with pytest.raises(Conflict, match="farm-2 is connected"):
        await sites.remove(ADMIN, "farm", member="farm-2")
    away(world, "farm-2")
    with pytest.raises(Conflict, match=r"attempts may still run there.*declare-dead farm --member farm-2"):
        await sites.remove(ADMIN, "farm", member="farm-2")
    await sites.declare_dead(ADMIN, "farm", "it burnt", member="farm-2")
    await world.obey()
    await sites.remove(ADMIN, "farm", member="farm-2")
    records = world.core.records
    assert set(records.members) == {"farm"}
    assert not any("farm-2" in each.members for each in records.open_placements.values())
    assert records.placements[placement.id].stop_acknowledged
    (row,) = world.core.views.sites()
    assert [host.name for host in row.hosts] == ["farm"]
    assert (row.members, row.gpus, row.status) == (1, 4, "READY")
    single = await world.submit(resources={"gpus": 4})
    await world.turn()
    assert world.job(single).status is JobStatus.RUNNING


async def test_the_other_ranks_of_a_gang_are_still_told_to_stop(world: World) -> None:
    gang = await world.submit(nodes=2, resources={"gpus": 4})
    await world.turn()
    away(world, "farm-2")
    await world.core.sites.declare_dead(ADMIN, "farm", "it burnt", member="farm-2")
    placement = world.placement(gang)
    await world.core.sites.remove(ADMIN, "farm", member="farm-2")
    assert placement.id in world.core.records.open_placements
    assert [each.id for each in world.sites["farm"].held()] == [placement.id]
    await world.sites["farm"].run_all()
    assert placement.id not in world.core.records.open_placements


async def test_a_host_that_is_declared_dead_is_shown_so_and_counts_for_nothing(world: World) -> None:
    job = await world.submit(resources={"gpus": 4}, placement={"sites": ["farm"]})
    await world.place(job, "farm-2")
    await world.obey()
    away(world, "farm-2")
    (row,) = world.core.views.sites()
    assert (row.members, row.busy) == (2, 4)
    await world.core.sites.declare_dead(ADMIN, "farm", "it burnt", member="farm-2")
    (row,) = world.core.views.sites()
    assert (row.members, row.busy, row.status, row.gpus) == (1, 0, "READY", 4)
    dead = row.hosts[1]
    assert (dead.name, dead.status) == ("farm-2", "LOST")
    assert dead.because == "declared dead; federator site remove farm --member farm-2 forgets it"
    assert {pool.member for pool in row.pools} == {"farm"}


async def test_a_site_whose_hosts_are_all_declared_dead_says_so(world: World) -> None:
    for name in ("farm", "farm-2"):
        away(world, name)
    await world.core.sites.declare_dead(ADMIN, "farm", "the roof came down")
    (row,) = world.core.views.sites()
    assert (row.status, row.members, row.busy) == ("LOST", 0, 0)
    assert row.because.startswith("declared dead")


async def test_one_that_comes_back_is_dead_no_more(world: World) -> None:
    away(world, "farm-2")
    await world.core.sites.declare_dead(ADMIN, "farm", "it burnt", member="farm-2")
    world.sites["farm-2"].seq += 1
    world.sites["farm-2"].connect()
    await world.core.admission.remember_boot("farm-2", "another boot")
    away(world, "farm-2")
    (row,) = world.core.views.sites()
    assert [host.status for host in row.hosts] == ["READY", "READY"]


async def test_a_site_with_more_attempts_than_fit_one_transaction_is_removed(world: World) -> None:
    jobs = [await world.submit(resources={"gpus": 0, "cpus": 0.1}) for _ in range(130)]
    for job in jobs:
        await world.place(job, "farm")
    for name in ("farm", "farm-2"):
        away(world, name)
    await world.core.sites.declare_dead(ADMIN, "farm", "gone")
    assert len(world.core.records.open_placements) == 130
    seen = []
    world.core.records.subscribe(lambda changes: seen.append(len(changes.rows) + len(changes.deletes)))
    await world.core.sites.remove(ADMIN, "farm")
    assert world.core.records.open_placements == {}
    assert (world.core.records.sites, world.core.records.members) == ({}, {})
    assert max(seen) <= 60, "each row is a comparison and a write, of which stores take some 120"
