"""How honest forecasts are: now and then every open job is looked at as its owner would see it, and at the end it is counted how often that was true.

What is looked at is the very row that `federator list` shows, with the moments between which the job is expected to start and to end.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from federator.cli.layout import Column
from federator.cli.output import show_rows
from federator.simulation.federation import SimulatedFederation
from federator.simulation.recorder import Recorder
from federator.simulation.schedule import DONE, Schedule
from federator.simulation.virtual_time import ORIGIN_AT
from federator.wire.http import JobRow

MEANT_SHARE = 0.8
"""So many are to come between."""
AHEAD_S = (0.0, 600.0, 3_600.0, 4 * 3_600.0, float("inf"))
AHEAD = ("up to 10m", "10m to 1h", "1h to 4h", "over 4h")
START, FINISH = "start", "finish"


class Look(NamedTuple):
    """What one job was told once: of its start while it waits, of its end while it waits or runs. Seconds of the trace."""

    job: str
    what: str
    waits: bool
    at_s: float
    low_s: float
    middle_s: float
    high_s: float


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """Looks of a kind, by how far ahead the middle was. Shares are of all looks; what never came counts as after."""

    what: str
    ahead: str
    looks: int
    before_share: float
    between_share: float
    after_share: float
    width: float
    """How wide the range was, on the mean, over the time from the look to its middle."""


class Looking:
    """Looks at all open jobs every so often. `beside` goes on beside a simulation."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self.looks: list[Look] = []

    async def beside(self, federation: SimulatedFederation, recorder: Recorder) -> None:
        """For ever."""
        core = federation.core
        while True:
            await asyncio.sleep(self._every_s)
            now_at = federation.clock.now()
            for job in core.records.open_jobs.values():
                name = recorder.name_of(job.id)
                self.looks += looks_at(name, core.views.row(job), now_at, ORIGIN_AT)


def looks_at(job: str, row: JobRow, now_at: float, origin_at: float) -> Iterator[Look]:
    """What a row says that is still to come."""
    told = (
        (START, row.start_low_at, row.expected_start_at, row.start_high_at),
        (FINISH, row.finish_low_at, row.expected_finish_at, row.finish_high_at),
    )
    for what, low_at, middle_at, high_at in told:
        if low_at is None or middle_at is None or high_at is None or middle_at <= now_at:
            continue
        moments = (at - origin_at for at in (now_at, low_at, middle_at, high_at))
        yield Look(job, what, row.expected_start_at is not None, *moments)


def judged(looks: Sequence[Look], schedule: Schedule) -> tuple[Judged, ...]:
    """Starts of waiting jobs, ends of waiting jobs, ends of running ones; each by how far ahead they were expected."""
    starts: dict[str, list[float]] = {}
    ends: dict[str, float] = {}
    for row in schedule.attempts:
        if row.start_s is not None:
            starts.setdefault(row.job, []).append(row.start_s)
        if row.end_s is not None and row.outcome == DONE:
            ends[row.job] = row.end_s
    found = []
    for title, what, waits in (
        ("start of what waits", START, True),
        ("end of what waits", FINISH, True),
        ("end of what runs", FINISH, False),
    ):
        of = [look for look in looks if look.what == what and look.waits == waits]
        pairs = [(look, _came(look, starts, ends)) for look in of]
        for ahead, low_s, high_s in zip(AHEAD, AHEAD_S, AHEAD_S[1:], strict=False):
            found += _judged(title, ahead, [p for p in pairs if low_s < p[0].middle_s - p[0].at_s <= high_s])
        found += _judged(title, "all", pairs)
    return tuple(found)


def _came(look: Look, starts: dict[str, list[float]], ends: dict[str, float]) -> float:
    if look.what == FINISH:
        return ends.get(look.job, float("inf"))
    return min((at for at in starts.get(look.job, ()) if at >= look.at_s), default=float("inf"))


def _judged(what: str, ahead: str, pairs: Iterable[tuple[Look, float]]) -> list[Judged]:
    pairs = list(pairs)
    if not pairs:
        return []
    # To the second: what people are shown is no finer.
    before = sum(came < look.low_s - 1.0 for look, came in pairs)
    after = sum(came > look.high_s + 1.0 for look, came in pairs)
    width = sum((look.high_s - look.low_s) / (look.middle_s - look.at_s) for look, _ in pairs) / len(pairs)
    return [
        Judged(
            what=what,
            ahead=ahead,
            looks=len(pairs),
            before_share=before / len(pairs),
            between_share=1.0 - (before + after) / len(pairs),
            after_share=after / len(pairs),
            width=width,
        )
    ]


def show(name: str, rows: Sequence[Judged]) -> None:
    """As a table, under the name of the run."""
    print(
        f"\nWhat {name} told open jobs: {MEANT_SHARE:.0%} are meant to come between.\n"
        "WIDTH is that of the range, over the time from the look to its middle."
    )
    columns: list[Column[Judged]] = [
        Column("OF", lambda row: row.what),
        Column("EXPECTED IN", lambda row: row.ahead),
        Column("LOOKS", lambda row: f"{row.looks:,}", right=True),
        Column("BEFORE %", lambda row: f"{100 * row.before_share:.0f}", right=True),
        Column("BETWEEN %", lambda row: f"{100 * row.between_share:.0f}", right=True),
        Column("AFTER %", lambda row: f"{100 * row.after_share:.0f}", right=True),
        Column("WIDTH", lambda row: f"{row.width:.1f} x", right=True, least=90),
    ]
    show_rows(rows, columns, "table", empty="nothing was looked at")
