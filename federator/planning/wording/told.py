"""Reasons told: plans, jobs and events with the words of their reasons, for whoever looks. What was stored in words is left as it is."""

from typing import get_args

from msgspec.structs import replace

from federator.model.capacity import Lease
from federator.model.events import Event, LedgerEntry
from federator.model.jobs import Job
from federator.model.placements import Placement
from federator.model.plans import Place, Plan, Preempt, Proposal, Rent, SiteReason, Waiting
from federator.model.reasons import Reason
from federator.planning.wording import rejections, starts, waits
from federator.planning.wording.words import TELLERS, Words, words
from federator.wire.decisions import DecisionRow

assert TELLERS.keys() == set(get_args(Reason)), (rejections, starts, waits, "each enters its renderers")

__all__ = [
    "Words",
    "because_of",
    "order_words",
    "told_event",
    "told_line",
    "told_plan",
    "told_row",
    "told_site",
    "told_waiting",
    "winner_words",
    "words",
]

Recorded = Place | Rent | Preempt | Proposal | Job | Placement | Lease


def because_of(record: Recorded, now: float) -> str:
    """Why it is so, in words."""
    return record.because if record.reason is None else words(record.reason, now).text


def order_words(placement: Placement) -> str:
    """Why it is to stop; the same words whenever they are asked for, for its agent is told them."""
    if placement.order_reason or placement.order_why is None:
        return placement.order_reason
    return words(placement.order_why, placement.assigned_at).text


def winner_words(decided: Plan | Placement | DecisionRow, at: float) -> str:
    """Why the stage won whose plan it is, as of the moment when that was decided."""
    if decided.winner_reason is None:
        return decided.winner_because
    return words(decided.winner_reason, at).text


def told_row(row: DecisionRow) -> DecisionRow:
    """With the words of why its plan won."""
    return replace(row, winner_because=winner_words(row, row.at))


def told_line(entry: LedgerEntry) -> LedgerEntry:
    """With its reason in `what`, as of the moment of which it tells."""
    if entry.reason is None:
        return entry
    return replace(entry, what=f"{entry.what}: {words(entry.reason, entry.at).text}")


def told_event(event: Event) -> Event:
    """With its text, as of the moment when it happened."""
    if event.reason is None or event.text:
        return event
    return replace(event, text=words(event.reason, event.at).text)


def told_site(site: SiteReason, now: float) -> SiteReason:
    """With its text and change."""
    if site.reason is None:
        return site
    text, change = words(site.reason, now)
    return replace(site, text=text, change=change)


def told_waiting(waiting: Waiting, now: float) -> Waiting:
    """With its sentence and change."""
    if waiting.why is None or waiting.because:
        return waiting
    text, change = words(waiting.why, now)
    return replace(waiting, because=text, change=change)


def told_plan(plan: Plan) -> Plan:
    """With all its sentences, as of the moment when it was made."""
    now = plan.taken_at
    actions = tuple(replace(each, because=because_of(each, now)) for each in plan.actions)
    proposals = tuple(replace(each, because=because_of(each, now)) for each in plan.proposals)
    waiting = tuple(told_waiting(each, now) for each in plan.waiting)
    return replace(
        plan,
        winner_because=winner_words(plan, now),
        actions=actions,
        waiting=waiting,
        proposals=proposals,
    )
