"""Calendars that stop work: what runs where a place closes is told in time to save itself, and waits for another place or the next opening.

Looked at with every turn, and by what is true at that moment alone: after a restart, or under another leader, the same is stopped at the same hour.
"""

from collections.abc import Iterator

from federator.control.records import Changes, Records
from federator.control.scribe import Scribe
from federator.model.lifecycle import allows
from federator.model.placements import Order, Placement
from federator.model.rules import Opening, selects
from federator.planning.openings import takes_work

LOOK_S = 30.0
"""Turns are at most so far apart; work is told to stop that much earlier than its grace needs."""


async def close_places(records: Records, scribe: Scribe) -> None:
    """Tell what has to be gone to stop; nothing is written when there is nothing."""
    openings = [rule for rule in records.policies.rules if isinstance(rule, Opening) and rule.stops]
    if not openings or not list(_leaving(records, openings, scribe.clock.now())):
        return

    def compute() -> Changes:
        changes = Changes()
        for placement, rule in _leaving(records, openings, scribe.clock.now()):
            job, because = records.jobs[placement.job], f"policy {rule.policy} closes {placement.site}"
            reserved = placement.order is Order.RESERVE
            scribe.stop(changes, placement, because, sent=not reserved)
            job = scribe.job(changes, job, "suspend", because, pause_for="interruption")
            if reserved:
                scribe.job(changes, job, "paused", because, placement=None, pause_for=None)
        return changes

    await records.transact(compute)


def _leaving(records: Records, openings: list[Opening], now: float) -> Iterator[tuple[Placement, Opening]]:
    """Placements of ours that have to end now to be gone when their place closes."""
    for placement in records.open_placements.values():
        job = records.jobs[placement.job]
        if placement.ended or placement.order is Order.STOP or job.placement != placement.id:
            continue
        if not allows(job.status, "suspend"):
            continue
        grace_s = records.spec(placement.spec_hash).grace_s
        for rule in openings:
            if _about(records, rule, placement) and not takes_work(rule, now + grace_s + LOOK_S):
                yield placement, rule
                break


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
