"""What several runs of a benchmark come to, and how it is written down."""

import socket
from pathlib import Path

from tests.bench.figures import Better, Calibration, Figure, Results
from tests.bench.harness import SCENARIOS, Scenario, load
from tests.bench.measuring import percentile
from tests.bench.report import page, text_table


async def _nothing(_bench: object) -> list[Figure]:
    return []


def results() -> Results:
    """Three runs; the second was on a machine at half its speed, for both systems alike."""
    found = Results()
    for ours, theirs, speed in ((100.0, 20.0, 30.0), (50.0, 10.0, 15.0), (90.0, 22.5, 30.0)):
        beside = Calibration(loop_msteps_s=speed, fsyncs_s=10 * speed)
        found.add("finish", [Figure("no-op jobs", ours, "jobs/s", 80, against="theirs")], beside)
        found.add("slurm", [Figure("theirs", theirs, "jobs/s")], beside)
    return found


def test_a_figure_is_the_median_of_its_runs_and_its_ratio_that_of_pairs() -> None:
    series = results().series["no-op jobs"]
    assert series.median == 90.0
    assert series.reached
    assert series.calibration == Calibration(30.0, 300.0)
    assert results().ratio(series) == 5.0


def test_an_aim_may_be_a_ceiling() -> None:
    found = Results()
    found.add("start", [Figure("latency", 60.0, "ms", 50, Better.LESS)], Calibration(1, 1))
    assert not found.series["latency"].reached
    assert "at most 50.0: missed" in text_table(found)


def test_the_page_says_what_was_reached_and_nothing_of_where_it_was_run() -> None:
    scenarios = [Scenario(name, _nothing, None, f"What {name} is.") for name in ("finish", "slurm")]
    text = page(results(), scenarios, runs=3, remark="Other work was going on.")
    row = "| no-op jobs | 90.0 jobs/s | 50.0–100 | at least 80.0: reached | 5.00 × theirs | 30.0 | 300 |"
    assert row in text.splitlines()
    for expected in ("What finish is.", "## slurm", "Other work was going on.", "Python 3."):
        assert expected in text
    assert socket.gethostname() not in text
    assert str(Path.home()) not in text


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert percentile([3.0, 1.0, 2.0], 99) == 3.0


def test_every_scenario_can_be_loaded_and_says_what_it_does() -> None:
    assert {"submit", "start", "finish", "memory", "slurm"} <= set(SCENARIOS)
    for name in SCENARIOS:
        assert load(name).note, name
