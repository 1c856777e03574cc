"""Parts of a GPU from submission to the ledger, and gangs that lie as they say, through the dispatcher's own records."""

import pytest
from msgspec.structs import replace

from federator.model.capacity import Pool, Shape
from federator.model.events import LedgerKind
from federator.model.jobs import JobStatus
from federator.planning.places.host_sets import need_of
from tests.support.dispatch import World, make_world


async def a_shared_site(world: World) -> None:
    """Two GPUs that are shared, at 2 USD an hour each."""
    site = await world.add_site("lab", nodes=2, gpus=1000)
    site.pool = replace(site.pool, shared=True)
    site.report(price_usd_gpu_h=2.0)


async def test_half_a_gpu_costs_half_and_counts_half() -> None:
    world = await make_world()
    await a_shared_site(world)
    job = await world.submit(resources={"gpus": 0.5}, estimate="1h", max_duration="2h")
    await world.turn()
    placement = world.placement(job)
    assert (placement.gpus_per_node, placement.shared, placement.gpus) == (500, True, 0.5)
    (pool,) = world.core.turn.observer.pools()
    (busy,) = pool.busy
    assert (busy.gpus, busy.shared, busy.gpus_total, busy.usd_per_h) == (500, True, 0.5, 1.0)
    await world.sites["lab"].run_all()
    world.clock.advance(3600.0)
    await world.sites["lab"].finish(job)
    assert world.job(job).gpu_s == pytest.approx(1800.0, rel=0.01)
    (use,) = [line for line in await world.core.views.ledger() if line.kind is LedgerKind.USAGE]
    assert use.what.startswith("1 × 0.5 GPUs")
    assert use.gpu_s == pytest.approx(1800.0, rel=0.01)


async def test_parts_fill_a_gpu_exactly_and_the_rest_waits() -> None:
    world = await make_world()
    await a_shared_site(world)
    jobs = [await world.submit(resources={"gpus": part}, estimate="1h") for part in (0.7, 0.7, 0.3, 0.31)]
    await world.turn()
    assert [world.job(job).placement is not None for job in jobs] == [True, True, True, False]


async def test_a_job_that_is_too_long_for_a_site_goes_past_it() -> None:
    world = await make_world()
    site = await world.add_site("lab", nodes=4, gpus=1)
    site.pool = replace(site.pool, longest_s=3600.0)
    site.report()
    fits = await world.submit(resources={"gpus": 1}, estimate="30m", max_duration="1h")
    never = await world.submit(resources={"gpus": 1}, estimate="30m", max_duration="2h")
    await world.turn()
    assert world.placement(fits).members == ("lab",)
    assert world.job(never).placement is None


async def test_nodes_on_one_host_are_planned_as_one_and_placed_as_many() -> None:
    world = await make_world()
    await world.add_site("lab", nodes=2, gpus=4)
    blocker = await world.submit(resources={"gpus": 1}, estimate="1h")
    await world.turn()
    job = await world.submit(
        resources={"gpus": 1, "cpus": 2}, nodes=4, estimate="1h", placement={"together": "host"}
    )
    view = world.core.turn.observer.jobs.of(world.job(job))
    assert (view.nodes, view.ranks_in_one, need_of(view)[:2]) == (1, 4, (4, 8000))
    await world.turn()
    placement = world.placement(job)
    assert (placement.nodes, placement.gpus_per_node, placement.members) == (4, 1, ("lab",) * 4)
    (pool,) = world.core.turn.observer.pools()
    mine = next(busy for busy in pool.busy if busy.job == job)
    assert (mine.nodes, mine.gpus, mine.gpus_total) == (1, 4, 4)
    assert world.job(blocker).placement is not None


async def test_nodes_apart_need_as_many_hosts() -> None:
    world = await make_world()
    await world.add_site("lab", nodes=2, gpus=4)
    fits = await world.submit(resources={"gpus": 1}, nodes=2, estimate="1h", placement={"together": "spread"})
    never = await world.submit(
        resources={"gpus": 1}, nodes=3, estimate="1h", placement={"together": "spread"}
    )
    await world.turn()
    assert world.placement(fits).members == ("lab", "lab")
    assert world.job(never).placement is None


