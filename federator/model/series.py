"""Series: a job that is submitted again and again. Each of its runs is a job like any other; what is kept here is when the next one is due.

The arithmetic is pure: a series and a time give the series as it is then, and whether a run is to be submitted. Whoever writes the run writes the
series in the same transaction, so that no run is submitted twice and none is forgotten.
"""

import math
from enum import StrEnum
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from federator.kernel.quantities import format_duration, format_instant
from federator.model.cron import first_after, last_until
from federator.model.identity import Role

NOTES = 20
"""So much of what became of its times is kept with a series."""
BACK_S = 3600.0
"""A clock that is put back by no more than that is waited for; by one that is put back further, times begin anew."""
LATE_S = 60.0
"""A run that is submitted later than that after it was due is told to be late."""
EDGE = 1e-6
"""Of an interval: so close to a time it is that time."""


class Overlap(StrEnum):
    """What becomes of a run that is due while the last one is not over."""

    SKIP = "skip"
    QUEUE = "queue"
    REPLACE = "replace"


class SeriesStatus(StrEnum):
    """Whether runs come."""

    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    ENDED = "ENDED"


class Recurrence(msgspec.Struct, frozen=True, kw_only=True):
    """When runs are due: every `interval_s`, or as `cron` says by the clock of `timezone`."""

    interval_s: float = 0.0
    cron: str = ""
    timezone: str = "UTC"
    start_at: float | None = None
    """None is due before; intervals are counted from it."""
    end_at: float | None = None
    """None is due then or later."""
    submit_within_s: float | None = None
    """A run that could not be submitted so long after it was due is left out. None: it waits until the next one is due."""
    overlap: Overlap = Overlap.SKIP
    keep: int = 100
    """So many runs that are over are kept, the newest; none goes before the time that all jobs are promised."""

    def first(self, now: float, anchor_at: float) -> float | None:
        """The first time from `now` on. Intervals are counted from `anchor_at`. None: there is none."""
        begin_at = max(now, self.start_at or now)
        if self.cron:
            just_before_at = math.nextafter(begin_at, 0.0)
            return self._open(first_after(self.cron, self.timezone, just_before_at))
        ticks = math.ceil((begin_at - anchor_at) / self.interval_s - EDGE)
        return self._open(anchor_at + ticks * self.interval_s)

    def after(self, at: float, anchor_at: float) -> float | None:
        """The next time after `at`; None: there is none."""
        if self.cron:
            return self._open(first_after(self.cron, self.timezone, at))
        return self._open(anchor_at + (self._ticks(at, anchor_at) + 1) * self.interval_s)

    def latest(self, at: float, anchor_at: float) -> float:
        """The last time up to `at`, where there is one."""
        if self.end_at is not None and at >= self.end_at:
            at = math.nextafter(self.end_at, 0.0)
            if not self.cron and (at - anchor_at) % self.interval_s > self.interval_s * (1 - EDGE):
                at -= self.interval_s * EDGE
        if self.cron:
            return last_until(self.cron, self.timezone, at)
        return anchor_at + self._ticks(at, anchor_at) * self.interval_s

    def _ticks(self, at: float, anchor_at: float) -> int:
        return math.floor((at - anchor_at) / self.interval_s + EDGE)

    def _open(self, at: float) -> float | None:
        return None if self.end_at is not None and at >= self.end_at else at

    def __str__(self) -> str:
        zone = "" if self.timezone == "UTC" else f" {self.timezone}"
        return f"{self.cron}{zone}" if self.cron else format_duration(self.interval_s)


class SeriesNote(msgspec.Struct, frozen=True):
    """What became of a time at which no run, or a late one, was submitted."""

    at: float
    text: str


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """A series' record; of one owner there is one of a name. `file` is the job file of its next run, as JSON."""

    id: str
    name: str
    owner: str
    queue: str
    file: str
    every: Recurrence
    team: str = ""
    """The team under which its runs are submitted; empty: under none."""
    groups: tuple[str, ...] = ()
    """Groups of the sign-in provider that its owner was in at the last sign-in: its runs are submitted as a member of these."""
    signed_in_at: float | None = None
    """When its owner last signed in with the provider, to the hour; None: not that it is known."""
    signed_in_as: Role | None = None
    """The role of that sign-in."""
    created_at: float
    changed_at: float
    anchor_at: float
    """Intervals are counted from here."""
    next_at: float | None
    """The first time that nothing was decided of yet; None: no more runs are due."""
    decided_at: float = 0.0
    """When that was decided: of all times up to then."""
    owed_at: float | None = None
    """When a run was due that is still to be submitted."""
    runs: int = 0
    """The number of the newest run."""
    last: tuple[str, ...] = ()
    """The ids of the newest run's jobs."""
    paused_by: str = ""
    paused_because: str = ""
    """Of a series that the dispatcher has paused by itself: why."""
    vouched_by: str = ""
    """Who has resumed it while its owner had no token: until there is one again it goes on all the same."""
    ended_at: float | None = None
    ended_because: str = ""
    notes: tuple[SeriesNote, ...] = ()
    """The newest last."""

    @property
    def status(self) -> SeriesStatus:
        """Whether runs come."""
        if self.ended_at is not None:
            return SeriesStatus.ENDED
        return SeriesStatus.PAUSED if self.paused_by else SeriesStatus.ACTIVE

    def next(
        self, now: float, every: Recurrence | None = None, anchor_at: float | None = None
    ) -> float | None:
        """The first time from now on that nothing was decided of, also where it goes on with other times. None: there is none."""
        every = every or self.every
        anchor_at = self.anchor_at if anchor_at is None else anchor_at
        first_at = every.first(now, anchor_at)
        if first_at is None or not now <= self.decided_at <= now + BACK_S:
            return first_at
        after_at = every.after(self.decided_at, anchor_at)
        return None if after_at is None else max(first_at, after_at)

    def run(self, number: int) -> str:
        """The name of a run."""
        return f"{self.name}-{number}"

    def noted(self, now: float, text: str) -> "Series":
        """With one more note, unless it is the last one again."""
        if self.notes and self.notes[-1].text == text:
            return self
        return replace(self, notes=(*self.notes, SeriesNote(now, text))[-NOTES:])


