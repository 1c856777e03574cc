"""The laws of conservation, each broken on purpose; and figures that one can compute in one's head."""

import csv
import io
from typing import Any

import msgspec
import pytest

from federator.model.capacity import Instance, InstanceStatus, Stock
from federator.planning.rules.rulebook import DEFAULT_MISS_USD_GPU_H, DEFAULT_WAIT_USD_GPU_H
from federator.simulation.accounting import figures, violations
from federator.simulation.running import Outcome
from federator.simulation.schedule import Attempt, LeaseRow, Schedule, attempts_csv, leases_csv
from federator.simulation.work import TraceJob
from tests.lab.series import series
from tests.unit.simulation.tiny import HOUR_S, OFFER, job, world

WORLD = world()  # one site of four GPUs, called lab


def attempt(name: str, start_s: float | None, end_s: float | None, **fields: Any) -> Attempt:
    given: dict[str, Any] = {
        "job": name,
        "attempt": 1,
        "site": "lab",
        "pool": "main",
        "market": "owned",
        "nodes": 1,
        "gpus": 1,
        "submit_s": 0.0,
        "start_s": start_s,
        "end_s": end_s,
        "outcome": "succeeded",
    }
    return Attempt(**(given | fields))


LEASE = LeaseRow(
    lease="lease-1",
    site="rented",
    offer="o",
    market="spot",
    gpus=4,
    requested_s=0.0,
    start_s=0.0,
    end_s=3600.0,
    usd_per_h=10.0,
    cost_usd=10.0,
)


def outcome(*rows: Attempt, leases: tuple[LeaseRow, ...] = (), charged: float | None = None) -> Outcome:
    machine = Instance(
        name="lease-1",
        offer="o",
        status=InstanceStatus.ENDED,
        launched_at=0.0,
        ended_at=1.0,
        tags={},
        billed_usd=charged or 0.0,
    )
    machines = () if charged is None else (machine,)
    return Outcome(
        scheduler="x", seed=0, schedule=Schedule(attempts=rows, leases=leases, end_s=9e4), instances=machines
    )


def found(jobs: list[TraceJob], *rows: Attempt, **fields: Any) -> str:
    return "; ".join(violations(outcome(*rows, **fields), WORLD, jobs))


ONE = [job("one")]


def test_what_can_be_is_not_blamed() -> None:
    assert not found(ONE, attempt("one", 10.0, 10.0 + HOUR_S), leases=(LEASE,), charged=10.0)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ((attempt("one", 0.0, HOUR_S), attempt("one", HOUR_S, 2 * HOUR_S)), "succeeded twice"),
        ((attempt("one", 0.0, 900.0, outcome="lost"), attempt("one", 800.0, 800.0 + HOUR_S)), "run at once"),
        ((attempt("one", -5.0, HOUR_S - 5.0),), "before it is submitted"),
        ((attempt("one", 0.0, 1800.0),), "needs 3600 s there and ran 1800 s"),
        ((attempt("one", 0.0, 2 * HOUR_S),), "ran 7200 s"),
        ((attempt("one", 0.0, HOUR_S, gpus=2),), "asked for 1 GPUs and had 2"),
        ((attempt("other", 0.0, HOUR_S),), "not in the trace"),
    ],
)
def test_work_is_conserved(rows: tuple[Attempt, ...], words: str) -> None:
    assert words in found(ONE, *rows)


def test_gpus_are_conserved() -> None:
    jobs = [job(f"j{n}") for n in range(5)]
    rows = [attempt(each.name, 0.0, HOUR_S) for each in jobs]
    assert "lab/main has 4 GPUs, and 5 are in use" in found(jobs, *rows)
    rows[4] = attempt("j4", HOUR_S, 2 * HOUR_S)
    assert not found(jobs, *rows)


@pytest.mark.parametrize(
    ("leases", "charged", "words"),
    [
        ((), 3.0, "which is not a lease"),
        ((LEASE,), 11.0, "the cloud charges 11.00"),
        ((msgspec.structs.replace(LEASE, cost_usd=5.0),), 5.0, "3600 s cost 10.00"),
    ],
)
def test_money_is_conserved(leases: tuple[LeaseRow, ...], charged: float, words: str) -> None:
    assert words in found(ONE, attempt("one", 0.0, HOUR_S), leases=leases, charged=charged)


def test_stocks_of_clouds_are_conserved() -> None:
    small, large = (
        msgspec.structs.replace(OFFER, name=name, gpus=gpus, stock=Stock("a100", 8, each=gpus, unit="GPUs"))
        for name, gpus in (("small", 4), ("large", 8))
    )
    clouds = world(offers=(small, large), cloud_sites={"cloud": "rented"})

    def said(*leases: LeaseRow) -> list[str]:
        found = violations(outcome(attempt("one", 0.0, HOUR_S), leases=leases), clouds, ONE)
        return [text for text in found if "stock" in text]

    first = msgspec.structs.replace(LEASE, offer="small")
    second = msgspec.structs.replace(first, lease="lease-2", offer="large", start_s=1800.0, end_s=None)
    assert said(first, second) == ["stock a100 has 8 GPUs, and 12 are rented"]
    assert not said(first, msgspec.structs.replace(second, start_s=3600.0))
    assert not said(first, msgspec.structs.replace(second, offer="elsewhere"))


