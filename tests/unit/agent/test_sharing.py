"""GPUs that a site shares: parts of them are seated exactly, told in thousandths, and kept by the agent through a restart."""

import pytest
from msgspec.structs import replace

from federator.kernel.errors import Invalid
from federator.model.jobs import Accelerators, JobSpec, Resources
from federator.model.placements import PlacementStatus
from federator.model.sites import AilingGpu, GpuPart, SiteReport
from federator_agent import config
from federator_agent.core import events as ev
from federator_agent.core.capacity_report import site_report
from federator_agent.core.events import Now
from federator_agent.core.lent_capacity import Lending, Site
from federator_agent.environment import device_environment
from federator_agent.gpus import Gpu
from federator_agent.local.devices import assigned
from tests.unit.agent.worlds import World, entry, spec

FILE = """
site: here
pools:
  - {name: a100, model: A100, gpu_memory: 80GiB, gpus_per_node: 4, shared: 2, cpus_per_node: 16, memory_per_node: 64GiB}
"""


def site(text: str = FILE) -> Site:
    return config.parse(text, "site.yaml", {}).site


def part(gpus: float, nodes: int = 1, **fields: object) -> JobSpec:
    resources = Resources(
        gpus=Accelerators(count=1, share_milli=round(gpus * 1000)), cpus_milli=1000, memory_mib=1000
    )
    return replace(spec(nodes=nodes), resources=replace(resources, **fields))


def wanted(world: World, placement: str, of: JobSpec, pool: str = "a100-shared") -> None:
    world.want(entry(placement, of, pool=pool))
    world.bring(of)


def seats(world: World, placement: str) -> list[tuple[tuple[int, ...], int]]:
    return [(slot.gpus, slot.share_milli) for slot in world.state.records[placement].slots]


def report(world: World) -> SiteReport:
    return site_report(world.state, Now(world.at, world.boot_s))


def free(world: World) -> list[int]:
    return sorted(shape.gpus for shape in report(world).pools[1].free for _ in range(shape.count))


def shared_world(**fields: object) -> World:
    world = World(replace(site(), **fields))
    world.connect()
    return world


def test_shared_gpus_are_a_pool_of_hosts_with_one_gpu_each_and_the_rest_is_as_it_was() -> None:
    whole, shared = site().pools
    assert (whole.name, whole.nodes, whole.gpus_per_node, whole.numbers) == ("a100", 1, 2, (0, 1))
    assert (whole.cpus_milli_per_node, whole.memory_mib_per_node) == (8000, 32768)
    assert (shared.name, shared.nodes, shared.gpus_per_node, shared.numbers) == ("a100-shared", 2, 1, (2, 3))
    assert (shared.cpus_milli_per_node, shared.memory_mib_per_node) == (4000, 16384)
    (alone,) = site(FILE.replace("shared: 2", "shared: 4")).pools
    assert (alone.name, alone.nodes, alone.numbers) == ("a100-shared", 4, (0, 1, 2, 3))


def test_more_than_there_are_cannot_be_shared_and_names_do_not_clash() -> None:
    with pytest.raises(Invalid, match=r"\$\.pools\[0\]\.shared"):
        site(FILE.replace("shared: 2", "shared: 5"))
    with pytest.raises(Invalid, match="'a100-shared' is the name of two pools"):
        site(FILE + "  - {name: a100-shared, gpus_per_node: 0}\n")


def test_the_report_counts_them_in_thousandths() -> None:
    whole, shared = report(shared_world()).pools
    assert (whole.shared, shared.shared) == (whole.shared, True)
    assert not whole.shared
    assert (shared.nodes, shared.gpus_per_node, shared.lent_gpus) == (2, 1000, 2000)
    assert [(s.gpus, s.cpus_milli, s.memory_mib, s.count) for s in shared.free] == [(1000, 4000, 16384, 2)]


def test_parts_go_on_the_fullest_gpu_that_holds_them_and_never_above_one() -> None:
    world = shared_world()
    wanted(world, "p", part(0.5))
    wanted(world, "q", part(0.7))
    wanted(world, "r", part(0.3))
    assert [seats(world, name) for name in "pqr"] == [[((2,), 500)], [((3,), 700)], [((3,), 300)]]
    assert free(world) == [0, 500]
    wanted(world, "s", part(0.501))
    assert world.last("s").status is PlacementStatus.REFUSED
    assert "has no room for 1 ranks with 0.501 GPUs each" in world.last("s").detail
    wanted(world, "t", part(0.5))
    assert free(world) == [0, 0]
    assert report(world).parts == (
        GpuPart("a100-shared", 2, "p", 0, 500),
        GpuPart("a100-shared", 3, "q", 0, 700),
        GpuPart("a100-shared", 3, "r", 0, 300),
        GpuPart("a100-shared", 2, "t", 0, 500),
    )


