"""Nobody waits for the compiler: the child has the kernel compiled beside its first decisions, by one process at a time, where it can be kept."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from federator.planning import kernels
from federator.planning.kernels import shelf
from federator.solving import compiling, worker

Started = list[tuple[str, ...]]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """Commands of processes that would have been started."""
    commands: Started = []

    def start(command: tuple[str, ...], **_options: object) -> str:
        commands.append(command)
        return "a process"

    monkeypatch.setattr(subprocess, "Popen", start)
    return commands


def test_what_is_compiled_is_not_compiled_again(monkeypatch: pytest.MonkeyPatch, started: Started) -> None:
    monkeypatch.setattr(kernels, "at_hand", lambda: print)
    assert worker.ready_kernel() is None
    assert not started


def test_without_a_place_to_keep_it_nothing_is_compiled(
    monkeypatch: pytest.MonkeyPatch, started: Started
) -> None:
    monkeypatch.setattr(kernels, "at_hand", lambda: None)
    monkeypatch.setattr(shelf, "folder", lambda: None)
    assert worker.ready_kernel() is None
    assert not started


def test_what_is_not_is_compiled_by_another_process(
    monkeypatch: pytest.MonkeyPatch, started: Started, tmp_path: Path
) -> None:
    monkeypatch.setattr(kernels, "at_hand", lambda: None)
    monkeypatch.setattr(shelf, "folder", lambda: tmp_path)
    assert worker.ready_kernel() is not None
    assert started == [(sys.executable, "-m", "federator.solving.compiling", str(os.getpid()))]


@pytest.mark.parametrize("busy", [False, True])
def test_one_compiles_at_a_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, busy: bool) -> None:
    done: list[bool] = []
    monkeypatch.setattr(shelf, "folder", lambda: tmp_path)
    monkeypatch.setattr(kernels, "prepare", lambda: done.append(True))
    monkeypatch.setattr(compiling, "die_with_parent", lambda _parent: None)
    monkeypatch.setattr(os, "nice", lambda _by: 0)
    monkeypatch.setattr(sys, "argv", ["compiling", "1"])
    with (tmp_path / "compiling").open("w") as lock:
        if busy:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        compiling.main()
    assert done == ([] if busy else [True])


def test_a_kernel_is_named_after_all_that_it_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    name = shelf._name()
    assert name is not None
    assert name == shelf._name()
    monkeypatch.setattr(shelf, "version", lambda _package: "0")
    assert shelf._name() != name