JOBS = [
    job("met", deadline_s=2 * HOUR_S, value_usd=7.0),
    job("late", deadline_s=HOUR_S + 10.0, value_usd=11.0, gpus=3, wait_usd_h=0.0),
    job("free", wait_usd_h=2.0),
]
ROWS = (
    attempt("met", 0.0, HOUR_S, price_usd=1.0),
    attempt("late", 100.0, 100.0 + HOUR_S, gpus=3, price_usd=3.0),
    attempt("free", HOUR_S, 2 * HOUR_S, price_usd=1.0),
)


def test_figures() -> None:
    counted = figures(outcome(*ROWS, leases=(LEASE,), charged=10.0), WORLD, JOBS)
    assert (counted.jobs, counted.finished, counted.deadlines, counted.missed) == (3, 3, 2, 1)
    assert (counted.missed_share, counted.met_share_by_gpu_h) == (0.5, 0.25)
    assert (counted.owned_usd, counted.rented_usd, counted.missed_value_usd) == (5.0, 10.0, 11.0)
    assert (counted.loss_usd, counted.used_usd) == (26.0, 0.0)
    assert counted.wait_mean_s == pytest.approx((0.0 + 100.0 + 3600.0) / 3)
    assert (counted.wait_median_s, counted.wait_usd) == (100.0, 2.0)
    assert counted.slowdown_mean == pytest.approx((1.0 + 3700.0 / 3600.0 + 2.0) / 3)
    assert counted.utilisation == pytest.approx((1 + 3 + 1) / (4 * 2))
    assert not counted.violations


def test_rent_that_nobody_used_is_told() -> None:
    """Of 10 USD of rent, one GPU was used for an hour at 4."""
    rented = attempt("free", HOUR_S, 2 * HOUR_S, price_usd=4.0, market="on-demand")
    counted = figures(outcome(*ROWS[:2], rented, leases=(LEASE,), charged=10.0), WORLD, JOBS)
    assert (counted.owned_usd, counted.rented_usd, counted.used_usd) == (4.0, 10.0, 4.0)
    assert counted.loss_usd == 4.0 + 10.0 + 11.0


PRICED = """
apiVersion: federator/v1
kind: Queue
metadata: {name: research}
spec:
  met_deadline_usd_per_gpu_hour: 5
  waiting_usd_per_gpu_hour: 0.2
"""


def test_what_the_trace_does_not_price_is_priced_as_the_planner_does() -> None:
    late = {"run_s": HOUR_S, "deadline_s": HOUR_S, "gpus": 2}
    jobs = [
        job("by the queue", queue="research", **late),
        job("by default", **late),
        job("by itself", **late, value_usd=0.0, wait_usd_h=0.0),
    ]
    priced = msgspec.structs.replace(WORLD, policies=PRICED)
    rows = [attempt(each.name, 2 * HOUR_S, 3 * HOUR_S, gpus=2) for each in jobs]
    found = outcome(*rows)
    counted = figures(found, priced, jobs)
    assert counted.missed_value_usd == pytest.approx(2 * 5 + 2 * DEFAULT_MISS_USD_GPU_H)
    assert counted.loss_usd == counted.missed_value_usd
    assert counted.wait_usd == pytest.approx(2 * 2 * (0.2 + DEFAULT_WAIT_USD_GPU_H))
    shown = series(found.schedule, priced, jobs, "x", 0)
    assert shown.usd["missed deadlines"] == pytest.approx(counted.missed_value_usd)


def test_series_show_the_same() -> None:
    shown = series(outcome(*ROWS, leases=(LEASE,), charged=10.0).schedule, WORLD, JOBS, "x", 0)
    bins = len(shown.utilisation["lab"])
    assert shown.utilisation["lab"][bins // 4] == 1.0  # met and late
    assert shown.utilisation["lab"][bins * 3 // 4] == 0.25  # free alone
    assert shown.waiting[bins // 4] == 1.0  # free
    assert shown.waiting[bins * 3 // 4] == 0.0
    assert shown.rented_gpus[1] == 4.0
    assert shown.rented_gpus[-1] == 0.0
    assert shown.usd == {
        "owned GPUs": 5.0,
        "rent, used": 0.0,
        "rent, boot and idle": 10.0,
        "data moved": 0.0,
        "missed deadlines": 11.0,
    }
    assert sum(count for _, count, _ in shown.met_by_slack) == 2


def test_tables_have_the_columns_that_are_promised() -> None:
    text = attempts_csv([*ROWS, attempt("never", None, None, outcome="waiting", deadline_s=5.25)])
    rows = list(csv.DictReader(io.StringIO(text)))
    assert list(rows[0]) == [
        "job", "attempt", "site", "pool", "market", "nodes", "gpus", "submit_s", "start_s", "end_s", "outcome", "deadline_s",
        "price_usd", "egress_usd", "moved_gb",
    ]  # fmt: skip
    assert (rows[1]["start_s"], rows[1]["end_s"], rows[1]["price_usd"]) == ("100", "3700", "3")
    assert (rows[3]["start_s"], rows[3]["end_s"], rows[3]["deadline_s"]) == ("", "", "5.25")
    (lease,) = csv.DictReader(io.StringIO(leases_csv([LEASE])))
    assert (lease["lease"], lease["start_s"], lease["end_s"], lease["cost_usd"]) == (
        "lease-1",
        "0",
        "3600",
        "10",
    )
