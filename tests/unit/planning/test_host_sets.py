"""Hosts are exact: what fits, what comes back when, and where busy work of a histogram is laid."""

import random

from federator.model.capacity import Shape
from federator.model.snapshot import BusyView, PoolView
from federator.planning.places.host_sets import Host, HostSet, Release
from tests.support.worlds import HOUR, NOW, a_lease, a_pool, busy

NEED = (2, 1000, 1024)


def test_a_rank_needs_one_host_that_has_all_of_it() -> None:
    assert Host(4, 64_000, 2048).ranks(NEED) == 2
    assert Host(4, 500, 262_144).ranks(NEED) == 0
    assert Host(0, 64_000, 262_144).ranks((0, 1000, 1024)) == 64


def test_taking_fills_the_fullest_host_first_and_undoes() -> None:
    host_set = HostSet([Host(4, 64_000, 262_144), Host(2, 64_000, 262_144)])
    hosts = host_set.take(NEED, 1)
    assert hosts == (1,)
    assert host_set.take(NEED, 3) is None
    assert [host.gpus for host in host_set.hosts] == [4, 0]
    host_set.untake(NEED, hosts)
    assert [host.gpus for host in host_set.hosts] == [4, 2]


def test_cpu_work_leaves_free_gpus_alone_where_it_can() -> None:
    host_set = HostSet([Host(4, 64_000, 262_144), Host(0, 64_000, 262_144)])
    assert host_set.take((0, 8000, 1024), 1) == (1,)


def test_busy_work_gives_back_what_it_holds_at_its_end() -> None:
    running = busy("p", "j", gpus=2, cpus_milli=1000, memory_mib=1024)
    host_set = HostSet.of_pool(a_pool(nodes=1, busy=(running,), free=(Shape(2, 63_000, 261_120),)), NOW)
    assert host_set.earliest((4, 1000, 1024), 1) == NOW + HOUR
    assert host_set.earliest((2, 1000, 1024), 1) == 0.0
    host_set.advance(NOW + HOUR)
    assert host_set.hosts[0] == Host(4, 64_000, 262_144)


def test_two_pieces_on_two_hosts_are_not_laid_on_one() -> None:
    works = tuple(
        busy(f"p{n}", f"j{n}", gpus=4, cpus_milli=1000, memory_mib=1024, ends_at=NOW + n * HOUR)
        for n in (1, 2)
    )
    host_set = HostSet.of_pool(a_pool(busy=works, free=(Shape(0, 63_000, 261_120, count=2),)), NOW)
    assert host_set.earliest(NEED, 2) == NOW + HOUR
    assert host_set.earliest((4, 1000, 1024), 2) == NOW + 2 * HOUR


def test_busy_work_is_laid_on_the_host_that_it_fills_best_and_else_on_the_fullest() -> None:
    """As the rule says it, host by host, whatever is in use and whatever was reported."""
    for seed in range(200):
        chance = random.Random(seed)
        free = tuple(
            Shape(chance.randint(0, 4), 1000 * chance.randint(0, 4), 1024 * chance.randint(0, 4))
            for _ in range(chance.randint(1, 6))
        )
        works = tuple(
            BusyView(
                nodes=chance.randint(1, 3),
                gpus=4 - number // 3,
                cpus_milli=1000 * chance.randint(0, 2),
                memory_mib=1024 * chance.randint(0, 2),
                ends_at=NOW + (number + 1) * HOUR,
            )
            for number in range(9)
        )
        pool = a_pool(
            nodes=len(free), cpus_milli_per_node=4000, memory_mib_per_node=4096, busy=works, free=free
        )
        laid = [(release.at, release.need, release.hosts) for release in HostSet.of_pool(pool, NOW).releases]
        assert laid == by_the_rule(pool), f"seed {seed}"


