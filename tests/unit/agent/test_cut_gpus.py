"""GPUs that a site with a scheduler of its own has cut into parts: a rank gets whole parts, and no more than it is booked for."""

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from federator.model.capacity import Shape
from federator.model.jobs import Accelerators, JobSpec, Resources, cuts_of
from federator.model.placements import PlacementStatus
from federator_agent.core import events as ev
from federator_agent.core import instructions as do
from federator_agent.core.capacity_report import site_report
from federator_agent.core.events import Now
from federator_agent.core.lent_capacity import Host, HostPool, Lending, Seen, Site
from tests.unit.agent.worlds import World, entry, only, spec

SHARDS = HostPool(
    name="shards", model="A100", gpu_memory_mib=40_000, nodes=2, gpus_per_node=1,
    cpus_milli_per_node=8000, memory_mib_per_node=8000, shares=1, cut_milli=250,
)  # fmt: skip
"""Two GPUs of four parts each."""
HALVES = HostPool(
    name="halves", model="A100", gpu_memory_mib=40_000, nodes=3, gpus_per_node=1,
    cpus_milli_per_node=8000, memory_mib_per_node=8000, shares=1, host_milli=500, cut_milli=500,
)  # fmt: skip
"""Each host is half a GPU."""


def part(milli: int, nodes: int = 1) -> JobSpec:
    gpus = Accelerators(count=1, share_milli=milli)
    return replace(spec(nodes=nodes), resources=Resources(gpus=gpus, cpus_milli=1000))


def a_world(pool: HostPool, *milli: int, **lending: object) -> World:
    world = World(Site(name="here", pools=(), lend=Lending(**lending)), outlives=True)  # type: ignore[arg-type]
    world.connect()
    look(world, pool, *milli)
    return world


def look(world: World, pool: HostPool, *milli: int, bound: frozenset[tuple[str, int]] = frozenset()) -> None:
    hosts = tuple(Host(f"n{at}", (0,), 8000, 8000, free) for at, free in enumerate(milli) if free)
    world.tell(ev.CapacitySeen(Seen((pool,), {pool.name: hosts}, bound=bound)))


def want(world: World, placement: str, of: JobSpec, pool: HostPool) -> list[do.Instruction]:
    world.want(entry(placement, of, pool=pool.name))
    return world.bring(of)


def free(world: World) -> list[int]:
    (pool,) = site_report(world.state, Now(world.at, world.boot_s)).pools
    return sorted(shape.gpus for shape in pool.free for _ in range(shape.count))


@pytest.mark.parametrize(
    ("asked", "cut", "cuts"),
    [(250, 250, 1), (500, 250, 2), (1000, 250, 4), (240, 250, 1), (260, 250, 1), (1000, 333, 3), (330, 333, 1), (140, 143, 1),
     (100, 250, 0), (300, 250, 0), (125, 250, 0), (1, 250, 0), (999, 333, 3), (150, 143, 1), (400, 500, 0)],
)  # fmt: skip
def test_a_part_is_a_whole_number_of_those_that_there_are_or_none(asked: int, cut: int, cuts: int) -> None:
    assert cuts_of(asked, cut) == cuts


def test_the_report_says_how_they_are_cut() -> None:
    (pool,) = site_report(a_world(HALVES, 500, 500).state, Now(0.0, 0.0)).pools
    assert (pool.shared, pool.cut_milli, pool.gpus_per_node, pool.lent_gpus) == (True, 500, 500, 1500)
    assert pool.free == (Shape(500, 8000, 8000, 2),)
    (pool,) = site_report(a_world(SHARDS, 1000, 250).state, Now(0.0, 0.0)).pools
    assert (pool.shared, pool.cut_milli, pool.gpus_per_node, pool.lent_gpus) == (True, 250, 1000, 2000)
    assert pool.free == (Shape(250, 8000, 8000), Shape(1000, 8000, 8000))


def test_a_rank_takes_whole_parts_of_the_fullest_gpu_that_has_them() -> None:
    world = a_world(SHARDS, 1000, 250)
    want(world, "p", part(240), SHARDS)
    (slot,) = world.state.records["p"].slots
    assert (slot.host, slot.share_milli, slot.share_mib) == ("n1", 250, 10_000)
    want(world, "q", part(500), SHARDS)
    assert free(world) == [0, 500]
    want(world, "r", part(750), SHARDS)
    assert world.last("r").status is PlacementStatus.REFUSED


def test_what_is_no_whole_part_is_refused_and_so_is_a_whole_gpu() -> None:
    world = a_world(HALVES, 500, 500)
    for placement, of, why in (
        ("p", part(300), "parts of 0.5 GPUs, not 0.3"),
        ("q", part(1000), "a host of pool halves has 0.5 GPUs, not 1"),
        ("r", spec(gpus=1), "pool halves shares its GPUs in parts"),
    ):
        want(world, placement, of, HALVES)
        assert world.last(placement).status is PlacementStatus.REFUSED
        assert why in world.last(placement).detail


def test_each_half_goes_to_one_rank_and_is_taken_off_once_before_it_is_seen_there_and_after() -> None:
    world = a_world(HALVES, 500, 500)
    want(world, "p", part(490), HALVES)
    assert free(world) == [0, 500]
    look(world, HALVES, 500, bound=frozenset({("p", 0)}))
    assert free(world) == [500]
    want(world, "q", part(500, nodes=2), HALVES)
    assert world.last("q").status is PlacementStatus.REFUSED


def test_lending_counts_parts_where_they_are_hosts_and_gpus_where_these_are() -> None:
    world = a_world(HALVES, 500, 500, 500, gpus={"halves": 2})
    assert sum(free(world)) == 1000
    want(world, "p", part(500), HALVES)
    assert sum(free(world)) == 500
    world = a_world(SHARDS, 1000, 1000, gpus={"shards": 1})
    want(world, "p", part(250), SHARDS)
    assert sum(free(world)) == 750


def test_who_has_which_gpu_is_not_made_up() -> None:
    world = a_world(HALVES, 500)
    sent = want(world, "p", part(500), HALVES)
    assert only(sent, do.SendReport)[-1].report.parts is UNSET
