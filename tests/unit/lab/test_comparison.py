"""The comparison: what has to be run for which rows, what a row says, and that nothing is run twice."""

import csv
import gzip
from collections import Counter
from pathlib import Path

import pytest

from federator.kernel.errors import Invalid
from federator.simulation.study import mean_of
from federator.simulation.work import request_of
from tests.lab.comparison.cases import Case, all_cases, chosen, jobs_of, runs_of, world_of
from tests.lab.comparison.judging import Result, Row, carried_out
from tests.lab.comparison.offers import A100, V100, usd_gpu_h
from tests.lab.comparison.pages import markdown, page, table_of
from tests.lab.comparison.running import Made
from tests.lab.comparison.tables import against_table, groups_of, prototype_table
from tests.lab.schedulers import SCHEDULERS
from tests.support import ten_clusters
from tests.unit.simulation.tiny import TURN_S


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The folder of the data."""
    return ten_clusters.write(tmp_path / "data")


def cases(*words: str) -> list[Case]:
    return chosen(all_cases(), words)


def test_all_work_is_there() -> None:
    assert Counter(case.family for case in all_cases()) == {
        "online": 15,
        "ten clusters": 12,
        "chronus": 6,
        "elasticflow": 14,
        "spot": 6,
        "bursting": 60,
    }


def test_who_does_not_look_at_deadlines_is_run_once_for_all_of_them() -> None:
    runs = runs_of(cases("ten-clusters/x0.2"), tuple(SCHEDULERS))
    assert Counter(run.scheduler for run in runs) == {
        "ours": 6, "greedy": 6, "threshold": 6,  # three deadlines, with and without clouds
        "fifo": 2, "random": 2, "race": 2, "race-incremental": 2,  # with and without clouds
        "isolated": 1,  # never rents
        "starburst": 1,  # without clouds it is fifo
    }  # fmt: skip
    rows = [(name, case.name) for run in runs for name, case in run.rows]
    assert len(rows) == len(set(rows)) == 6 * len(SCHEDULERS)
    assert len({run.name for run in runs}) == len(runs)


def test_online_work_has_no_homes_to_be_isolated_in() -> None:
    assert not runs_of(cases("online"), ("isolated",))


def test_what_nothing_is_called_is_said() -> None:
    with pytest.raises(Invalid, match="no case is called 'offline'"):
        cases("offline")


def test_one_simulation_is_judged_by_three_deadlines(data: Path) -> None:
    """At home the second job waits for the first one's end, for nearly an hour of two: k = 1.5 misses it, k = 3 does not."""
    (run,) = runs_of(cases("ten-clusters/x0.2/k1.5", "ten-clusters/x0.2/k3", "ten-clusters/x0.2/k10"), ("isolated",))  # fmt: skip
    result = carried_out(run, data, None)
    by_case = {row.case: row for row in result.rows if "burst" not in row.case}
    assert not result.violations
    assert [row.missed_pct for row in by_case.values()] == pytest.approx([100 / 3, 0.0, 0.0])
    tight = by_case["ten-clusters/x0.2/k1.5"]
    assert tight.met_gpu_h_pct == pytest.approx(100.0 * (8 + 4) / (8 + 8 + 4))
    assert tight.missed_value_pct == pytest.approx(100.0 * 8 / 20)
    assert tight.loss_usd == pytest.approx(8 * 3 * usd_gpu_h(A100))
    assert tight.wait_mean_h == pytest.approx(3540 / 3 / 3600, abs=TURN_S / 3600)


def test_a_federation_sends_it_to_the_neighbour(data: Path) -> None:
    (run,) = runs_of(cases("ten-clusters/x0.2/k1.5"), ("fifo",))[:1]
    (row,) = [row for row in carried_out(run, data, None).rows if row.case == "ten-clusters/x0.2/k1.5"]
    assert (row.missed_pct, row.met_gpu_h_pct, row.loss_usd) == (0.0, 100.0, 0.0)


def test_values_and_prices_are_those_that_are_said(data: Path) -> None:
    (case,) = cases("ten-clusters/x0.2/k3/burst")
    world = world_of(case, data)
    assert {offer.delay_s for offer in world.offers} == {540.0}
    first = jobs_of(case, data, world)[0]
    assert first.value_usd == pytest.approx(3 * 21.95764 / 8 * 8)
    assert first.wait_usd_h == pytest.approx(0.4)
    assert first.deadline_s == pytest.approx(3 * 3600.0)
    assert first.estimate_s != first.run_s


