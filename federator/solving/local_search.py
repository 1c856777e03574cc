"""Small changes to the best plan, judged by the evaluator: for what a linear model with a fluid future cannot say.

Whether two jobs really fit one after the other on a host, behind a cap, before both deadlines is a question of whole jobs in an order. So the best plan is looked at
job by job, the dearest first: it starts now, or at another place, with those that still fit beside it, or instead of one of them, or
next to it; or it is put off; or its turn comes first of all that wait. Whatever makes the whole cheaper is kept, and it goes on from there. Each try is one schedule, so this is for problems whose
schedules are quick.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from federator.model.snapshot import JobView
from federator.planning.places.candidates import machines
from federator.planning.places.host_sets import HostSet, need_of
from federator.planning.scheduling.objective import Evaluator, Scored

TRIALS = 40
"""Changes tried in one decision."""
DEAREST = 12
"""Jobs that are asked about in one round."""
FEW = 8
"""Of so few starts, those at other places are looked at, too: who is left out there may come here. So they are where a cap is about all places."""
LEAST_USD = 0.005
"""Who costs less is left alone."""


class Change(NamedTuple):
    """Starts, and the order in which the rest go on."""

    starts: dict[str, int]
    order: Mapping[str, int] | None


def improve(judge: Evaluator, best: Scored) -> tuple[Scored, Evaluator, int]:
    """The best plan that was found, with whose future it is, and how many were tried."""
    trials, again = 0, True
    while again:
        again = False
        tried: list[Change] = []
        for change in _changes(judge, best):
            if trials >= TRIALS:
                return best, judge, trials
            if change in tried:
                continue
            tried.append(change)
            trials += 1
            other = judge if change.order is judge.order else judge.in_order(change.order)
            scored = other.score(change.starts)
            if scored.total < best.total - LEAST_USD:
                best, judge, again = scored, other, True
                break
    return best, judge, trials


def _changes(judge: Evaluator, best: Scored) -> Iterator[Change]:
    """Small changes to a plan, those of the dearest jobs first; what is tried of all of them, and then what is tried against each that starts."""
    dearest = sorted(judge.world.jobs, key=lambda job: -best.costs[job.id].total)
    jobs = [job for job in dearest if best.costs[job.id].total > LEAST_USD][:DEAREST]
    moves = [
        (job, place) for job in jobs for place in _places(judge, job) if place != best.starts.get(job.id)
    ]
    for job in jobs:
        others = {name: at for name, at in best.starts.items() if name != job.id}
        for place in (place for mover, place in moves if mover is job):
            yield Change(_beside(judge, job, place, others), judge.order)
        yield Change(others, _moved(judge, job, last=job.id in best.starts))
    for only in (False, True):
        for job, place in moves:
            yield from _against(judge, best, job, place, only=only)


def _against(judge: Evaluator, best: Scored, job: JobView, place: int, *, only: bool) -> Iterator[Change]:
    """Start the job instead of one that starts there; or let that one stay as the `only` one, and the job be the next in turn."""
    world, everywhere = judge.world, len(best.starts) <= FEW or bool(judge.world.caps.rows)
    here = {
        name
        for name, at in best.starts.items()
        if name != job.id and (everywhere or world.place_of(at) == world.place_of(place))
    }
    for name in (name for name in best.starts if name in here):
        if only:
            kept = {other: at for other, at in best.starts.items() if other == name or other not in here}
            kept.pop(job.id, None)
            yield Change(kept, _moved(judge, job, last=False))
        else:
            others = {other: at for other, at in best.starts.items() if other not in (name, job.id)}
            yield Change(_beside(judge, job, place, others), judge.order)


def _beside(judge: Evaluator, job: JobView, place: int, others: Mapping[str, int]) -> dict[str, int]:
    """The job's start, and of the others those that still fit beside it, and that there are still machines for."""
    world, host_sets, stocks = judge.world, dict[int, HostSet](), judge.world.stocks.copy()
    kept: dict[str, int] = {}
    for name, choice in ((job.id, place), *others.items()):
        at = world.place_of(choice)
        view = world.as_form(world.by_id[name], choice)
        if world.places[at].offer is not None:
            if not stocks.take_some(at, machines(view, world.places[at])):
                continue
        else:
            host_set = host_sets[at] if at in host_sets else host_sets.setdefault(at, world.host_set(at))
            if host_set.take(need_of(view), view.nodes) is None:
                continue
        kept[name] = choice
    return kept


def _places(judge: Evaluator, job: JobView) -> list[int]:
    """Where the job may start or be rented for at this moment."""
    world, bursting = judge.world, judge.bursting
    if (job.not_before_at or 0.0) > world.now:
        return []
    leases = [place for place in world.leases(job) if bursting.may_use_lease(job, place)]
    offers = [place for place in world.offers(job) if bursting.case_now(job, place)]
    return [*world.home(job), *leases, *offers]


def _moved(judge: Evaluator, job: JobView, *, last: bool) -> dict[str, int]:
    """The order of turns, with the job before or behind all others."""
    names = [each.id for each in judge.line if each.id != job.id]
    names = [*names, job.id] if last else [job.id, *names]
    return {name: turn for turn, name in enumerate(names)}
