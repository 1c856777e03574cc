"""GPUs of a bare host in MIG mode: their instances are pools of parts, which may change under running work."""

import pytest
from msgspec.structs import replace

from federator.model.capacity import Shape
from federator.model.jobs import Accelerators, JobSpec, Resources
from federator.model.placements import PlacementStatus
from federator.wire.mig import mig
from federator_agent.core import events as ev
from federator_agent.core.capacity_report import site_report
from federator_agent.core.events import Now
from federator_agent.core.lent_capacity import HostPool, Instance, Lending, Site, lent_gpus, with_shares
from federator_agent.environment import device_environment
from federator_agent.gpus import Gpu
from federator_agent.local.instances import with_instances
from federator_agent.mig import number_of, place_of
from tests.unit.agent.worlds import World, spec

A100 = "NVIDIA A100-SXM4-80GB"
POOL = HostPool(
    name="a", model="A100", gpu_memory_mib=81920, gpus_per_node=4, cpus_milli_per_node=16_000,
    memory_mib_per_node=64_000, labels=(("rack", "r7"),),
)  # fmt: skip
SMALL, HALF = ("1g.10gb", 9728), ("3g.40gb", 40192)


def instance(gpu: int, number: int, of: tuple[str, int]) -> Gpu:
    profile, memory_mib = of
    part = mig(profile, "A100", 81920)
    return Gpu(number_of(gpu, number), A100, f"MIG-{gpu}-{number}", memory_mib, mig=part)


def cut(pool: HostPool, *gpus: Gpu) -> tuple[HostPool, ...]:
    whole = {place_of(each.index)[0] for each in gpus}
    cuts = {gpu: tuple(each for each in gpus if place_of(each.index)[0] == gpu) for gpu in whole}
    return with_instances((pool,), (pool,), cuts)


def part(milli: int) -> JobSpec:
    return replace(spec(), resources=Resources(gpus=Accelerators(count=1, share_milli=milli), cpus_milli=100))


def a_world(*gpus: Gpu) -> World:
    world = World(Site(name="here", pools=cut(POOL, *gpus)))
    world.connect()
    return world


def recut(world: World, *gpus: Gpu) -> None:
    world.tell(ev.DevicesSeen((), cut(POOL, *gpus)))


def free(world: World) -> dict[str, list[int]]:
    pools = site_report(world.state, Now(world.at, world.boot_s)).pools
    return {
        pool.name: sorted(shape.gpus for shape in pool.free for _ in range(shape.count)) for pool in pools
    }


def test_numbers_of_instances_say_which_they_are() -> None:
    assert place_of(number_of(3, 9)) == (3, 9)
    assert place_of(7) == (7, None)


def test_each_profile_is_a_pool_and_what_is_whole_stays() -> None:
    whole, small, half = cut(POOL, instance(3, 7, SMALL), instance(3, 1, HALF), instance(3, 9, SMALL))
    assert (whole.devices, whole.gpus_per_node, whole.cpus_milli_per_node) == ((0, 1, 2), 3, 12_000)
    assert (small.name, small.devices, small.nodes) == ("a-1g.10gb", (40_007, 40_009), 2)
    assert (small.host_milli, small.cut_milli, small.is_here) == (143, 143, True)
    assert (small.cpus_milli_per_node, half.cpus_milli_per_node) == (500, 2000)
    assert small.instances == (Instance("MIG-3-7", 9728, "a"), Instance("MIG-3-9", 9728, "a"))
    assert (half.name, half.model, half.labels) == ("a-3g.40gb", "A100", POOL.labels)
    assert [pool.name for pool in cut(POOL, *(instance(gpu, 0, HALF) for gpu in range(4)))] == ["a-3g.40gb"]


def test_instances_of_shared_gpus_and_of_others_are_one_pool() -> None:
    pools = [
        replace(pool, devices=devices)
        for pool, devices in zip(with_shares(POOL, 2), ((0, 1), (2, 3)), strict=True)
    ]
    cuts = {gpu: (instance(gpu, 7, SMALL),) for gpu in (1, 3)}
    whole, shared, small = with_instances(pools, pools, cuts)
    assert (whole.devices, shared.devices, shared.nodes, shared.shares) == ((0,), (2,), 1, 1)
    assert (small.name, small.devices) == ("a-1g.10gb", (20_007, 40_007))


def test_a_rank_has_one_instance_with_its_uuid_and_its_memory() -> None:
    world = a_world(instance(3, 7, SMALL), instance(3, 9, SMALL))
    (_, small) = site_report(world.state, Now(world.at, world.boot_s)).pools
    assert (small.shared, small.cut_milli, small.gpus_per_node) == (True, 143, 143)
    assert small.free == (Shape(143, 500, 2000, 2),)
    world.run("p", part(140), pool="a-1g.10gb")
    (slot,) = world.state.records["p"].slots
    assert (slot.host, slot.gpus, slot.share_milli) == ("a-1g.10gb/40007", (40_007,), 143)
    assert device_environment(slot) == {
        "CUDA_VISIBLE_DEVICES": "MIG-3-7",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "FEDERATOR_GPU_SHARE": "0.143",
        "FEDERATOR_GPU_MEMORY_MIB": "9728",
    }
    assert free(world) == {"a": [3], "a-1g.10gb": [0, 143]}


