"""The list schedule once more, in plain Python on objects: the oracle that the compiled kernels are held to.

Slow and small on purpose, and for tests only. From release to release it offers every waiting job, in order, its cheapest place that fits; `federator.planning.kernels`
says what the rules mean. Attempts and evaluations are counted as the kernels count them, so the limits on work are compared, too.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from federator.model.rules import CapRow
from federator.model.snapshot import BusyView, JobView
from federator.planning.kernels import tables
from federator.planning.places.candidates import machines, size
from federator.planning.places.host_sets import (
    RANKS_PER_WORK,
    Host,
    HostSet,
    Release,
    Room,
    hosts_for,
    need_of,
)
from federator.planning.rentals.burst import Bursting
from federator.planning.rentals.candidate import BurstCandidate
from federator.planning.rules.caps import EPSILON, QUEUE_UNITS, Caps
from federator.planning.rules.permits import only_deadlines
from federator.planning.scheduling import blocks, list_schedule
from federator.planning.scheduling.blocks import BUSY, Block
from federator.planning.scheduling.list_schedule import Booking
from federator.planning.world.prices import cost
from federator.planning.world.problem import OPTION, World


@dataclass
class Schedule:
    """A booking per job that ever starts, and for those that do not start at once, why."""

    bookings: dict[str, Booking] = field(default_factory=dict)
    blocks: dict[str, Block] = field(default_factory=dict)
    caps: Caps | None = None
    """As they stand after what starts now."""
    attempts: int = 0


def schedule(
    world: World,
    bursting: Bursting | None,
    starts: Mapping[str, int] | None = None,
    order: Mapping[str, int] | None = None,
) -> Schedule:
    """All jobs: first `starts` (job to choice), then the rest in the published order or in another. Without `bursting` only owned places are used."""
    return _Engine(world, bursting, order).run(starts or {})


def starts_now(world: World) -> Schedule:
    """The first moment of the schedule at home."""
    return _Engine(world, None, None).begin({})


class _Hold:
    """A place kept for a gang: its hosts as they will be at `at`, before the gang starts."""

    def __init__(self, job: JobView, place: int, at: float, host_set: HostSet) -> None:
        self.job, self.place, self.at, self.host_set = job, place, at, host_set
        self.room = host_set.room_for(need_of(job))

    def survives(self, need: Room, hosts: Sequence[int]) -> bool:
        return self.room - self.loss(need, hosts) >= self.job.nodes

    def loss(self, need: Room, hosts: Sequence[int]) -> int:
        """How many ranks of the gang such ranks displace."""
        gang, after = need_of(self.job), dict[int, Host]()
        for index in hosts:
            after[index] = (after.get(index) or self.host_set.hosts[index]).plus(need, -1)
        return sum(self.host_set.hosts[index].ranks(gang) - left.ranks(gang) for index, left in after.items())

    def suffer(self, need: Room, hosts: Sequence[int]) -> None:
        self.room -= self.loss(need, hosts)
        self.host_set.put(need, hosts)

    def recover(self, need: Room, hosts: Sequence[int]) -> None:
        self.host_set.untake(need, hosts)
        self.room += self.loss(need, hosts)


class _Rank(NamedTuple):
    """By precedence of its form; cheapest first; then where it was not lost before, where fewest GPUs per host are left over, where it is fastest."""

    first: int
    total: int
    miss: float
    lost_there: bool
    left_over: int
    run_s: float
    place: int
    hosts: tuple[int, ...] = ()
    late: bool = False


class _HostSets(list[HostSet]):
    """The host sets of all places. Asked for a choice, it answers with that of its place."""

    def __getitem__(self, choice: int) -> HostSet:  # type: ignore[override]
        return super().__getitem__(choice % len(self))


class _Board:
    """The state of one run, and how jobs are put there and taken back."""

    def __init__(self, world: World, bursting: Bursting | None, order: Mapping[str, int] | None) -> None:
        self.world, self.bursting, self.order, self.now = world, bursting, order, world.now
        self.host_sets, self.caps, self.stocks = (
            _HostSets(world.host_sets()),
            world.caps.copy(),
            world.stocks.copy(),
        )
        self.result = Schedule()
        self.hold: _Hold | None = None
        self.rented: set[int] = set()
        self.stuck: dict[int, Block] = {}
        self.open: dict[int, tuple[int, ...]] = {}
        self.number, self.evaluations = 1 << 40, 0
        self.class_queues: dict[int, list[tuple[int, JobView]]] = {}
        self.awaited_s = [0.0] * len(self.host_sets)

    def _force(self, job: JobView, place: int) -> None:
        if place not in (*self.world.home(job), *self.world.leases(job), *self.world.offers(job)):
            return
        job, candidate = self.world.as_form(job, place), self.world.places[place]
        if self.caps.blocking(job, candidate) is not None:
            return
        if candidate.offer is not None:
            if machines(job, candidate) <= self.stocks.room(self.world.place_of(place)):
                self._rent(job, place, candidate.offer.offer.delay_s)
        elif self._too_dear(job, place, self.now):
            return
        elif (hosts := hosts_for(job, candidate, self.host_sets[place])) is not None:
            self._start(job, place, self.now, hosts)

    def _committed_until(self, place: int) -> float:
        releases = self.host_sets[place].releases
        return releases[-1].at if self.world.places[place].rented and releases else 0.0

    def _counted(self, job: JobView, place: int) -> list[tuple[int, CapRow]]:
        """Caps that count the job there: on an instance that is rented for another, those on what is in use."""
        shares = self.world.place_of(place) in self.rented
        return [each for each in self.caps.about(job) if not shares or each[1].unit in QUEUE_UNITS]

    def _blocking(self, job: JobView, place: int) -> CapRow | None:
        candidate, used = self.world.places[place], self.caps.used
        adds = ((n, row, self.caps.adds_to(row, job, candidate)) for n, row in self._counted(job, place))
        return next((row for n, row, more in adds if more and used[n] + more > row.limit + EPSILON), None)

    def _is_held(self, place: int) -> bool:
        return self.hold is not None and self.hold.place == self.world.place_of(place)

    def _start(self, job: JobView, place: int, at: float, hosts: tuple[int, ...]) -> None:
        job = self.world.as_form(job, place)
        need, candidate, host_set = need_of(job), self.world.places[place], self.host_sets[place]
        committed_until = self._committed_until(place)
        host_set.put(need, hosts)
        finish = at + candidate.run_s(job)
        if self.hold is not None and self.hold.job.id == job.id:
            self.hold = None
        elif self.hold is not None and self._is_held(place) and finish > self.hold.at:
            self.hold.suffer(need, hosts)
        self._release(place, finish, need, hosts, job)
        for number, row in self._counted(job, place):
            self.caps.used[number] += self.caps.adds_to(row, job, candidate)
        members = tuple(host_set.members[host] for host in hosts)
        self.result.bookings[job.id] = Booking(place, at, finish, committed_until, members=members)

    def _take_back(self, job: JobView, place: int) -> tuple[int, ...]:
        host_set, need = self.host_sets[place], need_of(job)
        release = next(
            r for r in host_set.releases if isinstance(r.payload, JobView) and r.payload.id == job.id
        )
        host_set.releases.remove(release)
        host_set.untake(need, release.hosts)
        for number, row in self._counted(job, place):
            self.caps.used[number] -= self.caps.adds_to(row, job, self.world.places[place])
        if self.hold is not None and self._is_held(place) and release.at > self.hold.at:
            self.hold.recover(need, release.hosts)
        return release.hosts

    def _release(
        self, place: int, at: float, need: Room, hosts: tuple[int, ...], job: JobView | None
    ) -> None:
        self.number += RANKS_PER_WORK
        self.host_sets[place].release_later(Release(at, self.number, need, hosts, job))

    def _rent(self, job: JobView, place: int, delay_s: float) -> None:
        """New hosts, each as full of the job's ranks as it goes; the rest is there for others once they have booted."""
        candidate, host_set, need = self.world.places[place], self.host_sets[place], need_of(job)
        ready = self.now + delay_s
        whole = Host(candidate.gpus, candidate.cpus_milli, candidate.memory_mib)
        hosts: list[int] = []
        self.stocks.take(self.world.place_of(place), machines(job, candidate))
        for _ in range(machines(job, candidate)):
            host, ranks = host_set.add_host(), min(whole.ranks(need), job.nodes - len(hosts))
            rest = (whole[0] - ranks * need[0], whole[1] - ranks * need[1], whole[2] - ranks * need[2])
            self._release(place, ready, rest, (host,), None)
            hosts += [host] * ranks
        finish = ready + candidate.run_s(job)
        self._release(place, finish, need, tuple(hosts), job)
        self.caps.take(job, candidate)
        self.rented.add(self.world.place_of(place))
        self.open.clear()
        self.result.bookings[job.id] = Booking(place, ready, finish, rents=True)

    def _too_dear(self, job: JobView, place: int, at: float) -> bool:
        """Whether rented time costs more than the chance of the deadline that it brings is worth, where it is for deadlines only."""
        candidate, book = self.world.places[place], self.world.book
        if not candidate.rented or self.bursting is None or not only_deadlines(book, job):
            return False
        price = cost(book, job, candidate, at, committed_until=self._committed_until(place))
        return price.rent > book.value_usd(job) - price.miss


