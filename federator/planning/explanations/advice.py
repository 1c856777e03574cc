"""What a reader is advised: what helps the job as a whole, and what opens places, in the order of how little they ask of people.

Each is told once, with all the places that it opens. A few are told and no more: whoever wants all has the answer's lines by place.

Whoever waits can change the own job at once; a policy is somebody else's to change, what a site lends is its operator's, and more machines are bought. So
advice is ordered by that first, and then by how much of what was asked for is given up. The numbers only rank: they are in no unit.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from federator.model.changes import (
    AskFor,
    Change,
    ChangeRule,
    Federation,
    MoreHosts,
    Permit,
    RaiseCap,
    Remedy,
    WaitUntil,
)
from federator.model.plans import SiteReason
from federator.model.snapshot import JobView

MOST = 4
OWN, POLICY, SITE, PURCHASE = range(4)
"""Whose act it is, the user's own first."""
HOUR_S = 3600.0
FIELDS = {
    "max_duration_s": 0.5, "saves": 2.0, "needs": 3.0, "shared": 2.0, "run_s": 3.0, "run_low_s": 0.0, "run_high_s": 0.0, "approved_usd": 1.0,
    "ranks_in_one": 0.0,
}  # fmt: skip
"""What a change of a field weighs; of those that are not here, 1."""
AMOUNTS = frozenset({"gpus", "nodes", "cpus_milli", "memory_mib", "gpu_memory_mib", "max_cost_usd"})
"""Of these the ratio counts: half of what was asked for is a large step."""


def remedies(
    job: JobView, first: Remedy | None, sites: Sequence[SiteReason], now: float
) -> tuple[Remedy, ...]:
    """The smallest first. `first` is what helps the job, by an estimate: it is among them however large it is, and before what only opens a place where both ask as much."""
    found: dict[bytes, Remedy] = {}
    for site in sites:
        if site.remedy:
            same = msgspec.json.encode(site.remedy)
            known = found.get(same, Remedy(site.change, site.remedy, certain=True))
            place = f"{site.site}/{site.pool}"
            if place not in known.places:
                known = replace(known, places=(*known.places, place))
            found[same] = known
    if first is not None:
        # What opens a place is of no use where it is known that more is in the way.
        found = {key: each for key, each in found.items() if not _is_part(each, first)}
        same = msgspec.json.encode(first.changes)
        found[same] = replace(first, places=found[same].places if same in found else first.places)

    def order(remedy: Remedy) -> tuple[Burden, bool, int]:
        return burden(job, remedy.changes, now), remedy.certain, len(remedy.changes)

    ranked = sorted(found.values(), key=order)
    told = ranked[:MOST]
    if first is not None and all(remedy.certain for remedy in told):
        told[-1] = next(remedy for remedy in ranked if not remedy.certain)
    return tuple(told)


def _is_part(some: Remedy, whole: Remedy) -> bool:
    return len(some.changes) < len(whole.changes) and all(change in whole.changes for change in some.changes)


def in_words(advice: Sequence[Remedy], change: str, sites: Sequence[SiteReason]) -> tuple[str, ...]:
    """The same for people; where nothing is known that could be tried, what the plan and the places say."""
    if advice:
        return tuple(_line(remedy) for remedy in advice)
    words = (change, *(f"{site.site}/{site.pool}: {site.change}" for site in sites if site.change))
    return tuple(dict.fromkeys(filter(None, words)))[:MOST]


def _line(remedy: Remedy) -> str:
    named = not remedy.places or any(place in remedy.text for place in remedy.places)
    where = "" if named else f"{', '.join(remedy.places)}: "
    return f"{where}{remedy.text}{'' if remedy.certain else ' (an estimate)'}"


# -- how much is asked of people -----------------------------------------------------------------------------------------


class Burden(NamedTuple):
    """Compares: the smaller, the less is asked of people."""

    whose: int
    effort: float


def burden(job: JobView, changes: Iterable[Change], now: float) -> Burden:
    """Of all these changes together. `job` is as it asks now."""
    each = [_of_one(job, change, now) for change in changes]
    return Burden(max((one.whose for one in each), default=OWN), sum(one.effort for one in each))


def _of_one(job: JobView, change: Change, now: float) -> Burden:
    match change:
        case AskFor():
            whose = POLICY if change.field in ("approved_usd", "may_rent") else OWN
            return Burden(whose, _asked(job, change, now))
        case WaitUntil():
            return Burden(OWN, 0.5 + max(0.0, change.at - now) / HOUR_S / 4.0)
        case RaiseCap():
            return Burden(POLICY, 1.0 + _ratio(change.row.limit, change.limit))
        case ChangeRule() | Permit() | Federation():
            return Burden(POLICY, 1.0)
        case MoreHosts():
            return Burden(PURCHASE, change.hosts * max(1.0, change.gpus / max(1, change.hosts)))
        case _:
            return Burden(SITE, 1.0)


def _asked(job: JobView, change: AskFor, now: float) -> float:
    value = change.value
    if change.field in AMOUNTS and isinstance(value, int | float):
        before = getattr(job.as_form(change.form), change.field) or 0.0
        return 1.0 + 2.0 * _ratio(before, value)
    if change.field == "deadline_at" and isinstance(value, int | float):
        return 1.0 + max(0.0, value - (job.deadline_at or now)) / HOUR_S / 8.0
    if change.field == "value_usd" and isinstance(value, int | float):
        return 1.0 + math.log10(1.0 + max(0.0, value))
    return FIELDS.get(change.field, 1.0)


def _ratio(before: float, after: float) -> float:
    """How often one doubles into the other."""
    return abs(math.log2(after / before)) if before > 0.0 and after > 0.0 else 1.0
