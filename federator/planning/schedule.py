"""The engine: an event-driven list schedule of all jobs on exact hosts.

It serves the forecast at home, greedy's decision (what it starts now is the first step of its schedule) and the evaluation of
any plan (that plan's decisions first, then the schedule fills what is free and goes on). From release to release it offers every
waiting job, in the published order, its cheapest place that fits. Three rules keep it fair:

* The first gang that does not fit is *held* a place: others may run there only if the gang still starts on time (EASY backfill).
* A job that would miss its deadline where it fits, and would meet it by waiting for another place or a rental, waits.
* Caps hold at every moment; what ends gives its part back.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from federator.model.snapshot import BusyView, JobView
from federator.planning import blocks
from federator.planning.blocks import BUSY, Block, better_elsewhere, not_before, to_be_rented
from federator.planning.burst import Bursting
from federator.planning.candidates import machines, size
from federator.planning.caps import Caps
from federator.planning.lanes import Lanes
from federator.planning.prices import cost
from federator.planning.problem import ClassKey, World
from federator.planning.yard import RANKS_PER_WORK, Hold, Host, Release, hosts_for, need_of

ATTEMPTS = 100_000
"""Looks at one job and one place after which a schedule stops being exact: what is left is estimated from the backlog."""
LOOKS = 300_000
"""Likewise for glances at a class whose turn it is; they are cheap, but where all jobs differ there is one per job and moment."""


@dataclass(frozen=True)
class Booking:
    """A job's place and time. `rents`: a new instance is rented for it; `exact` is false beyond the work limit."""

    place: int
    start_at: float
    finish_at: float
    committed_until: float = 0.0
    rents: bool = False
    exact: bool = True
    members: tuple[int, ...] = ()
    """Of each rank, by index; empty for what starts on a machine that nobody has rented yet."""


@dataclass
class Schedule:
    """A booking per job that ever starts, and for those that do not start at once, why."""

    bookings: MutableMapping[str, Booking] = field(default_factory=dict)
    blocks: MutableMapping[str, Block] = field(default_factory=dict)
    caps: Caps | None = None
    """As they stand after what starts now."""
    attempts: int = 0


def schedule(
    world: World,
    bursting: Bursting | None,
    starts: Mapping[str, int] | None = None,
    order: Mapping[str, int] | None = None,
) -> Schedule:
    """Schedule all jobs: first `starts` (job to place, now; an offer is rented), then the rest in the published order, or in another: every job's turn.

    Without `bursting`, only owned places are used. A start that does not fit, or that a cap forbids, is left to the rest.
    """
    return _Engine(world, bursting, order).run(starts or {})


def starts_now(world: World) -> Schedule:
    """The first moment of the schedule at home, and nothing beyond it: what of the waiting work starts now."""
    return _Engine(world, None).begin({})


class _Rank(NamedTuple):
    """Cheapest first; then where it was not lost before, where fewest GPUs per host are left over, where it is fastest."""

    total: int
    """To a billionth of a USD."""
    miss: float
    lost_there: bool
    left_over: int
    run_s: float
    place: int
    hosts: tuple[int, ...] = ()
    late: bool = False


