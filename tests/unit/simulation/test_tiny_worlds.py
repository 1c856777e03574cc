"""Simulations of a handful of jobs, against what one computes by hand."""

import msgspec
import pytest

from federator.kernel.errors import Invalid
from federator.model.capacity import Market
from federator.simulation.accounting import figures
from federator.simulation.clouds import OfferRisk
from federator.simulation.federation import SimulatedFederation
from federator.simulation.virtual_time import VirtualLoop
from tests.lab.schedulers import scheduler
from tests.unit.simulation.tiny import (
    HOUR_S,
    OFFER,
    TURN_S,
    job,
    renting_world,
    row,
    run,
    site,
    slow,
    world,
)

EVERY = ("ours", "greedy", "fifo", "random", "threshold", "race")


@pytest.mark.parametrize("by", EVERY)
def test_a_job_alone_starts_at_once_and_runs_for_as_long_as_it_takes(by: str) -> None:
    found = row(run(world(), job("one", submit_s=500.0, run_s=1234.5), by=by), "one")
    assert (found.site, found.pool, found.market, found.gpus) == ("lab", "main", "owned", 1)
    assert found.submit_s == 500.0
    assert found.start_s == pytest.approx(500.0, abs=TURN_S)
    assert found.start_s is not None
    assert found.end_s is not None
    assert found.end_s - found.start_s == pytest.approx(1234.5, abs=0.1)
    assert found.outcome == "succeeded"


@pytest.mark.parametrize("by", EVERY)
def test_the_fifth_job_of_four_gpus_waits_for_the_first_end(by: str) -> None:
    jobs = [job(f"j{n}", run_s=HOUR_S) for n in range(5)]
    outcome = run(world(), *jobs, by=by)
    starts = sorted(attempt.start_s or 0.0 for attempt in outcome.schedule.attempts)
    assert starts[:4] == pytest.approx([0.0] * 4, abs=TURN_S)
    assert starts[4] == pytest.approx(HOUR_S, abs=2 * TURN_S)


def test_a_gang_needs_whole_hosts_and_smaller_work_goes_before_it() -> None:
    """Two hosts of four. One has a job of an hour: a gang of two hosts waits for it, and a small job is backfilled."""
    jobs = [job("first", run_s=HOUR_S), job("gang", 100.0, nodes=2, gpus=4), job("small", 200.0)]
    outcome = run(world(site("lab", nodes=2)), *jobs)
    assert row(outcome, "gang").start_s == pytest.approx(200.0 + HOUR_S, abs=3 * TURN_S)
    assert row(outcome, "small").start_s == pytest.approx(200.0, abs=2 * TURN_S)


def test_speed_divides_run_times() -> None:
    fast = world(site("lab", model="H100"), speeds={"A100": 1.0, "H100": 2.0})
    found = row(run(fast, job("one", run_s=3000.0)), "one")
    assert found.end_s is not None
    assert found.end_s == pytest.approx((found.start_s or 0.0) + 1500.0, abs=0.1)


def test_staging_and_latency_come_before_the_start() -> None:
    """Welcome, desired set and statuses each cross the link; the report that frees the GPUs does, too."""
    quick, late = run(world(), job("one")), run(slow(world(), latency_s=2.0, staging_s=300.0), job("one"))
    delay_s = (row(late, "one").start_s or 0.0) - (row(quick, "one").start_s or 0.0)
    assert delay_s == pytest.approx(302.0, abs=TURN_S)


def test_isolated_jobs_stay_at_home_and_the_federation_does_not() -> None:
    jobs = [job(f"j{n}", home="a", gpus=4, run_s=HOUR_S) for n in range(2)]
    both = world(site("a"), site("b"))
    alone, together = run(both, *jobs, by="isolated"), run(both, *jobs, by="fifo")
    assert {attempt.site for attempt in alone.schedule.attempts} == {"a"}
    assert {attempt.site for attempt in together.schedule.attempts} == {"a", "b"}
    assert figures(alone, both, jobs).wait_mean_s == pytest.approx(HOUR_S / 2, abs=TURN_S)
    assert figures(together, both, jobs).wait_mean_s == pytest.approx(0.0, abs=TURN_S)


def test_fifo_goes_by_arrival_and_threshold_by_deadline() -> None:
    jobs = [
        job("running", run_s=HOUR_S, gpus=4),
        job("early", 100.0, gpus=4, deadline_s=50 * HOUR_S),
        job("urgent", 200.0, gpus=4, deadline_s=3 * HOUR_S),
    ]
    by_arrival, by_deadline = run(world(), *jobs, by="fifo"), run(world(), *jobs, by="threshold")
    assert (row(by_arrival, "early").start_s or 0.0) < (row(by_arrival, "urgent").start_s or 0.0)
    assert (row(by_deadline, "urgent").start_s or 0.0) < (row(by_deadline, "early").start_s or 0.0)


def test_a_baseline_rents_after_half_an_hour_and_pays_boot_run_idle_and_teardown() -> None:
    """The site is full for two hours. After 30 min a machine is rented: 10 min of boot, an hour of work, 5 min idle, a minute of teardown."""
    jobs = [job("long", run_s=2 * HOUR_S, gpus=4), job("next", 60.0, gpus=4, run_s=HOUR_S)]
    where = renting_world()
    outcome = run(where, *jobs, by="fifo")
    found, (lease,) = row(outcome, "next"), outcome.schedule.leases
    assert (found.site, found.market) == ("rented", "on-demand")
    assert lease.requested_s == pytest.approx(60.0 + 1800.0, abs=2 * TURN_S)
    assert found.start_s == pytest.approx(lease.requested_s + OFFER.delay_s, abs=2 * TURN_S)
    assert found.price_usd == pytest.approx(10.0, abs=0.01)  # four GPUs for an hour
    lived_s = OFFER.delay_s + HOUR_S + 300.0 + OFFER.teardown_s
    assert lease.cost_usd == pytest.approx(10.0 * lived_s / 3600.0, abs=10.0 * 5 * TURN_S / 3600.0)
    assert figures(outcome, where, jobs).rented_usd == lease.cost_usd


