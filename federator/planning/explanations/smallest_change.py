"""What would help a job that waits: the smallest change known after which its reason is gone, as records that can be tried.

Reckoned, not planned again: from what the plan left free, what waits before the job, and the caps. Whoever waits before it and could take what is added is
counted in, so that the change is enough for this job and not for its rivals only; that, and no more, is why it may be larger than the job.
"""

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from federator.model.changes import AskFor, MoreHosts, Remedy
from federator.model.jobs import in_gpus
from federator.model.plans import ReservedFor
from federator.model.snapshot import JobView
from federator.planning.explanations.context import ExplanationContext, caps_at
from federator.planning.explanations.remedies import NOTHING, all_of, wait_until
from federator.planning.explanations.rental_advice import anywhere_else, past_all
from federator.planning.places.host_sets import need_of
from federator.planning.rules.feasibility import FILTERS
from federator.planning.wording import MINUTE_S, later_deadline, met_by, moment
from federator.planning.world.prices import cost

MOST_HOSTS = 4096
"""Beyond so many more hosts nothing is offered."""
MOST_LOOKS = 400
"""So many times it is looked whether one that waits before the job has room at a place: behind a longer line no purchase is small, and it is told how long it waits."""
IN_VAIN = frozenset({"queue-limit", "budget", "not-before"})
"""Reasons of those before it that more hosts do nothing about."""


def helps(found: ExplanationContext) -> Remedy | None:
    """The smallest change that is known to help; None where none is."""
    return next(
        (remedy for way in WAYS.get(found.waiting.reason, (past_all,)) if (remedy := way(found)).changes),
        None,
    )


# -- room -----------------------------------------------------------------------------------------------------------------