class _Engine:
    """One run of the list schedule; its state is thrown away with it."""

    def __init__(
        self, world: World, bursting: Bursting | None, order: Mapping[str, int] | None = None
    ) -> None:
        self.world, self.bursting, self.order, self.now = world, bursting, order, world.now
        self.lots = [world.lot(place) for place in range(len(world.places))]
        self.caps = world.caps.copy()
        self.result = Schedule()
        self.hold: Hold | None = None
        self.rented: set[int] = set()
        self.stuck: dict[ClassKey, Block] = {}
        self.open: dict[ClassKey, tuple[int, ...]] = {}
        self.number = 1 << 40
        self.lanes = Lanes(world, ())

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
            self.result.bookings.update(_estimate(self.world, left, at))
        self.result.bookings.update(_put_back(self.world.jobs, self.result.bookings, self.now))
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
        for key, job, turn in self.lanes.turns():
            if self._worth_a_look(job, at, fresh):
                block = self._try(job, at, self._gained(job, fresh))
                if block is None:
                    self.stuck.pop(key, None)
                    turn.took = True
                    continue
                self.stuck[key] = block
            if self.hold is None and job.gpus_total > 1 and self.stuck.get(key) is BUSY:
                self._hold_for(job, at)

    def _worth_a_look(self, job: JobView, at: float, fresh: set[int]) -> bool:
        """Whether anything has changed for the job's class since it was last refused."""
        if self.result.attempts > ATTEMPTS or (job.not_before_at is not None and job.not_before_at > at):
            return False
        block = self.stuck.get(self.world.key(job))
        if block is BUSY:
            return any(place in fresh for place in self._places(job))
        return block is None or block.kind not in ("quota", "budget")

    def _gained(self, job: JobView, fresh: set[int]) -> Sequence[int]:
        """Places to try: where there was no room the last time, only those that have gained since."""
        places = self._places(job)
        return [p for p in places if p in fresh] if self.stuck.get(self.world.key(job)) is BUSY else places

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
                offers = self.rented.intersection(self.world.offers(job))
                shared = [p for p in offers if machines(job, self.world.places[p]) == 1]
                rented = (*self.world.leases(job), *sorted(shared))
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
            if not self.lots[place].fits(need_of(job), job.nodes):
                continue
            row = self.caps.blocking(job, self.world.places[place], shares=place in self.rented)
            if row is not None:
                capped = capped or blocks.capped(self.caps, row, job, self.world.places[place])
            elif (hosts := self._hosts(job, place, at)) is None:
                held = True
            else:
                fitting.append(self._rank(job, place, at, hosts))
        if fitting:
            best = min(fitting)
            better = self._better_later(job, at) if best.late else None
            if better is None:
                self._start(job, best.place, at, best.hosts)
            return better
        if held and self.hold is not None:
            hold = self.hold
            return blocks.held(hold.job, self.world.places[hold.place], hold.at, self.now)
        return capped or BUSY

    def _hosts(self, job: JobView, place: int, at: float) -> tuple[int, ...] | None:
        """Where the ranks of a job that fits there would go; None when that would delay the gang that the place is held for."""
        hold, lot, need = self.hold, self.lots[place], need_of(job)
        hosts = hosts_for(job, self.world.places[place], lot)
        if hosts is None or hold is None or hold.place != place or hold.job.id == job.id:
            return hosts
        if at + self.world.places[place].run_s(job) <= hold.at or hold.survives(need, hosts):
            return hosts
        if self.world.places[place].rented:
            return None
        hosts = lot.choose(need, job.nodes, hold.spares(need))
        return hosts if hosts is not None and hold.survives(need, hosts) else None

    def _rank(self, job: JobView, place: int, at: float, hosts: tuple[int, ...]) -> "_Rank":
        candidate = self.world.places[place]
        price = cost(self.world.book, job, candidate, at, committed_until=self._committed_until(place))
        avoided = candidate.members_of(job.avoid_nodes) if job.avoid_nodes else ()
        lost_there = any(self.lots[place].members[host] in avoided for host in hosts)
        left_over, run_s = candidate.gpus - job.gpus, candidate.run_s(job)
        usd = math.floor(price.total * 1e9 + 0.5)
        return _Rank(usd, price.miss, lost_there, left_over, run_s, place, hosts, price.late)

    def _committed_until(self, place: int) -> float:
        """Until when a rented instance is needed by what runs there."""
        if not self.world.places[place].rented:
            return 0.0
        releases = self.lots[place].releases
        return releases[-1].at if releases else 0.0

    def _start(self, job: JobView, place: int, at: float, hosts: tuple[int, ...]) -> None:
        need, candidate, lot = need_of(job), self.world.places[place], self.lots[place]
        committed_until = self._committed_until(place)
        lot.put(need, hosts)
        finish = at + candidate.run_s(job)
        if self.hold is not None and self.hold.job.id == job.id:
            self.hold = None
        elif self.hold is not None and self.hold.place == place and finish > self.hold.at:
            self.hold.suffer(need, hosts)
        self._release(place, finish, need, hosts, job)
        self.caps.take(job, candidate, shares=place in self.rented)
        members = tuple(lot.members[host] for host in hosts)
        self.result.bookings[job.id] = Booking(place, at, finish, committed_until, members=members)

    def _release(
        self, place: int, at: float, need: tuple[int, int, int], hosts: tuple[int, ...], job: JobView | None
    ) -> None:
        self.number += RANKS_PER_WORK
        self.lots[place].release_later(Release(at, self.number, need, hosts, job))

    # -- decisions that are taken already -----------------------------------------------------------------------------

    def _force(self, job: JobView, place: int) -> None:
        candidate = self.world.places[place]
        if self.caps.blocking(job, candidate) is not None:
            return
        if candidate.offer is not None:
            left = candidate.offer.offer.available - len(self.lots[place].hosts)
            if machines(job, candidate) <= left:
                self._rent(job, place, candidate.offer.offer.delay_s)
        elif (hosts := hosts_for(job, candidate, self.lots[place])) is not None:
            self._start(job, place, self.now, hosts)

    def _rent(self, job: JobView, place: int, delay_s: float) -> None:
        """New hosts at the offer, each as full of the job's ranks as it goes; the rest is there for others once they have booted."""
        candidate, lot, need = self.world.places[place], self.lots[place], need_of(job)
        ready = self.now + delay_s
        finish = ready + candidate.run_s(job)
        whole = Host(candidate.gpus, candidate.cpus_milli, candidate.memory_mib)
        hosts: list[int] = []
        for _ in range(machines(job, candidate)):
            host, ranks = lot.add_host(), min(whole.ranks(need), job.nodes - len(hosts))
            rest = (whole[0] - ranks * need[0], whole[1] - ranks * need[1], whole[2] - ranks * need[2])
            self._release(place, ready, rest, (host,), None)
            hosts += [host] * ranks
        self._release(place, finish, need, tuple(hosts), job)
        self.caps.take(job, candidate)
        self.rented.add(place)
        self.open.clear()
        self.result.bookings[job.id] = Booking(place, ready, finish, rents=True)

    # -- waiting on purpose -------------------------------------------------------------------------------------------

    def _hold_for(self, job: JobView, at: float) -> None:
        """Keep the place where the gang can start soonest."""
        best: tuple[float, int] | None = None
        for place in self._places(job):
            self.result.attempts += 1
            start = self.lots[place].earliest(need_of(job), job.nodes)
            if start is not None and (best is None or (start, place) < best):
                best = (start, place)
        if best is not None and best[0] > at:
            lot = self.lots[best[1]].copy()
            lot.advance(best[0])
            self.hold = Hold(job, best[1], best[0], lot)

    def _better_later(self, job: JobView, at: float) -> Block | None:
        """Whether waiting for another place, or for a rental, would meet the deadline that starting now misses."""
        deadline = job.deadline_at or 0.0
        for place in self._places(job):
            self.result.attempts += 1
            start, candidate = self.lots[place].earliest(need_of(job), job.nodes), self.world.places[place]
            if start is not None and start > at and start + candidate.run_s(job) <= deadline:
                return better_elsewhere(candidate, start, self.now)
        if self.bursting is None or at > self.now:
            return None
        case = self.bursting.later_case(job, self.caps)
        if case is None:
            return None
        return to_be_rented(self.world.places[case.place], case.rent_at, self.now)


def _put_back(jobs: Iterable[JobView], bookings: Mapping[str, Booking], now: float) -> dict[str, Booking]:
    """Starts that are not now, later by what the work before them takes that the snapshot leaves out."""
    return {
        job.id: replace(
            booking,
            start_at=booking.start_at + job.behind_s,
            finish_at=booking.finish_at + job.behind_s,
            exact=False,
        )
        for job in jobs
        if job.behind_s
        and (booking := bookings.get(job.id)) is not None
        and booking.start_at > now
        and not booking.rents
    }


def _estimate(
    world: World, waiting: list[tuple[JobView, tuple[int, ...]]], at: float
) -> Iterator[tuple[str, Booking]]:
    """Beyond the work limit: start times from the backlog of each place, as if it were a fluid."""
    backlog_s = [0.0] * len(world.places)
    for job, places in waiting:
        if not places:
            continue
        place = min(places, key=lambda p: (backlog_s[p], p))
        candidate = world.places[place]
        capacity = max(size(job), float(candidate.gpus_in_all))
        start, run_s = at + backlog_s[place], candidate.run_s(job)
        backlog_s[place] += size(job) * run_s / capacity
        yield job.id, Booking(place, start, start + run_s, exact=False)