def by_the_rule(pool: PoolView) -> list[tuple[float, tuple[int, ...], tuple[int, ...]]]:
    """Largest ranks first, each where what is in use is closest above what it needs; failing that, where most is."""
    used = [
        [4 - host.gpus, 4000 - host.cpus_milli, 4096 - host.memory_mib] for host in sorted(pool.free)[::-1]
    ]
    laid = []
    for work in sorted(pool.busy, key=lambda busy: (-busy.gpus, -busy.cpus_milli)):
        need = work.gpus, work.cpus_milli, work.memory_mib
        for _ in range(work.nodes):
            holding = [n for n, has in enumerate(used) if all(h >= w for h, w in zip(has, need, strict=True))]
            best = min(holding, key=lambda n: (*used[n][:2], n), default=None)
            host = max(range(len(used)), key=lambda n: (*used[n][:2], -n)) if best is None else best
            given = tuple(map(min, need, used[host]))
            used[host] = [has - part for has, part in zip(used[host], given, strict=True)]
            laid.append((work.ends_at, given, (host,)))
    return sorted(laid, key=lambda release: release[0])


def test_what_a_site_keeps_for_itself_never_comes_back() -> None:
    host_set = HostSet.of_pool(a_pool(nodes=1, free=(Shape(2, 63_000, 261_120),)), NOW)
    assert host_set.earliest((4, 1000, 1024), 1) is None


def test_hosts_that_a_report_leaves_out_are_full() -> None:
    local = BusyView(nodes=1, gpus=4, cpus_milli=64_000, memory_mib=262_144, ends_at=NOW + HOUR)
    host_set = HostSet.of_pool(a_pool(nodes=2, busy=(local,), free=(Shape(4, 64_000, 262_144),)), NOW)
    assert len(host_set.hosts) == 2
    assert host_set.earliest((4, 1000, 1024), 2) == NOW + HOUR


def test_a_booting_lease_has_room_when_it_is_ready() -> None:
    host_set = HostSet.of_pool(a_lease(ready_at=NOW + 300, free=()), NOW)
    assert not host_set.fits(NEED, 1)
    assert host_set.earliest(NEED, 2) == NOW + 300


def test_a_booting_lease_keeps_the_part_of_the_job_it_was_rented_for() -> None:
    mine = busy("p", "j", gpus=3, cpus_milli=1000, memory_mib=1024, ends_at=NOW + HOUR)
    host_set = HostSet.of_pool(
        a_lease(ready_at=NOW + 300, busy=(mine,), free=(Shape(1, 63_000, 261_120),)), NOW
    )
    assert host_set.earliest((1, 1000, 1024), 1) == NOW + 300
    assert host_set.earliest((2, 1000, 1024), 1) == NOW + HOUR


def test_releases_come_in_order_and_only_when_due() -> None:
    host_set = HostSet([Host(0, 0, 0)], [Release(20.0, 1, NEED, (0,)), Release(10.0, 2, NEED, (0,))])
    assert [release.at for release in host_set.advance(15.0)] == [10.0]
    assert host_set.hosts[0].gpus == 2


def test_what_comes_back_later_is_counted_host_by_host() -> None:
    """Two halves of a host make a whole one, wherever other hosts have halves free."""
    releases = [Release(10.0, 1, (2, 0, 0), (0,)), Release(20.0, 2, (2, 0, 0), (1,))]
    host_set = HostSet([Host(1, 0, 0), Host(2, 0, 0)], releases)
    assert host_set.earliest((4, 0, 0), 1) == 20.0
    assert host_set.earliest((3, 0, 0), 2) == 20.0
    assert host_set.earliest((3, 0, 0), 1) == 10.0
    assert host_set.earliest((4, 0, 0), 2) is None
    assert host_set.hosts == [Host(1, 0, 0), Host(2, 0, 0)]


# -- Several members ---------------------------------------------------------------------------------------------------


def farm(*free: int, **fields: object) -> HostSet:
    """Members of one host of eight GPUs each, of which so many are free."""
    hosts = [Host(gpus, 64_000, 262_144) for gpus in free]
    return HostSet(hosts, members=range(len(hosts)), **fields)  # type: ignore[arg-type]


def over(host_set: HostSet, need: int, ranks: int) -> list[int] | None:
    hosts = host_set.choose((need, 1000, 1024), ranks)
    return None if hosts is None else [host_set.members[host] for host in hosts]


def test_a_gang_stays_on_the_member_that_it_fills_best() -> None:
    assert over(farm(8, 4, 6), 2, 2) == [1, 1]
    assert over(farm(8, 4, 6), 2, 3) == [2, 2, 2]
    assert over(farm(8, 4, 6), 2, 4) == [0, 0, 0, 0]


