"""`python -m tests.lab faults`: the dispatcher and its agents on virtual time, while everything around them goes wrong, seed after seed."""

import sys
import time
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from federator.cli.planner import ready_planner
from federator.kernel.errors import Invalid
from federator.kernel.quantities import format_duration

if TYPE_CHECKING:
    from tests.lab.faults.running import Outcome

SAY_EVERY_S = 10.0
"""Real seconds between two lines where there is no terminal."""


def faults(
    *,
    seeds: int = 100,
    from_: Annotated[int, Parameter(name="--from")] = 0,
    jobs: int = 1,
    large: bool = False,
    journal: bool = False,
) -> int:
    """Let messages, stores, clouds, clocks and processes fail as seeds say, and watch that every promise is kept.

    Each seed is a small federation of its own, whose dispatchers and agents are the production ones. A seed that breaks a promise is told with what
    went before, and with the command that plays it again exactly.

    Parameters
    ----------
    seeds:
        How many seeds are played.
    from_:
        The first of them.
    jobs:
        How many are played at the same time, each in a process of its own.
    large:
        Play federations of ten sites and five hundred submissions in place of small ones.
    journal:
        Print everything that happens. The same seed prints the same bytes.
    """
    from federator.cli.exit_codes import FAILED, OK
    from tests.lab.faults.drawing import LARGE, SMALL
    from tests.lab.faults.running import play
    from tests.lab.faults.study import outcomes, story

    if seeds < 1 or jobs < 1:
        raise Invalid("must be at least 1", field="--seeds" if seeds < 1 else "--jobs")
    ready_planner()
    progress = _Progress(seeds)
    size, among = (LARGE, " --large") if large else (SMALL, "")
    told = (play(seed, print, size) for seed in range(from_, from_ + seeds))
    played = told if journal else outcomes(from_, seeds, jobs, size)
    broken = 0
    for outcome in played:
        progress.done(outcome)
        if outcome.findings:
            broken += 1
            progress.clear()
            print(
                story(outcome, f"python -m tests.lab faults --from {outcome.seed} --seeds 1{among} --journal")
            )
    progress.end(broken)
    return FAILED if broken else OK


class _Progress:
    """How far it is, and how fast: one line on a terminal, a line now and then elsewhere."""

    def __init__(self, seeds: int) -> None:
        self._seeds = seeds
        self._terminal = sys.stderr.isatty()
        self._began_s = self._said_s = time.monotonic()
        self._played = 0
        self._jobs = 0
        self._virtual_s = 0.0
        self._cpu_s = 0.0

    def done(self, outcome: "Outcome") -> None:
        """A seed is over."""
        self._played += 1
        self._jobs += outcome.jobs
        self._virtual_s += outcome.virtual_s
        self._cpu_s += outcome.cpu_s
        now_s = time.monotonic()
        if self._terminal or now_s - self._said_s >= SAY_EVERY_S:
            self._said_s = now_s
            left_s = (now_s - self._began_s) / self._played * (self._seeds - self._played)
            self._say(
                f"{self._line()}, about {format_duration(left_s)} left", end="" if self._terminal else "\n"
            )

    def clear(self) -> None:
        """Something else is about to be printed."""
        if self._terminal:
            self._say("", end="")

    def end(self, broken: int) -> None:
        """All are over."""
        self._say(f"{self._line()}; {broken or 'none'} broke a promise", end="\n")

    def _line(self) -> str:
        rate = self._virtual_s / max(1e-3, self._cpu_s)
        return (
            f"{self._played} of {self._seeds} seeds, {self._jobs:,} jobs, {format_duration(self._virtual_s)} of virtual time, "
            f"{self._cpu_s / self._played:.2f} s each, {rate:,.0f} × real time"
        )

    def _say(self, text: str, *, end: str) -> None:
        print(("\r\033[K" if self._terminal else "") + text, end=end, file=sys.stderr, flush=True)
