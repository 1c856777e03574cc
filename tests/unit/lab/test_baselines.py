"""Each baseline does what its definition says, in worlds that one can compute by hand."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from federator.simulation import schedulers as products
from federator.simulation.running import Outcome
from federator.simulation.world import WorldSpec
from tests.lab.schedulers import SCHEDULERS, Race
from tests.unit.simulation.tiny import HOUR_S, OFFER, TURN_S, job, renting_world, row, run, site, world

LATE_S = 2 * TURN_S


def start_s(outcome: Outcome, name: str) -> float:
    found = row(outcome, name).start_s
    assert found is not None
    return found


def listed(*sites: str, **fields: Any) -> WorldSpec:
    """Sites of one host of four GPUs each, listed in this order."""
    return world(*(site(name) for name in sites), **fields)


def test_all_that_the_design_names_are_there() -> None:
    product = {"ours", "greedy", "fifo", "threshold", "isolated"}
    assert set(products.SCHEDULERS) == product
    assert set(SCHEDULERS) == product | {"random", "race", "race-incremental", "starburst"}


def test_fifo_takes_the_first_site_in_the_order_of_the_world() -> None:
    outcome = run(listed("zoo", "art"), job("one", gpus=4), job("two", 60.0, gpus=4))
    assert (row(outcome, "one").site, row(outcome, "two").site) == ("zoo", "art")


def test_threshold_takes_the_cheapest_run_and_not_the_cheapest_hour() -> None:
    """3600 s on an A100 at 0.30 USD cost 0.30; on an H100, twice as fast, at 0.50 they cost 0.25."""
    where = world(
        site("slow", price_usd_gpu_h=0.30),
        site("fast", model="H100", price_usd_gpu_h=0.50),
        site("dear", price_usd_gpu_h=0.90),
        speeds={"A100": 1.0, "H100": 2.0},
    )
    jobs = [job(f"j{n}", float(n), gpus=4) for n in range(3)]
    assert [row(run(where, *jobs, by="threshold"), each.name).site for each in jobs] == [
        "fast",
        "slow",
        "dear",
    ]
    assert [row(run(where, *jobs, by="fifo"), each.name).site for each in jobs] == ["slow", "fast", "dear"]


@pytest.mark.parametrize("by", ["fifo", "random", "threshold"])
def test_whoever_is_patient_rents_after_half_an_hour_and_leaves_others_machines_alone_until_then(
    by: str,
) -> None:
    """`first` has a machine of four GPUs from 60 + 1800 + 600 s on, and uses one of them for three hours. `second` may use it once it has waited, too."""
    jobs = [
        job("full", run_s=9 * HOUR_S, gpus=4),
        job("first", 60.0, run_s=3 * HOUR_S),
        job("second", 2400.0, run_s=600.0),
    ]
    outcome = run(renting_world(), *jobs, by=by)
    (lease,) = outcome.schedule.leases
    assert lease.requested_s == pytest.approx(60.0 + 1800.0, abs=LATE_S)
    assert start_s(outcome, "first") == pytest.approx(lease.requested_s + OFFER.delay_s, abs=LATE_S)
    assert start_s(outcome, "second") == pytest.approx(2400.0 + 1800.0, abs=LATE_S)


def test_in_a_race_a_cloud_takes_part_after_its_boot_and_is_there_then() -> None:
    jobs = [job("full", run_s=9 * HOUR_S, gpus=4), job("next", 60.0, gpus=4)]
    outcome = run(renting_world(), *jobs, by="race")
    (lease,) = outcome.schedule.leases
    assert row(outcome, "next").site == "rented"
    assert start_s(outcome, "next") == pytest.approx(60.0 + OFFER.delay_s, abs=2 * LATE_S)
    lived_s = HOUR_S + 300.0 + OFFER.teardown_s  # no boot: it ran while the others were asked
    assert lease.cost_usd == pytest.approx(10.0 * lived_s / 3600.0, abs=10.0 * 5 * TURN_S / 3600.0)


def test_in_a_race_home_wins_when_it_is_free_before_the_cloud_has_booted() -> None:
    jobs = [job("short", run_s=300.0, gpus=4), job("next", 60.0, gpus=4)]
    outcome = run(renting_world(), *jobs, by="race")
    assert row(outcome, "next").site == "lab"
    assert start_s(outcome, "next") == pytest.approx(300.0, abs=LATE_S)
    assert not outcome.schedule.leases


def test_in_a_race_a_machine_that_is_there_is_open_to_all() -> None:
    """`first` has rented four GPUs and uses one: `second` has one of the others at once."""
    jobs = [job("full", run_s=9 * HOUR_S, gpus=4), job("first", 60.0), job("second", 2400.0, run_s=600.0)]
    outcome = run(renting_world(), *jobs, by="race")
    assert len(outcome.schedule.leases) == 1
    assert start_s(outcome, "second") == pytest.approx(2400.0, abs=LATE_S)


def test_a_race_is_between_sites_however_many_pools_they_have() -> None:
    places = [SimpleNamespace(site=name) for name in ("a", "a", "a", "b")]
    looked_at: Any = SimpleNamespace(places=places)
    one: Any = job("one")
    race = Race(1, listed("a", "b"))
    chosen = Counter(race.choose(one, (0, 1, 2, 3), looked_at) for _ in range(1000))
    assert set(chosen) == {0, 3}
    assert 400 < chosen[3] < 600


def test_a_race_goes_by_priority_before_arrival() -> None:
    jobs = [
        job("full", run_s=HOUR_S, gpus=4),
        job("early", 60.0, gpus=4),
        job("high", 120.0, gpus=4, priority=70),
    ]
    outcome = run(world(), *jobs, by="race")
    assert start_s(outcome, "high") < start_s(outcome, "early")


def test_an_incremental_race_asks_three_more_sites_after_five_minutes() -> None:
    where = listed("e", "d", "c", "b", "a")
    jobs = [job(f"full{n}", gpus=4) for n in range(3)] + [job("next", 60.0, gpus=4)]
    outcome = run(where, *jobs, by="race-incremental")
    assert {row(outcome, f"full{n}").site for n in range(3)} == {"e", "d", "c"}
    assert row(outcome, "next").site in ("b", "a")
    assert start_s(outcome, "next") == pytest.approx(60.0 + 300.0, abs=LATE_S)
    assert start_s(run(where, *jobs, by="race"), "next") == pytest.approx(60.0, abs=LATE_S)


def test_an_incremental_race_asks_the_clouds_last() -> None:
    """Three sites are full; the cloud is the fourth that is listed."""
    where = listed(
        "a", "b", "c", offers=renting_world().offers, cloud_sites={"cloud": "rented"}, policies=renting_world().policies,
    )  # fmt: skip
    jobs = [job(f"full{n}", gpus=4, run_s=3 * HOUR_S) for n in range(3)] + [job("next", 60.0, gpus=4)]
    outcome = run(where, *jobs, by="race-incremental")
    (lease,) = outcome.schedule.leases
    assert lease.requested_s == pytest.approx(60.0 + 300.0 + OFFER.delay_s, abs=LATE_S)
    assert row(outcome, "next").site == "rented"


@pytest.mark.parametrize(
    ("gpus", "hours", "budget_s"),
    [(4, 5.0, 5472.0), (1, 1.0, 273.6), (2, 3.0, 1641.6)],
)
def test_starburst_waits_in_proportion_to_gpu_hours(gpus: int, hours: float, budget_s: float) -> None:
    """0.076 hours for each GPU-hour: 20 GPU-hours may wait for 1.52 hours."""
    jobs = [job("full", run_s=20 * HOUR_S, gpus=4), job("next", 60.0, gpus=gpus, run_s=hours * HOUR_S)]
    outcome = run(renting_world(), *jobs, by="starburst")
    (lease,) = outcome.schedule.leases
    assert lease.requested_s == pytest.approx(60.0 + budget_s, abs=LATE_S)
    assert row(outcome, "next").site == "rented"


def test_starburst_rents_nothing_for_what_fits_within_its_budget() -> None:
    jobs = [job("full", run_s=HOUR_S, gpus=4), job("next", 60.0, gpus=4, run_s=5 * HOUR_S)]
    outcome = run(renting_world(), *jobs, by="starburst")
    assert not outcome.schedule.leases
    assert start_s(outcome, "next") == pytest.approx(HOUR_S, abs=LATE_S)