class _Engine(_Board):
    """One run of the schedule; its state is thrown away with it."""

    def begin(self, starts: Mapping[str, int]) -> Schedule:
        for job in self.world.jobs:
            if job.id in starts:
                self._force(job, starts[job.id])
        order, jobs = self.order, self.world.jobs
        for turn, job in enumerate(jobs if order is None else sorted(jobs, key=lambda job: order[job.id])):
            if job.id not in self.result.bookings:
                self.class_queues.setdefault(self.world.key(job), []).append((turn, job))
        self._pass(self.now, set(range(len(self.host_sets))))
        self.result.caps = self.caps.copy()
        self.result.blocks = {
            job.id: blocks.not_before(job, self.now) or self.stuck.get(self.world.key(job), BUSY)
            for job in self._waiting()
        }
        return self.result

    def run(self, starts: Mapping[str, int]) -> Schedule:
        self.begin(starts)
        wakes = sorted({job.not_before_at or 0.0 for job in self._waiting()})
        at = self.now
        while self.class_queues and not self._spent:
            ahead = [host_set.releases[0].at for host_set in self.host_sets if host_set.releases]
            ahead += [wake for wake in wakes if wake > at][:1]
            if not ahead:
                break
            at = max(at, min(ahead))
            fresh = self._advance(at)
            if at in wakes:
                self.stuck.clear()
            self._pass(at, fresh)
        if self._spent:
            self._estimate(at)
        for job in self.world.jobs:  # what the snapshot leaves out stands before them
            booking = self.result.bookings.get(job.id)
            if job.behind_s and booking and booking.start_at > self.now and not booking.rents:
                start, finish = booking.start_at + job.behind_s, booking.finish_at + job.behind_s
                self.result.bookings[job.id] = replace(booking, start_at=start, finish_at=finish, exact=False)
        return self.result

    @property
    def _spent(self) -> bool:
        return self.result.attempts > list_schedule.ATTEMPTS or self.evaluations > list_schedule.EVALUATIONS

    def _waiting(self) -> list[JobView]:
        entries = (entry for class_queue in self.class_queues.values() for entry in class_queue)
        return [job for _, job in sorted(entries, key=lambda entry: entry[0])]

    # -- one moment ---------------------------------------------------------------------------------------------------

    def _pass(self, at: float, fresh: set[int]) -> None:
        """Offer the first of each class a start, in the order of all jobs; a class whose first is refused is done with."""
        if self.hold is not None and self.hold.at <= at:
            self.hold = None
        self.awaited_s = [0.0] * len(self.host_sets)
        started, left = [], set(self.class_queues)
        while left:
            key = min(left, key=lambda key: self.class_queues[key][0][0])
            job = self.class_queues[key][0][1]
            self.evaluations += 1
            if self._worth_a_look(job, at, fresh):
                block = self._try(job, at, self._gained(job, fresh))
                if block is None:
                    self.stuck.pop(key, None)
                    started.append(self.class_queues[key].pop(0)[1])
                    if not self.class_queues[key]:
                        del self.class_queues[key]
                        left.remove(key)
                    continue
                self.stuck[key] = block
            if self.hold is None and job.gpus_total > 1 and self.stuck.get(key) is BUSY:
                self._hold_for(job, at)
            left.remove(key)
        for job in started:
            if job.forms:
                self._widen(job, at)

    def _worth_a_look(self, job: JobView, at: float, fresh: set[int]) -> bool:
        if self.result.attempts > list_schedule.ATTEMPTS or (job.not_before_at or 0.0) > at:
            return False
        block = self.stuck.get(self.world.key(job))
        if block is BUSY:
            return any(self.world.place_of(place) in fresh for place in self._places(job))
        return block is None or block.kind not in ("quota", "budget")

    def _gained(self, job: JobView, fresh: set[int]) -> Sequence[int]:
        places = self._places(job)
        if self.stuck.get(self.world.key(job)) is not BUSY:
            return places
        return [place for place in places if self.world.place_of(place) in fresh]

    def _advance(self, at: float) -> set[int]:
        """Let everything due come back; return the places that gained. An ended cap's part frees every class it stopped."""
        gained, counted = set(), False
        for place, host_set in enumerate(self.host_sets):
            for release in host_set.advance(at):
                gained.add(place)
                self._count_out(release, place)
                counted = counted or (bool(self.caps.rows) and release.payload is not None)
        if counted:
            stuck = self.stuck.items()
            self.stuck = {key: block for key, block in stuck if block.kind not in ("quota", "budget")}
        return gained

    def _count_out(self, release: Release, place: int) -> None:
        at, ended = self.world.places[place], release.payload
        if isinstance(ended, JobView):
            for number, row in self.caps.about(ended):
                if row.unit in QUEUE_UNITS:
                    self.caps.used[number] -= self.caps.adds_to(row, ended, at)
        elif isinstance(ended, BusyView) and at.standing and release.number % RANKS_PER_WORK == 0:
            self.caps.end_busy(ended, at.standing)

    # -- one job ------------------------------------------------------------------------------------------------------

    def _places(self, job: JobView) -> tuple[int, ...]:
        """At home, on leases that the class may use, and beside a job that rents."""
        key, world = self.world.key(job), self.world
        if key not in self.open:
            self.open[key] = world.home(job)
            if self.bursting is not None:
                shared = (
                    place
                    for place in world.offers(job)
                    if world.place_of(place) in self.rented
                    and machines(world.as_form(job, place), world.places[place]) == 1
                )
                rented = (*world.leases(job), *shared)
                self.open[key] += tuple(p for p in rented if self.bursting.may_use_lease(job, p))
        return self.open[key]

    def _try(self, job: JobView, at: float, places: Sequence[int]) -> Block | None:
        """Start the job at the cheapest of these places that fits, or say why not."""
        capped, held, fitting, world = None, False, [], self.world
        for place in places:
            self.result.attempts += 1
            view = world.as_form(job, place)
            if not self.host_sets[place].fits(need_of(view), view.nodes):
                continue
            row = self._blocking(view, place)
            if row is not None:
                capped = capped or blocks.capped(self.caps, row, view, world.places[place])
            elif (hosts := self._hosts(view, place, at)) is None:
                held = True
            elif not self._too_dear(view, place, at):
                fitting.append(self._rank(view, place, at, hosts))
        if fitting:
            best = min(fitting)
            better = self._better_later(job, at) if best.late else None
            better = better or self._cheaper_later(job, at, best, fitting)
            if better is None:
                self._start(job, best.place, at, best.hosts)
            return better
        if held and self.hold is not None:
            hold = self.hold
            return blocks.held(hold.job.of or hold.job, world.places[hold.place], hold.at)
        return capped or BUSY

    def _hosts(self, job: JobView, place: int, at: float) -> tuple[int, ...] | None:
        """Where the ranks of a job that fits there would go; None when that would delay the gang that the place is held for."""
        hold, host_set, need, candidate = (
            self.hold,
            self.host_sets[place],
            need_of(job),
            self.world.places[place],
        )
        hosts = hosts_for(job, candidate, host_set)
        if hosts is None or hold is None or hold.place != self.world.place_of(place) or hold.job.id == job.id:
            return hosts
        if at + candidate.run_s(job) <= hold.at or hold.survives(need, hosts):
            return hosts
        if candidate.rented:
            return None
        hosts = host_set.choose(need, job.nodes, lambda index: hold.loss(need, (index,)) == 0)
        return hosts if hosts is not None and hold.survives(need, hosts) else None

    def _rank(self, job: JobView, place: int, at: float, hosts: tuple[int, ...]) -> _Rank:
        candidate = self.world.places[place]
        price = cost(self.world.book, job, candidate, at, committed_until=self._committed_until(place))
        avoided = candidate.members_of(job.avoid_nodes) if job.avoid_nodes else ()
        lost_there = any(self.host_sets[place].members[host] in avoided for host in hosts)
        left_over, run_s = candidate.gpus - job.gpus, candidate.run_s(job)
        first, if_late = self.world.precedence(job, place)
        first += if_late if price.late else 0
        return _Rank(
            first, _rounded(price.total), price.miss, lost_there, left_over, run_s, place, hosts, price.late
        )

    def _widen(self, job: JobView, at: float) -> None:
        """A job that has just started takes what is left where it is, if it is better off; anywhere, if nobody waits."""
        world, present = self.world, self.result.bookings[job.id].place
        hosts = self._take_back(world.as_form(job, present), present)
        option, best = world.precedence(job, present)[0] // OPTION, None
        for place in self._places(job):
            view = world.as_form(job, place)
            elsewhere = world.place_of(place) != world.place_of(present)
            if view.gpus_total < world.as_form(job, present).gpus_total or (elsewhere and self.class_queues):
                continue
            if world.precedence(job, place)[0] // OPTION != option:
                continue
            self.result.attempts += 1
            if not self.host_sets[place].fits(need_of(view), view.nodes):
                continue
            if self._blocking(view, place) is not None:
                continue
            found = self._hosts(view, place, at)
            if found is not None and not self._too_dear(view, place, at):
                rank = self._rank(view, place, at, found)._replace(first=0)
                best = rank if best is None else min(best, rank)
        self._start(job, best.place if best else present, at, best.hosts if best else hosts)

    # -- waiting on purpose -------------------------------------------------------------------------------------------

    def _hold_for(self, job: JobView, at: float) -> None:
        """Keep the place where the gang can start soonest."""
        found = []
        for place in self._places(job):
            self.result.attempts += 1
            view = self.world.as_form(job, place)
            start = self.host_sets[place].earliest(need_of(view), view.nodes)
            if start is not None:
                found.append((start, place))
        start, place = min(found, default=(at, -1))
        if start > at:
            host_set = self.host_sets[place].copy()
            host_set.advance(start)
            self.hold = _Hold(self.world.as_form(job, place), self.world.place_of(place), start, host_set)

    def _better_later(self, job: JobView, at: float) -> Block | None:
        """Whether waiting for another place, or for a rental, would meet the deadline that starting now misses."""
        for place in self._places(job):
            self.result.attempts += 1
            view, candidate = self.world.as_form(job, place), self.world.places[place]
            start = self.host_sets[place].earliest(need_of(view), view.nodes)
            if start is not None and start > at and start + candidate.run_s(view) <= (job.deadline_at or 0.0):
                return blocks.better_elsewhere(candidate, start)
        case = None if self.bursting is None or at > self.now else later_case(self.bursting, job, self.caps)
        if case is None:
            return None
        return blocks.to_be_rented(self.world.places[case.place], case.rent_at)

    def _cheaper_later(self, job: JobView, at: float, here: _Rank, fitting: Sequence[_Rank]) -> Block | None:
        """What to wait for rather than to start, asked of the last of all that are alike; None where starting is better."""
        world, alike = self.world, self.class_queues[self.world.key(job)]
        pays = all(world.places[each.place].rented for each in fitting)
        until = math.inf if pays else min(each.submitted_at + each.patience_s for _, each in alike)
        if len(alike) >= tables.MOST_ALIKE or until <= at:
            return None
        self.result.attempts += len(world.home(job))
        least, at_home = here.total, [(each, world.place_of(each)) for each in world.home(job)]
        if job.forms and not world.places[here.place].rented:
            mine = [place for place, where in at_home if where == world.place_of(here.place)]
            least = min(self._total(job, place, at) for place in mine)
        best, best_total, best_at = -1, least - tables.LEAST_GAIN, 0.0
        for place, where in at_home:
            if self._is_no_choice(job, place, here.place) or self._total(job, place, at) >= best_total:
                continue
            view, host_set = world.as_form(job, place), self.host_sets[place].copy()
            host_set.releases = [release for release in host_set.releases if not release.overdue]
            begins = host_set.earliest(need_of(view), view.nodes)
            if begins is None or not at < begins <= until:
                continue
            begins += self.awaited_s[where] + self._busy_s(job, place, len(alike) - 1)
            then = self._total(job, place, begins)
            if begins <= until and then < best_total:
                best, best_total, best_at = place, then, begins
        if best < 0:
            return None
        self.awaited_s[world.place_of(best)] += self._busy_s(job, best, len(alike))
        saves_usd = (least - best_total) / 1e9
        return blocks.cheaper_elsewhere(world.places[best], best_at, saves_usd)

    def _is_no_choice(self, job: JobView, other: int, here: int) -> bool:
        """Of a job of several forms: it is the same place, or a later entry of its list."""
        entry, mine = (self.world.precedence(job, each)[0] // OPTION for each in (other, here))
        return bool(job.forms) and (self.world.place_of(other) == self.world.place_of(here) or entry > mine)

    def _busy_s(self, job: JobView, place: int, count: int) -> float:
        """How long so many jobs like this one keep a place, as if they were a fluid."""
        at = self.world.places[place]
        run_s = at.run_s(self.world.as_form(job, place))
        return count * size(job) * run_s / max(size(job), float(at.gpus_in_all))

    def _total(self, job: JobView, place: int, at: float) -> int:
        view = self.world.as_form(job, place)
        return _rounded(cost(self.world.book, view, self.world.places[place], at).total)

    # -- beyond the limits on work ------------------------------------------------------------------------------------

    def _estimate(self, at: float) -> None:
        """Start times from the backlog of each place, as if it were a fluid."""
        world, backlog_s = self.world, [0.0] * len(self.world.places)
        for job in self._waiting():
            if not self._places(job):
                continue
            place = min(self._places(job), key=lambda p: (backlog_s[world.place_of(p)], p))
            candidate = world.places[place]
            start, run_s = at + backlog_s[world.place_of(place)], candidate.run_s(world.as_form(job, place))
            backlog_s[world.place_of(place)] += (
                size(job) * run_s / max(size(job), float(candidate.gpus_in_all))
            )
            self.result.bookings[job.id] = Booking(place, start, start + run_s, exact=False)


def later_case(bursting: Bursting, job: JobView, caps: Caps) -> BurstCandidate | None:
    """The cheapest rental that need not begin yet and that caps leave room for."""
    world = bursting.world
    for case in bursting.cases(job):
        if not case.is_now(world.now):
            view, at = world.as_form(job, case.place), world.places[case.place]
            if caps.blocking(view, at) is None:
                return case
    return None


def _rounded(usd: float) -> int:
    """To a billionth of a USD."""
    return math.floor(usd * 1e9 + 0.5)