@pytest.fixture
def two_of_chronus(tmp_path: Path) -> Path:
    """A job of eight hours of GPUs that may take two hours, and one whose owner does not mind."""
    lines = [
        "job,vc,num_gpu,submit_min,duration_min,job_type,deadline_rel_min,soft_deadlines_rel_min,soft_values,model,iterations,interval",
        "1,vc,8,1,60,strict,120,120,10,resnet101,100,7",
        "2,vc,1,1,60,best,,,,resnet101,100,7",
    ]
    (tmp_path / "chronus_philly_mix1.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    return tmp_path


def test_deadlines_that_must_be_met_say_so_and_are_accounted_at_their_value(two_of_chronus: Path) -> None:
    (case,) = cases("chronus/must")
    world = world_of(case, two_of_chronus)
    strict, other = jobs_of(case, two_of_chronus, world)
    assert (strict.must, other.must) == (True, False)
    assert strict.value_usd == pytest.approx(3 * usd_gpu_h(V100) * 8)
    assert request_of(strict, 0.0, {}).value_usd is None
    (run,) = runs_of([case], ("greedy", "starburst"))
    assert run.scheduler == "greedy", "others do not ask what a deadline is worth"
    assert [row.finished for row in carried_out(run, two_of_chronus, None).rows] == [2]


def test_who_counts_misses_says_what_each_deadline_is_worth_and_that_is_another_simulation(
    two_of_chronus: Path,
) -> None:
    found = cases("chronus/each3000", "chronus/each5000")
    values = [
        [job.value_usd for job in jobs_of(case, two_of_chronus, world_of(case, two_of_chronus))]
        for case in found
    ]
    assert values == [[3000.0, None], [5000.0, None]]
    runs = runs_of([*cases("chronus/burst"), *found], ("greedy", "starburst"))
    assert [(run.scheduler, run.case.name) for run in runs] == [
        ("greedy", "chronus/burst"), ("starburst", "chronus/burst"),
        ("greedy", "chronus/each3000"), ("greedy", "chronus/each5000"),
    ]  # fmt: skip


def row(scheduler: str, seed: int, loss_usd: float, load: str = "0.9") -> Row:
    return Row(
        case=f"online/load{load}/seed{seed}",
        family="online",
        group=f"online, load {load}",
        scheduler=scheduler,
        jobs=100,
        finished=100,
        missed_pct=5.0,
        missed_value_pct=4.0,
        met_gpu_h_pct=90.0,
        burst_usd=10.0,
        burst_used_usd=8.0,
        total_usd=50.0,
        egress_usd=2.0,
        loss_usd=loss_usd,
        wait_mean_h=0.1,
        wait_p95_h=0.5,
        interactive_wait_mean_h=0.05,
        interactive_wait_p95_h=0.2,
    )


def made(*rows: Row, violations: tuple[str, ...] = ()) -> Made:
    result = Result(
        name="one", key="k", build="b", length_s=None, cpu_s=3.0, rows=tuple(rows), violations=violations
    )
    return Made([result], ["two"], [])


def test_an_interval_is_students() -> None:
    """1, 2, 3: the deviation is 1, and t for two degrees of freedom is 4.303."""
    found = mean_of([1.0, 2.0, 3.0])
    assert found.value == 2.0
    assert found.half_width == pytest.approx(4.303 / 3**0.5)
    assert mean_of([5.0]).half_width == 0.0
    assert mean_of([0.0, 1.0] * 20).half_width == pytest.approx(1.96 * 0.50637 / 40**0.5, rel=1e-4)


def test_groups_are_means_over_their_cases_and_ours_is_held_against_each() -> None:
    groups = groups_of([row("race", 1, 200.0), row("race", 2, 400.0), row("ours", 1, 100.0), row("ours", 2, 200.0)])  # fmt: skip
    assert [(each.scheduler, each.means["loss_usd"].value) for each in groups] == [
        ("ours", 150.0),
        ("race", 300.0),
    ]
    (line,) = against_table(groups).rows
    assert line[:4] == ("online, load 0.9", "race", "-50", "+0")


def test_the_prototypes_figures_stand_beside_ours(tmp_path: Path) -> None:
    columns = "load,seed,scheduler,jobs,missed_pct,missed_value_pct,burst_usd,total_usd,egress_usd,loss_usd,mean_wait_h,p95_wait_h"
    (tmp_path / "online").mkdir()
    with (tmp_path / "online" / "prototype_results.csv").open("w") as file:
        writer = csv.writer(file)
        writer.writerow(columns.split(","))
        writer.writerow(["0.9", "1", "multikueue_like", "9", "7.5", "3", "30", "60", "4", "900", "0.2", "1"])
    (line,) = prototype_table(groups_of([row("race", 1, 200.0)]), tmp_path).rows
    assert line == ("online, load 0.9", "race", "5.0 / 7.5", "4.0 / 3.0", "10 / 30", "2 / 4", "200 / 900", "0.10 / 0.20")  # fmt: skip


def test_the_page_and_the_text_have_every_row_and_what_is_wrong(tmp_path: Path) -> None:
    found = table_of(made(row("race", 1, 200.0), row("ours", 1, 123.0), violations=("lab has 4 GPUs, and 5 are in use",)))  # fmt: skip
    shown, written = page(found, tmp_path), markdown(found, tmp_path)
    for text in (shown, written):
        assert "online/load0.9/seed1" in text
        assert "123" in text
        assert "two" in text
    assert "lab has 4 GPUs, and 5 are in use" in shown
    assert "<script" not in shown
    assert "http" not in shown.replace("http://www.w3.org", "")