async def test_a_gpu_that_is_cut_takes_only_jobs_that_ask_for_what_it_is_cut_into() -> None:
    world = await make_world()
    site = await world.add_site("lab", nodes=4, gpus=500)
    site.pool = replace(site.pool, shared=True, cut_milli=500)
    site.report()
    half = await world.submit(resources={"gpus": 0.5}, estimate="1h")
    never = await world.submit(resources={"gpus": 0.3}, estimate="1h")
    squeezed = await world.submit(resources={"gpus": "0.3..1"}, estimate="1h")
    await world.turn()
    assert world.placement(half).gpus == 0.5
    assert world.job(never).placement is None
    assert "cut into parts of 0.5" in str(await world.core.views.explain(world.job(never)))
    assert world.placement(squeezed).gpus == 0.5


async def test_the_largest_gang_of_a_site_is_of_whole_gpus_and_of_shared_ones_it_says_so() -> None:
    world = await make_world()
    await a_shared_site(world)
    (row,) = world.core.views.sites()
    assert row.largest_gang == row.pools[0].largest_gang == "2×1 shared"
    whole = Pool(
        name="whole", model="A100", nodes=1, gpus_per_node=1, free=(Shape(1, 8000, 65536),), lent_gpus=1
    )
    site = world.sites["lab"]
    site.report(pools=(replace(site.pool, free=(Shape(1000, 8000, 65536, 2),)), whole))
    (row,) = world.core.views.sites()
    assert row.largest_gang == "1×1", "few jobs can use parts"


@pytest.mark.parametrize("gpus", [1, 4])
async def test_who_may_be_squeezed_is_where_somebody_waits_whose_time_is_dear(gpus: int) -> None:
    """Giving up a tenth of each GPU loses least, and makes no half of one."""
    world = await make_world()
    site = await world.add_site("lab", nodes=gpus, gpus=1000)
    site.pool = replace(site.pool, shared=True)
    site.report()
    urgent = "{waiting_usd_per_gpu_hour: 50}"
    await world.policies(
        f"---\napiVersion: federator/v1\nkind: Queue\nmetadata: {{name: urgent}}\nspec: {urgent}\n"
    )
    wide = [
        await world.submit(resources={"gpus": "0.4..1"}, estimate="10h", checkpoint={"every": "10m"})
        for _ in range(gpus)
    ]
    await world.turn()
    assert [world.placement(job).gpus for job in wide] == [1.0] * gpus
    world.clock.advance(1200)
    half = await world.submit(queue="urgent", resources={"gpus": 0.5}, estimate="30m")
    await world.turn()
    world.clock.advance(30)
    await world.turn()
    assert world.job(half).status is JobStatus.RUNNING
    assert sorted(world.placement(job).gpus for job in wide) == [0.5, *[1.0] * (gpus - 1)]


async def test_a_gang_of_one_rack_goes_to_a_pool_of_one_rack() -> None:
    world = await make_world()
    site = await world.add_site("lab", nodes=4, gpus=1)
    job = await world.submit(resources={"gpus": 1}, nodes=2, estimate="1h", placement={"together": "rack"})
    at_all = await world.submit(
        resources={"gpus": 1}, nodes=2, estimate="1h", placement={"labels": {"rack": "r8"}}
    )
    await world.turn()
    assert world.job(job).placement is None
    site.pool = replace(site.pool, labels={"rack": "r7", "region": "not-its-own"})
    site.report()
    await world.turn()
    assert world.placement(job).members == ("lab", "lab")
    assert world.job(at_all).placement is None
    (pool,) = world.core.turn.observer.pools()
    assert pool.labels["rack"] == "r7"
    region = world.core.records.sites["lab"].region
    assert not region or pool.labels["region"] == region
