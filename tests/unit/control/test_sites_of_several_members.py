"""A site of machines that each have an agent: one place to plan for, taken off each report by itself, shown member by member."""

from federator.model.jobs import JobStatus
from federator.model.placements import PlacementStatus
from federator.model.snapshot import PoolView, Problem
from federator.planning.plans.greedy import plan_greedily
from tests.support.dispatch import FakeSite, World, make_world


async def a_farm(*gpus: int) -> tuple[World, list[FakeSite]]:
    """Machines of one host each, with so many GPUs."""
    world = await make_world()
    sites = [await world.add_site("farm", gpus=gpus[0])]
    sites += [
        await world.add_member("farm", f"farm-{n}", gpus=each) for n, each in enumerate(gpus[1:], start=2)
    ]
    return world, sites


def seen(world: World) -> dict[str, PoolView]:
    return {pool.member: pool for pool in world.core.turn.observer.snapshot().pools}


def free(world: World) -> dict[str, int]:
    return {name: sum(s.gpus * s.count for s in pool.free) for name, pool in seen(world).items()}


async def test_a_gang_that_no_machine_holds_starts_over_several() -> None:
    world, _ = await a_farm(4, 4, 4)
    gang = await world.submit(nodes=3, resources={"gpus": 4})
    await world.turn()
    assert world.placement(gang).members == ("farm", "farm-2", "farm-3")
    assert world.job(gang).status is JobStatus.RUNNING
    assert free(world) == {"farm": 0, "farm-2": 0, "farm-3": 0}


async def test_each_machines_report_is_rid_of_its_own_ranks_until_it_counts_them() -> None:
    world, (one, two, three) = await a_farm(8, 8, 8)
    gang = await world.submit(nodes=3, resources={"gpus": 2})
    await world.place(gang, "farm", "farm", "farm-2")
    assert free(world) == {"farm": 4, "farm-2": 6, "farm-3": 8}
    one.counted.add(world.placement(gang).id)
    one.report()
    assert free(world) == {"farm": 4, "farm-2": 6, "farm-3": 8}, "the first has taken its two off itself"
    two.counted.add(world.placement(gang).id)
    two.report()
    assert free(world) == {"farm": 4, "farm-2": 6, "farm-3": 8}
    assert three.held() == []
    parts = [busy for pool in seen(world).values() for busy in pool.busy]
    assert [(part.nodes, part.leads) for part in parts] == [(2, True), (1, False)]


async def test_ranks_whose_machine_has_seen_them_end_hold_nothing_there() -> None:
    world, (one, two) = await a_farm(8, 8)
    gang = await world.submit(nodes=2, resources={"gpus": 8})
    await world.place(gang, "farm", "farm-2")
    await world.obey()
    await one.say(world.placement(gang), PlacementStatus.SUCCEEDED, exit_code=0)
    assert free(world) == {"farm": 8, "farm-2": 0}
    (part,) = [busy for pool in seen(world).values() for busy in pool.busy]
    assert (part.nodes, part.leads) == (1, True)
    assert two.counted


async def test_a_machine_that_is_away_is_not_counted_on() -> None:
    world, _ = await a_farm(4, 4)
    session = world.core.inventory.members["farm-2"].session
    world.core.inventory.closed("farm-2", session)
    gang = await world.submit(nodes=2, resources={"gpus": 4})
    await world.turn()
    assert world.job(gang).status is JobStatus.PENDING
    (line,) = (await world.core.views.explain(world.job(gang))).sites
    assert "farm-2: its agent is not connected" in line.text
    assert line.change == "when farm-2 of farm takes work again"
    world.sites["farm-2"].connect()
    await world.turn()
    assert world.job(gang).status is JobStatus.RUNNING


async def test_a_machine_that_connected_anew_since_the_plan_makes_the_whole_gang_stale() -> None:
    world, (one, two) = await a_farm(4, 4)
    gang = await world.submit(nodes=2, resources={"gpus": 4})
    turn = world.core.turn
    plan = plan_greedily(Problem(snapshot=turn.observer.snapshot()))
    two.seq += 1
    two.connect()
    committed = await turn.committer.commit(plan)
    (stale,) = committed.stale
    assert "farm/farm-2/main has another session than the plan saw" in stale[1]
    assert world.job(gang).status is JobStatus.PENDING
    assert one.held() == two.held() == []


async def test_sites_show_members_and_the_gang_that_fits_over_all_of_them() -> None:
    world, (_, two, _) = await a_farm(8, 8, 8)
    single = await world.submit(resources={"gpus": 4})
    await world.turn()
    assert world.placement(single).members == ("farm",)
    (row,) = world.core.views.sites()
    assert (row.members, row.gpus, row.busy, row.largest_gang) == (3, 24, 4, "2×8")
    assert [(pool.member, pool.largest_gang) for pool in row.pools] == [
        ("farm", "1×4"),
        ("farm-2", "1×8"),
        ("farm-3", "1×8"),
    ]
    assert (row.status, row.because) == ("READY", "")
    two.report(paused=True)
    (row,) = world.core.views.sites()
    assert row.largest_gang == "1×8"
    assert row.because == "1 of 3 members take no work; farm-2: the site has paused new work"


async def test_one_machine_that_is_away_makes_the_site_degraded_and_all_of_them_unreachable() -> None:
    world, sites = await a_farm(8, 8)
    for away, status in ((sites[1], "DEGRADED"), (sites[0], "UNREACHABLE")):
        world.clock.advance(30.0)
        for site in sites:
            if world.core.inventory.members[site.name].session and site is not away:
                site.report()
        world.core.inventory.closed(away.name, world.core.inventory.members[away.name].session)
        world.clock.advance(90.0)
        for site in sites:
            if world.core.inventory.members[site.name].session:
                site.report()
        world.core.inventory.refresh()
        (row,) = world.core.views.sites()
        assert row.status == status
