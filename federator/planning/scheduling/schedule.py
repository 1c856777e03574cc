"""The engine: an event-driven list schedule of all jobs on exact hosts.

It serves the forecast at home, greedy's decision (what it starts now is the first step of its schedule) and the evaluation of
any plan (that plan's decisions first, then the schedule fills what is free and goes on). From release to release it offers every
waiting job, in the published order, its cheapest place that fits. Rules keep it fair:

* The first gang that does not fit is *held* a place: others may run there only if the gang still starts on time (EASY backfill).
* A job that would miss its deadline where it fits, and would meet it by waiting for another place or a rental, waits.
* So does one for which another owned place is cheaper, all told: run, data, chance of missing, and the wait itself.
* Caps hold at every moment; what ends gives its part back.

A job of several forms starts in the narrowest that meets its deadline. When everybody has had a turn, those that have started at this moment
are widened, in order, into what is left free, where that is worth it: so nobody is wide while somebody waits who fits into the difference.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from federator.model.snapshot import BusyView, JobView
from federator.planning.places.candidates import machines
from federator.planning.places.yard import RANKS_PER_WORK, Hold, Release, hosts_for, need_of
from federator.planning.renting.burst import Bursting
from federator.planning.scheduling import blocks
from federator.planning.scheduling.blocks import BUSY, Block, better_elsewhere, not_before, to_be_rented
from federator.planning.scheduling.board import Board
from federator.planning.scheduling.bookings import Schedule, estimate, put_back
from federator.planning.scheduling.lanes import Lanes
from federator.planning.scheduling.patience import MOST_ALIKE, Patience
from federator.planning.world.prices import cost
from federator.planning.world.problem import OPTION, World

ATTEMPTS = 500_000
"""Looks at one job and one place after which a schedule stops being exact: what is left is estimated from the backlog."""
LOOKS = 1_000_000
"""Likewise for glances at a class whose turn it is; they are cheap, but where all jobs differ there is one per job and moment."""


def schedule(
    world: World,
    bursting: Bursting | None,
    starts: Mapping[str, int] | None = None,
    order: Mapping[str, int] | None = None,
) -> Schedule:
    """Schedule all jobs: first `starts` (job to place, now; an offer is rented), then the rest in the published order, or in another: every job's turn.

    Without `bursting`, only owned places are used. A start that does not fit, that a cap forbids, or that costs more on what is rented than its deadline is worth, is left to the rest.
    """
    return _Engine(world, bursting, order).run(starts or {})


def starts_now(world: World) -> Schedule:
    """The first moment of the schedule at home, and nothing beyond it: what of the waiting work starts now."""
    return _Engine(world, None).begin({})


class _Rank(NamedTuple):
    """By precedence of its form; cheapest first; then where it was not lost before, where fewest GPUs per host are left over, where it is fastest."""

    first: int
    total: int
    """To a billionth of a USD."""
    miss: float
    lost_there: bool
    left_over: int
    run_s: float
    place: int
    hosts: tuple[int, ...] = ()
    late: bool = False


class _Engine(Board):
    """One run of the list schedule; its state is thrown away with it."""

    def begin(self, starts: Mapping[str, int]) -> Schedule:
        """What starts now: these, and the rest in order."""
        for job in self.world.jobs:
            if job.id in starts:
                self._force(job, starts[job.id])
        self.lanes = Lanes(self.world, self.result.bookings, self.order)
        self._pass(self.now, set(range(len(self.lots))))
        self.result.caps = self.caps.copy()
        self.result.blocks = {
            job.id: not_before(job, self.now) or self.stuck.get(self.world.key(job), BUSY)
            for job in self.lanes.waiting()
        }
        return self.result

    def run(self, starts: Mapping[str, int]) -> Schedule:
        """What starts now, and from there on from release to release."""
        self.begin(starts)
        wakes = sorted({job.not_before_at or 0.0 for job in self.lanes.waiting()})
        at = self.now
        while self.lanes and not self._spent:
            ahead = [lot.releases[0].at for lot in self.lots if lot.releases] + [w for w in wakes if w > at][
                :1
            ]
            if not ahead:
                break
            at = max(at, min(ahead))
            fresh = self._advance(at)
            if at in wakes:
                self.stuck.clear()
            self._pass(at, fresh)
        if self._spent:
            left = [(job, self._places(job)) for job in self.lanes.waiting()]
            self.result.bookings.update(estimate(self.world, left, at))
        self.result.bookings.update(put_back(self.world.jobs, self.result.bookings, self.now))
        return self.result

    @property
    def _spent(self) -> bool:
        """Whether the limit on work is reached: what is left is estimated."""
        return self.result.attempts > ATTEMPTS or self.lanes.looks > LOOKS

    # -- one moment ---------------------------------------------------------------------------------------------------

    def _pass(self, at: float, fresh: set[int]) -> None:
        """Offer every waiting job a start at this moment, in order; a lane whose first is refused is done with."""
        if self.hold is not None and self.hold.at <= at:
            self.hold = None
        self.patience = Patience(self.world, self.lots)
        started = []
        for key, job, turn in self.lanes.turns():
            if self._worth_a_look(job, at, fresh):
                block = self._try(job, at, self._gained(job, fresh))
                if block is None:
                    self.stuck.pop(key, None)
                    turn.took = True
                    started.append(job)
                    continue
                self.stuck[key] = block
            if self.hold is None and job.gpus_total > 1 and self.stuck.get(key) is BUSY:
                self._hold_for(job, at)
        for job in started:
            if job.forms:
                self._widen(job, at)

    def _worth_a_look(self, job: JobView, at: float, fresh: set[int]) -> bool:
        """Whether anything has changed for the job's class since it was last refused."""
        if self.result.attempts > ATTEMPTS or (job.not_before_at is not None and job.not_before_at > at):
            return False
        block = self.stuck.get(self.world.key(job))
        if block is BUSY:
            return any(self.world.place_of(place) in fresh for place in self._places(job))
        return block is None or block.kind not in ("quota", "budget")

    def _gained(self, job: JobView, fresh: set[int]) -> Sequence[int]:
        """Choices to try: where there was no room the last time, only those that have gained since."""
        places = self._places(job)
        if self.stuck.get(self.world.key(job)) is not BUSY:
            return places
        return [p for p in places if self.world.place_of(p) in fresh]

    def _advance(self, at: float) -> set[int]:
        """Let everything due come back; return the places that gained. An ended cap's part frees every class it stopped."""
        gained, counted = set(), False
        for place, lot in enumerate(self.lots):
            for release in lot.advance(at):
                gained.add(place)
                counted = self._count_out(release, place) or counted
        if counted:
            self.stuck = {
                key: block for key, block in self.stuck.items() if block.kind not in ("quota", "budget")
            }
        return gained

    def _count_out(self, release: Release, place: int) -> bool:
        at = self.world.places[place]
        if isinstance(release.payload, JobView):
            self.caps.end(release.payload, at)
        elif isinstance(release.payload, BusyView) and at.standing and release.number % RANKS_PER_WORK == 0:
            self.caps.end_busy(release.payload, at.standing)
        return bool(self.caps.rows) and release.payload is not None

    # -- one job ------------------------------------------------------------------------------------------------------

    def _places(self, job: JobView) -> tuple[int, ...]:
        """Where the job may run in this schedule: at home, on leases that it may use, and beside a job that rents."""
        key = self.world.key(job)
        if key not in self.open:
            places = self.world.home(job)
            if self.bursting is not None:
                offers = (p for p in self.world.offers(job) if self.world.place_of(p) in self.rented)
                shared = [
                    p for p in offers if machines(self.world.as_form(job, p), self.world.places[p]) == 1
                ]
                rented = (*self.world.leases(job), *shared)
                places += tuple(p for p in rented if self.bursting.may_use_lease(job, p))
            self.open[key] = places
        return self.open[key]

    def _try(self, job: JobView, at: float, places: Sequence[int]) -> Block | None:
        """Start the job at the cheapest of these places that fits, or say why not."""
        capped: Block | None = None
        held = False
        fitting = []
        for place in places:
            self.result.attempts += 1
            view = self.world.as_form(job, place)
            if not self.lots[place].fits(need_of(view), view.nodes):
                continue
            row = self.caps.blocking(view, self.world.places[place], shares=self._shares(place))
            if row is not None:
                capped = capped or blocks.capped(self.caps, row, view, self.world.places[place])
            elif (hosts := self._hosts(view, place, at)) is None:
                held = True
            elif not self._too_dear(view, place, at):
                fitting.append(self._rank(view, place, at, hosts))
        if fitting:
            best = min(fitting)
            better = self._better_later(job, at) if best.late else None
            alike = self.lanes.alike(self.world.key(job), MOST_ALIKE)
            pays = all(self.world.places[each.place].rented for each in fitting)
            if better is None and len(alike) < MOST_ALIKE and (pays or self.patience.left(alike, at)):
                self.result.attempts += len(self.world.home(job))
                better = self.patience.better(job, at, best.place, best.total, alike, pays=pays)
            if better is None:
                self._start(job, best.place, at, best.hosts)
            return better
        if held and self.hold is not None:
            hold = self.hold
            return blocks.held(hold.job.of or hold.job, self.world.places[hold.place], hold.at, self.now)
        return capped or BUSY

    def _rank(self, job: JobView, place: int, at: float, hosts: tuple[int, ...]) -> "_Rank":
        candidate = self.world.places[place]
        price = cost(self.world.book, job, candidate, at, committed_until=self._committed_until(place))
        avoided = candidate.members_of(job.avoid_nodes) if job.avoid_nodes else ()
        lost_there = any(self.lots[place].members[host] in avoided for host in hosts)
        left_over, run_s = candidate.gpus - job.gpus, candidate.run_s(job)
        usd = math.floor(price.total * 1e9 + 0.5)
        first, if_late = self.world.precedence(job, place)
        first += if_late if price.late else 0
        return _Rank(first, usd, price.miss, lost_there, left_over, run_s, place, hosts, price.late)

    def _too_dear(self, job: JobView, place: int, at: float) -> bool:
        """Whether rented time there costs more than the chance of the deadline that it brings is worth, where it is for deadlines only."""
        candidate, book = self.world.places[place], self.world.book
        if not candidate.rented or self.bursting is None or not self.bursting.only_deadlines(job):
            return False
        price = cost(book, job, candidate, at, committed_until=self._committed_until(place))
        return price.rent > book.value_usd(job) - price.miss

    def _widen(self, job: JobView, at: float) -> None:
        """Everybody has had a turn: a job that has just started takes what is left where it is, if it is better off; anywhere, if nobody waits. It never becomes narrower: that would leave GPUs idle."""
        present = self.result.bookings[job.id].place
        hosts = self._take_back(self.world.as_form(job, present), present)
        option, best = self.world.precedence(job, present)[0] // OPTION, None
        least = self.world.as_form(job, present).gpus_total
        for place in self._places(job):
            elsewhere = self.world.place_of(place) != self.world.place_of(present)
            if self.world.as_form(job, place).gpus_total < least:
                continue
            if (elsewhere and self.lanes) or self.world.precedence(job, place)[0] // OPTION != option:
                continue
            self.result.attempts += 1
            view, candidate = self.world.as_form(job, place), self.world.places[place]
            if not self.lots[place].fits(need_of(view), view.nodes):
                continue
            if self.caps.blocking(view, candidate, shares=self._shares(place)) is not None:
                continue
            found = self._hosts(view, place, at)
            if found is not None and not self._too_dear(view, place, at):
                rank = self._rank(view, place, at, found)._replace(first=0)
                best = rank if best is None else min(best, rank)
        if best is None:
            self._start(job, present, at, hosts)
        else:
            self._start(job, best.place, at, best.hosts)

    # -- decisions that are taken already -----------------------------------------------------------------------------

    def _force(self, job: JobView, place: int) -> None:
        job, candidate = self.world.as_form(job, place), self.world.places[place]
        if self.caps.blocking(job, candidate) is not None:
            return
        if candidate.offer is not None:
            if machines(job, candidate) <= self.stocks.room(self.world.place_of(place)):
                self._rent(job, place, candidate.offer.offer.delay_s)
        elif self._too_dear(job, place, self.now):
            return
        elif (hosts := hosts_for(job, candidate, self.lots[place])) is not None:
            self._start(job, place, self.now, hosts)

    # -- waiting on purpose -------------------------------------------------------------------------------------------

    def _hold_for(self, job: JobView, at: float) -> None:
        """Keep the place where the gang can start soonest."""
        best: tuple[float, int] | None = None
        for place in self._places(job):
            self.result.attempts += 1
            view = self.world.as_form(job, place)
            start = self.lots[place].earliest(need_of(view), view.nodes)
            if start is not None and (best is None or (start, place) < best):
                best = (start, place)
        if best is not None and best[0] > at:
            lot = self.lots[best[1]].copy()
            lot.advance(best[0])
            held = self.world.as_form(job, best[1])
            self.hold = Hold(held, self.world.place_of(best[1]), best[0], lot)

    def _better_later(self, job: JobView, at: float) -> Block | None:
        """Whether waiting for another place, or for a rental, would meet the deadline that starting now misses."""
        deadline = job.deadline_at or 0.0
        for place in self._places(job):
            self.result.attempts += 1
            view, candidate = self.world.as_form(job, place), self.world.places[place]
            start = self.lots[place].earliest(need_of(view), view.nodes)
            if start is not None and start > at and start + candidate.run_s(view) <= deadline:
                return better_elsewhere(candidate, start, self.now)
        if self.bursting is None or at > self.now:
            return None
        case = self.bursting.later_case(job, self.caps)
        if case is None:
            return None
        return to_be_rented(self.world.places[case.place], case.rent_at, self.now)
