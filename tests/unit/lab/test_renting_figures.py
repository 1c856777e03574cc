"""The figures of renting: what is run for them, and that money is compared where as much is missed."""

import gzip
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from federator.kernel.errors import Invalid
from federator.model.capacity import Market
from federator.simulation.clouds import OfferRisk
from federator.simulation.running import simulate
from federator.simulation.spot_events import SpotEvent, SpotHistory
from federator.simulation.work import TraceJob, WorkDone
from tests.lab.comparison.cases import all_cases, chosen, jobs_of, runs_of, world_of
from tests.lab.comparison.equal_misses import (
    Beside,
    Point,
    best,
    equal_misses_table,
    money_at,
    picture,
    spot_table,
)
from tests.lab.comparison.judging import Row
from tests.lab.comparison.offers import A100, on_spot, usd_gpu_h
from tests.lab.comparison.renting import SAVES_S
from tests.lab.schedulers import SCHEDULERS, patient
from tests.support import ten_clusters
from tests.unit.lab.test_comparison import row
from tests.unit.simulation.tiny import HOUR_S, OFFER, TURN_S, job, renting_world, run

COUNTS = "trace,t_s,time,instances\ngcp-a100x1-us-east1-b,0,x,3\ngcp-a100x1-us-east1-b,600,x,2\n"


def of(case: str, scheduler: str, missed_pct: float, usd: float) -> Row:
    made = row(scheduler, 1, usd)
    return msgspec.structs.replace(
        made, case=case, family=case.split("/", maxsplit=1)[0], missed_pct=missed_pct, burst_usd=usd
    )


def test_a_line_joins_the_best_points_only() -> None:
    points = [Point("a", 1.0, 100.0), Point("b", 2.0, 120.0), Point("c", 3.0, 60.0), Point("d", 3.0, 70.0)]
    assert [point.setting for point in best(points)] == ["a", "c"]
    assert money_at(points, 2.0) == Beside(80.0, never=False)
    assert money_at(points, 0.5) == Beside(100.0, never=True)
    assert money_at(points, 9.0) == Beside(60.0, never=False)


def test_money_is_compared_where_as_much_is_missed() -> None:
    rows = [
        of("bursting/w/worth3", "ours", 2.0, 40.0),
        of("bursting/w/threshold-waits1", "threshold", 1.0, 100.0),
        of("bursting/w/threshold-waits4", "threshold", 3.0, 60.0),
        of("bursting/w/starburst-waits1", "starburst", 2.5, 50.0),
    ]
    cells = equal_misses_table(rows, ("ours",), ("threshold", "starburst"))
    assert cells.rows == (("w", "ours, worth3", "2.00", "40", "80", "50", "50 (never so few)", "20"),)


def test_spot_stands_beside_on_demand_alone() -> None:
    rows = [of("spot/w/on-demand", "ours", 2.0, 100.0), of("spot/w/spot", "ours", 1.5, 40.0)]
    assert spot_table(rows).rows == (("w", "ours", "2.00", "1.50", "100", "40", "60"),)


def test_the_picture_has_a_line_for_each_scheduler() -> None:
    curves = {"ours": [Point("a", 1.0, 5.0)], "threshold": [Point("b", 2.0, 9.0)]}
    colours = {"ours": "red", "threshold": "blue"}
    drawn = picture(curves, colours, key=True)
    assert drawn == picture(curves, colours, key=True), "the same figures give the same file"
    root = ET.fromstring(drawn)
    names = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"ours", "threshold", "burst money, USD"} <= set(names)
    assert {"ours", "threshold"} <= {group.get("id") for group in root.iter("{http://www.w3.org/2000/svg}g")}


def test_a_baseline_is_run_for_its_own_knob_and_once_for_all_deadlines_if_it_does_not_look_at_them() -> None:
    runs = runs_of(chosen(all_cases(), ["bursting/itp02"]), tuple(SCHEDULERS))
    names = [made.scheduler for made in runs]
    assert {name: names.count(name) for name in dict.fromkeys(names)} == {
        "ours": 20,
        "greedy": 20,
        "threshold": 12,
        "starburst": 4,
    }


def test_only_the_world_with_spot_has_it_and_its_market_takes_machines_back(tmp_path: Path) -> None:
    data = ten_clusters.write(tmp_path / "data")
    (data / "bamboo_gcp_spot_counts.csv.gz").write_bytes(gzip.compress(COUNTS.encode()))
    plain, both = (world_of(each, data) for each in chosen(all_cases(), ["spot/itp02-k3"]))
    assert {offer.market for offer in plain.offers} == {Market.ON_DEMAND}
    spot = [offer for offer in both.offers if offer.market is Market.SPOT]
    assert len(spot) == len(plain.offers)
    assert set(both.risks) == {offer.name for offer in spot}
    assert all(risk.history is not None for risk in both.risks.values())


