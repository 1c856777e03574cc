"""Elastic jobs that run, and had better go on in another form: wider on GPUs that would idle, narrower where what they give up helps another more.

A change costs a checkpoint and a start, so it has to be worth several of them, and none comes soon after the last. A job widens only where nobody waits: what is idle is
idle for all. It narrows for a job that waits when that one gains more, in deadlines and in waiting, than it loses itself; whoever took idle GPUs gives them back that way.
What is stopped waits, as any job does, and the next turn starts it: a job that made room in the form that was chosen here, one that grows in whatever it then gets.
"""

from collections.abc import Iterator
from typing import NamedTuple

from federator.model.plans import Preempt
from federator.model.snapshot import BusyView, JobView, PoolView, Snapshot
from federator.planning.candidates import Candidate
from federator.planning.feasibility import reject
from federator.planning.objective import Scored
from federator.planning.prices import late_share
from federator.planning.problem import World
from federator.planning.wording import span
from federator.planning.yard import Lot, Room, need_of

LEAST_RUN_S = 600.0
"""A job runs for so long before it is told to change, and for so long after it has made room for another."""
RESTART_S = 60.0
"""To save itself, to start and to read what it saved takes a job so long at least."""
WORTH = 3.0
"""What is saved is at least so many times what the change costs."""
SHARE = 0.1
"""and this share of what is left of the run, unless a deadline is at stake."""
NEARLY = 0.9
"""A narrower form that gains nearly as much does."""
MOST_HELPED = 50
"""Jobs that wait for which others are asked to narrow, of each place: the first in the order."""
MOST_VICTIMS = 4
"""Jobs that narrow for one that waits."""


class _Change(NamedTuple):
    """A job that runs in a form that it does not have yet."""

    busy: BusyView
    view: JobView
    form: int
    loss_usd: float
    """What it loses by it; less than nothing, where it gains."""
    saves_s: float


def resizes(world: World, scored: Scored, stopped: frozenset[str]) -> tuple[Preempt, ...]:
    """What changes its form, each as a stop. `stopped`: placements that are being stopped already."""
    running = [busy for busy in world.running.values() if _may_change(world, busy, stopped)]
    if not running:
        return ()
    found: list[Preempt] = []
    changed: set[str] = set()
    for place, at in enumerate(world.places):
        if at.offer is not None or at.rented:
            continue
        lot = _after_starts(world, scored, place)
        here = {r.payload.placement for r in lot.releases if isinstance(r.payload, BusyView)}
        own = [busy for busy in running if busy.placement in here and busy.placement not in changed]
        if not own:
            continue
        waiting = [job for job in world.jobs if _waits_here(world, scored, job, place)]
        made = (
            _narrowed(world, scored, place, lot, own, waiting)
            if waiting
            else _widened(world, scored, place, lot, own)
        )
        changed.update(stop.placement for stop in made)
        found += made
    return tuple(found)


def could_use_more(pool: PoolView) -> bool:
    """Whether something runs there that would go on wider, were there room."""
    return any(map(_has_wider, pool.busy))


def next_changes_at(snapshot: Snapshot) -> list[float]:
    """When jobs that run may be told to change, where anything could speak for that."""
    pools = [pool for pool in snapshot.pools if snapshot.jobs or _may_widen(pool)]
    return [settled_at(busy) for pool in pools for busy in pool.busy if busy.waits_as is not None]


def settled_at(busy: BusyView) -> float:
    """From when on it may be told to change."""
    return max(busy.started_at, busy.displaced_at or 0.0) + LEAST_RUN_S


def _may_widen(pool: PoolView) -> bool:
    return any(shape.gpus for shape in pool.free) and could_use_more(pool)


def _has_wider(busy: BusyView) -> bool:
    whole = busy.waits_as
    if whole is None:
        return False
    return any(form.throughput > whole.as_form(busy.form).throughput for form in whole.forms)


def _may_change(world: World, busy: BusyView, stopped: frozenset[str]) -> bool:
    return busy.waits_as is not None and settled_at(busy) <= world.now and busy.placement not in stopped


