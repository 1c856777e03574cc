"""What is an occasion for a turn, and what is not.

Nearly everything that happens is written down or heard, and most of it changes nothing that could be decided: a placement that was committed is told to
its site, begins and runs; the report counts it where it had been taken off already; what is over for days is dropped. To plan again after each of them
would cost a busy dispatcher most of its time, and find the plan that stands.

A turn follows at once on what may let work start, or change which: a job that waits or has ended, a placement that is over, any other row that rules,
sites or money are made of. All else is looked at: where a pool differs from what the last turn left behind in anything but times – when its work is
expected to end, how old its report is – or an offer differs in price, number or whether it is avoided, a turn follows, too. What differs in nothing else could only be told to wait again; forecasts that have moved
are taken up by the next turn, which the plan itself or the heartbeat asks for at the latest.
"""

import asyncio
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from federator.control.maintenance.ledger_export import MARK as EXPORTED
from federator.control.record.records import Changes, Flag, Record, Records, Spec
from federator.control.record.rows import ClientKey, Outputs
from federator.model.archive import ArchiveFile
from federator.model.events import Event, LedgerEntry
from federator.model.identity import JoinToken, Token
from federator.model.jobs import Job, JobStatus
from federator.model.ledger import LedgerState, Seal
from federator.model.placements import Order, Placement, PlacementStatus
from federator.model.snapshot import BusyView, OfferView, PoolView
from federator.planning.plans.resizes import could_use_more

UNREAD = (
    Event, LedgerEntry, LedgerState, Seal, ClientKey, Spec, Outputs, Token, JoinToken, ArchiveFile
)  # fmt: skip
"""Rows that no decision reads."""
OVER = (
    "job/",
    "placement/",
    "event/",
    "ledger/",
    "seal/",
    "spec/",
    "client/",
    "outputs/",
    "token/",
    "join/",
    "archive/",
    "array/",
)
"""What the keys of rows begin with that are dropped only when they are over."""

PLACED = frozenset({JobStatus.PLACED, JobStatus.STARTING, JobStatus.RUNNING})
"""As long as a job is so, it takes what it took before."""


class Occasion:
    """Tells when a turn is due."""

    def __init__(
        self, records: Records, pools: Callable[[], list[PoolView]], offers: Callable[[], list[OfferView]]
    ) -> None:
        """`pools`, `offers`: all capacity as a decision would see it now."""
        self._index = records.index
        self._pools = pools
        self._offers = offers
        self._waits = True
        """Whether the last turn left work waiting: if not, it is all one what is free."""
        self._left: list[PoolView] = []
        """The capacity that it left behind."""
        self._offered: list[OfferView] = []
        """What it could have rented."""
        self.woken = self._freed = self._heard = False
        self.stirred = asyncio.Event()
        """Something has happened."""

    @property
    def due(self) -> bool:
        """Whether there is to be a turn."""
        return self.woken or (self._waits and (self._freed or (self._heard and self._differs())))

    def wake(self, *_: object) -> None:
        """A turn is due, whatever has happened."""
        self.woken = True
        self.stirred.set()

    def hear(self) -> None:
        """Something was heard of a site or a provider."""
        self._heard = True
        self.stirred.set()

    def note(self, changes: Changes) -> None:
        """Rows have changed in the store."""
        if changes.quiet:
            return
        if not all(key.startswith(OVER) for key in changes.deletes):
            self.woken = True
        for row in _read(changes):
            if isinstance(row, Job):
                follows = row.terminal and bool(self._index.followers(row))
                self.woken |= row.status is JobStatus.PENDING or follows
                self._freed |= row.status not in PLACED
            elif isinstance(row, Placement):
                self._freed |= row.ended or any(part.ended for part in row.parts)
                self.woken |= row.leave_by_at is not None and row.order is not Order.STOP
            else:
                self.woken = True
            self._heard = True
        if self.woken or self._freed or self._heard:
            self.stirred.set()

    def begin(self) -> None:
        """A turn begins: it sees all that has happened."""
        self.woken = self._freed = self._heard = False
        self.stirred.clear()

    def end(self) -> None:
        """The turn has ended. What was heard while it planned, it may not have seen."""
        pools = self._pools()
        self._waits = bool(self._index.pending_by_queue()) or any(map(could_use_more, pools))
        self.woken = self.woken or (self._waits and self._heard)
        self._left = pools if self._waits else []
        self._offered = self._offers() if self._waits else []

    async def come(self) -> None:
        """Return when a turn is due."""
        while True:
            await self.stirred.wait()
            if self.due:
                return
            self._heard = False
            self.stirred.clear()

    def _differs(self) -> bool:
        """Whether capacity is not as the last turn left it."""
        if self._offers() != self._offered:
            return True
        now = self._pools()
        return len(now) != len(self._left) or any(map(_another, self._left, now))


def _read(changes: Changes) -> Iterator[Record]:
    """The rows that a decision may read, but for what commits it: a placement that is new, and its job, give nothing to anybody."""
    new = {row.job for row in changes.rows.values() if isinstance(row, Placement) and _is_new(row)}
    for row in changes.rows.values():
        if isinstance(row, Job) and row.id in new and not row.terminal:
            continue
        if isinstance(row, Flag) and row.name.startswith(EXPORTED):
            continue
        if not isinstance(row, UNREAD) and not (isinstance(row, Placement) and _is_new(row)):
            yield row


def _is_new(placement: Placement) -> bool:
    return placement.status is PlacementStatus.ASSIGNED and placement.order is not Order.STOP


def _another(before: PoolView, now: PoolView) -> bool:
    """Whether a pool differs in anything but times."""
    same = before.busy is now.busy or list(map(_timeless, before.busy)) == list(map(_timeless, now.busy))
    return not same or replace(before, busy=(), age_s=0.0) != replace(now, busy=(), age_s=0.0)


def _timeless(busy: BusyView) -> BusyView:
    return replace(busy, ends_at=0.0, started_at=0.0, startup_s=0.0, revision=0, waits_as=None)
