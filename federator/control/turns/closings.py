"""Calendars that stop work: what runs where a place closes is told in time to save itself, and waits for another place or the next opening.

Looked at with every turn, and by what is true at that moment alone: after a restart, or under another leader, the same is stopped at the same hour.
"""

from collections.abc import Iterator
from typing import NamedTuple

from federator.control.record.records import Changes, Records
from federator.control.record.scribe import Scribe
from federator.model.lifecycle import allows
from federator.model.placements import Order, Placement
from federator.model.rules import Opening, selects
from federator.planning.rules.openings import changes_at, takes_work

LOOK_S = 30.0
"""Work is told to stop that much earlier than its grace needs: a turn may be as late."""


class Leaving(NamedTuple):
    """A placement that the rule lets run until its place closes, and when it has to be told to stop."""

    placement: Placement
    rule: Opening
    at: float


async def close_places(records: Records, scribe: Scribe) -> None:
    """Tell what has to be gone to stop; nothing is written when there is nothing."""
    if not any(each.at <= scribe.clock.now() for each in _leaving(records, scribe.clock.now())):
        return

    def compute() -> Changes:
        changes = Changes()
        now = scribe.clock.now()
        for placement, rule, at in list(_leaving(records, now)):
            if at > now:
                continue
            job, because = records.jobs[placement.job], f"policy {rule.policy} closes {placement.site}"
            reserved = placement.order is Order.RESERVE
            scribe.stop(changes, placement, because, sent=not reserved)
            job = scribe.job(changes, job, "suspend", because, pause_for="interruption")
            if reserved:
                scribe.job(changes, job, "paused", because, placement=None, pause_for=None)
        return changes

    await records.transact(compute)


def next_stop_at(records: Records, now: float) -> float | None:
    """When `close_places` has something to do next; None: nothing runs where a place closes in the days ahead."""
    return min((each.at for each in _leaving(records, now)), default=None)


def _leaving(records: Records, now: float) -> Iterator[Leaving]:
    """Placements of ours that run where a place is closed, or is to close: with the first moment, by any rule, to tell each to stop."""
    stopping = [rule for rule in records.policies.rules if isinstance(rule, Opening) and rule.stops]
    closings = [(rule, at) for rule in stopping if (at := _closes_at(rule, now)) is not None]
    for placement in records.open_placements.values() if closings else ():
        job = records.jobs[placement.job]
        if placement.ended or placement.order is Order.STOP or job.placement != placement.id:
            continue
        if not allows(job.status, "suspend"):
            continue
        grace_s = records.spec(placement.spec_hash).grace_s
        about = [
            Leaving(placement, rule, at - grace_s - LOOK_S)
            for rule, at in closings
            if _about(records, rule, placement)
        ]
        if about:
            yield min(about, key=lambda each: each.at)


def _closes_at(rule: Opening, now: float) -> float | None:
    """When it closes next; now, where it is closed."""
    return changes_at(rule, now) if takes_work(rule, now) else now


def _about(records: Records, rule: Opening, placement: Placement) -> bool:
    site = records.sites.get(placement.site)
    return selects(
        rule.pools,
        site=placement.site,
        kind=site.kind if site else "cloud",
        provider=site.provider if site else None,
        region=site.region if site else "",
        market=placement.market,
        model=placement.model,
    )
