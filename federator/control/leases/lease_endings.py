"""How leases end, as changes of records: taken back, given back, come to nothing, or gone; and what that means for the work on them.

Each is computed from the rows of the moment, so that work which was committed to the machine in between is seen. Mostly it is one transaction; a
machine may have more work on it than one takes, and then the lease's own change comes last, once nothing else is left.
"""

from collections.abc import Callable, Sequence

import msgspec

from federator.control.accounts.billing import placements_on
from federator.control.record.batches import write_each
from federator.control.record.event_writer import EventWriter
from federator.control.record.records import Changes, Records
from federator.control.reports import gangs
from federator.model.capacity import LEASE_ENDED, Lease, LeaseStatus
from federator.model.events import LedgerKind
from federator.model.jobs import JobStatus, Outcome, TerminalReason
from federator.model.lifecycle import advance, allows
from federator.model.placements import Order, Placement

GRACE_SHARE = 0.75
"""Of the time that an interruption's notice leaves, what jobs have to save themselves; the rest is for their results to come home."""


async def interrupted(records: Records, event_writer: EventWriter, lease_id: str, because: str) -> None:
    """Its work is to save itself in what time is left.

    A machine whose agent has not joined has nothing to save: it is ended at once, and its end is the proof that lets its jobs go on.
    """

    def save(changes: Changes, placement: Placement) -> None:
        lease, job = records.leases[lease_id], records.jobs[placement.job]
        if placement.order is Order.RESERVE:
            _give_back(records, event_writer, changes, placement, because)
        elif job.placement == placement.id and allows(job.status, "suspend"):
            left_s = (
                None if lease.reclaim_at is None else max(0.0, lease.reclaim_at - event_writer.clock.now())
            )
            grace_s = None if left_s is None else left_s * GRACE_SHARE
            event_writer.stop(changes, placement, because, sent=True, grace_s=grace_s)
            event_writer.job(changes, job, "suspend", because, pause_for="interruption")

    def move(changes: Changes, lease: Lease) -> None:
        event = "drain" if lease.member in records.members else "terminate"
        event_writer.lease(changes, lease, event, draining_since_at=event_writer.clock.now())

    await _end(records, lease_id, save, move, lambda lease: lease.status is LeaseStatus.INTERRUPTED)


def assembled(records: Records, event_writer: EventWriter, lease_id: str) -> Changes:
    """Once all machines of a gang are there, it is reserved on them, as on any members; until then, nothing."""
    changes = Changes()
    for placement in placements_on(records, records.leases[lease_id]):
        there = all(records.leases[lease].status is LeaseStatus.READY for lease in placement.leases)
        if placement.assembling and there:
            now = event_writer.clock.now()
            changes.put(msgspec.structs.replace(placement, assembling=False, assigned_at=now))
    return changes


async def unreserved(records: Records, event_writer: EventWriter, lease_id: str, because: str) -> None:
    """The machine is gone before its gangs have begun: their jobs wait again, and the other machines are free."""

    def give_back(changes: Changes, placement: Placement) -> None:
        if placement.order is Order.RESERVE:
            _give_back(records, event_writer, changes, placement, because)

    await _end(records, lease_id, give_back)


async def terminated(
    records: Records, event_writer: EventWriter, lease_id: str, unanswered: Sequence[str]
) -> None:
    """Give it back, with these placements on it and no others; each is noted as a loss."""

    def note(changes: Changes, placement: Placement) -> None:
        lease = records.leases[lease_id]
        text = f"{lease.id} is given back before {placement.id} has answered"
        about = {"job": placement.job, "lease": lease.id, "site": lease.site, "queue": lease.queue}
        changes.put(event_writer.ledger(LedgerKind.LOSS, "dispatcher", text, **about))

    def move(changes: Changes, lease: Lease) -> None:
        event_writer.lease(changes, lease, "terminate")

    def may(lease: Lease) -> bool:
        known = all(placement.id in unanswered for placement in placements_on(records, lease))
        return known and allows(lease.status, "terminate")

    await _end(records, lease_id, note, move, may)


