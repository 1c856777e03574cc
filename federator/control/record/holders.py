"""How much of what is kept each person and each team holds. Counts go with the rows; bytes are measured by each sweep, and added to between two."""

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple, Self

from federator.model.arrays import JobArray, size
from federator.model.identity import BlobOwner
from federator.model.jobs import Job
from federator.model.series import Series
from federator.model.services import Service


class Held(StrEnum):
    """What is counted."""

    QUEUED = "queued jobs"
    FINISHED = "finished jobs"
    ARCHIVED = "jobs in the archive"
    SERIES = "series"
    SERVICES = "services"
    WORKDIRS = "work directories"
    BLOB_BYTES = "bytes of work directories and outputs"
    LOG_BYTES = "bytes of logs"
    LEDGER_LINES = "lines of the ledger"
    """Of those that are too young to be dropped; a person's own acts alone."""


class Holder(NamedTuple):
    """A person (`user`) or a team (`team`)."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def holders_of(owner: str, team: str = "") -> tuple[Holder, ...]:
    """The person, and the team if there is one."""
    person = Holder("user", owner)
    return (person, Holder("team", team)) if team else (person,)


class HeldCounts:
    """Counts by holder. Told of every change of a row by `note`."""

    def __init__(self) -> None:
        self._held: dict[Held, Counter[Holder]] = {what: Counter() for what in Held}
        self.on_the_way = 0
        """Jobs of everybody that are accepted and not on record yet."""

    def of(self, what: Held, holder: Holder) -> int:
        """How much of it they hold."""
        return self._held[what][holder]

    def all(self, what: Held) -> Iterator[tuple[Holder, int]]:
        """Everybody who holds any of it, and how much."""
        return iter(self._held[what].items())

    def note(self, former: object, row: object) -> None:
        """A row is on record in place of another; None: there was none, or there is none any more."""
        for record, step in ((former, -1), (row, 1)):
            held = _held_by(record)
            if held is not None:
                what, holders = held
                for holder in holders:
                    self.add(what, holder, step * _amount(record))

    def add(self, what: Held, holder: Holder, amount: int) -> None:
        """They hold so much more of it."""
        counts = self._held[what]
        counts[holder] += amount
        if not counts[holder]:
            del counts[holder]

    def measured(self, what: Held, counts: Counter[Holder]) -> None:
        """All of it was measured."""
        self._held[what] = counts


class OnTheWay:
    """Jobs of one request that are accepted and not on record yet: what is asked for at the same moment must count them too."""

    def __init__(self, held_counts: HeldCounts) -> None:
        self._held_counts = held_counts
        self._rows: list[Job | JobArray] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def add(self, rows: Sequence[Job | JobArray]) -> None:
        """They are accepted."""
        for row in rows:
            self._rows.append(row)
            self._held_counts.note(None, row)
            self._held_counts.on_the_way += _amount(row)

    def clear(self) -> None:
        """They are on record, or will not be."""
        for row in self._rows:
            self._held_counts.note(row, None)
            self._held_counts.on_the_way -= _amount(row)
        self._rows = []


def _amount(record: object) -> int:
    """How much one row counts: of the tasks of an array that are not expanded, as many as may come to wait as jobs."""
    return min(record.window, size(record.left)) if isinstance(record, JobArray) else 1


def _held_by(record: object) -> tuple[Held, tuple[Holder, ...]] | None:
    if isinstance(record, JobArray):
        return Held.QUEUED, holders_of(record.template.owner, record.template.team)
    if isinstance(record, Job):
        return Held.FINISHED if record.terminal else Held.QUEUED, holders_of(record.owner, record.team)
    if isinstance(record, Series):
        return Held.SERIES, holders_of(record.owner, record.team)
    if isinstance(record, Service):
        return Held.SERVICES, holders_of(record.owner, record.team)
    if isinstance(record, BlobOwner) and not record.team:
        return Held.WORKDIRS, holders_of(record.owner)
    return None
