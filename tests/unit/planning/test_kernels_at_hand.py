"""The compiled kernel is loaded, compiled once by one process, or missed with a remedy; and what may only be read is used."""

import fcntl
import os
import signal
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from federator.kernel.errors import Unavailable
from federator.planning import kernels
from federator.planning.kernels import cache, compiled
from federator.planning.plans.greedy import plan_greedily
from federator.solving import worker
from tests.support.worlds import a_job, a_pool, a_world


def one_more(number: int) -> int:
    """Stands for a kernel: it is quick to compile."""
    return number + 1


def size_of(sheet: Any) -> int:
    """As the kernel does, it takes a sheet."""
    return len(sheet)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty shelf, and nothing loaded."""
    monkeypatch.setattr(cache, "folder", lambda: tmp_path)
    monkeypatch.setattr(compiled.config, "CACHE_DIR", "")
    monkeypatch.setattr(kernels, "_known", [])
    monkeypatch.setattr(kernels, "_failed", [])
    return tmp_path


def _read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can write anywhere: to root, as whom tests may run, no permission says so."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(30, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    monkeypatch.setattr(Path, "mkdir", refuse)


def _stub(monkeypatch: pytest.MonkeyPatch, decide: Any) -> None:
    stub = SimpleNamespace(decide=decide, late_shares=lambda *_: None)
    monkeypatch.setitem(sys.modules, "federator.planning.kernels.decision", stub)
    monkeypatch.setattr(kernels, "decision", stub, raising=False)


def _no_locator(_sheet: object) -> None:
    raise RuntimeError("cannot cache function: no locator available")


def test_what_is_finished_is_read_where_nobody_can_write(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: Any = compiled.kernel(one_more)
    assert made(1) == 2
    cache.finish()
    assert list(place.glob("*/*.nbc")), "numba has kept it there"
    _read_only(monkeypatch)
    again: Any = compiled.kernel(one_more)
    assert again(1) == 2
    assert sum(again.stats.cache_hits.values()) == 1


def test_a_full_disk_costs_the_next_start_its_compiling_and_this_one_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(compiled, "unsaved", [])
    _stub(monkeypatch, compiled.kernel(size_of))
    monkeypatch.setattr(os, "replace", full)  # what numba writes is put in its place at the end
    assert kernels.prepare(), kernels.trouble()
    assert compiled.unsaved
    assert not (place / cache.DONE).exists()


def test_a_decision_without_the_kernel_fails_with_a_remedy(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is planned thirty times slower without a word."""
    (place / cache.DONE).touch()
    _stub(monkeypatch, _no_locator)
    with pytest.raises(Unavailable, match=r"no locator available.*pip install 'federator\[dispatcher\]'"):
        plan_greedily(a_world([a_job()], [a_pool()]))


def test_numba_that_is_not_installed_is_missed_by_name(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "federator.planning.kernels.decision", raising=False)
    monkeypatch.delattr(kernels, "deciding", raising=False)
    monkeypatch.delitem(sys.modules, "federator.planning.kernels.compiled", raising=False)
    monkeypatch.delattr(kernels, "compiled", raising=False)
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(Unavailable, match=r"numba.*pip install"):
        kernels.kernel()
    assert not (place / cache.DONE).exists()


def test_the_solvers_process_ends_with_the_reason_when_it_cannot_load_the_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "die_with_parent", lambda _parent: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(os, "nice", lambda _by: 0)
    monkeypatch.setattr(sys, "argv", ["worker", "1"])
    monkeypatch.setattr(kernels, "prepare", lambda: False)
    monkeypatch.setattr(kernels, "trouble", lambda: "no numba")
    with pytest.raises(SystemExit, match="no numba"):
        worker.main()


def test_one_compiles_at_a_time(place: Path) -> None:
    """Who comes second waits for the lock, and then finds all of it done."""
    with cache.alone(), (place / "compiling").open("w") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with (place / "compiling").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    cache.finish()
    (place / "compiling").unlink()
    with cache.alone():
        assert not (place / "compiling").exists(), "what is done needs no lock"


def test_a_kernel_is_named_after_all_that_it_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    name = cache.build_name()
    assert name is not None
    assert name == cache.build_name()
    monkeypatch.setattr(cache, "version", lambda _package: "0")
    assert cache.build_name() != name


@pytest.mark.usefixtures("place")
def test_what_goes_wrong_while_compiling_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    _stub(monkeypatch, _no_locator)
    assert not kernels.prepare()
    assert "no locator available" in kernels.trouble()
    _stub(monkeypatch, lambda _sheet: None)
    assert kernels.prepare()
    assert not kernels.trouble()


@pytest.fixture
def homes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Path, Path]:
    """The shelf's folders: beside the sources, and at home."""
    monkeypatch.setattr(cache, "folder", cache.folder.__wrapped__)
    monkeypatch.setattr(cache, "build_name", lambda: "a")
    monkeypatch.setattr(cache, "_above", lambda: [tmp_path / "sources", tmp_path / "home"])
    return tmp_path / "sources/kernels-a", tmp_path / "home/kernels-a"


def test_the_first_place_that_is_finished_or_can_be_written(
    homes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    sources, home = homes
    assert cache.folder() == sources
    home.mkdir(parents=True)
    (home / cache.DONE).touch()
    assert cache.folder() == home
    (sources / cache.DONE).touch()
    _read_only(monkeypatch)
    assert cache.folder() == sources
    (sources / cache.DONE).unlink()
    (home / cache.DONE).unlink()
    assert cache.folder() is None


def test_what_only_another_user_may_read_is_not_finished(
    homes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    sources, home = homes
    sources.mkdir(parents=True)
    (sources / cache.DONE).touch()
    opened, written = Path.open, Path.touch

    def deny(path: Path, *args: Any, **options: Any) -> Any:
        if path.is_relative_to(sources):
            raise PermissionError(13, "Permission denied")
        return opened(path, *args, **options)

    def deny_touch(path: Path, *args: Any, **options: Any) -> None:
        if path.is_relative_to(sources):
            raise PermissionError(13, "Permission denied")
        written(path, *args, **options)

    monkeypatch.setattr(Path, "open", deny)
    monkeypatch.setattr(Path, "touch", deny_touch)
    assert cache.folder() == home
    assert not cache.done()