async def failed(
    records: Records,
    event_writer: EventWriter,
    lease_id: str,
    why: str,
    event: str,
    *,
    stock_limit: int | None = None,
) -> None:
    """It came to nothing, as `event` says: its jobs wait again."""

    def give_back(changes: Changes, placement: Placement) -> None:
        because = f"renting {records.leases[lease_id].offer.name} failed: {why}"
        _give_back(records, event_writer, changes, placement, because)

    def move(changes: Changes, lease: Lease) -> None:
        ended = advance(lease.status, event) in LEASE_ENDED
        fields = {"ended_at": event_writer.clock.now(), "committed_usd": lease.billed_usd} if ended else {}
        event_writer.lease(changes, lease, event, failure=why, stock_limit=stock_limit, **fields)

    await _end(records, lease_id, give_back, move, lambda lease: allows(lease.status, event), last=True)


async def gone(records: Records, event_writer: EventWriter, lease_id: str, ended_at: float) -> None:
    """The machine is gone, and so is its member. Nothing changes while work is on it that is not told to be over yet."""

    def move(changes: Changes, lease: Lease) -> None:
        event_writer.lease(changes, lease, "ended", ended_at=ended_at, committed_usd=lease.billed_usd)
        member = records.members.get(lease.member)
        if member is not None:
            changes.put(msgspec.structs.replace(member, status=advance(member.status, "leave")))

    def may(lease: Lease) -> bool:
        return allows(lease.status, "ended") and not placements_on(records, lease)

    await _end(records, lease_id, None, move, may, last=True)


async def dropped(records: Records, event_writer: EventWriter, lease_id: str, why: str) -> None:
    """Nobody needs it any more, and its provider was not asked for it."""

    def move(changes: Changes, lease: Lease) -> None:
        event_writer.lease(
            changes, lease, "drop", failure=why, ended_at=event_writer.clock.now(), committed_usd=0.0
        )

    def may(lease: Lease) -> bool:
        return allows(lease.status, "drop") and not placements_on(records, lease)

    await _end(records, lease_id, None, move, may, last=True)


async def _end(
    records: Records,
    lease_id: str,
    see_to: Callable[[Changes, Placement], object] | None,
    move: Callable[[Changes, Lease], object] | None = None,
    may: Callable[[Lease], bool] | None = None,
    *,
    last: bool = False,
) -> None:
    """While the lease `may`: see to each placement on it, and then `move` the lease itself. `last`: nobody is left there to answer, either."""

    def there(lease: Lease) -> dict[str, Placement]:
        owed = _forgiven(records, lease) if last else []
        return {placement.id: placement for placement in (*placements_on(records, lease), *owed)}

    def write(changes: Changes, name: str) -> None:
        lease = records.leases[lease_id]
        if may is not None and not may(lease):
            return
        found = there(lease)
        names = [name] if name else [each for each in found if each not in known]
        for placement in (found[each] for each in names if each in found):
            if placement.ended:
                changes.put(placement)
            elif see_to is not None:
                see_to(changes, placement)
        if not name and move is not None:
            move(changes, lease)

    known = tuple(there(records.leases[lease_id]))
    await write_each(records, (*known, ""), write)


def _forgiven(records: Records, lease: Lease) -> list[Placement]:
    """Revoked placements whose stop nobody is left to answer: the machine is gone. The others of a gang's machines answer for themselves."""
    owed = [p for p in records.open_placements.values() if p.uses(lease.id) and p.ended]
    return [
        gangs.forgive(placement, lease.member)
        if placement.parts
        else msgspec.structs.replace(placement, stop_acknowledged=True)
        for placement in owed
    ]


def _give_back(
    records: Records, event_writer: EventWriter, changes: Changes, placement: Placement, because: str
) -> None:
    """A placement that never began: its job waits again. Members on which it was reserved have their stop to answer."""
    job = records.jobs[placement.job]
    revoked = event_writer.stop(changes, placement, because, sent=False)
    if not placement.parts:
        changes.put(msgspec.structs.replace(revoked, stop_acknowledged=True))
    event = "requeue" if allows(job.status, "requeue") else "held" if job.pause_for == "hold" else "released"
    outcome = Outcome(TerminalReason.CANCELLED, job.because) if job.status is JobStatus.CANCELLING else None
    if job.placement == placement.id and allows(job.status, event):
        event_writer.job(changes, job, event, because, outcome=outcome, placement=None, pause_for=None)
