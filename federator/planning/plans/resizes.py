"""Elastic jobs that run, and had better go on in another form: wider on GPUs that would idle, narrower where what they give up helps another more.

A change costs a checkpoint and a start, so it has to be worth several of them, and none comes soon after the last. A job widens only where nobody waits: what is idle is
idle for all. It narrows for a job that waits when that one gains more, in deadlines and in waiting, than it loses itself; whoever took idle GPUs gives them back that way.
What is stopped waits, as any job does, and the next turn starts it: a job that made room in the form that was chosen here, one that grows in whatever it then gets.

Only who waits for room is helped with room: nobody narrows for a job that a limit keeps, or that what is free would hold. All changes of a turn are
counted on one copy of the caps, so that no two break a limit together.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from federator.model.plans import Preempt
from federator.model.reasons import Narrows, Widens
from federator.model.snapshot import BusyView, JobView, PoolView, Snapshot
from federator.planning.kernels.start_cost import wait_usd
from federator.planning.places.candidates import Candidate
from federator.planning.places.host_sets import HostSet, Room, need_of
from federator.planning.plans.room_made import after_starts, count_out, stop, waits
from federator.planning.rules.caps import Caps
from federator.planning.rules.feasibility import reject
from federator.planning.scheduling.objective import Scored
from federator.planning.world.chances import late_share
from federator.planning.world.problem import World

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
"""Jobs that narrow for one that waits,"""
MOST_TRIED = 16
"""of so many that are looked at together."""


class _Change(NamedTuple):
    """A job that runs in a form that it does not have yet."""

    busy: BusyView
    view: JobView
    form: int
    loss_usd: float
    """What it loses by it; less than nothing, where it gains."""
    saves_s: float


class _Here(NamedTuple):
    """A place as this decision and the changes so far leave it."""

    world: World
    scored: Scored
    place: int
    host_set: HostSet
    caps: Caps
    """Of all places, with all changes of the turn."""
    holds: dict[str, list[tuple[Room, tuple[int, ...]]]]
    """What each placement holds here."""

    @property
    def at(self) -> Candidate:
        return self.world.places[self.place]

    def give_back(self, busy: BusyView) -> None:
        """What the placement holds here is free, and counts no more."""
        for need, hosts in self.holds[busy.placement or ""]:
            self.host_set.untake(need, hosts)
        count_out(self.caps, self.at, busy)

    def keep(self, busy: BusyView, used: list[float]) -> None:
        """Undo that, where so much of the caps was in use."""
        for need, hosts in self.holds[busy.placement or ""]:
            self.host_set.put(need, hosts)
        self.caps.used[:] = used

    def choices(self, job: JobView) -> list[int]:
        """The forms in which the job may run here, as choices."""
        return [choice for choice in self.world.home(job) if self.world.place_of(choice) == self.place]

    def views(self, job: JobView) -> list[JobView]:
        """The job in those."""
        return [self.world.as_form(job, choice) for choice in self.choices(job)]


def resizes(world: World, scored: Scored, stopped: frozenset[str]) -> tuple[Preempt, ...]:
    """What changes its form, each as a stop. `stopped`: placements that are being stopped already."""
    running = [busy for busy in world.running.values() if _may_change(world, busy, stopped)]
    if not running:
        return ()
    found: list[Preempt] = []
    changed: set[str] = set()
    caps = scored.caps.copy()
    for place, at in enumerate(world.places):
        if at.offer is not None or at.rented:
            continue
        host_set = after_starts(world, scored, place)
        holds: dict[str, list[tuple[Room, tuple[int, ...]]]] = {}
        for release in host_set.releases:
            if isinstance(release.payload, BusyView) and release.payload.placement:
                part = release.need, release.hosts
                holds.setdefault(release.payload.placement, []).append(part)
        own = [busy for busy in running if busy.placement in holds and busy.placement not in changed]
        if own:
            made = _changed_here(_Here(world, scored, place, host_set, caps, holds), own)
            changed.update(stop.placement for stop in made)
            found += made
    return tuple(found)


def _changed_here(here: _Here, own: list[BusyView]) -> list[Preempt]:
    waiting = [job for job in here.world.jobs if waits(here.world, here.scored, job) and here.choices(job)]
    made = _narrowed(here, own, _for_room(here, own, waiting)) if waiting else []
    if made or any(
        here.scored.caps.blocking(view, here.at) is None for job in waiting for view in here.views(job)
    ):
        return made
    return _widened(here, own)


def could_use_more(pool: PoolView) -> bool:
    """Whether something runs there that would go on wider, were there room."""
    elastic = ((busy, busy.waits_as) for busy in pool.busy if busy.waits_as is not None)
    return any(
        form.throughput > whole.throughput_in(busy.form) for busy, whole in elastic for form in whole.forms
    )


def next_changes_at(snapshot: Snapshot) -> list[float]:
    """When jobs that run may be told to change, where anything could speak for that."""
    pools = [
        pool
        for pool in snapshot.pools
        if snapshot.jobs or (any(shape.gpus for shape in pool.free) and could_use_more(pool))
    ]
    return [settled_at(busy) for pool in pools for busy in pool.busy if busy.waits_as is not None]


def settled_at(busy: BusyView) -> float:
    """From when on it may be told to change."""
    return max(busy.started_at, busy.displaced_at or 0.0) + LEAST_RUN_S


def _may_change(world: World, busy: BusyView, stopped: frozenset[str]) -> bool:
    return busy.waits_as is not None and settled_at(busy) <= world.now and busy.placement not in stopped


def _for_room(here: _Here, own: list[BusyView], waiting: list[JobView]) -> list[JobView]:
    """Those that room would help: nothing that is free holds them, and no cap keeps them once others give back what they have."""
    freed = here.caps.copy()
    for busy in own:
        count_out(freed, here.at, busy)
    known: dict[int, bool] = {}
    found = []
    for job in waiting:
        key = here.world.key(job)
        if key not in known:
            views = here.views(job)
            known[key] = not any(here.host_set.fits(need_of(view), view.nodes) for view in views) and any(
                freed.blocking(view, here.at) is None for view in views
            )
        if known[key]:
            found.append(job)
    return found


def _apply(here: _Here, change: _Change) -> bool:
    """It gives back what it holds and takes what it is to have; False, and nothing has changed, where room or a cap forbids that."""
    used = list(here.caps.used)
    here.give_back(change.busy)
    if _take(here, change.view) is not None:
        return True
    here.keep(change.busy, used)
    return False


def _take(here: _Here, view: JobView) -> tuple[int, ...] | None:
    """The hosts that the job takes; None, and nothing is taken, where room or a cap forbids that."""
    hosts = (
        here.host_set.take(need_of(view), view.nodes) if here.caps.blocking(view, here.at) is None else None
    )
    if hosts is not None:
        here.caps.take(view, here.at)
    return hosts


# -- wider ------------------------------------------------------------------------------------------------------------


def _widened(here: _Here, own: list[BusyView]) -> list[Preempt]:
    """Who is worth most goes first; each takes what is left."""
    best: list[_Change] = []
    for busy in own:
        better = (c for c in _changes(here, busy, _wider(here, busy)) if c.loss_usd < 0.0)
        changes = [c for c in better if _fits(here, c)]
        if changes:
            best.append(min(changes, key=lambda c: (c.loss_usd, -c.saves_s, c.form)))
    stops = []
    for change in sorted(best, key=lambda c: (c.loss_usd, -c.saves_s, c.busy.placement or "")):
        if _apply(here, change):
            nodes, gpus = change.view.nodes, float(change.view.gpus_total)
            reason = Widens(nodes=nodes, gpus=gpus, saves_s=change.saves_s)
            stops.append(stop(change.busy, change.busy.job or "", reason, change.form))
    return stops


def _wider(here: _Here, busy: BusyView) -> list[int]:
    """The forms in which it would get on faster by so much that a change pays: asked first, for little else is as cheap to know."""
    whole, again_s = _whole(busy), restart_s(busy)
    present = whole.throughput_in(busy.form)
    faster = [form for form in range(1 + len(whole.forms)) if whole.throughput_in(form) > present]
    if not faster:
        return []
    left_s = here.at.run_s(whole.as_form(busy.form)) - again_s
    views = ((form, whole.as_form(form)) for form in faster)
    return [n for n, v in views if left_s - here.at.run_s(v) >= max(WORTH * again_s, SHARE * v.run_s)]


def _fits(here: _Here, change: _Change) -> bool:
    """Whether it has room once what it holds is given back."""
    used = list(here.caps.used)
    here.give_back(change.busy)
    fits = here.host_set.fits(need_of(change.view), change.view.nodes)
    here.keep(change.busy, used)
    return fits


# -- narrower ---------------------------------------------------------------------------------------------------------


def _narrowed(here: _Here, own: list[BusyView], waiting: list[JobView]) -> list[Preempt]:
    """For the first jobs that wait: the least that makes room for each, if that is worth it."""
    stops: list[Preempt] = []
    left = [found for busy in own if (found := _narrower(here, busy))]
    left.sort(key=lambda found: (found[0].loss_usd, found[0].busy.placement or ""))
    for job in waiting[:MOST_HELPED] if left else ():
        if any(_take(here, view) is not None for view in here.views(job)):
            continue  # what others have given up already holds it
        gain_usd, form = _gain(here, job, [found[-1] for found in left[:MOST_VICTIMS]])
        if gain_usd <= 0.0:
            continue
        view = here.world.as_form(job, form)
        chosen = _makes_room(here, left, view, gain_usd / WORTH)
        if chosen:
            stops += [_narrowed_for(job, change) for change in chosen]
            gone = {change.busy.placement for change in chosen}
            left = [found for found in left if found[0].busy.placement not in gone]
            for change in chosen:
                _apply(here, change)
            _take(here, view)
    return stops


def _narrowed_for(job: JobView, change: _Change) -> Preempt:
    nodes, gpus = change.view.nodes, float(change.view.gpus_total)
    reason = Narrows(job=f"{job.name} ({job.id})", nodes=nodes, gpus=gpus)
    return stop(change.busy, job.id, reason, change.form)


def _gain(here: _Here, job: JobView, options: list[_Change]) -> tuple[float, int]:
    """What the job gains by a start here at once, in its narrowest form that gains most, against what it may expect."""
    world, scored = here.world, here.scored
    booking, expected = scored.booking(job.id), scored.costs[job.id]
    start_at = world.now + RESTART_S
    if booking is not None and booking.start_at <= start_at + LEAST_RUN_S and not expected.late:
        return 0.0, here.place
    freed = here._replace(host_set=here.host_set.copy(), caps=here.caps.copy())
    for change in options:
        _apply(freed, change)
    found = []
    for choice in sorted(here.choices(job), key=lambda each: world.precedence(job, each)[0]):
        view = world.as_form(job, choice)
        if freed.caps.blocking(view, here.at) is None:
            usd = world.book.value_usd(job) * late_share(view, start_at, here.at.run_s(view))
            found.append((expected.miss + expected.wait - usd - _wait_usd(world, job, RESTART_S), choice))
    enough_usd = NEARLY * max((usd for usd, _ in found), default=0.0)
    return next(
        ((usd, choice) for usd, choice in found if usd > 0.0 and usd >= enough_usd), (0.0, here.place)
    )


def _makes_room(here: _Here, left: list[list[_Change]], job: JobView, most_usd: float) -> list[_Change]:
    """Whose change to what form makes room for the job, and within its limits, at the least loss, which is less than this: one alone, or, where none does, several."""
    best = None
    for changes in left:
        for change in changes:
            if change.loss_usd >= (most_usd if best is None else best.loss_usd):
                break
            if _helps(here, [change], job):
                best = change
                break
    if best is not None:
        return [best]
    found = [several for group in _groups(here, left, job) if (several := _several(here, group, job))]
    least = min(found, key=_loss_usd, default=[])
    return least if _loss_usd(least) < most_usd else []


def _loss_usd(changes: Iterable[_Change]) -> float:
    return sum(change.loss_usd for change in changes)


def _groups(here: _Here, left: list[list[_Change]], job: JobView) -> list[list[list[_Change]]]:
    """Those that may make room together: all, or, for a job of one node, those that are on one host."""
    if job.nodes > 1:
        return [left]
    on: dict[int, list[list[_Change]]] = {}
    for changes in left:
        for host in {host for _, hosts in here.holds[changes[0].busy.placement or ""] for host in hosts}:
            on.setdefault(host, []).append(changes)
    return [group for group in on.values() if len(group) > 1]


def _several(here: _Here, group: list[list[_Change]], job: JobView) -> list[_Change]:
    """All in their narrowest form until the job has room; then whoever is not needed is left alone, and the others go on as wide as they may."""
    chosen: list[_Change] = []
    for changes in group[:MOST_TRIED]:
        chosen.append(changes[-1])
        if _helps(here, chosen, job):
            break
    else:
        return []
    for change in reversed(chosen[:-1]):
        without = [other for other in chosen if other is not change]
        chosen = without if _helps(here, without, job) else chosen
    if len(chosen) > MOST_VICTIMS:
        return []
    forms = {changes[0].busy.placement: changes for changes in group}
    for number, change in enumerate(chosen):
        for wider in forms[change.busy.placement]:
            trial = [*chosen[:number], wider, *chosen[number + 1 :]]
            if _helps(here, trial, job):
                chosen = trial
                break
    return chosen


def _helps(here: _Here, changes: list[_Change], job: JobView) -> bool:
    """Whether the job has room, and no cap keeps it, once these have changed; nothing is changed by asking."""
    used, taken = list(here.caps.used), list[tuple[Room, tuple[int, ...]]]()
    for change in changes:
        here.give_back(change.busy)
    for change in changes:
        if (hosts := _take(here, change.view)) is None:
            break
        taken.append((need_of(change.view), hosts))
    fits = len(taken) == len(changes) and here.caps.blocking(job, here.at) is None
    fits = fits and here.host_set.fits(need_of(job), job.nodes)
    for need, hosts in taken:
        here.host_set.untake(need, hosts)
    for change in changes:
        here.keep(change.busy, used)
    return fits


def _narrower(here: _Here, busy: BusyView) -> list[_Change]:
    """Its narrower forms, by what it loses in them; the last is the narrowest of those that lose as much."""
    gpus, forms = busy.nodes * busy.gpus, range(1 + len(_whole(busy).forms))
    found = [c for c in _changes(here, busy, forms) if c.view.nodes * c.view.gpus < gpus]
    found = [c for c in found if c.view.nodes <= busy.nodes and c.view.gpus <= busy.gpus]
    return sorted(found, key=lambda c: (c.loss_usd, -c.view.nodes * c.view.gpus, c.form))


# -- what a change comes to -------------------------------------------------------------------------------------------


def restart_s(busy: BusyView) -> float:
    """What a change takes: as long as the start took, and a little to save and to read."""
    return max(RESTART_S, busy.startup_s + RESTART_S / 2)


def _whole(busy: BusyView) -> JobView:
    """With all its forms."""
    assert busy.waits_as is not None, "only what may change is asked"
    return busy.waits_as


def _changes(here: _Here, busy: BusyView, forms: Sequence[int]) -> Iterator[_Change]:
    """Each of these forms that is another and may run at the place, with what it would change."""
    if not forms:
        return
    whole, at, world, again_s = _whole(busy), here.at, here.world, restart_s(busy)
    now_s = at.run_s(whole.as_form(busy.form))
    now_usd = _usd(world, whole.as_form(busy.form), world.now, now_s)
    for form in forms:
        view = whole.as_form(form)
        if form == busy.form or reject(view, at, world.context) or not _within_caps(here, busy, view):
            continue
        run_s = at.run_s(view)
        then_usd = _usd(world, view, world.now + again_s, run_s) + _wait_usd(world, whole, again_s)
        yield _Change(busy, view, form, then_usd - now_usd, now_s - again_s - run_s)


def _within_caps(here: _Here, busy: BusyView, view: JobView) -> bool:
    """Whether no cap is in the way once what it has is given back: what is found out after the stop is found out too late."""
    caps = here.caps.copy()
    count_out(caps, here.at, busy)
    return caps.blocking(view, here.at) is None


def _usd(world: World, view: JobView, start_at: float, run_s: float) -> float:
    """What its deadline and its time are worth when it runs for so long from then on."""
    return world.book.value_usd(view) * late_share(view, start_at, run_s) + _wait_usd(world, view, run_s)


def _wait_usd(world: World, job: JobView, seconds: float) -> float:
    return wait_usd(world.book.wait_usd_h(job), seconds, 0.0)