def _more_hosts(found: ExplanationContext) -> Remedy:
    """More hosts of a pool that it may use (behind a very long line: the wait that is expected): as many as it and those before it need beyond what is free there."""
    best: tuple[int, int, int] | None = None
    if len(found.before) > MOST_LOOKS:
        return _until_start(found)
    for other in (*(job for job, _ in found.before), *(job for job, _ in found.standing.taken)):
        if other.of is None:
            found.world.meet(other)
    places = found.world.home(found.job)
    for place in places[: max(1, MOST_LOOKS // max(1, len(found.before)))]:
        at = found.world.places[place]
        hosts = _lacking(found, place, MOST_HOSTS if best is None else best[0] // max(1, at.gpus))
        if hosts is not None and (best is None or (hosts * at.gpus, hosts, place) < best):
            best = hosts * at.gpus, hosts, place
    if best is None:
        return NOTHING
    _, hosts, place = best
    at = found.world.places[place]
    count = in_gpus(hosts * at.gpus, shared=at.shared)
    more = MoreHosts(at.views[0].key, hosts, count, at.model)
    what = f"+{count:g} {at.model or 'GPU'}" if count else f"+{hosts} host{'s' if hosts > 1 else ''}"
    others = sum(1 for _ in _rivals(found, place))
    whose = f", enough also for {others} that would have it first" if others else ""
    way = all_of([Remedy(f"{what} at {at.shown}{whose}", (more,)), caps_at(found, place)])
    return replace(way, places=(f"{at.site}/{at.pool}",))


def _rivals(found: ExplanationContext, place: int) -> Iterator[JobView]:
    """Who waits before the job for room and may use the place, and who starts elsewhere now and would rather be there."""
    world, at, book, now = found.world, found.world.places[place], found.world.book, found.world.now
    place = world.place_of(place)
    for other, taken in found.standing.taken:
        there = found.world.places[taken]
        if world.place_of(place) != world.place_of(taken) and place in world.open_to(other):
            kept = cost(book, other, there, now, rents=there.offer is not None).total
            if cost(book, other, at, now).total < kept:
                yield other
    for other, waiting in found.before:
        if waiting.reason in IN_VAIN:
            continue
        for choice in world.choices(other, place):
            rejection = world.rejection(other, choice)
            # A gang that the place was too small for may have it once it is larger.
            if rejection is None or rejection.filter == "gang":
                yield world.as_form(other, choice)
                break


def _lacking(found: ExplanationContext, place: int, most: int) -> int | None:
    """Hosts that a place would need beyond those it has; None where not even `most` would do."""
    at, host_set = found.world.places[place], found.standing.host_set(place).copy()
    whole = (at.gpus, at.cpus_milli, at.memory_mib)
    added = 0
    for job in (*_rivals(found, place), found.world.as_form(found.job, place)):
        need = need_of(job)
        while host_set.take(need, job.nodes) is None:
            added += 1
            if added > most:
                return None
            host_set.untake(whole, (host_set.add_host(),))
    return max(1, added)


# -- caps -----------------------------------------------------------------------------------------------------------------


def _caps(found: ExplanationContext) -> Remedy:
    """A higher cap, so much that it and those before it that are kept by the same one have room in it."""
    world, caps = found.world, found.standing.caps
    for place in (*world.home(found.job), *world.leases(found.job)):
        if caps.blocking(world.as_form(found.job, place), world.places[place]) is not None:
            return caps_at(found, place)
    return NOTHING


# -- time -----------------------------------------------------------------------------------------------------------------


def _backoff(found: ExplanationContext) -> Remedy:
    return wait_until(found.job.not_before_at, found.world.now)


def _until_start(found: ExplanationContext) -> Remedy:
    """It waits because that is cheaper, and says for how long."""
    return wait_until(found.waiting.expected_start_at, found.world.now)


def _here(found: ExplanationContext) -> Remedy:
    """It could start, and waits for another place because that is cheaper: asked for by name, the place where it can start is the only one there is, and it goes at once. Of several the cheapest, and of those that are full by now the one that was free to it."""
    world, job = found.world, found.job
    open_ = (*world.home(job), *world.leases(job))
    ranked: list[tuple[bool, float, int]] = []
    for place in open_:
        view, at = world.as_form(job, place), world.places[place]
        if world.host_set(place).fits(need_of(view), view.nodes):
            ranked.append((not _fits(found, place), cost(world.book, view, at, world.now).total, place))
    for _, _, place in sorted(ranked):
        way = all_of(_only(found, place, open_))
        if way.changes:
            where = f"{world.places[place].shown} alone, where it starts now though that is dearer"
            return Remedy(f"{way.text}: {where}", way.changes)
    return NOTHING


def _only(found: ExplanationContext, place: int, open_: Sequence[int]) -> list[Remedy]:
    """What the job has to ask for so that of all places that it may use that one is left; nothing where there is no way to say so."""
    world, job, at = found.world, found.job, found.world.places[place]
    others = [world.places[p] for p in open_ if world.place_of(p) != world.place_of(place)]
    beside = [other for other in others if other.site == at.site]
    asked: list[Remedy] = []
    if len(beside) < len(others):
        asked.append(Remedy(f"placement.sites: [{at.site}]", (AskFor(job.id, "sites", (at.site,)),)))
    if beside:
        if job.forms or not at.model or any(other.model == at.model for other in beside):
            return []
        asked.append(Remedy(f"resources.gpus.models: [{at.model}]", (AskFor(job.id, "models", (at.model,)),)))
    return asked


def _put_off(found: ExplanationContext) -> Remedy:
    """It is to be rented later, as late as is safe: then it is, and where others have taken what it would have, the next dearer, as late as that is safe."""
    last = max((case.rent_at for case in found.standing.bursting.cases(found.job)), default=None)
    return wait_until(last, found.world.now)


def _later_deadline(found: ExplanationContext) -> Remedy:
    """It fits somewhere now, and would miss its deadline there: with one that is not missed there it starts."""
    world, now = found.world, found.world.now
    places = (*world.home(found.job), *world.leases(found.job))
    runs = {place: world.places[place].run_s(world.as_form(found.job, place)) for place in places}
    fits = [runs[place] for place in places if _fits(found, place)]
    if not places or found.job.deadline_at is None or found.job.start_by_at is not None:
        return NOTHING
    # Where others have taken the room since, it is safe wherever it was.
    longest_s = min(fits) if fits else max(runs.values())
    by = met_by(now + longest_s, found.job.deadline_at)
    if by <= found.job.deadline_at:
        return NOTHING
    text = later_deadline(now + longest_s, found.job.deadline_at)
    return Remedy(text, (AskFor(found.job.id, "deadline_at", by),))


def _shorter(found: ExplanationContext) -> Remedy:
    """Free GPUs are kept for a gang: what is done before it starts may have them."""
    world, now, held = found.world, found.world.now, found.waiting.reserved
    if held is None or held.why is not ReservedFor.GANG:
        return NOTHING
    place = next((number for number, at in enumerate(world.places) if held.place in at.names), -1)
    if found.job.inputs or place not in world.home(found.job) or not _fits(found, place):
        return NOTHING
    share = (held.until_at - now) / world.places[place].run_s(world.as_form(found.job, place))
    if share >= 1.0 or held.until_at - now < MINUTE_S:
        return NOTHING
    share *= 0.999
    shorter = {name: getattr(found.job, name) * share for name in ("run_s", "run_low_s", "run_high_s")}
    text = f"a run that is planned to be done by {moment(held.until_at, now)}: {share:.0%} of its estimate"
    return Remedy(text, tuple(AskFor(found.job.id, name, value) for name, value in shorter.items()))


def _fits(found: ExplanationContext, choice: int) -> bool:
    """Whether there is room for it there now."""
    job = found.world.as_form(found.job, choice)
    return found.standing.host_set(choice).fits(need_of(job), job.nodes)


WAYS: dict[str, tuple[Callable[[ExplanationContext], Remedy], ...]] = {
    "busy": (_more_hosts, anywhere_else),
    "held": (_shorter, _more_hosts),
    "queue-limit": (_caps, past_all),
    "budget": (_caps, past_all),
    "not-before": (_backoff,),
    "not-yet": (_put_off, _later_deadline),
    "cheaper-elsewhere": (_here, _until_start),
    "better-elsewhere": (_later_deadline, _until_start, _more_hosts),
    "reclaiming": (),
    **{test.name: (past_all, anywhere_else, _more_hosts) for test in FILTERS},
    **dict.fromkeys(
        ("no-need", "too-late", "no-gain", "approval", "sold-out", "booting"),
        (past_all, anywhere_else, _more_hosts),
    ),
}
"""By the name of a reason, what to try in this order."""