def _after_starts(world: World, scored: Scored, place: int) -> Lot:
    """The hosts of the place as this decision leaves them."""
    lot = world.lot(place).copy()
    for name, choice in scored.starts.items():
        if world.place_of(choice) == place:
            job = world.as_form(world.by_id[name], choice)
            lot.take(need_of(job), job.nodes)
    return lot


def _waits_here(world: World, scored: Scored, job: JobView, place: int) -> bool:
    """Whether the job waits for room, and could have it here."""
    if job.id in scored.starts or (job.not_before_at or 0.0) > world.now:
        return False
    return any(world.place_of(choice) == place for choice in world.home(job))


# -- wider ------------------------------------------------------------------------------------------------------------


def _widened(world: World, scored: Scored, place: int, lot: Lot, own: list[BusyView]) -> list[Preempt]:
    """Who is worth most goes first; each takes what is left."""
    best: list[_Change] = []
    for busy in own:
        changes = [c for c in _changes(world, scored, place, busy) if _pays(c) and _fits(lot, c)]
        if changes:
            best.append(min(changes, key=lambda c: (c.loss_usd, -c.saves_s, c.form)))
    stops = []
    for change in sorted(best, key=lambda c: (c.loss_usd, -c.saves_s, c.busy.placement or "")):
        if _fits(lot, change):
            for need, hosts in _held(lot, change.busy):
                lot.untake(need, hosts)
            lot.take(need_of(change.view), change.view.nodes)
            text = f"goes on with {_size(change.view)}, which are idle, and ends about {span(change.saves_s)} sooner"
            stops.append(_stop(change, change.busy.job or "", text))
    return stops


def _pays(change: _Change) -> bool:
    cost_s = WORTH * restart_s(change.busy)
    left_s = change.view.run_s
    wider = change.view.throughput > _throughput(change.busy)
    return wider and change.loss_usd < 0.0 and change.saves_s >= max(cost_s, SHARE * left_s)


def _fits(lot: Lot, change: _Change) -> bool:
    """Whether it has room once what it holds is given back."""
    held = _held(lot, change.busy)
    for need, hosts in held:
        lot.untake(need, hosts)
    fits = lot.fits(need_of(change.view), change.view.nodes)
    for need, hosts in held:
        lot.put(need, hosts)
    return fits


# -- narrower ---------------------------------------------------------------------------------------------------------


def _narrowed(
    world: World, scored: Scored, place: int, lot: Lot, own: list[BusyView], waiting: list[JobView]
) -> list[Preempt]:
    """For the first jobs that wait: the least that makes room for each, if that is worth it."""
    stops: list[Preempt] = []
    left = [
        min(found, key=lambda c: c.loss_usd)
        for busy in own
        if (found := _narrower(world, scored, place, busy))
    ]
    left.sort(key=lambda c: (c.loss_usd, c.busy.placement or ""))
    for job in waiting[:MOST_HELPED] if left else ():
        gain_usd, form = _gain(world, scored, job, place)
        if gain_usd <= 0.0:
            continue
        view = world.as_form(job, form)
        chosen, after = _makes_room(lot, left[:MOST_VICTIMS], view)
        if chosen and sum(change.loss_usd for change in chosen) * WORTH < gain_usd:
            text = f"makes room for {job.name} ({job.id}), which gains more than it loses: it goes on with"
            stops += [_stop(change, job.id, f"{text} {_size(change.view)}") for change in chosen]
            left = left[len(chosen) :]
            lot = after
            lot.take(need_of(view), view.nodes)
    return stops


def _gain(world: World, scored: Scored, job: JobView, place: int) -> tuple[float, int]:
    """What the job gains by a start here at once, in its narrowest form that gains most, against what it may expect."""
    booking, at = scored.booking(job.id), world.places[place]
    expected = scored.costs[job.id]
    start_at = world.now + RESTART_S
    if booking is not None and booking.start_at <= start_at + LEAST_RUN_S and not expected.late:
        return 0.0, place
    choices = [choice for choice in world.home(job) if world.place_of(choice) == place]
    found = []
    for choice in sorted(choices, key=lambda each: world.precedence(job, each)[0]):
        view = world.as_form(job, choice)
        usd = world.book.value_usd(job) * late_share(view, start_at, at.run_s(view))
        found.append((expected.miss + expected.wait - usd - _wait_usd(world, job, RESTART_S), choice))
    enough_usd = NEARLY * max(usd for usd, _ in found)
    return next(((usd, choice) for usd, choice in found if usd > 0.0 and usd >= enough_usd), (0.0, place))


