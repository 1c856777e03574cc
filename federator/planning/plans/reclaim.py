"""Who must make room: guarantees that are owed, and rules that let some displace others. Nothing else preempts.

A job within its queue's guarantee that would not start within the reclaim time takes its place back from borrowers: queues without a
guarantee, or beyond theirs. The least is stopped that makes the whole gang fit on one place: lowest priority first, among those who had not to leave a
while ago already, those whose stop loses least – the work since the last checkpoint, all of it where there is none, and the start that has to be done again; over several
members only where no single one would do. What a stop frees is planned with in a later turn, when the site says so.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from federator.model.plans import Preempt
from federator.model.rules import GuaranteeRow, PreemptRule, in_scope
from federator.model.snapshot import BusyView, JobView, PoolView
from federator.planning.places.yard import Lot, Release, need_of
from federator.planning.rules.rulebook import matches
from federator.planning.rules.shares import Amount, of_work, widest
from federator.planning.scheduling.objective import Scored
from federator.planning.wording import guaranteed, span
from federator.planning.world.problem import World, under

LATELY_S = 3600.0
"""Whoever had to leave so lately leaves after all others of his priority."""


class Reclaim(NamedTuple):
    """What is stopped for a job, and what the job is told."""

    stops: tuple[Preempt, ...]
    text: str


Victim = Callable[[BusyView, str], bool]
"""Whether a running placement, on GPUs of that model, may be stopped."""


class Claim(NamedTuple):
    """What entitles a job to make others stop: how long it has to put up with waiting, in what forms it is entitled to start, who may be stopped, and the words."""

    patience_s: float
    covers: Callable[[JobView], bool]
    may_stop: Victim
    text: str


Used = dict[GuaranteeRow, Amount]
"""What is in use under each guarantee."""


def reclaim(world: World, scored: Scored) -> dict[str, Reclaim]:
    """For each job that may make others stop: what stops. A placement is stopped once, and never for two jobs."""
    found: dict[str, Reclaim] = {}
    stopped: dict[str, BusyView] = {}
    used: Used = {row: world.in_use(row).plus(_started(world, scored, row)) for row in world.guarantees}
    for job in world.jobs:
        if job.id in scored.starts or (job.not_before_at or 0.0) > world.now:
            continue
        for claim in _claims(world, job, used):
            booking = scored.booking(job.id)
            if booking is not None and booking.start_at <= world.now + claim.patience_s:
                continue
            victims = _least(world, scored, job, claim, stopped)
            if victims:
                for busy, model in victims:
                    stopped[busy.placement or ""] = busy
                    _give_up(used, busy, model)
                found[job.id] = Reclaim(
                    tuple(_stop(busy, job, claim.text) for busy, _ in victims),
                    f"{claim.text}; {_stopping(len(victims))} for it",
                )
                break
    return found


def _stopping(count: int) -> str:
    return "1 placement stops" if count == 1 else f"{count} placements stop"


def _claims(world: World, job: JobView, used: Used) -> Iterator[Claim]:
    for row, has in used.items():
        due = world.dues[row].amount
        if job.id in world.owed and under(job.queue, row.queue) and widest(row, job, has, due):
            text = (
                f"queue {row.queue} is owed its guarantee of {guaranteed(row)} within {span(row.reclaim_s)}"
            )
            yield Claim(row.reclaim_s, partial(_within, has, due), partial(_borrows, world, used, row), text)
    for rule in world.book.preemptions:
        if matches(rule.who, job):
            text = f"policy {rule.policy} lets it displace work of lower priority"
            yield Claim(rule.patience_s, lambda _: True, partial(_yields, rule, job, world.now), text)


def _within(has: Amount, due: Amount, view: JobView) -> bool:
    """Whether a queue that has so much has no more than it is due with the job in that form."""
    return has.plus(of_work(view)).within(due)


def _yields(rule: PreemptRule, job: JobView, now: float, busy: BusyView, _model: str) -> bool:
    """Whether a preemption rule lets the job displace a placement."""
    return (
        in_scope(rule.victims, queue=busy.queue, owner=busy.owner, labels=busy.labels)
        and now - busy.started_at >= rule.minimum_run_s
        and job.priority - busy.priority >= rule.minimum_priority_gap
        and (busy.displaced_at is None or now - busy.displaced_at >= rule.cool_down_s)
    )


def _lately(busy: BusyView, now: float) -> bool:
    """Whether it had to leave a while ago: whoever waits for it again and again gets nothing done."""
    return busy.displaced_at is not None and now - busy.displaced_at < LATELY_S


def lost_gpu_s(busy: BusyView, now: float) -> float:
    """GPU time that stopping it now throws away: its work since it last saved itself, and the start that is to be done again."""
    ran_s = max(0.0, now - busy.started_at)
    if busy.saves:
        ran_s = ran_s % busy.saves_every_s if busy.saves_every_s else 0.0
    return busy.gpus_total * (ran_s + busy.startup_s)


def _borrows(world: World, used: Used, owed: GuaranteeRow, busy: BusyView, model: str) -> bool:
    """Whether a placement runs beyond every guarantee that it counts towards, by what it has itself, and not under the one that is owed."""
    if under(busy.queue, owed.queue) or owed.model not in ("", model):
        return False
    rows = [row for row in used if under(busy.queue, row.queue) and row.model in ("", model)]
    has = of_work(busy)
    return all(
        any(over and own for over, own in zip(used[row].beyond(world.dues[row].amount), has, strict=True))
        for row in rows
    )


def _give_up(used: Used, busy: BusyView, model: str) -> None:
    for row in used:
        if under(busy.queue, row.queue) and row.model in ("", model):
            used[row] = used[row].plus(of_work(busy), -1.0)


def _started(world: World, scored: Scored, row: GuaranteeRow) -> Amount:
    """What this decision gives a guaranteed queue."""
    total = Amount()
    for name, place in scored.starts.items():
        at, job = world.places[place], world.as_form(world.by_id[name], place)
        if not at.rented and under(job.queue, row.queue) and row.model in ("", at.model):
            total = total.plus(of_work(job))
    return total


def _least(
    world: World, scored: Scored, job: JobView, claim: Claim, stopped: dict[str, BusyView]
) -> list[tuple[BusyView, str]]:
    """The cheapest set of placements, all on one owned place, whose end makes the job fit there; empty when there is none."""
    best: tuple[float, list[tuple[BusyView, str]]] | None = None
    for place in world.home(job):
        at = world.places[place]
        if not claim.covers(world.as_form(job, place)):
            continue
        for lots in _tries(world, scored, place):
            for lot in lots:
                running = [
                    b
                    for b in _running(world, lot)
                    if b.placement not in stopped and claim.may_stop(b, at.model)
                ]
                victims = _enough(lot, world.as_form(job, place), running, world.now)
                lost = sum(lost_gpu_s(busy, world.now) for busy in victims)
                if victims and (best is None or lost < best[0]):
                    best = (lost, [(busy, at.model) for busy in victims])
            if best is not None:
                break
    return best[1] if best else []


def _tries(world: World, scored: Scored, place: int) -> Iterator[Iterator[Lot]]:
    """The lots of a place to look at, each after this decision's starts: of every member by itself, then all of it."""
    at = world.places[place]
    starts = [
        (world.as_form(world.by_id[name], there), scored.schedule.bookings[name].members)
        for name, there in scored.starts.items()
        if world.place_of(there) == world.place_of(place)
    ]
    if len(at.views) > 1:
        yield (_member_lot(world, view, number, starts) for number, view in enumerate(at.views))
    lot = world.lot(place)
    for job, members in starts:
        _start(lot, job, len(members))
    yield iter((lot,))


