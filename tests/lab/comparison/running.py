"""Many simulations, each in a process of its own, as many at a time as are allowed. What is done is kept in a folder, and taken from there the next time.

A result is used again when everything that it depends on is the same: code, world, jobs, options. So a table that was interrupted goes on where it was.
"""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import NamedTuple

import msgspec

from federator.kernel.errors import Invalid
from federator.kernel.quantities import format_duration
from federator.simulation.running import Moment
from tests.lab.comparison.cases import Run
from tests.lab.comparison.judging import Result, carried_out, key_of

Tell = Callable[[str], None]
EFFORT = {"ours": 6.0, "greedy": 2.0}
"""What a simulation by this scheduler takes, about, of one by a baseline."""
LOOK_S = 0.5
TELL_EVERY_S = 15.0


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """How a table is made. `any_build`: results of other builds are good enough; `within_s`: what is not done by then is left out."""

    data: Path
    folder: Path
    workers: int = 1
    length_s: float | None = None
    any_build: bool = False
    within_s: float | None = None


class Made(NamedTuple):
    """What there is now, and what failed or is missing."""

    results: list[Result]
    missing: list[str]
    failed: list[str]


class _Working(NamedTuple):
    run: Run
    process: SpawnProcess
    share: "multiprocessing.sharedctypes.Synchronized[float]"


def make(runs: Sequence[Run], orders: Orders, tell: Tell) -> Made:
    """Carry out what is not there yet. An interruption ends what runs and keeps what is done. Raises `Invalid` where files cannot be read or written."""
    kept = orders.folder / "runs"
    try:
        kept.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Invalid(f"it cannot be made: {error.strerror}", field="--out") from None
    found = {run.name: result for run in runs if (result := _found(run, orders)) is not None}
    open_ = [run for run in runs if run.name not in found]
    tell(f"{len(found)} of {len(runs)} simulations are there already")
    failed = _Crew(orders, tell).carry_out(open_) if open_ else []
    for run in open_:
        if (result := _found(run, orders)) is not None:
            found[run.name] = result
    missing = [run.name for run in runs if run.name not in found and run.name not in failed]
    return Made([found[run.name] for run in runs if run.name in found], missing, failed)


def _found(run: Run, orders: Orders) -> Result | None:
    """The kept result, if it is of the same work."""
    try:
        result = msgspec.json.decode(_file(run, orders).read_bytes(), type=Result)
    except (OSError, msgspec.DecodeError):
        return None
    if orders.any_build:
        return result if result.length_s == orders.length_s else None
    return result if result.key == key_of(run, orders.data, orders.length_s) else None


def _file(run: Run, orders: Orders) -> Path:
    return orders.folder / "runs" / f"{run.name}.json"


class _Crew:
    """The processes at work, and how far they are."""

    def __init__(self, orders: Orders, tell: Tell) -> None:
        self._orders = orders
        self._tell = tell
        self._context = multiprocessing.get_context("spawn")
        self._working: list[_Working] = []
        self._began_s = self._told_s = time.monotonic()
        self._done = 0.0
        self._all = 0.0

    def carry_out(self, runs: Sequence[Run]) -> list[str]:
        """All of them, in order; the names of those that failed."""
        ahead, failed, finished = list(runs), [], 0
        self._all = sum(self._effort(run) for run in runs)
        try:
            while (ahead or self._working) and not self._too_late():
                while ahead and len(self._working) < self._orders.workers:
                    self._working.append(self._begun(ahead.pop(0)))
                wait([each.process.sentinel for each in self._working], LOOK_S)
                for each in [each for each in self._working if each.process.exitcode is not None]:
                    self._working.remove(each)
                    finished += 1
                    self._done += self._effort(each.run)
                    if each.process.exitcode != 0:
                        failed.append(each.run.name)
                        self._tell(f"{each.run.name} has failed")
                    self._say(finished, len(runs), now=True)
                self._say(finished, len(runs))
        except KeyboardInterrupt:
            self._tell("interrupted: what is done is kept")
        finally:
            self._end()
        return failed

    def _too_late(self) -> bool:
        within_s = self._orders.within_s
        return within_s is not None and time.monotonic() - self._began_s > within_s

    def _begun(self, run: Run) -> _Working:
        share = self._context.Value("d", 0.0)
        given = (run, self._orders.data, self._orders.length_s, _file(run, self._orders), share)
        process = self._context.Process(target=_work, args=given, name=run.name, daemon=True)
        process.start()
        return _Working(run, process, share)

    def _say(self, finished: int, runs: int, *, now: bool = False) -> None:
        at_s = time.monotonic()
        if not now and at_s - self._told_s < TELL_EVERY_S:
            return
        self._told_s = at_s
        done = self._done + sum(each.share.value * self._effort(each.run) for each in self._working)
        left = format_duration((at_s - self._began_s) * (self._all - done) / done) if done else "?"
        at_work = ", ".join(f"{each.run.name} {each.share.value:.0%}" for each in self._working)
        self._tell(f"{finished} of {runs} simulations done, about {left} left; now {at_work or 'nothing'}")

    def _effort(self, run: Run) -> float:
        """In no unit: a packed trace has about as many bytes per job as any other."""
        size = (self._orders.data / run.case.trace).stat().st_size
        return size * EFFORT.get(run.scheduler, 1.0)

    def _end(self) -> None:
        for each in self._working:
            each.process.terminate()
        for each in self._working:
            each.process.join()


def _work(
    run: Run,
    data: Path,
    length_s: float | None,
    file: Path,
    share: "multiprocessing.sharedctypes.Synchronized[float]",
) -> None:
    """In a process of its own: simulate, judge, and keep the result. It ends when it is told to, and leaves no half a file."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    parent = multiprocessing.parent_process()

    def watch(moment: Moment) -> None:
        share.value = moment.share
        if parent is not None and not parent.is_alive():
            os._exit(1)  # whoever wanted it was killed

    result = carried_out(run, data, length_s, watch)
    new = file.with_suffix(".new")
    new.write_bytes(msgspec.json.format(msgspec.json.encode(result)))
    new.replace(file)
