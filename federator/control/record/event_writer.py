"""Writing down what happens: a status change, the event that tells of it, and the ledger line, always together.

Every loop that changes a job or placement does it through here, so that no status moves without an edge in the tables, an event for
the user, and the reason.
"""

from typing import Any

import msgspec

from federator.control.record.records import Changes
from federator.kernel.clock import Clock
from federator.kernel.ids import IdSource
from federator.model.capacity import Lease
from federator.model.events import Event, LedgerEntry, LedgerKind
from federator.model.jobs import TERMINAL, Job, Outcome, TerminalReason
from federator.model.lifecycle import advance
from federator.model.placements import Order, Placement
from federator.model.plans import Action, Proposal
from federator.model.reasons import Reason


def reason_of(decided: Action | Proposal) -> str | Reason:
    """Why it was decided, as it is recorded; of a plan of an older version, in words."""
    return decided.reason or decided.because


def _apart(said: str | Reason) -> tuple[str, Reason | None]:
    """What is recorded in words, and what as a value."""
    return (said, None) if isinstance(said, str) else ("", said)


class EventWriter:
    """Adds rows to a `Changes`; decides nothing."""

    def __init__(self, clock: Clock, ids: IdSource) -> None:
        self.clock = clock
        self.ids = ids

    def job(
        self,
        changes: Changes,
        job: Job,
        event: str,
        because: str | Reason,
        *,
        outcome: Outcome | None = None,
        at: float | None = None,
        site: str = "",
        **fields: Any,
    ) -> Job:
        """Move the job along `event`, which happened at `site`. Raises `BadTransition` for an edge that is not in the tables."""
        now = self.clock.now()
        status = advance(job.status, event)
        if status in TERMINAL:
            finished_at = at if at is not None else now
            missed = None if job.deadline_at is None else finished_at > job.deadline_at
            outcome = msgspec.structs.replace(outcome or Outcome(TerminalReason.DONE), missed_deadline=missed)
            fields |= {"finished_at": finished_at, "outcome": outcome, "pause_for": None}
        text, reason = _apart(because)
        moved = msgspec.structs.replace(job, status=status, because=text, reason=reason, **fields)
        changes.put(moved, self.event(moved, event, because, site=site))
        return moved

    def place(self, changes: Changes, job: Job, placement: Placement, because: str | Reason) -> Job:
        """The job goes to its new placement."""
        return self.job(
            changes,
            job,
            "place",
            because,
            site=placement.site,
            placement=placement.id,
            epoch=placement.epoch,
            not_before_at=None,
        )

    def event(self, job: Job, kind: str, said: str | Reason, *, site: str = "") -> Event:
        """A line of the job's timeline."""
        text, reason = _apart(said)
        return Event(
            id=self.ids.new("ev"),
            job=job.id,
            at=self.clock.now(),
            kind=kind,
            status=job.status,
            text=text,
            reason=reason,
            site=site,
            placement=job.placement or "",
        )

    def placement(self, changes: Changes, placement: Placement, event: str, **fields: Any) -> Placement:
        """Move the placement along `event`."""
        moved = msgspec.structs.replace(placement, status=advance(placement.status, event), **fields)
        changes.put(moved)
        return moved

    def stop(
        self,
        changes: Changes,
        placement: Placement,
        because: str | Reason,
        *,
        sent: bool,
        grace_s: float | None = None,
    ) -> Placement:
        """Order the placement stopped, within `grace_s` at most; one that was not sent anywhere to be run is revoked at once.

        A revoked one still stands in its members' desired sets, as a stop: should its machine come up in this very moment, it
        must not run, and what is reserved for it is free again. The sets are rid of it once the members have answered or are gone.
        Of one whose machines were not all there nobody knows.
        """
        text, reason = _apart(because)
        if not sent:
            ended_at = self.clock.now()
            return self.placement(
                changes,
                placement,
                "revoke",
                order=Order.STOP,
                order_reason=text,
                order_why=reason,
                ended_at=ended_at,
                moves=None,
                stop_acknowledged=placement.assembling,
            )
        told = msgspec.structs.replace(
            placement, order=Order.STOP, order_reason=text, order_why=reason, grace_s=grace_s
        )
        changes.put(told)
        return told

    def act(self, changes: Changes, who: str, what: str, **fields: Any) -> None:
        """Who did what."""
        changes.put(self.ledger(LedgerKind.ACT, who, what, **fields))

    def ledger(self, kind: LedgerKind, who: str, what: str, **fields: Any) -> LedgerEntry:
        """A line of the ledger, not yet written."""
        return LedgerEntry(
            id=self.ids.new("le"), at=self.clock.now(), kind=kind, who=who, what=what, **fields
        )

    def lease(self, changes: Changes, lease: Lease, event: str, **fields: Any) -> Lease:
        """Move the lease along `event`."""
        moved = msgspec.structs.replace(lease, status=advance(lease.status, event), **fields)
        changes.put(moved)
        return moved
