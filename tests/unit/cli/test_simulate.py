"""`federator simulate`: files in, a table, tables and a page out, and an exit code."""

import csv
import errno
import json
import os
from pathlib import Path

import pytest

from federator.cli import simulate as simulating
from tests.unit.cli.conftest import Command

WORLD = """
name: lab
sites:
  - {name: a, price: 0.5 USD, pools: [{model: A100, nodes: 1, gpus_per_node: 4}]}
  - {name: b, pools: [{model: A100, nodes: 1, gpus_per_node: 4}]}
"""
TRACE = "name,submit_s,run_s,gpus,home\n" + "".join(f"j{n},{60 * n},3600,4,a\n" for n in range(4))


@pytest.fixture
def given(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "world.yaml").write_text(WORLD)
    (tmp_path / "jobs.csv").write_text(TRACE)
    return ("--world", str(tmp_path / "world.yaml"), "--trace", str(tmp_path / "jobs.csv"))


def table(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_one_run_writes_what_it_was_asked_for(
    federator: Command, given: tuple[str, ...], tmp_path: Path
) -> None:
    schedule, figures, page = tmp_path / "s.csv", tmp_path / "r.json", tmp_path / "r.html"
    ran = federator(
        "simulate", *given, "--deadline-k", "1.5", "--schedule-out", str(schedule), "--json", str(figures), "--report", str(page)
    )  # fmt: skip
    assert ran.code == 0, ran.err
    rows = table(schedule)
    assert [row["job"] for row in rows] == ["j0", "j1", "j2", "j3"]
    assert {row["site"] for row in rows} == {"a", "b"}
    assert len((tmp_path / "s.leases.csv").read_text().splitlines()) == 1
    (run,) = json.loads(figures.read_text())["runs"]
    assert (run["figures"]["jobs"], run["figures"]["finished"], run["figures"]["missed"]) == (4, 4, 2)
    assert run["figures"]["violations"] == []
    text = page.read_text()
    assert "http://" not in text
    assert "https://" not in text
    assert "<h2>Side by side</h2>" in text
    assert "50.00" in ran.out


def test_schedulers_and_seeds_are_compared_and_each_has_its_tables(
    federator: Command, given: tuple[str, ...], tmp_path: Path
) -> None:
    out = tmp_path / "s.csv"
    ran = federator(
        "simulate", *given, "--scheduler", "fifo", "isolated", "--seed", "1", "2", "--sigma", "0.4", "--schedule-out", str(out)
    )  # fmt: skip
    assert ran.code == 0, ran.err
    for name in ("fifo-1", "fifo-2", "isolated-1", "isolated-2"):
        assert (tmp_path / f"s-{name}.csv").exists()
    lines = [line for line in ran.out.splitlines() if line.startswith(("fifo", "isolated"))]
    assert len(lines) == 2
    assert "±" in lines[0]
    sites = {row["site"] for row in table(tmp_path / "s-isolated-1.csv")}
    assert sites == {"a"}


def test_it_says_how_far_it_is(
    federator: Command, given: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulating, "TELL_EVERY_S", 0.0)
    ran = federator("simulate", *given, "--scheduler", "fifo")
    assert "of virtual time (100%)" in ran.err
    assert "× real time" in ran.err
    assert "left" in ran.err
    assert "fifo, seed 0: 4 of 4 jobs done" in ran.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--scheduler", "best"), "there is no scheduler"),
        (("--load", "0"), "above 0"),
        (("--start", "1"), "not a duration"),
        (("--start", "9d"), "no job of the trace"),
        (("--policies", "nowhere.yaml"), "nowhere.yaml cannot be read: No such file or directory\n"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    federator: Command, given: tuple[str, ...], words: tuple[str, ...], told: str
) -> None:
    ran = federator("simulate", *given, *words)
    assert ran.code == 2
    assert told in ran.err


def test_policies_that_are_not_valid_are_named(
    federator: Command, given: tuple[str, ...], tmp_path: Path
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "apiVersion: federator/v1\nkind: BurstPolicy\nmetadata: {name: x}\nspec: {when: {mode: maybe}}\n"
    )
    ran = federator("simulate", *given, "--policies", str(rules))
    assert ran.code == 2
    assert "mode" in ran.err


@pytest.mark.parametrize("option", ["--json", "--report", "--schedule-out"])
def test_a_file_that_cannot_be_written_is_told_before_anything_runs(
    federator: Command, given: tuple[str, ...], tmp_path: Path, option: str
) -> None:
    out = tmp_path / "nowhere" / "out"
    ran = federator("simulate", *given, option, str(out))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"error: {out}: cannot be written: No such file or directory\n"


def test_what_was_there_is_kept_until_there_is_more(
    federator: Command, given: tuple[str, ...], tmp_path: Path
) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text("old")
    ran = federator("simulate", *given, "--json", str(old), "--report", str(new), "--scheduler", "best")
    assert ran.code == 2
    assert old.read_text() == "old"
    assert not new.exists()


@pytest.mark.parametrize("option", ["--json", "--report", "--schedule-out"])
def test_a_full_disk_costs_the_file_and_not_the_table(
    federator: Command, given: tuple[str, ...], option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str, **_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    out = Path(given[1]).with_name("out")
    ran = federator("simulate", *given, "--scheduler", "fifo", option, str(out))
    assert ran.code == 2
    assert any(line.startswith("fifo") for line in ran.out.splitlines())
    assert ran.err.count(str(out)) == 1
    assert "No space left on device" in ran.err


def test_a_job_without_a_home_is_told_before_anything_runs(
    federator: Command, given: tuple[str, ...], tmp_path: Path
) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text(trace.read_text() + "j9,600,3600,4,\n")
    ran = federator("simulate", *given, "--scheduler", "fifo", "isolated")
    assert ran.code == 2
    assert "j9 has no home" in ran.err
    assert "jobs done" not in ran.err