def _makes_room(lot: Lot, options: list[_Change], job: JobView) -> tuple[list[_Change], Lot]:
    """Jobs that narrow until the one that waits fits, and the hosts after that; none, where all together do not make enough."""
    lot = lot.copy()
    chosen: list[_Change] = []
    for change in options:
        for need, hosts in _held(lot, change.busy):
            lot.untake(need, hosts)
        lot.take(need_of(change.view), change.view.nodes)
        chosen.append(change)
        if lot.fits(need_of(job), job.nodes):
            return chosen, lot
    return [], lot


def _narrower(world: World, scored: Scored, place: int, busy: BusyView) -> list[_Change]:
    gpus = busy.nodes * busy.gpus
    found = [c for c in _changes(world, scored, place, busy) if c.view.nodes * c.view.gpus < gpus]
    return [c for c in found if c.view.nodes <= busy.nodes and c.view.gpus <= busy.gpus]


# -- what a change comes to -------------------------------------------------------------------------------------------


def restart_s(busy: BusyView) -> float:
    """What a change takes: as long as the start took, and a little to save and to read."""
    return max(RESTART_S, busy.startup_s + RESTART_S / 2)


def _changes(world: World, scored: Scored, place: int, busy: BusyView) -> Iterator[_Change]:
    """Every other form that may run at the place, with what it would change."""
    whole, at = busy.waits_as, world.places[place]
    assert whole is not None, "only what may change is asked"
    again_s = restart_s(busy)
    now_s = at.run_s(whole.as_form(busy.form))
    now_usd = _usd(world, whole.as_form(busy.form), world.now, now_s)
    for form in range(1 + len(whole.forms)):
        view = whole.as_form(form)
        if form == busy.form or reject(view, at, world.ground) or not _within_caps(scored, at, busy, view):
            continue
        run_s = at.run_s(view)
        then_usd = _usd(world, view, world.now + again_s, run_s) + _wait_usd(world, whole, again_s)
        yield _Change(busy, view, form, then_usd - now_usd, now_s - again_s - run_s)


def _within_caps(scored: Scored, at: Candidate, busy: BusyView, view: JobView) -> bool:
    """Whether no cap is in the way once what it has is given back: what is found out after the stop is found out too late."""
    caps = scored.caps.copy()
    for pool in at.views:
        for part in pool.busy:
            if part.placement == busy.placement:
                caps.end_busy(part, pool)
    return caps.blocking(view, at) is None


def _usd(world: World, view: JobView, start_at: float, run_s: float) -> float:
    """What its deadline and its time are worth when it runs for so long from then on."""
    return world.book.value_usd(view) * late_share(view, start_at, run_s) + _wait_usd(world, view, run_s)


def _wait_usd(world: World, job: JobView, seconds: float) -> float:
    return world.book.wait_usd_h(job) * seconds / 3600.0


def _throughput(busy: BusyView) -> float:
    assert busy.waits_as is not None, "only what may change is asked"
    return busy.waits_as.as_form(busy.form).throughput


def _held(lot: Lot, busy: BusyView) -> list[tuple[Room, tuple[int, ...]]]:
    """What the placement holds there."""
    return [
        (r.need, r.hosts)
        for r in lot.releases
        if isinstance(r.payload, BusyView) and r.payload.placement == busy.placement
    ]


def _size(view: JobView) -> str:
    """As people say it."""
    gpus = f"{view.gpus_total:g} GPU{'s' if view.gpus_total != 1 else ''}"
    return gpus if view.nodes == 1 else f"{view.nodes} nodes, {gpus} in all"


def _stop(change: _Change, beneficiary: str, text: str) -> Preempt:
    busy = change.busy
    return Preempt(
        job=busy.job or "",
        revision=busy.revision,
        placement=busy.placement or "",
        beneficiary=beneficiary,
        because=text,
        form=change.form,
    )
