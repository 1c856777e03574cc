"""An agent's report says of how much the dispatcher has to keep count: what it may say is bounded, and what it counts is not spelled out."""

from collections import Counter
from typing import Self

import msgspec
import pytest

from federator.control.turns.observation import take
from federator.hub.report_validation import MAX_HOSTS, MAX_LOCAL, check_report
from federator.kernel.errors import Invalid
from federator.model.capacity import Pool, Shape, coarser
from federator.model.sites import GpuPart, LocalWork, SiteReport
from federator.model.snapshot import PoolView
from federator.planning.places import host_sets
from tests.support.dispatch import make_world


def pools_of(hosts: int, each: int, *, pools: int = 1) -> tuple[Pool, ...]:
    """Hosts, all free."""
    return tuple(
        Pool(
            name=f"p{number}", model="A100", nodes=hosts, gpus_per_node=each, cpus_milli_per_node=64_000,
            memory_mib_per_node=2**19, lent_gpus=hosts * each, free=(Shape(each, 64_000, 2**19, hosts),),
        )
        for number in range(pools)
    )  # fmt: skip


def test_two_hundred_pools_of_many_hosts_are_refused() -> None:
    """Forty kilobytes froze the dispatcher for fifty seconds, and took 12.9 GB."""
    with pytest.raises(Invalid, match="13107200 hosts in all") as refused:
        check_report(SiteReport(taken_at=0.0, pools=pools_of(MAX_HOSTS, 8, pools=200)))
    assert refused.value.field == "$.report.pools"
    assert refused.value.remedy


def test_an_honest_large_site_is_taken() -> None:
    check_report(SiteReport(taken_at=0.0, pools=pools_of(5_000, 8, pools=4)))


@pytest.mark.parametrize("what", ["labels", "lends_to", "abilities", "trusts", "counted", "parts"])
def test_lists_of_words_are_bounded(what: str) -> None:
    """Each was bounded by the message alone: a hundred thousand queues, compared with each job in each turn."""
    words = tuple(f"w{number}" for number in range(MAX_LOCAL + 1))
    if what == "parts":
        said: object = (GpuPart("p0", 0, "pl", 0, 1),) * len(words)
    else:
        said = dict.fromkeys(words, "x") if what == "labels" else words
    report = msgspec.structs.replace(SiteReport(taken_at=0.0, pools=pools_of(8, 8)), **{what: said})
    with pytest.raises(Invalid, match="there can be") as refused:
        check_report(report)
    assert refused.value.field == f"$.report.{what}"


def test_local_work_is_bounded_in_all() -> None:
    report = SiteReport(taken_at=0.0, pools=pools_of(8, 8))
    work = LocalWork(pool="p0", nodes=MAX_LOCAL // 2, gpus_per_node=1)
    check_report(msgspec.structs.replace(report, local_work=(work, work)))
    for many in ((work, work, work), (LocalWork(pool="p0", nodes=0, gpus_per_node=0),) * (MAX_LOCAL + 1)):
        with pytest.raises(Invalid, match="there can be") as refused:
            check_report(msgspec.structs.replace(report, local_work=many))
        assert refused.value.field == "$.report.local_work"


async def test_the_members_of_a_site_are_bounded_together_and_so_are_all_sites() -> None:
    world = await make_world()
    limits = world.core.settings.limits
    first = await world.add_site("lab")
    second = await world.add_member("lab", "lab-2")
    most = limits.site_hosts // 2 + 1
    first.report(pools=pools_of(most, 8))
    with pytest.raises(Invalid, match="other members") as refused:
        second.report(pools=pools_of(most, 8))
    assert "limits.site_hosts" in (refused.value.remedy or "")
    for number in range(limits.hosts // limits.site_hosts - 1):
        (await world.add_site(f"s{number}")).report(pools=pools_of(limits.site_hosts, 8))
    last = await world.add_site("last")
    with pytest.raises(Invalid, match="other members") as refused:
        last.report(pools=pools_of(limits.site_hosts, 8))
    assert "limits.hosts" in (refused.value.remedy or "")
    # Nobody else notices, and what is there can be told again, less or the same.
    first.report(pools=pools_of(most, 8))
    first.report(pools=pools_of(1, 8))


def test_hosts_that_are_alike_are_one_object_however_many_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Counter[str] = Counter()

    class Counting(host_sets.Host):
        def __new__(cls, *sizes: int) -> Self:
            made["hosts"] += 1
            return super().__new__(cls, *sizes)

    monkeypatch.setattr(host_sets, "Host", Counting)
    view = world_view(20_000)
    host_set = host_sets.HostSet.of_pool(view, 0.0)
    assert host_set.room_for((8, 0, 0)) == 20_000
    assert made["hosts"] < 10


def world_view(hosts: int) -> PoolView:
    """A pool of a snapshot, all free."""
    (pool,) = pools_of(hosts, 8)
    return PoolView(
        site="lab", kind="onprem", pool=pool.name, member="lab", session="s", nodes=hosts, gpus_per_node=8, free=pool.free
    )  # fmt: skip


def test_what_is_counted_is_not_spelled_out_when_work_is_put_on_it() -> None:
    """A million million hosts would not fit into any memory."""
    assert take((Shape(8, 8000, 8192, 10**12),), [_Ranks()]) == (  # type: ignore[list-item]
        Shape(2, 5000, 7169, 1),
        Shape(8, 8000, 8192, 10**12 - 1),
    )


class _Ranks:
    """Three ranks of two GPUs."""

    nodes, gpus_per_node, cpus_milli, memory_mib = 3, 2, 1000, 341


def test_very_many_shapes_become_few_which_promise_no_more_than_is_there() -> None:
    shapes = tuple(Shape(8, 64_000, 100_000 + each) for each in range(20_000))
    few = coarser(shapes, 100)
    assert len(few) <= 100
    assert sum(shape.count for shape in few) == 20_000
    assert max(few) == max(shapes)  # whole hosts stay whole
    assert all(
        few_one.memory_mib <= one.memory_mib for few_one, one in zip(_spread(few), shapes, strict=True)
    )
    assert coarser(few, 100) is few


def _spread(shapes: tuple[Shape, ...]) -> list[Shape]:
    return [shape for shape in sorted(shapes) for _ in range(shape.count)]
