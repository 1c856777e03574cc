"""What a reader is advised: what helps the job as a whole, and what opens places, in the order of how little they ask of people.

Each is told once, with all the places that it opens. A few are told and no more: whoever wants all has the answer's lines by place.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from federator.model.changes import Remedy
from federator.model.plans import SiteReason
from federator.model.snapshot import JobView
from federator.planning.explaining.burdens import Burden, burden

MOST = 4


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
