"""Refusals: where a job has come to nothing before it began, and for how long that place is left alone.

Why so: a member's report tells its free shapes, and not that its agent is too old for gangs, or reports but never answers, nor what else the scheduler of a
cluster wants, such as a partition's time limit. By its shapes such a place is the best one again at once, and each attempt there holds the other members' capacity for a while. The first time,
the member alone is avoided, which leaves its site's other hosts. When it is chosen all the same, nothing else there will do: then
its site is left alone, for longer and longer, and any other place has its turn. Pure.
"""

from federator.control.reports import gangs
from federator.model.jobs import Refusal
from federator.model.placements import Placement
from federator.retry import Backoff

BACKOFF = Backoff(60.0, 1800.0, spread=0.0)
FORGET_S = 3600.0
"""So long after its last refusal, a member begins anew: it may have been mended."""
MOST = 16
"""Members that are remembered of each job."""
GANGS_PATIENCE, PATIENCE = 1, 3
"""So many refusals are borne before the pauses begin: one of a gang over members; of a member alone more, for mostly its next report corrects the shapes."""


def refused_again(known: tuple[Refusal, ...], placement: Placement, now: float) -> tuple[Refusal, ...]:
    """What to remember once this placement was refused or given up."""
    blamed = gangs.refusing(placement) if placement.parts else placement.members[:1]
    patience = GANGS_PATIENCE if placement.parts else PATIENCE
    before = {refusal.member: refusal.times for refusal in known if now - refusal.at < FORGET_S}
    kept = tuple(refusal for refusal in known if refusal.member not in blamed)
    new = tuple(_refusal(name, placement.site, now, before.get(name, 0) + 1, patience) for name in blamed)
    return (*kept, *new)[-MOST:]


def _refusal(member: str, site: str, now: float, times: int, patience: int) -> Refusal:
    """Beyond the patience the pause begins, and doubles with each."""
    more = times - patience
    pause_s = BACKOFF.pause_s(more) if more > 0 else 0.0
    return Refusal(member, site, now, times, now + pause_s if pause_s else 0.0)
