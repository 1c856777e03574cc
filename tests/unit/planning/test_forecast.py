"""Run times with their margin, and when work at home starts and ends: on exact hosts, with expected ends, limits and order."""

import math
from typing import Any

import pytest
from msgspec.structs import replace

from federator.model.capacity import Shape
from federator.model.rules import CapRow, CapUnit, Scope
from federator.model.snapshot import BusyView, PoolView
from federator.planning.scheduling import list_schedule
from federator.planning.scheduling.forecast import (
    RUNTIME_MARGIN,
    UNKNOWN,
    home_forecast_of,
    in_words,
    leaning,
    outlasting,
    runtime_quantiles,
)
from federator.planning.world.problem import World
from tests.support.worlds import HOUR, NOW, a_job, a_lease, a_pool, a_world, an_offer, bursting, busy


def one_host(**fields: Any) -> PoolView:
    """A host of four GPUs that frees in an hour."""
    running = busy("p", "j", gpus=4, cpus_milli=1000, memory_mib=1024)
    given: dict[str, Any] = {"nodes": 1, "busy": (running,), "free": (Shape(0, 63_000, 261_120),)} | fields
    return a_pool(**given)


def test_the_users_estimate_goes_before_history_and_history_before_the_default() -> None:
    assert runtime_quantiles(1000.0, [5.0, 5.0]).run_s == pytest.approx(1000.0 * RUNTIME_MARGIN)
    assert runtime_quantiles(None, [100.0, 300.0, 200.0]).run_s == pytest.approx(200.0 * RUNTIME_MARGIN)
    assert runtime_quantiles(None).run_s == pytest.approx(HOUR * RUNTIME_MARGIN)
    assert RUNTIME_MARGIN == 1.35


def test_the_range_shown_holds_what_is_planned_with() -> None:
    for found in (
        runtime_quantiles(1000.0),
        runtime_quantiles(None, [10.0] * 9 + [500.0]),
        runtime_quantiles(None),
    ):
        assert found.low_s <= found.run_s <= found.high_s


def test_old_runs_are_forgotten() -> None:
    assert runtime_quantiles(None, [9000.0] * 50 + [100.0] * 20).run_s == 100.0 * RUNTIME_MARGIN


def test_what_runs_of_a_name_took_corrects_the_estimates_of_its_namesakes() -> None:
    twice = math.log(2.0)
    assert runtime_quantiles(1000.0, errors=leaning([])).run_s == pytest.approx(1350.0)
    one, ten = (runtime_quantiles(1000.0, errors=leaning([twice] * runs)) for runs in (1, 10))
    assert 1350.0 < one.run_s < 2600.0
    assert 1950.0 < ten.run_s < 2400.0, "after ten runs of twice the estimate, a little more than twice"
    assert ten.high_s / ten.low_s < one.high_s / one.low_s < 2.8, "and the range is narrower for each of them"
    said = in_words(1000.0, [], None, leaning([twice] * 10))
    assert said.endswith(": its estimate × 1.99, by 10 runs of that name, and a margin")
    assert in_words(None, [600.0], 700.0, UNKNOWN).endswith(
        "max_duration of 11m40s: the median of 1 run × 1.35"
    )


def test_runs_of_a_name_that_differ_leave_a_wide_range() -> None:
    alike = leaning([0.3] * 12)
    unlike = leaning([-0.5, 1.1] * 6)
    assert alike.spread < 0.2
    assert unlike.spread > 0.6
    assert unlike.shift == pytest.approx(0.27, abs=0.05)


def test_an_owner_whose_estimates_are_short_is_planned_with_more_time_for_new_names_too() -> None:
    short = leaning([], [0.5] * 20)
    assert 0.25 < short.shift < 0.5
    assert leaning([], [0.5]).shift < 0.1, "but one name says little"
    assert leaning([-0.1] * 10, [0.5] * 20).shift < 0.0, "and what a name does itself counts for more"


def test_a_namesake_that_still_runs_rules_out_shorter_runs() -> None:
    assert outlasting(UNKNOWN, -2.0).shift == pytest.approx(0.0, abs=1e-3)
    known = UNKNOWN
    for least in (0.0, 0.5, 1.0, 3.0):
        before, known = known, outlasting(UNKNOWN, least)
        assert known.shift >= max(least, before.shift)
        assert 0.0 < known.spread < before.spread


def test_nothing_is_planned_beyond_the_jobs_own_limit() -> None:
    assert runtime_quantiles(1000.0, limit_s=1200.0).run_s == 1200.0


def test_a_job_starts_when_busy_work_is_expected_to_end() -> None:
    found = home_forecast_of(a_world([a_job("one", gpus=4)], [one_host()]))["one"]
    assert (found.start_at, found.finish_at) == (NOW + HOUR, NOW + 2 * HOUR)
    assert found.place == "home/home-1/gpu"


def test_work_that_is_overdue_is_expected_to_end_a_little_later() -> None:
    overdue = busy(
        "p", "j", gpus=4, cpus_milli=1000, memory_mib=1024, ends_at=NOW - 600, started_at=NOW - 20_000
    )
    found = home_forecast_of(a_world([a_job("one")], [one_host(busy=(overdue,))]))["one"]
    assert found.start_at == NOW + 2000


def test_jobs_take_their_turns_one_after_the_other() -> None:
    jobs = [a_job(f"job-{n}", gpus=4, submitted_at=NOW - 100 + n) for n in range(3)]
    found = home_forecast_of(a_world(jobs, [one_host()]))
    assert [round((found[job.id].start_at - NOW) / HOUR) for job in jobs] == [1, 2, 3]


def test_speed_shortens_the_run() -> None:
    found = home_forecast_of(a_world([a_job("one", speed={"A100": 2.0})], [a_pool()]))["one"]
    assert found.finish_at == NOW + HOUR / 2


