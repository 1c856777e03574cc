"""A site with a scheduler of its own: what it was seen to have, less what is new of ours, within what the owner lends."""

from typing import Any

import msgspec

from federator.model.capacity import Pool, Shape
from federator.model.placements import Cause, Order, PlacementStatus
from federator.model.sites import LocalWork, SiteReport
from federator_agent.core import events as ev
from federator_agent.core import instructions as do
from federator_agent.core.lent_capacity import Host, Lending, Seen, Site
from tests.unit.agent.worlds import POOL, World, entry, only, spec

JOB = spec(gpus=4)
SEEN = Seen(
    pools=(POOL,),
    hosts={"gpu": tuple(Host(name, tuple(range(4)), 16_000, 64_000) for name in ("node-a", "node-b"))},
)


def a_world(**lending: Any) -> World:
    world = World(Site(name="here", pools=(), lend=Lending(**lending)), outlives=True)
    world.connect()
    return world


def look(world: World, *free: int, counted: tuple[str, ...] = (), **fields: Any) -> list[do.Instruction]:
    hosts = zip(("node-a", "node-b"), free, strict=False)
    seen = tuple(Host(name, tuple(range(gpus)), 16_000, 64_000) for name, gpus in hosts)
    changes: dict[str, Any] = {"hosts": {"gpu": seen}, "counted": frozenset(counted), **fields}
    return world.tell(ev.CapacitySeen(msgspec.structs.replace(SEEN, **changes)))


def report(instructions: list[do.Instruction]) -> SiteReport:
    (sent,) = only(instructions, do.SendReport)
    return sent.report  # type: ignore[no-any-return]


def pool(instructions: list[do.Instruction]) -> Pool:
    (only_pool,) = report(instructions).pools
    return only_pool


def gpus(shapes: tuple[Shape, ...]) -> list[int]:
    return sorted(shape.gpus for shape in shapes for _ in range(shape.count))


def test_before_the_first_look_it_has_nothing_and_refuses() -> None:
    world = a_world()
    world.want(entry("p", JOB))
    assert world.last("p").status is PlacementStatus.REFUSED
    assert pool(look(world, 4, 4)).lent_gpus == 8


def test_the_longest_run_that_its_scheduler_takes_is_told() -> None:
    world = a_world()
    assert pool(look(world, 4)).longest_s is msgspec.UNSET
    limited = msgspec.structs.replace(POOL, longest_s=3600.0)
    assert pool(look(world, 4, pools=(limited,))).longest_s == 3600.0


def test_a_placement_is_taken_off_once_before_it_is_seen_there_and_after() -> None:
    world = a_world()
    look(world, 4, 4)
    world.want(entry("p", JOB))
    seated = pool(world.bring(JOB))
    assert gpus(seated.free) == [0, 4]
    need = JOB.resources
    left = Host("node-b", (), 16_000 - need.cpus_milli, 64_000 - need.memory_mib)
    again = look(world, hosts={"gpu": (SEEN.hosts["gpu"][0], left)}, counted=("p",))
    assert not only(again, do.SendReport), "nothing has changed"


def test_a_gang_of_which_some_ranks_have_their_nodes_is_taken_off_rank_by_rank() -> None:
    """Not once for those that are seen and not at all for the others, which are about to come; nor twice."""
    world = a_world()
    look(world, 4, 4)
    gang = spec(gpus=2, nodes=2)
    world.want(entry("p", gang))
    world.bring(gang)
    (first, second) = world.state.records["p"].slots
    assert first.host == second.host == "node-a"
    assert gpus(pool(look(world, 2, 4, bound=frozenset({("p", 0)}), health="one")).free) == [0, 4]
    assert gpus(pool(look(world, 0, 4, bound=frozenset({("p", 0), ("p", 1)}), health="both")).free) == [0, 4]