def test_a_gang_that_no_member_holds_lies_over_as_few_as_possible_with_ranks_of_one_in_a_row() -> None:
    assert over(farm(4, 8, 2, 8), 2, 5) == [1, 1, 1, 1, 2]
    assert over(farm(4, 8, 2, 8), 2, 8) == [1, 1, 1, 1, 3, 3, 3, 3]
    assert over(farm(4, 8, 2, 8), 8, 2) == [1, 3]
    assert over(farm(4, 8, 2, 8), 8, 3) is None


def test_a_single_rank_goes_on_the_host_that_it_fills_best_whose_ever_it_is() -> None:
    assert over(farm(8, 4, 6), 2, 1) == [1]
    assert over(farm(8, 4, 6), 5, 1) == [2]
    assert over(farm(8, 4, 6), 9, 1) is None


def test_hosts_may_be_left_out() -> None:
    host_set = farm(8, 4, 6)
    assert host_set.choose((2, 0, 0), 1, lambda host: host != 1) == (2,)
    assert host_set.choose((2, 0, 0), 3, lambda host: host == 0) == (0, 0, 0)
    assert host_set.choose((2, 0, 0), 5, lambda host: host == 0) is None


def test_pools_of_several_members_are_one_host_set_with_hosts_of_each() -> None:
    mine = busy("p", "j", gpus=4, cpus_milli=1000, memory_mib=1024)
    first = a_pool(busy=(mine,), free=(Shape(0, 63_000, 261_120), Shape(4, 64_000, 262_144)))
    late = a_pool(member="home-2", nodes=1, busy=(mine,), free=(Shape(0, 63_000, 261_120),))
    host_set = HostSet.of_pools((first, late), NOW)
    assert [(host.gpus, member) for host, member in zip(host_set.hosts, host_set.members, strict=True)] == [
        (4, 0),
        (0, 0),
        (0, 1),
    ]
    assert [release.hosts for release in host_set.releases] == [(1,), (2,)]
    assert len({release.number for release in host_set.releases}) == 2
    assert host_set.earliest((4, 1000, 1024), 3) == NOW + HOUR


def test_a_member_that_is_shut_has_no_room_and_its_work_still_ends() -> None:
    work = busy("p", "j", gpus=4, cpus_milli=1000, memory_mib=1024)
    shut = a_pool(
        member="home-2", busy=(work,), free=(Shape(0, 63_000, 261_120), Shape(4, 64_000, 262_144)), open=False
    )
    host_set = HostSet.of_pools((a_pool(nodes=1),), NOW, (shut,))
    assert host_set.earliest((4, 1000, 1024), 2) is None
    (release,) = host_set.advance(NOW + HOUR)
    assert release.payload is work
    assert host_set.room_for((4, 1000, 1024)) == 1


def test_a_copy_is_independent() -> None:
    host_set = HostSet([Host(4, 64_000, 262_144)], [Release(10.0, 1, NEED, (0,))])
    copy = host_set.copy()
    copy.take(NEED, 1)
    copy.advance(10.0)
    assert host_set.hosts[0].gpus == 4
    assert len(host_set.releases) == 1


def test_as_many_gangs_of_ranks_apart_fit_as_can_be_put_one_after_the_other() -> None:
    """Nothing is counted one by one: of what asks for nothing a million fit."""
    dice = random.Random(7)
    for _ in range(200):
        hosts = [Host(dice.randint(0, 8), 64_000, 65_536) for _ in range(dice.randint(0, 6))]
        ranks = dice.randint(2, 4)
        found = HostSet(hosts, ()).gangs((1, 0, 0, 1), ranks)
        left = sorted(host.gpus for host in hosts)
        for _ in range(found):  # the fullest last, so that the emptiest give a rank each
            left = sorted([*left[:-ranks], *(gpus - 1 for gpus in left[-ranks:])])
        assert not left or left[0] >= 0
        assert len(left) < ranks or left[-ranks] <= 0
    assert HostSet([Host(0, 0, 0)] * 3, ()).gangs((0, 0, 0, 1), 3) == Host(0, 0, 0).ranks((0, 0, 0))
