"""`python -m tests.lab`: its subcommands end as those of `federator` do, and a report has its plots."""

from pathlib import Path

import pytest

from tests.lab.command import run

WORLD = """
name: lab
sites:
  - {name: a, price: 0.5 USD, pools: [{model: A100, nodes: 1, gpus_per_node: 4}]}
  - {name: b, pools: [{model: A100, nodes: 1, gpus_per_node: 4}]}
"""
TRACE = "name,submit_s,run_s,gpus,home\n" + "".join(f"j{n},{60 * n},3600,4,a\n" for n in range(4))


@pytest.fixture
def given(tmp_path: Path) -> tuple[str, ...]:
    """The options of a small world."""
    world, trace = tmp_path / "world.yaml", tmp_path / "jobs.csv"
    world.write_text(WORLD)
    trace.write_text(TRACE)
    return ("report", "--world", str(world), "--trace", str(trace), "--out", str(tmp_path / "page.html"))


def test_a_report_has_plots_of_the_schedulers_that_are_compared(
    given: tuple[str, ...], tmp_path: Path
) -> None:
    assert run((*given, "--scheduler", "fifo", "race", "--deadline-k", "1.5")) == 0
    text = (tmp_path / "page.html").read_text()
    assert "<h2>Side by side</h2>" in text
    assert "Utilisation: race" in text
    assert text.count("<svg") >= 5
    assert "https://" not in text


def test_looks_say_how_often_what_jobs_were_told_came_true(
    given: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run((*given, "--looks", "10m")) == 0
    out = capsys.readouterr().out
    assert "80% are meant to come between" in out
    lines = [line.split() for line in out.splitlines() if line.startswith("start of what waits")]
    (row,) = [line for line in lines if line[4] == "all"]
    assert int(row[5]) > 5
    assert sum(int(share) for share in row[6:9]) == pytest.approx(100, abs=1)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--looks", "0s"), "--looks: must be above 0"),
        (("--looks", "soon"), "--looks: "),
        (("--scheduler", "best"), "there is no scheduler 'best'"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(
    given: tuple[str, ...], words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run((*given, *words)) == 2
    assert told in capsys.readouterr().err


def test_traces_that_are_not_there_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(("table", "--data", str(tmp_path), "--only", "chronus")) == 2
    assert capsys.readouterr().err.startswith("error: --data: there is no chronus")


def test_what_is_missing_is_told_with_the_laboratorys_own_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(("table",)) == 2
    assert "see python -m tests.lab table --help" in capsys.readouterr().err


def test_a_seed_is_played_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(("faults", "--seeds", "1", "--from", "9000")) == 0
    assert "1 of 1 seeds" in capsys.readouterr().err


def test_no_seeds_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(("faults", "--seeds", "0")) == 2
    assert capsys.readouterr().err == "error: --seeds: must be at least 1\n"