def test_ranks_of_a_gang_share_a_gpu_where_that_fills_it() -> None:
    world = shared_world()
    wanted(world, "p", part(0.4, nodes=4))
    assert seats(world, "p") == [((2,), 400), ((2,), 400), ((3,), 400), ((3,), 400)]
    assert free(world) == [200, 200]


def test_what_each_gpu_has_beside_it_counts_too() -> None:
    world = shared_world()
    wanted(world, "p", part(0.1, cpus_milli=3000))
    wanted(world, "q", part(0.1, cpus_milli=3000))
    assert [seats(world, name)[0][0] for name in "pq"] == [(2,), (3,)]


def test_whole_gpus_and_parts_keep_to_their_own_pools() -> None:
    world = shared_world()
    wanted(world, "p", spec(gpus=1))
    wanted(world, "q", part(0.5), "a100")
    assert "pool a100-shared shares its GPUs in parts" in world.last("p").detail
    assert "pool a100 shares none of its GPUs" in world.last("q").detail


def test_a_restart_keeps_which_gpu_a_rank_has() -> None:
    world = shared_world()
    wanted(world, "p", part(0.5))
    world.tell(ev.Staged("p", 29500))
    wanted(world, "q", part(0.7))
    world.crash()
    assert (seats(world, "p"), seats(world, "q")) == ([((2,), 500)], [((3,), 700)])
    assert free(world) == [300, 500]


def test_lending_counts_whole_gpus() -> None:
    world = shared_world(lend=Lending(gpus={"a100-shared": 1}))
    assert (free(world), report(world).pools[1].lent_gpus) == ([1000], 1000)


def test_an_ailing_gpu_takes_no_more_parts_and_what_is_on_it_stays() -> None:
    world = shared_world()
    wanted(world, "p", part(0.5))
    world.tell(ev.DevicesSeen((AilingGpu("a100-shared", "a100-shared/0", 2, "it is lost from the bus"),)))
    assert free(world) == [0, 1000]
    wanted(world, "q", part(0.4))
    assert seats(world, "q") == [((3,), 400)]


def test_the_driver_says_which_gpus_they_are() -> None:
    gpus = [Gpu(index=index, name="NVIDIA A100-SXM4-80GB", memory_mib=81920) for index in range(4)]
    whole, shared = assigned(site().pools, gpus)
    assert (whole.numbers, shared.numbers) == ((0, 1), (2, 3))
    assert shared.host_of(3) == "a100-shared/1"


def test_a_rank_is_told_its_gpu_and_how_much_of_it_it_has() -> None:
    world = shared_world()
    wanted(world, "p", part(0.25))
    (slot,) = world.state.records["p"].slots
    assert device_environment(slot) == {
        "CUDA_VISIBLE_DEVICES": "2",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "FEDERATOR_GPU_SHARE": "0.25",
        "FEDERATOR_GPU_MEMORY_MIB": "20480",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=20480M",
    }
    world = World()
    world.connect()
    world.run("q", spec(gpus=2))
    (slot,) = world.state.records["q"].slots
    assert device_environment(slot) == {"CUDA_VISIBLE_DEVICES": "0,1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert device_environment(slot, "ROCR_VISIBLE_DEVICES") == {"ROCR_VISIBLE_DEVICES": "0,1"}


def changed(world: World, shared: int) -> None:
    """The owner changes the site file under running work, and starts the agent anew."""
    world.site = site(FILE.replace("shared: 2", f"shared: {shared}"))
    world.crash()
    world.connect()


def devices(world: World) -> list[int]:
    """The GPUs that anybody has, as often as somebody has them."""
    return sorted(
        gpu
        for record in world.state.records.values()
        for slot in record.slots
        for gpu in slot.gpus
        if record.report is None or record.report.status is not PlacementStatus.REFUSED
    )


def test_a_gpu_that_is_held_as_the_site_file_had_it_once_takes_nothing_new_until_that_ends() -> None:
    world = shared_world()
    wanted(world, "p", part(0.5))
    wanted(world, "w", spec(gpus=2), "a100")
    assert (seats(world, "p"), seats(world, "w")) == ([((2,), 500)], [((0, 1), 0)])
    changed(world, 1)
    wanted(world, "q", spec(gpus=1), "a100")
    assert "has no room" in world.last("q").detail
    wanted(world, "r", part(0.5))
    assert seats(world, "r") == [((3,), 500)]
    changed(world, 4)
    (pool,) = report(world).pools
    assert {shape.gpus for shape in pool.free} == {0}
    wanted(world, "s", part(0.1))
    assert world.last("s").status is PlacementStatus.REFUSED
    assert devices(world) == [0, 1, 2, 3]