def test_ours_rents_only_for_a_deadline_that_home_would_miss() -> None:
    full = job("long", run_s=4 * HOUR_S, gpus=4)
    due = job("due", 60.0, gpus=4, deadline_s=3 * HOUR_S, value_usd=500.0)
    patient = msgspec.structs.replace(due, deadline_s=30 * HOUR_S)
    assert row(run(renting_world(), full, due, by="ours"), "due").site == "rented"
    late = run(renting_world(), full, patient, by="ours")
    assert row(late, "due").site == "lab"
    assert not late.schedule.leases


def test_a_gang_that_no_machine_holds_is_rented_several() -> None:
    found = run(
        renting_world(), job("gang", nodes=2, gpus=4, deadline_s=2 * HOUR_S, value_usd=1000.0), by="ours"
    )
    gang = row(found, "gang")
    assert (gang.site, gang.nodes, gang.gpus, gang.price_usd, gang.outcome) == (
        "rented",
        2,
        8,
        20.0,
        "succeeded",
    )


def test_nobody_rents_where_no_policy_permits_it_and_isolated_never_does() -> None:
    jobs = [job("long", run_s=4 * HOUR_S, gpus=4, home="lab"), job("next", 60.0, gpus=4, home="lab")]
    assert not run(msgspec.structs.replace(renting_world(), policies=""), *jobs).schedule.leases
    assert not run(renting_world(), *jobs, by="isolated").schedule.leases


def test_a_spot_machine_that_is_taken_back_costs_an_attempt_and_the_job_ends_well_elsewhere() -> None:
    spot = msgspec.structs.replace(OFFER, market=Market.SPOT, price_usd_h=4.0)
    jobs = [job("long", run_s=30 * HOUR_S, gpus=4), job("next", 60.0, gpus=4, run_s=5 * HOUR_S)]
    outcome = run(renting_world(spot, OfferRisk(interruptions_h=0.5)), *jobs, by="fifo", seed=3)
    attempts = [attempt for attempt in outcome.schedule.attempts if attempt.job == "next"]
    assert attempts[-1].outcome == "succeeded"
    assert len(attempts) > 1
    assert all(attempt.outcome != "succeeded" for attempt in attempts[:-1])
    assert len(outcome.schedule.leases) >= len(attempts) - 1


def test_an_offer_that_is_always_sold_out_rents_nothing() -> None:
    jobs = [job("long", run_s=3 * HOUR_S, gpus=4), job("next", 60.0, gpus=4)]
    outcome = run(renting_world(risk=OfferRisk(sold_out=1.0)), *jobs, by="fifo")
    assert row(outcome, "long").outcome == "succeeded"
    last = outcome.schedule.attempts[-1]
    assert (last.job, last.site, last.outcome) == ("next", "lab", "succeeded")
    assert all(lease.cost_usd == 0.0 for lease in outcome.schedule.leases)


def test_what_can_never_run_is_in_the_schedule_too_and_counts_as_missed() -> None:
    jobs = [job("fits"), job("huge", gpus=8, deadline_s=HOUR_S)]
    outcome = run(world(), *jobs)
    found = row(outcome, "huge")
    assert (found.outcome, found.start_s, found.end_s) == ("waiting", None, None)
    counted = figures(outcome, world(), jobs)
    assert (counted.jobs, counted.finished, counted.deadlines, counted.missed) == (2, 1, 1, 1)


@pytest.mark.parametrize(
    ("name", "ours"), [("ours", True), ("greedy", True), ("fifo", False), ("random", False)]
)
def test_short_cuts_are_taken_for_our_own_order_only(name: str, *, ours: bool) -> None:
    """A window on a long line is chosen by our order, and the fast path starts work by it: neither is a baseline's."""
    loop = VirtualLoop()
    core = SimulatedFederation(world(), scheduler(name), loop, 0).core
    loop.close()
    assert core.settings.turn.fast_path is core.settings.turn.window is ours
    assert core.turn.observer.line.whole is not ours


def test_a_random_job_is_bound_to_a_site_that_could_run_it_and_stays_there() -> None:
    jobs = [job(f"j{n}", gpus=4, run_s=HOUR_S) for n in range(8)]
    where = world(site("a"), site("b"), site("small", gpus=2))
    outcome = run(where, *jobs, by="random")
    by_site = {name: [a for a in outcome.schedule.attempts if a.site == name] for name in ("a", "b", "small")}
    assert not by_site["small"]
    assert by_site["a"]
    assert by_site["b"]
    ends = {name: max(a.end_s or 0.0 for a in rows) for name, rows in by_site.items() if rows}
    for name, rows in by_site.items():
        assert not rows or ends[name] == pytest.approx(HOUR_S * len(rows), abs=10 * TURN_S)


def test_isolated_wants_homes() -> None:
    with pytest.raises(Invalid, match="no home"):
        run(world(), job("one"), by="isolated")