def test_a_gang_waits_until_hosts_not_totals_hold_it() -> None:
    ends = [
        busy(f"p{n}", f"j{n}", gpus=2, cpus_milli=1000, memory_mib=1024, ends_at=NOW + (n + 1) * HOUR)
        for n in range(4)
    ]
    pool = a_pool(nodes=4, busy=tuple(ends), free=(Shape(2, 63_000, 261_120, count=4),))
    found = home_forecast_of(a_world([a_job("gang", nodes=2, gpus=4)], [pool]))["gang"]
    assert found.start_at == NOW + 2 * HOUR


def test_leases_and_offers_are_not_home() -> None:
    world = a_world(
        [a_job("one", gpus=4, deadline_at=NOW + HOUR)], [one_host(), a_lease()], [an_offer()], [bursting()]
    )
    assert home_forecast_of(world)["one"].start_at == NOW + HOUR


def test_a_job_that_can_never_run_at_home_has_no_forecast() -> None:
    assert home_forecast_of(a_world([a_job("one", models=("H100",))], [a_pool()])) == {}


def test_a_queue_limit_makes_jobs_wait_for_each_other() -> None:
    jobs = [a_job(f"job-{n}", queue="batch", submitted_at=NOW - 100 + n) for n in range(3)]
    cap = CapRow("q", CapUnit.GPUS, 1.0, scope=Scope(queues=("batch",)))
    found = home_forecast_of(a_world(jobs, [a_pool()], rules=[cap]))
    assert [round((found[job.id].start_at - NOW) / HOUR) for job in jobs] == [0, 1, 2]


def test_running_work_of_a_capped_queue_counts_until_it_ends() -> None:
    running = busy("p", "j", gpus=2, cpus_milli=1000, memory_mib=1024)
    pool = a_pool(nodes=1, busy=(running,), free=(Shape(2, 63_000, 261_120),))
    cap = CapRow("q", CapUnit.JOBS, 1.0, scope=Scope(queues=("batch",)))
    found = home_forecast_of(a_world([a_job("one", queue="batch")], [pool], rules=[cap]))["one"]
    assert found.start_at == NOW + HOUR


def test_a_backoff_is_waited_out() -> None:
    found = home_forecast_of(a_world([a_job("one", not_before_at=NOW + 500)], [a_pool()]))["one"]
    assert found.start_at == NOW + 500


def test_beyond_the_work_limit_every_job_still_has_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [a_job(f"job-{n}", run_s=100.0 + n) for n in range(60)]
    world = World(a_world(jobs, [a_pool()]))
    exact = list_schedule.ListSchedule(world, None, {})
    monkeypatch.setattr(list_schedule, "ATTEMPTS", 20)
    rough = list_schedule.ListSchedule(world, None, {})
    assert rough.attempts < exact.attempts
    assert set(rough.bookings()) == set(exact.bookings())
    assert not all(booking.exact for booking in rough.bookings().values())


def test_backfill_may_use_what_a_gang_leaves_over() -> None:
    """The gang needs both hosts from the hour on; a job of one host that outlasts the hour must not have either."""
    running = busy("p", "j", gpus=4, cpus_milli=1000, memory_mib=1024)
    pool = a_pool(busy=(running,), free=(Shape(4, 64_000, 262_144), Shape(0, 63_000, 261_120)))
    gang = a_job("gang", nodes=2, gpus=4, priority=90)
    long, short = a_job("long", run_s=2 * HOUR), a_job("short", run_s=HOUR / 2)
    found = home_forecast_of(a_world([gang, long, short], [pool]))
    assert found["gang"].start_at == NOW + HOUR
    assert found["short"].start_at == NOW
    assert found["long"].start_at >= NOW + HOUR


def test_a_hold_ends_when_its_time_has_come_and_a_cap_still_stops_the_gang() -> None:
    def running(name: str, hours: float) -> BusyView:
        return busy(
            name,
            f"j{name}",
            gpus=2,
            cpus_milli=1000,
            memory_mib=1024,
            ends_at=NOW + hours * HOUR,
            queue="batch",
        )

    half = (Shape(2, 63_000, 261_120),)
    pools = [
        a_pool(nodes=1, busy=(running("p1", 1),), free=half),
        a_pool("far", nodes=1, busy=(running("p2", 3),), free=()),
    ]
    cap = CapRow("q", CapUnit.GPUS, 4.0, scope=Scope(queues=("batch",)))
    gang = a_job("gang", gpus=4, queue="batch", priority=90, not_sites=("far",))
    other = a_job("other", gpus=2, run_s=5 * HOUR, not_sites=("far",))
    found = home_forecast_of(a_world([gang, other], pools, rules=[cap]))
    assert found["other"].start_at == NOW + HOUR


def test_without_the_gang_nothing_is_held() -> None:
    pool = one_host(
        free=(Shape(1, 63_000, 261_120),), busy=(busy("p", "j", gpus=3, cpus_milli=1000, memory_mib=1024),)
    )
    found = home_forecast_of(a_world([a_job("long", run_s=2 * HOUR)], [pool]))
    assert found["long"].start_at == NOW


def test_the_forecast_does_not_depend_on_the_order_of_the_snapshot() -> None:
    jobs = [a_job(f"job-{n}", gpus=1 + n % 4, run_s=600.0 * (n + 1)) for n in range(9)]
    problem = a_world(jobs, [a_pool(), a_pool("other", nodes=1)])
    mixed = replace(
        problem,
        snapshot=replace(problem.snapshot, jobs=tuple(reversed(jobs)), pools=problem.snapshot.pools[::-1]),
    )
    assert home_forecast_of(problem) == home_forecast_of(mixed)
