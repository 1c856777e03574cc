"""GPUs that ail: nothing new goes there, what runs there goes on, and the dispatcher is told why; then they are well again."""

import msgspec
import pytest

from federator.model.placements import Cause, PlacementStatus
from federator.model.sites import AilingGpu, SiteReport
from federator_agent.core import events as ev
from federator_agent.core import instructions as do
from federator_agent.core.lent_capacity import HostPool, Lending, Site, is_of
from federator_agent.gpus import Gpu
from federator_agent.local.devices import assigned
from tests.unit.agent.worlds import POOL, SITE, World, entry, only, spec

A100, T4 = "NVIDIA A100-SXM4-80GB", "Tesla T4"
LOST = AilingGpu("gpu", "gpu/0", 1, "it is lost from the bus")


def seen(world: World, *ailing: AilingGpu) -> list[do.Instruction]:
    return world.tell(ev.DevicesSeen(ailing))


def report(instructions: list[do.Instruction]) -> SiteReport:
    (sent,) = only(instructions, do.SendReport)
    return sent.report  # type: ignore[no-any-return]


def free(of: SiteReport) -> list[int]:
    return sorted(shape.gpus for shape in of.pools[0].free for _ in range(shape.count))


def test_an_ailing_gpu_leaves_the_shapes_at_once_with_its_reason_and_comes_back() -> None:
    world = World()
    world.connect()
    told = report(seen(world, LOST))
    assert (free(told), told.pools[0].lent_gpus, told.ailing) == ([3, 4], 7, (LOST,))
    assert (told.health, told.pools[0].gpus_per_node) == ("ok", 4)
    told = report(seen(world))
    assert (free(told), told.pools[0].lent_gpus, told.ailing) == ([4, 4], 8, ())
    assert not only(seen(world), do.SendReport), "nothing has changed"


def test_new_ranks_go_around_it_and_those_that_need_it_are_refused() -> None:
    world = World()
    world.connect()
    seen(world, LOST)
    gang = spec(gpus=3, nodes=2)
    world.run("p", gang)
    slots = world.state.records["p"].slots
    assert {slot.host: slot.gpus for slot in slots} == {"gpu/0": (0, 2, 3), "gpu/1": (0, 1, 2)}
    world.run("q", spec(gpus=2))
    assert world.last("q").status is PlacementStatus.REFUSED


def test_what_runs_on_it_goes_on_and_is_counted_until_it_ends() -> None:
    world = World()
    world.connect()
    world.run("p", spec(gpus=4))
    (slot,) = world.state.records["p"].slots
    told = report(seen(world, msgspec.structs.replace(LOST, host=slot.host)))
    assert world.last("p").status is PlacementStatus.RUNNING
    assert (free(told), told.pools[0].lent_gpus) == ([0, 4], 8)
    told = report(world.end("p"))
    assert (free(told), told.pools[0].lent_gpus) == ([3, 4], 7)


def test_a_reservation_on_it_is_refused_and_others_are_kept() -> None:
    world = World()
    world.connect()
    world.reserve("p", spec(gpus=4))
    world.reserve("q", spec(gpus=4, name="other"))
    (slot,) = world.state.records["p"].slots
    seen(world, msgspec.structs.replace(LOST, host=slot.host))
    assert world.last("p").status is PlacementStatus.REFUSED
    assert "lost from the bus" in world.last("p").detail
    assert world.last("q").status is PlacementStatus.ACCEPTED


def test_what_is_being_set_up_for_it_does_not_begin_there() -> None:
    world = World()
    world.connect()
    of = spec(gpus=4)
    world.want(entry("p", of))
    world.bring(of)
    (slot,) = world.state.records["p"].slots
    seen(world, msgspec.structs.replace(LOST, host=slot.host))
    instructions = world.tell(ev.Staged("p", 29500))
    assert not only(instructions, do.StartRanks)
    world.tell(ev.Collected("p"))
    assert (world.last("p").status, world.last("p").cause) == (PlacementStatus.REFUSED, Cause.CANNOT)


def test_a_machine_that_is_taken_back_says_so_at_once_and_begins_nothing_more() -> None:
    world = World()
    world.connect()
    world.run("p", spec())
    assert report(world.tell(ev.Noticed(world.at + 120))).reclaim_at == world.at + 120
    assert world.last("p").status is PlacementStatus.RUNNING, "what is to stop is for the dispatcher to say"
    world.run("q", spec())
    assert world.last("q").status is PlacementStatus.REFUSED


def test_what_the_owner_keeps_is_not_lent_in_its_place() -> None:
    world = World(msgspec.structs.replace(SITE, lend=Lending(gpus={"gpu": 6})))
    world.connect()
    told = report(seen(world, LOST))
    assert (free(told), told.pools[0].lent_gpus) == ([2, 3], 5)


def test_ranks_see_the_numbers_that_the_driver_has_for_their_gpus() -> None:
    pool = msgspec.structs.replace(POOL, nodes=1, gpus_per_node=2, devices=(5, 7))
    world = World(Site(name="here", pools=(pool,)))
    world.connect()
    world.run("p", spec(gpus=1))
    seen(world, AilingGpu("gpu", "gpu/0", 7, "ill"))
    world.run("q", spec(gpus=1))
    assert world.state.records["p"].slots[0].gpus == (5,)
    assert world.last("q").status is PlacementStatus.REFUSED


def test_pools_get_the_gpus_of_their_model_in_the_drivers_order() -> None:
    gpus = [Gpu(0, T4), Gpu(1, A100), Gpu(2, A100), Gpu(3, T4), Gpu(4, A100)]
    pools = [
        _pool("A100", 2),
        _pool("t4", 2),
        _pool("a100-80GB", 1),
        _pool("H100", 8),
        _pool("A100", 4, nodes=2),
    ]
    assert [pool.devices for pool in assigned(pools, gpus)] == [(1, 2), (0, 3), (4,), (), ()]


@pytest.mark.parametrize(
    ("gpus", "devices"),
    [
        ([Gpu(0, A100), Gpu(1), Gpu(2, A100)], (0, 1, 2)),
        ([Gpu(0, A100), Gpu(1, A100)], (0, 1, 2)),
        ([Gpu(0, T4), Gpu(1, A100), Gpu(2, A100)], (1, 2, 3)),
        ([], (0, 1, 2)),
    ],
)
def test_a_gpu_that_is_missing_or_silent_has_a_number_all_the_same(
    gpus: list[Gpu], devices: tuple[int, ...]
) -> None:
    (pool,) = assigned([_pool("A100", 3)], gpus)
    assert pool.devices == devices


@pytest.mark.parametrize(
    ("declared", "model", "same"),
    [
        ("A100", "A100", True),
        ("a100-80gb", "A100", True),
        ("RTX-4090", "RTX4090", True),
        ("A10", "A100", False),
        ("RTX-A6000", "A6000", True),
        ("RTX-3090", "RTX4090", False),
    ],
)
def test_models_are_told_apart_as_people_write_them(declared: str, model: str, same: bool) -> None:
    assert is_of(declared, model) is same


def _pool(model: str, gpus: int, nodes: int = 1) -> HostPool:
    return msgspec.structs.replace(POOL, model=model, gpus_per_node=gpus, nodes=nodes)
