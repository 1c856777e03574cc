"""What a real spot market did: a trace of machines that a group was given and that were taken from it, replayed on simulated machines.

The group of such a trace always wanted more machines than it had. So where the last thing that happened was a removal, there was nothing to be had;
and a removal from so many machines is the chance of one in so many for each of ours. After its end a trace begins again.
"""

import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec

from federator.kernel.errors import Invalid, TooLarge
from federator.wire.faults import unreadable
from federator.wire.named_files import read_number, read_table

FIELD = "events.file"
COLUMNS = frozenset({"trace", "t_s", "event", "instances_after"})
COUNTED = frozenset({"trace", "t_s", "instances"})
"""Columns of a trace that says how many machines there were, from when on."""
MOST_ROUNDS = 200
"""So often a trace is gone through for one machine before it is said to live for ever."""

MOST_MACHINES = 100_000
"""At one time,"""
MOST_EVENTS = 1_000_000
"""and in a whole trace."""


class SpotEvent(msgspec.Struct, frozen=True):
    """At this time (seconds from the start of the trace) a machine was given, or one of so many was taken."""

    at_s: float
    taken_of: int
    """0: one was given."""


class SpotHistory(msgspec.Struct, frozen=True, kw_only=True):
    """All that happened, in order. `start_s`: the simulation begins so long after the trace."""

    events: tuple[SpotEvent, ...]
    start_s: float = 0.0

    @property
    def length_s(self) -> float:
        """When it begins again."""
        return self.events[-1].at_s + 1.0

    def sold_out(self, now_s: float) -> bool:
        """Whether nothing is to be had, so long after the simulation began."""
        at_s = (now_s + self.start_s) % self.length_s
        before = [event for event in self.events if event.at_s <= at_s]
        return bool((before or self.events)[-1].taken_of)

    def lives_s(self, now_s: float, chance: random.Random) -> float | None:
        """How long a machine lives that is launched now; None: for ever."""
        for left_s, taken_of in self._removals(now_s):
            if chance.random() * taken_of < 1.0:
                return left_s
        return None

    def _removals(self, now_s: float) -> Iterator[tuple[float, int]]:
        """Those still to come: in how many seconds, and of how many machines."""
        at_s = now_s + self.start_s
        first = int(at_s // self.length_s)
        for number in range(first, first + MOST_ROUNDS):
            for event in self.events:
                left_s = number * self.length_s + event.at_s - at_s
                if event.taken_of and left_s > 0:
                    yield left_s, event.taken_of


def read_history(path: Path, trace: str, start_s: float = 0.0) -> SpotHistory:
    """One trace of a table with the columns `trace`, `t_s`, `event` (add, remove) and `instances_after`; or `trace`, `t_s` and `instances`. Raises `Invalid`."""
    try:
        with read_table(path, FIELD) as table:
            columns = frozenset(table.columns)
            if not (columns >= COLUMNS or columns >= COUNTED):
                raise Invalid(f"{path.name} has not the columns {', '.join(sorted(COLUMNS))}", field=FIELD)
            listed = [row for _, row in table.rows]
        chosen = [row for row in listed if row["trace"] == trace]
        found = map(_event, chosen) if columns >= COLUMNS else _changes(chosen)
        events = tuple(islice(found, MOST_EVENTS + 1))
    except ValueError as error:
        raise unreadable(path.name, error, FIELD) from None
    if len(events) > MOST_EVENTS:
        raise TooLarge(f"in {path.name} over {MOST_EVENTS} machines are given and taken", field=FIELD)
    if not any(event.taken_of for event in events):
        known = sorted({row["trace"] for row in listed})
        raise Invalid(
            f"in the trace {trace!r} of {path.name} nothing is taken",
            field="events.trace",
            remedy=f"write one of {', '.join(known)}",
        )
    return SpotHistory(events=tuple(sorted(events, key=lambda event: event.at_s)), start_s=start_s)


def _event(row: dict[str, str]) -> SpotEvent:
    if row["event"] not in ("add", "remove"):
        raise ValueError(f"an event is {row['event']!r}, and neither add nor remove")
    return SpotEvent(_at(row), _count(row["instances_after"]) + 1 if row["event"] == "remove" else 0)


def _changes(rows: list[dict[str, str]]) -> Iterator[SpotEvent]:
    """From counts: of so many that are gone at once, one after another was taken of what was left."""
    before = 0
    for row in sorted(rows, key=_at):
        at_s, now = _at(row), _count(row["instances"])
        yield from (SpotEvent(at_s, taken_of) for taken_of in range(before, now, -1))
        yield from (SpotEvent(at_s, 0) for _ in range(now > before))
        before = now


def _at(row: dict[str, str]) -> float:
    return read_number(row, "t_s")


def _count(text: str) -> int:
    count = int(text)
    if not 0 <= count <= MOST_MACHINES:
        raise ValueError(f"{count} machines are not between 0 and {MOST_MACHINES}")
    return count
