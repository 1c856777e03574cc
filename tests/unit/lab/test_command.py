"""`python -m tests.lab`: its subcommands end as those of `federator` do, and a report is drawn from the figures of a simulation."""

from pathlib import Path

import pytest

from federator.cli.app import run_command
from tests.lab.command import run

WORLD = """
name: lab
sites:
  - {name: a, price: 0.5 USD, pools: [{model: A100, nodes: 1, gpus_per_node: 4}]}
  - {name: b, pools: [{model: A100, nodes: 1, gpus_per_node: 4}]}
"""
TRACE = "name,submit_s,run_s,gpus,home\n" + "".join(f"j{n},{60 * n},3600,4,a\n" for n in range(4))


def figures(folder: Path, *words: str) -> Path:
    """What a simulation writes with `--json`."""
    world, trace, out = folder / "world.yaml", folder / "jobs.csv", folder / "figures.json"
    world.write_text(WORLD)
    trace.write_text(TRACE)
    given = ("--world", str(world), "--trace", str(trace), "--json", str(out), "--scheduler", "fifo")
    assert run_command(("simulate", *given, *words)) == 0
    return out


def test_plots_are_drawn_from_the_figures_of_a_simulation(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert run(("report", str(figures(tmp_path, "--deadline-k", "1.5")), "--out", str(page))) == 0
    text = page.read_text()
    assert "<h2>Side by side</h2>" in text
    assert text.count("<svg") >= 5
    assert "https://" not in text


def test_a_what_if_question_has_its_answer_before_the_plots(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert run(("report", str(figures(tmp_path, "--drain", "b")), "--out", str(page))) == 0
    text = page.read_text()
    assert text.index("nothing starts at b") < text.index("<h2>Side by side</h2>") < text.index("<svg")


def test_a_file_without_figures_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.json"
    other.write_text("[]")
    assert run(("report", str(other))) == 2
    assert "write it with federator simulate --json" in capsys.readouterr().err


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
    assert capsys.readouterr().err == "error: --seeds: is not above 0\n"