def test_its_scheduler_may_choose_another_host_and_people_see_which() -> None:
    world = a_world()
    look(world, 4, 4)
    world.want(entry("p", JOB))
    world.bring(JOB)
    world.tell(ev.Staged("p", 29500, {0: "node-z"}))
    world.tell(ev.RankStarted("p", 0, world.at))
    assert [rank.node for rank in world.last("p").ranks] == ["node-z"]


def test_local_work_is_off_the_shapes_and_is_told() -> None:
    world = a_world()
    work = LocalWork("gpu", nodes=1, gpus_per_node=3, ends_at=world.at + 60)
    told = report(look(world, 1, 4, local_work=(work,), health="2 nodes are drained"))
    assert gpus(told.pools[0].free) == [1, 4]
    assert (told.local_work, told.health) == ((work,), "2 nodes are drained")
    world.state = msgspec.structs.replace(world.state, runtime="slurm")
    assert report(look(world, 1, 3)).runtime == "slurm"


def test_a_host_whose_gpus_are_in_use_is_told_with_the_cpus_that_it_has() -> None:
    """Or nobody could foresee that a job with more CPUs than those who hold the GPUs will fit there."""
    (shape,) = pool(look(a_world(), 0, 0)).free
    assert (shape.gpus, shape.cpus_milli, shape.count) == (0, 16_000, 2)
    assert pool(look(a_world(gpus={"gpu": 0}), 0, 0)).free == (), "unless none of its GPUs are lent"


def test_no_more_is_lent_than_the_owner_says_however_much_is_free() -> None:
    world = a_world(gpus={"gpu": 5})
    first = pool(look(world, 4, 4))
    assert (first.lent_gpus, gpus(first.free)) == (5, [1, 4])
    world.want(entry("p", JOB))
    world.bring(JOB)
    second = pool(look(world, 4, 0, counted=("p",), health="seen"))
    assert (second.lent_gpus, gpus(second.free)) == (5, [0, 1])
    assert gpus(pool(look(a_world(pools=("other",)), 4, 4)).free) == []


def test_it_has_no_room_after_all_or_loses_what_it_gave() -> None:
    world = a_world()
    look(world, 4, 4)
    for name, status, cause in (
        ("full", PlacementStatus.REFUSED, Cause.CANNOT),
        ("gone", PlacementStatus.LOST, Cause.NODE_LOST),
    ):
        world.want(entry(name, JOB))
        world.bring(JOB)
        world.tell(ev.StagingFailed(name, cause, "0 of 2 nodes are available", status=status))
        world.tell(ev.Collected(name))
        said = world.last(name)
        assert (said.status, said.cause, said.detail) == (status, cause, "0 of 2 nodes are available")


def test_what_the_site_evicts_is_lost_for_that_reason() -> None:
    world = a_world()
    look(world, 4, 4)
    world.run("p", JOB)
    world.end("p", code=None, detail="preempted by local work", cause=Cause.EVICTED)
    world.tell(ev.Collected("p"))
    assert (world.last("p").status, world.last("p").cause) == (PlacementStatus.LOST, Cause.EVICTED)


def test_work_outlives_a_new_boot_of_the_agents_host_and_its_limit_goes_on_counting() -> None:
    """The boot clock begins anew; the wall clock does not."""
    world = a_world()
    look(world, 4, 4)
    world.run("p", JOB, max_duration_s=3600.0)
    world.at += 3000.0
    world.boot_s = 20.0
    assert only(world.crash(), do.FindRanks)
    world.tell(ev.RankStarted("p", 0, world.at - 3000.0))
    assert not only(world.advance(590.0), do.SignalRanks)
    assert only(world.advance(20.0), do.SignalRanks)


def test_a_grace_that_was_running_ends_after_a_new_boot_too() -> None:
    world = a_world()
    look(world, 4, 4)
    world.run("p", JOB, grace_s=30.0)
    world.want(entry("p", JOB, order=Order.STOP, grace_s=30.0))
    world.boot_s = 20.0
    world.crash()
    assert [each.signal for each in only(world.advance(31.0), do.SignalRanks)] == ["KILL"]