def test_jobs_of_both_worlds_are_the_same_and_save_themselves(tmp_path: Path) -> None:
    data = ten_clusters.write(tmp_path / "data")
    (data / "bamboo_gcp_spot_counts.csv.gz").write_bytes(gzip.compress(COUNTS.encode()))
    first, second = (jobs_of(each, data, world_of(each, data)) for each in chosen(all_cases(), ["spot/itp02-k3"]))  # fmt: skip
    assert first == second
    assert [(each.name, each.home, each.saves_s) for each in first] == [("02-0", "home", SAVES_S)]


def test_a_deadline_may_be_worth_the_same_whatever_its_work(tmp_path: Path) -> None:
    data = ten_clusters.write(tmp_path / "data")
    worth = {case.name.split("/")[-1]: jobs_of(case, data, world_of(case, data))[0].value_usd for case in chosen(all_cases(), ["bursting/itp02-k3/each10", "bursting/itp02-k3/worth2"])}  # fmt: skip
    assert worth["each10"] == 10.0
    assert worth["worth2"] == pytest.approx(2 * usd_gpu_h(A100) * 4)


def test_spot_machines_have_their_own_price() -> None:
    (offer,) = [each for each in on_spot(A100) if each.instance_type == "p4d.24xlarge"]
    assert (offer.name, offer.price_usd_h) == ("aws/p4d.24xlarge/spot", 7.24602)


def test_a_baseline_that_waits_longer_rents_later() -> None:
    """Its machine boots for ten minutes after the half hour, or the hour, that it waits."""
    jobs = [job("first", gpus=4, run_s=9 * HOUR_S), job("second", gpus=4, submit_s=60.0)]
    for patience in (1.0, 2.0):
        outcome = simulate(renting_world(), jobs, patient("threshold", patience))
        (begun,) = [each for each in outcome.schedule.attempts if each.job == "second"]
        assert begun.start_s is not None
        assert begun.start_s - 60.0 == pytest.approx(1800.0 * patience + OFFER.delay_s, abs=2 * TURN_S)


def test_who_has_no_wait_of_its_own_is_refused() -> None:
    with pytest.raises(Invalid, match="no wait of its own"):
        patient("ours", 2.0)


def test_what_is_kept_for_all_places_is_gone_on_from_at_any() -> None:
    progress = WorkDone({})
    for name, saves_s in (("elsewhere", 600.0), ("here", None)):
        progress.know(name, TraceJob(name=name, submit_s=0.0, run_s=2 * HOUR_S, saves_s=saves_s))
        progress.save(name, "A100", "rented-1", HOUR_S)
    assert progress.left_s("elsewhere", "A100", "rented-2", resume=False) == HOUR_S + 20.0
    assert progress.left_s("here", "A100", "rented-2", resume=False) == 2 * HOUR_S


def test_a_job_whose_machine_is_taken_back_goes_on_elsewhere_from_what_it_saved() -> None:
    """The machine boots for ten minutes and is taken an hour and a half after the beginning: the rest of the two hours is what the next attempt runs."""
    spot = msgspec.structs.replace(OFFER, market=Market.SPOT, price_usd_h=4.0)
    taken = (SpotEvent(0.0, 0), SpotEvent(1.5 * HOUR_S, 1), SpotEvent(1.5 * HOUR_S + 1.0, 0), SpotEvent(40 * HOUR_S, 0))  # fmt: skip
    where = renting_world(spot, OfferRisk(history=SpotHistory(events=taken)))
    ahead = job("ahead", gpus=4, run_s=20 * HOUR_S)
    ran_s = {}
    for saves_s in (600.0, None):
        moved = job(
            "moved", gpus=4, run_s=2 * HOUR_S, deadline_s=12 * HOUR_S, value_usd=500.0, saves_s=saves_s
        )
        outcome = run(where, ahead, moved)
        first, second = [each for each in outcome.schedule.attempts if each.job == "moved"]
        assert first.market == second.market == "spot"
        assert second.start_s is not None
        assert second.end_s is not None
        ran_s[saves_s] = second.end_s - second.start_s
    assert ran_s[None] == pytest.approx(2 * HOUR_S, abs=TURN_S)
    assert 0.0 < ran_s[600.0] < 1.5 * HOUR_S
