"""Stops that are due: work leaves a place that closes by its calendar, that is drained by a deadline, or that evicts it.

What runs is told in time to save itself, and waits for another place or the next opening. Looked at with every turn, and by what is true at that moment
alone: after a restart, or under another leader, the same is stopped at the same hour.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from federator.control.accounts.selection import taken_by
from federator.control.record.batches import write_each
from federator.control.record.event_writer import EventWriter
from federator.control.record.records import Changes, Records
from federator.model.jobs import Job, Refusal
from federator.model.lifecycle import allows
from federator.model.placements import Order, Placement
from federator.model.rules import Opening, selects
from federator.model.sites import Site
from federator.planning.rules.openings import changes_at, takes_work

LOOK_S = 30.0
"""Work is told to stop that much earlier than its grace needs: a turn may be as late."""
STAYS_AWAY_S = 3600.0
"""An evicted job does not come back to the site for so long: the site's owner wants its room now."""


class Leaving(NamedTuple):
    """A placement that has to be gone: when it is told to stop, by when it must be gone, and why."""

    placement: Placement
    at: float
    by_at: float
    because: str
    evicted: bool = False
    """Its site does not want it back for a while."""


async def close_places(records: Records, event_writer: EventWriter) -> None:
    """Tell what has to be gone to stop; nothing is written when there is nothing."""
    due: dict[str, Leaving] = {}

    def look(_names: object) -> None:
        due.clear()
        due.update({each.placement.id: each for each in _due(records, event_writer.clock.now())})

    def close(changes: Changes, name: str) -> None:
        if name in due:
            _stop(records, event_writer, changes, due[name])

    look(None)
    await write_each(records, list(due), close, prepare=look)


def next_stop_at(records: Records, now: float) -> float | None:
    """When `close_places` has something to do next; None: nothing runs that has to leave its place in the days ahead."""
    return min((each.at for each in _leaving(records, now)), default=None)


def _due(records: Records, now: float) -> list[Leaving]:
    return [each for each in _leaving(records, now) if each.at <= now]


def _stop(records: Records, event_writer: EventWriter, changes: Changes, leaving: Leaving) -> None:
    placement, because, now = leaving.placement, leaving.because, event_writer.clock.now()
    reserved = placement.order is Order.RESERVE
    grace_s = max(0.0, leaving.by_at - now) if leaving.evicted else None
    event_writer.stop(changes, placement, because, sent=not reserved, grace_s=grace_s)
    job = records.jobs[placement.job]
    if leaving.evicted:
        job = _kept_away(job, placement.site, now, max(now, leaving.by_at) + STAYS_AWAY_S)
    job = event_writer.job(changes, job, "suspend", because, pause_for="interruption")
    if reserved:
        event_writer.job(changes, job, "paused", because, placement=None, pause_for=None)


def _kept_away(job: Job, site: str, now: float, until_at: float) -> Job:
    """The job is not planned at the site before then."""
    others = tuple(each for each in job.refusals if (each.member, each.site) != ("", site))
    return msgspec.structs.replace(job, refusals=(*others, Refusal("", site, now, until_at=until_at)))


def _leaving(records: Records, now: float) -> Iterator[Leaving]:
    """Placements of ours that have to leave, each with the first moment, by any cause, to tell it to stop."""
    stopping = [
        rule
        for rule in records.policies.rules
        if isinstance(rule, Opening) and rule.stops and not rule.is_over(now)
    ]
    closings = [(rule, at) for rule in stopping if (at := _closes_at(rule, now)) is not None]
    drained = {site.name: site for site in records.sites.values() if site.drain_by_at is not None}
    for placement in records.open_placements.values():
        if not closings and placement.leave_by_at is None and placement.site not in drained:
            continue
        causes = list(_causes(records, closings, drained.get(placement.site), placement))
        if not causes or placement.ended or placement.order is Order.STOP:
            continue
        job = records.jobs[placement.job]
        if job.placement != placement.id or not allows(job.status, "suspend"):
            continue
        grace_s = records.spec(placement.spec_hash).grace_s + LOOK_S
        by_at, because, evicted = min(causes)
        yield Leaving(placement, by_at - grace_s, by_at, because, evicted)


def _causes(
    records: Records, closings: list[tuple[Opening, float]], drained: Site | None, placement: Placement
) -> Iterator[tuple[float, str, bool]]:
    """By when the placement has to be gone, why, and whether its site evicts it: each cause there is."""
    for rule, at in closings:
        if _about(records, rule, placement):
            yield at, f"policy {rule.policy} closes {placement.site}", False
    if placement.leave_by_at is not None:
        yield placement.leave_by_at, placement.leave_because, True
    if drained is not None and drained.drain_by_at is not None:
        yield drained.drain_by_at, drained.drain_because, True


def _closes_at(rule: Opening, now: float) -> float | None:
    """When it closes next; now, where it is closed."""
    return changes_at(rule, now) if takes_work(rule, now) else now


def _about(records: Records, rule: Opening, placement: Placement) -> bool:
    job = records.jobs[placement.job]
    about = rule.concerns(queue=job.queue, owner=job.owner, labels=records.spec(placement.spec_hash).labels)
    return about and selects(rule.pools, taken_by(records, placement))