def _member_lot(
    world: World, view: PoolView, number: int, starts: Sequence[tuple[JobView, Sequence[int]]]
) -> Lot:
    lot = Lot.of_pool(view, world.now)
    for job, members in starts:
        _start(lot, job, members.count(number))
    return lot


def _start(lot: Lot, job: JobView, ranks: int) -> None:
    if ranks:
        lot.take(need_of(job), ranks)


def _running(world: World, lot: Lot) -> list[BusyView]:
    """Placements of ours that have ranks there, each once and whole, wherever else it has some."""
    names = {
        r.payload.placement: None
        for r in lot.releases
        if r.hosts and isinstance(r.payload, BusyView) and r.payload.placement
    }
    return [world.running[name] for name in names]


def _enough(lot: Lot, job: JobView, candidates: list[BusyView], now: float) -> list[BusyView]:
    """Stop in order until the gang fits, then spare whoever was not needed."""
    need = need_of(job)
    releases: dict[str, list[Release]] = {}
    for release in lot.releases:
        if isinstance(release.payload, BusyView) and release.payload.placement:
            releases.setdefault(release.payload.placement, []).append(release)
    order = sorted(
        candidates,
        key=lambda b: (b.priority, _lately(b, now), lost_gpu_s(b, now), -b.started_at, b.placement or ""),
    )
    chosen: list[BusyView] = []
    for busy in order:
        if lot.fits(need, job.nodes):
            break
        _shift(lot, releases[busy.placement or ""], 1)
        chosen.append(busy)
    if not lot.fits(need, job.nodes):
        return []
    for busy in list(chosen):
        _shift(lot, releases[busy.placement or ""], -1)
        if lot.fits(need, job.nodes):
            chosen.remove(busy)
        else:
            _shift(lot, releases[busy.placement or ""], 1)
    return chosen


def _shift(lot: Lot, releases: Sequence[Release], sign: int) -> None:
    """Give back (or take again) everything that a placement holds there."""
    for release in releases:
        if sign > 0:
            lot.untake(release.need, release.hosts)
        else:
            lot.put(release.need, release.hosts)


def _stop(busy: BusyView, job: JobView, text: str) -> Preempt:
    return Preempt(
        job=busy.job or "",
        revision=busy.revision,
        placement=busy.placement or "",
        beneficiary=job.id,
        because=f"makes room for {job.name} ({job.id}): {text}",
    )
