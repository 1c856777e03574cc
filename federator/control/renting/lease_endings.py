"""How leases end, as changes of records: taken back, given back, come to nothing, or gone; and what that means for the work on them.

Each is computed from the rows of the moment, so that work which was committed to the machine in between is seen.
"""

from collections.abc import Sequence

import msgspec

from federator.control.accounts.billing import placements_on
from federator.control.record.records import Changes, Records
from federator.control.record.scribe import Scribe
from federator.control.reports import gangs
from federator.model.capacity import LEASE_ENDED, Lease, LeaseStatus
from federator.model.events import LedgerKind
from federator.model.jobs import JobStatus, Outcome, TerminalReason
from federator.model.lifecycle import advance, allows
from federator.model.placements import Order, Placement

GRACE_SHARE = 0.75
"""Of the time that an interruption's notice leaves, what jobs have to save themselves; the rest is for their results to come home."""


def interrupted(records: Records, scribe: Scribe, lease_id: str, because: str) -> Changes:
    """Its work is to save itself in what time is left.

    A machine whose agent has not joined has nothing to save: it is ended at once, and its end is the proof that lets its jobs go on.
    """
    changes = Changes()
    now = scribe.clock.now()
    lease = records.leases[lease_id]
    if lease.status is not LeaseStatus.INTERRUPTED:
        return changes
    left_s = max(0.0, lease.reclaim_at - now) if lease.reclaim_at is not None else None
    grace_s = None if left_s is None else left_s * GRACE_SHARE
    for placement in placements_on(records, lease):
        job = records.jobs[placement.job]
        if placement.order is Order.RESERVE:
            _give_back(records, scribe, changes, placement, because)
        elif job.placement == placement.id and allows(job.status, "suspend"):
            scribe.stop(changes, placement, because, sent=True, grace_s=grace_s)
            scribe.job(changes, job, "suspend", because, pause_for="interruption")
    event = "drain" if lease.member in records.members else "terminate"
    scribe.lease(changes, lease, event, draining_since_at=now)
    return changes


def assembled(records: Records, scribe: Scribe, lease_id: str) -> Changes:
    """Once all machines of a gang are there, it is reserved on them, as on any members; until then, nothing."""
    changes = Changes()
    for placement in placements_on(records, records.leases[lease_id]):
        there = all(records.leases[lease].status is LeaseStatus.READY for lease in placement.leases)
        if placement.assembling and there:
            now = scribe.clock.now()
            changes.put(msgspec.structs.replace(placement, assembling=False, assigned_at=now))
    return changes


def unreserved(records: Records, scribe: Scribe, lease_id: str, because: str) -> Changes:
    """The machine is gone before its gangs have begun: their jobs wait again, and the other machines are free."""
    changes = Changes()
    lease = records.leases[lease_id]
    for placement in placements_on(records, lease):
        if placement.order is Order.RESERVE:
            _give_back(records, scribe, changes, placement, because)
    return changes


def terminated(records: Records, scribe: Scribe, lease_id: str, unanswered: Sequence[str]) -> Changes:
    """Give it back, with these placements on it and no others; each is noted as a loss."""
    changes = Changes()
    lease = records.leases[lease_id]
    still = [p for p in placements_on(records, lease) if p.id not in unanswered]
    if still or not allows(lease.status, "terminate"):
        return changes
    scribe.lease(changes, lease, "terminate")
    for placement in placements_on(records, lease):
        text = f"{lease.id} is given back before {placement.id} has answered"
        about = {"job": placement.job, "lease": lease.id, "site": lease.site, "queue": lease.queue}
        changes.put(scribe.ledger(LedgerKind.LOSS, "dispatcher", text, **about))
    return changes


def failed(records: Records, scribe: Scribe, lease_id: str, why: str, event: str) -> Changes:
    """It came to nothing, as `event` says: its jobs wait again."""
    changes = Changes()
    lease = records.leases[lease_id]
    if not allows(lease.status, event):
        return changes
    ended = advance(lease.status, event) in LEASE_ENDED
    fields = {"ended_at": scribe.clock.now(), "committed_usd": lease.billed_usd} if ended else {}
    scribe.lease(changes, lease, event, failure=why, **fields)
    changes.put(*forgiven(records, lease))
    for placement in placements_on(records, lease):
        _give_back(records, scribe, changes, placement, f"renting {lease.offer.name} failed: {why}")
    return changes


def gone(records: Records, scribe: Scribe, lease_id: str, ended_at: float) -> Changes:
    """The machine is gone, and so is its member. Nothing changes while work is on it that is not told to be over yet."""
    changes = Changes()
    lease = records.leases[lease_id]
    if not allows(lease.status, "ended") or placements_on(records, lease):
        return changes
    scribe.lease(changes, lease, "ended", ended_at=ended_at, committed_usd=lease.billed_usd)
    changes.put(*forgiven(records, lease))
    member = records.members.get(lease.member)
    if member is not None:
        changes.put(msgspec.structs.replace(member, status=advance(member.status, "leave")))
    return changes


def forgiven(records: Records, lease: Lease) -> list[Placement]:
    """Revoked placements whose stop nobody is left to answer: the machine is gone. The others of a gang's machines answer for themselves."""
    owed = [p for p in records.open_placements.values() if p.uses(lease.id) and p.ended]
    return [
        gangs.forgive(placement, lease.member)
        if placement.parts
        else msgspec.structs.replace(placement, stop_acknowledged=True)
        for placement in owed
    ]


def _give_back(
    records: Records, scribe: Scribe, changes: Changes, placement: Placement, because: str
) -> None:
    """A placement that never began: its job waits again. Members on which it was reserved have their stop to answer."""
    job = records.jobs[placement.job]
    revoked = scribe.stop(changes, placement, because, sent=False)
    if not placement.parts:
        changes.put(msgspec.structs.replace(revoked, stop_acknowledged=True))
    event = "requeue" if allows(job.status, "requeue") else "held" if job.pause_for == "hold" else "released"
    outcome = Outcome(TerminalReason.CANCELLED, job.because) if job.status is JobStatus.CANCELLING else None
    if job.placement == placement.id and allows(job.status, event):
        scribe.job(changes, job, event, because, outcome=outcome, placement=None, pause_for=None)
