"""Processes are found by the folder that they belong to, whoever their parent is, and nothing else is ever ended."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from federator.cli.demo.processes import MARK, Processes, RunningRank
from tests.support.waiting import PATIENCE_S, wait_until

SLEEP = "import time; time.sleep(600)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); open('deaf', 'w').close(); time.sleep(600)"


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Processes]:
    processes = Processes(tmp_path)
    yield processes
    processes.end_all()


def sleeper(folder: Path, environment: dict[str, str], code: str = SLEEP) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen([sys.executable, "-c", code], env=environment, cwd=folder)
    # Before it is itself, its environment is the parent's.
    wait_until(lambda: b"-c" in Path(f"/proc/{process.pid}/cmdline").read_bytes(), "the program to start")
    return process


def test_jobs_and_machines_are_found_by_the_paths_they_carry(ours: Processes, tmp_path: Path) -> None:
    marks = [
        {MARK: str(tmp_path)},
        {"FEDERATOR_INSTANCE_DIR": str(tmp_path / "machines/one")},
        {"FEDERATOR_CHECKPOINT_DIR": str(tmp_path / "c"), "FEDERATOR_PLACEMENT_ID": "p", "FEDERATOR_JOB_ID": "j",
         "FEDERATOR_NODE_RANK": "1"},
    ]  # fmt: skip
    started = [sleeper(tmp_path, mark) for mark in marks]
    assert set(ours.living()) == {process.pid for process in started}
    assert ours.ranks() == {RunningRank("j", "p", "1")}
    ours.end_all()
    for process in started:
        process.wait(PATIENCE_S)
    assert ours.living() == {}


def test_processes_of_others_are_left_alone(ours: Processes, tmp_path: Path) -> None:
    """A neighbour whose folder begins alike, or a shell that merely stands in ours, is nobody's to end."""
    others = [
        sleeper(tmp_path, {MARK: f"{tmp_path}-two"}),
        sleeper(tmp_path, {"FEDERATOR_INSTANCE_DIR": f"{tmp_path}-two/machines/one"}),
        sleeper(tmp_path, {"PWD": str(tmp_path)}),
    ]
    try:
        assert ours.living() == {}
        assert ours.end_all() == 0
        assert all(process.poll() is None for process in others)
    finally:
        for process in others:
            process.kill()
            process.wait()


def test_what_does_not_end_when_asked_is_killed_and_counted(
    ours: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("federator.cli.demo.processes.TERM_S", 0.5)
    process = sleeper(tmp_path, {MARK: str(tmp_path)}, STUBBORN)
    wait_until((tmp_path / "deaf").exists, "it to ignore the signal")
    assert ours.end_all() == 1
    assert process.wait(PATIENCE_S) == -9


def test_a_started_process_does_not_see_our_own_federation(
    ours: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDERATOR_SERVER", "http://elsewhere")
    assert "FEDERATOR_SERVER" not in ours.environment