def test_work_without_a_gpu_finds_room_beside_instances() -> None:
    world = a_world(instance(3, 7, SMALL))
    world.run("p", replace(spec(), resources=Resources(cpus_milli=100)), pool="a-1g.10gb")
    (slot,) = world.state.records["p"].slots
    assert (slot.gpus, slot.uuid) == ((), "")
    assert free(world) == {"a": [3], "a-1g.10gb": [143]}


@pytest.mark.parametrize(
    ("gpus", "lent"),
    [
        ({}, {"a": 1, "a-1g.10gb": 3, "a-3g.40gb": 2}),
        ({"a": 0}, {"a": 0, "a-1g.10gb": 0, "a-3g.40gb": 0}),
        ({"a": 1}, {"a": 1, "a-1g.10gb": 0, "a-3g.40gb": 0}),
        ({"a": 2}, {"a": 1, "a-1g.10gb": 1, "a-3g.40gb": 0}),
        ({"a": 3}, {"a": 1, "a-1g.10gb": 2, "a-3g.40gb": 1}),
        ({"a": 0, "a-1g.10gb": 2}, {"a": 0, "a-1g.10gb": 2, "a-3g.40gb": 0}),
        ({"a-3g.40gb": 1}, {"a": 1, "a-1g.10gb": 3, "a-3g.40gb": 1}),
    ],
)
def test_what_the_owner_keeps_of_a_pool_is_kept_when_it_is_cut(
    gpus: dict[str, int], lent: dict[str, int]
) -> None:
    small = (instance(gpu, 7, SMALL) for gpu in (1, 2, 3))
    pools = cut(POOL, *small, instance(2, 1, HALF), instance(3, 1, HALF))
    world = World(Site(name="here", pools=pools, lend=Lending(gpus=gpus)))
    world.connect()
    assert {pool.name: lent_gpus(world.state.site, pool) for pool in pools} == lent
    report = site_report(world.state, Now(world.at, world.boot_s))
    assert {pool.name: sum(shape.count for shape in pool.free if shape.gpus) for pool in report.pools} == lent


def test_an_idle_gpu_is_cut_otherwise_while_work_runs_on_other_instances() -> None:
    first, second = instance(3, 7, SMALL), instance(3, 9, SMALL)
    world = a_world(first, second)
    world.run("p", part(140), pool="a-1g.10gb")
    world.reserve("q", part(140), pool="a-1g.10gb")
    recut(world, first, instance(2, 1, HALF))
    assert world.last("p").status is PlacementStatus.RUNNING
    assert world.last("q").status is PlacementStatus.REFUSED
    assert "the MIG instance 40009 of a-1g.10gb/40009 is no more" in world.last("q").detail
    assert free(world) == {"a": [2], "a-1g.10gb": [0], "a-3g.40gb": [500]}


def test_nothing_new_starts_on_a_gpu_that_somebody_holds_as_it_was_cut_before() -> None:
    world = a_world(instance(3, 7, SMALL))
    world.run("p", part(140), pool="a-1g.10gb")
    recut(world)
    assert world.last("p").status is PlacementStatus.RUNNING
    assert free(world) == {"a": [3]}
    world.end("p")
    assert free(world) == {"a": [4]}
    world.run("q", spec(gpus=4), pool="a")
    recut(world, instance(3, 7, SMALL))
    assert free(world)["a-1g.10gb"] == [0], "its GPU is held whole"


def beside(world: World) -> dict[str, tuple[int, int]]:
    """Milli-cores and MiB that are free in each pool."""
    report = site_report(world.state, Now(world.at, world.boot_s))
    return {
        pool.name: (
            sum(shape.cpus_milli * shape.count for shape in pool.free),
            sum(shape.memory_mib * shape.count for shape in pool.free),
        )
        for pool in report.pools
    }


def test_cpus_and_memory_of_running_work_are_not_lent_again_when_a_gpu_is_cut() -> None:
    world = a_world()
    room = Resources(cpus_milli=12_400, memory_mib=50_500)
    world.run("p", replace(spec(), resources=room), pool="a")
    small = instance(3, 7, SMALL), instance(3, 9, SMALL)
    recut(world, *small)
    assert beside(world) == {"a": (0, 0), "a-1g.10gb": (600, 1500)}, "of 1000 and 4000; 400 and 2500 are held"
    more = replace(part(140), resources=replace(part(140).resources, cpus_milli=500))
    world.run("q", more, ranks=(0, 1), pool="a-1g.10gb")
    assert world.last("q").status is PlacementStatus.REFUSED
    world.end("p")
    assert beside(world) == {"a": (12_000, 48_000), "a-1g.10gb": (1000, 4000)}


def test_cpus_and_memory_of_work_without_a_gpu_stay_its_own_when_its_instance_goes() -> None:
    world = a_world(instance(3, 7, SMALL))
    world.run("p", replace(spec(), resources=Resources(cpus_milli=300, memory_mib=700)), pool="a-1g.10gb")
    recut(world)
    assert free(world) == {"a": [4]}
    assert beside(world) == {"a": (15_700, 63_300)}


def test_an_instance_made_anew_with_the_same_number_is_another() -> None:
    first = instance(3, 7, SMALL)
    world = a_world(first)
    world.reserve("p", part(140), pool="a-1g.10gb")
    recut(world, replace(first, uuid="MIG-3-7-anew"))
    assert world.last("p").status is PlacementStatus.REFUSED
    assert "the MIG instance 40007 of a-1g.10gb/40007 is no more" in world.last("p").detail
    assert free(world) == {"a": [3], "a-1g.10gb": [143]}
