"""Hosts are exact: what fits, what comes back when, and where busy work of a histogram is laid."""

from federator.model.capacity import Shape
from federator.model.snapshot import BusyView
from federator.planning.yard import Hold, Host, Lot, Release, need_of
from tests.support.worlds import HOUR, NOW, a_job, a_lease, a_pool, busy

NEED = (2, 1000, 1024)


def test_a_rank_needs_one_host_that_has_all_of_it() -> None:
    assert Host(4, 64_000, 2048).ranks(NEED) == 2
    assert Host(4, 500, 262_144).ranks(NEED) == 0
    assert Host(0, 64_000, 262_144).ranks((0, 1000, 1024)) == 64


def test_taking_fills_the_fullest_host_first_and_undoes() -> None:
    lot = Lot([Host(4, 64_000, 262_144), Host(2, 64_000, 262_144)])
    hosts = lot.take(NEED, 1)
    assert hosts == (1,)
    assert lot.take(NEED, 3) is None
    assert [host.gpus for host in lot.hosts] == [4, 0]
    lot.untake(NEED, hosts)
    assert [host.gpus for host in lot.hosts] == [4, 2]


def test_cpu_work_leaves_free_gpus_alone_where_it_can() -> None:
    lot = Lot([Host(4, 64_000, 262_144), Host(0, 64_000, 262_144)])
    assert lot.take((0, 8000, 1024), 1) == (1,)


def test_busy_work_gives_back_what_it_holds_at_its_end() -> None:
    running = busy("p", "j", gpus=2, cpus_milli=1000, memory_mib=1024)
    lot = Lot.of_pool(a_pool(nodes=1, busy=(running,), free=(Shape(2, 63_000, 261_120),)), NOW)
    assert lot.earliest((4, 1000, 1024), 1) == NOW + HOUR
    assert lot.earliest((2, 1000, 1024), 1) == 0.0
    lot.advance(NOW + HOUR)
    assert lot.hosts[0] == Host(4, 64_000, 262_144)


def test_two_pieces_on_two_hosts_are_not_laid_on_one() -> None:
    works = tuple(
        busy(f"p{n}", f"j{n}", gpus=4, cpus_milli=1000, memory_mib=1024, ends_at=NOW + n * HOUR)
        for n in (1, 2)
    )
    lot = Lot.of_pool(a_pool(busy=works, free=(Shape(0, 63_000, 261_120, count=2),)), NOW)
    assert lot.earliest(NEED, 2) == NOW + HOUR
    assert lot.earliest((4, 1000, 1024), 2) == NOW + 2 * HOUR


def test_what_a_site_keeps_for_itself_never_comes_back() -> None:
    lot = Lot.of_pool(a_pool(nodes=1, free=(Shape(2, 63_000, 261_120),)), NOW)
    assert lot.earliest((4, 1000, 1024), 1) is None


def test_hosts_that_a_report_leaves_out_are_full() -> None:
    local = BusyView(nodes=1, gpus=4, cpus_milli=64_000, memory_mib=262_144, ends_at=NOW + HOUR)
    lot = Lot.of_pool(a_pool(nodes=2, busy=(local,), free=(Shape(4, 64_000, 262_144),)), NOW)
    assert len(lot.hosts) == 2
    assert lot.earliest((4, 1000, 1024), 2) == NOW + HOUR


def test_a_booting_lease_has_room_when_it_is_ready() -> None:
    lot = Lot.of_pool(a_lease(ready_at=NOW + 300, free=()), NOW)
    assert not lot.fits(NEED, 1)
    assert lot.earliest(NEED, 2) == NOW + 300


def test_a_booting_lease_keeps_the_part_of_the_job_it_was_rented_for() -> None:
    mine = busy("p", "j", gpus=3, cpus_milli=1000, memory_mib=1024, ends_at=NOW + HOUR)
    lot = Lot.of_pool(a_lease(ready_at=NOW + 300, busy=(mine,), free=(Shape(1, 63_000, 261_120),)), NOW)
    assert lot.earliest((1, 1000, 1024), 1) == NOW + 300
    assert lot.earliest((2, 1000, 1024), 1) == NOW + HOUR


def test_releases_come_in_order_and_only_when_due() -> None:
    lot = Lot([Host(0, 0, 0)], [Release(20.0, 1, NEED, (0,)), Release(10.0, 2, NEED, (0,))])
    assert [release.at for release in lot.advance(15.0)] == [10.0]
    assert lot.hosts[0].gpus == 2


def test_a_copy_is_independent() -> None:
    lot = Lot([Host(4, 64_000, 262_144)], [Release(10.0, 1, NEED, (0,))])
    copy = lot.copy()
    copy.take(NEED, 1)
    copy.advance(10.0)
    assert lot.hosts[0].gpus == 4
    assert len(lot.releases) == 1


def test_a_hold_survives_what_leaves_the_gang_enough() -> None:
    gang = a_job("gang", nodes=2, gpus=4)
    hold = Hold(gang, 0, NOW + HOUR, Lot([Host(4, 64_000, 262_144) for _ in range(3)]))
    assert hold.survives(NEED, (0,))
    hold.suffer(NEED, (0,))
    assert hold.survives(NEED, (0,))
    assert not hold.survives(NEED, (1,))
    assert need_of(gang) == (4, 1000, 1024)