class SeriesCheck(NamedTuple):
    """A series as it is now, and whether the run that it owes is to be submitted."""

    series: Series
    submits: bool


def look(series: Series, now: float, running: str) -> SeriesCheck:
    """What is due now. `running`: the name of the newest run, if that is not over.

    However long nobody looked, one run is made up for: the last that was due.
    """
    if series.status is not SeriesStatus.ACTIVE:
        return SeriesCheck(series, submits=False)
    series = come_due(_put_back(series, now), now, running)
    every, owed_at = series.every, series.owed_at
    if owed_at is None:
        if series.next_at is None:
            series = replace(series, ended_at=now, ended_because="no more runs are due")
        return SeriesCheck(series, submits=False)
    if every.submit_within_s is not None and now - owed_at > every.submit_within_s:
        within = format_duration(every.submit_within_s)
        series = series.noted(now, f"{_due(owed_at)} is left out: it could not be submitted within {within}")
        return SeriesCheck(replace(series, owed_at=None), submits=False)
    return SeriesCheck(series, submits=not running)


def come_due(series: Series, now: float, running: str) -> Series:
    """The series after all that has come due by `now`."""
    next_at, every = series.next_at, series.every
    if next_at is None or now < next_at:
        return series
    due_at = max(next_at, every.latest(now, series.anchor_at))
    if due_at > next_at:
        until = f"no dispatcher was running when runs were due from {format_instant(next_at)} on"
        series = series.noted(now, f"{until}; of that, {_due(due_at)} is made up for")
    if series.owed_at is not None:
        series = series.noted(
            now, f"{_due(series.owed_at)} is given up: another was due before it could start"
        )
    owed_at: float | None = due_at
    if running and every.overlap is Overlap.SKIP:
        series = series.noted(now, f"{_due(due_at)} is skipped: {running} is not over")
        owed_at = None
    next_at = every.after(now, series.anchor_at)
    return replace(series, next_at=next_at, decided_at=now, owed_at=owed_at)


def _put_back(series: Series, now: float) -> Series:
    """Of a clock that was far ahead when something was decided, nothing is left: what was due by it would be waited for as long."""
    ahead_s = max(series.decided_at, series.changed_at) - now
    if ahead_s <= BACK_S or series.next_at is None:
        return series
    series = series.noted(
        now, f"the clock was put back by {format_duration(ahead_s)}: times count from now on"
    )
    owed_at = series.owed_at if series.owed_at is not None and series.owed_at <= now else None
    return replace(
        series,
        next_at=series.next(now),
        owed_at=owed_at,
        decided_at=now,
        changed_at=min(series.changed_at, now),
    )


def _due(at: float) -> str:
    return f"the run due at {format_instant(at)}"


def submitted(series: Series, now: float, jobs: tuple[str, ...]) -> Series:
    """The series once the run that it owes is submitted as these jobs."""
    due_at = series.owed_at or now
    if now - due_at > LATE_S:
        name = series.run(series.runs + 1)
        series = series.noted(
            now, f"{name} was due at {format_instant(due_at)} and is {format_duration(now - due_at)} late"
        )
    return replace(series, runs=series.runs + 1, owed_at=None, last=jobs)


def said(series: Series, now: float, running: str) -> str:
    """What comes next, and what stands in its way, in a sentence."""
    if series.ended_at is not None:
        return f"ended: {series.ended_because}"
    if series.paused_by:
        if series.paused_because:
            return f"paused by {series.paused_by}: {series.paused_because}; no runs are submitted until one is, or until it is resumed"
        return f"paused by {series.paused_by}: no runs are submitted until it is resumed"
    parts = []
    if series.owed_at is not None:
        waits = f"waits for {running} to end" if running else "is to be submitted"
        why = "" if running or not series.notes else f" ({series.notes[-1].text})"
        parts.append(f"{_due(series.owed_at)} {waits}{why}")
    if series.next_at is None:
        parts.append("no more runs are due")
    else:
        parts.append(
            f"next run at {format_instant(series.next_at)}, in {format_duration(max(0.0, series.next_at - now))}"
        )
        if running:
            parts.append(f"unless {running} is over by then, it {_OVERLAPS[series.every.overlap]}")
    if series.notes and series.owed_at is None:
        parts.append(series.notes[-1].text)
    return "; ".join(parts)


_OVERLAPS = {
    Overlap.SKIP: "is skipped",
    Overlap.QUEUE: "waits for its end",
    Overlap.REPLACE: "takes its place",
}


def series_key(owner: str, name: str) -> str:
    """Under which a series is known: of one owner there is one of a name."""
    return f"{owner}/{name}"
