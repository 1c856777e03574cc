"""List scheduling: the waiting jobs in some order, each at a place where it fits now, or not at all.

What the baselines have in common. A `Rule` says in which order, at which of the fitting places, and whether to rent for a job that fits nowhere.
Nothing is known of run times but what `Rule.order` asks for, and nothing is planned beyond the moment.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import msgspec

from federator.model.capacity import largest_gang
from federator.model.plans import Plan, Rent
from federator.model.rules import Effect, Filter
from federator.model.snapshot import JobView, PoolView, Problem, Snapshot
from federator.planning.burst import Case
from federator.planning.candidates import Candidate
from federator.planning.caps import Caps
from federator.planning.interpret import write_starts
from federator.planning.objective import Evaluator, Scored
from federator.planning.problem import World
from federator.planning.schedule import Booking, Schedule
from federator.planning.yard import Host, Lot, hosts_for, need_of

MOST_LOOKS = 1000
"""Jobs that could start which one turn looks at."""
MOST_RENTALS = 16
"""Machines asked for in one turn: the next turn asks for more."""


class Rule(Protocol):
    """How a baseline chooses. Its constructor is given the seed."""

    def __init__(self, seed: int) -> None:
        """Begin anew."""
        ...

    def order(self, job: JobView) -> Any:
        """Jobs are looked at in growing order of this."""
        ...

    def choose(self, job: JobView, fitting: Sequence[int], world: World) -> int:
        """One of the places where it fits now, of which there is at least one."""
        ...


class ListSolver:
    """A `Solver` that follows a rule."""

    def __init__(self, name: str, rule: Rule) -> None:
        self._name = name
        self._rule = rule

    async def decide(
        self,
        problem: Problem,
        *,
        stages: tuple[str, ...],  # noqa: ARG002 - the port's signature, as are the next
        seed: int,
        limit_s: float,  # noqa: ARG002
    ) -> Plan | None:
        """What starts now, and when to look again though nothing happens."""
        snapshot = problem.snapshot
        jobs = tuple(Sieve(snapshot).of(sorted(snapshot.jobs, key=self._rule.order)))
        looked_at = msgspec.structs.replace(snapshot, jobs=jobs)
        world = World(msgspec.structs.replace(problem, snapshot=looked_at))
        plan = _Pass(world, self._rule).plan(self._name, seed)
        return msgspec.structs.replace(plan, wake_at=_wake_at(snapshot, plan))

    async def close(self) -> None:
        """Nothing to end."""


class _Pass:
    """One look at the line."""

    def __init__(self, world: World, rule: Rule) -> None:
        self.world, self.rule = world, rule
        self.evaluator = Evaluator(world, home={})
        self.bursting = self.evaluator.bursting
        self.caps = Caps(world.snapshot, world.book.caps)
        self.result = Schedule(caps=self.caps)
        self.lots: dict[int, Lot] = {}
        self.full: set[tuple[object, ...]] = set()
        self.rentals = 0

    def plan(self, name: str, seed: int) -> Plan:
        """All starts of this moment."""
        for job in sorted(self.world.jobs, key=self.rule.order):
            if job.not_before_at is None or job.not_before_at <= self.world.now:
                self._start(job)
        starts = {job: booking.place for job, booking in self.result.bookings.items()}
        scored = Scored(starts, 0.0, {}, {}, self.result, self.caps, {})
        plan = write_starts(self.evaluator, scored, name, seed)
        return msgspec.structs.replace(plan, winner=name, winner_because="by its rule")

    def _start(self, job: JobView) -> None:
        places = (*self.world.home(job), *self.world.leases(job))
        alike = (*need_of(job), job.nodes, job.avoid_nodes, places)
        if alike not in self.full:
            fitting = [p for p in places if self._fits(job, p)]
            if fitting:
                self._place(job, self.rule.choose(job, fitting, self.world))
                return
            if not self.caps.rows and not any(self.world.places[p].rented for p in places):
                self.full.add(alike)
        self._rent(job)

    def _fits(self, job: JobView, place: int) -> bool:
        at = self.world.places[place]
        if at.ready_at is not None and at.ready_at > self.world.now:
            return False
        if at.rented and not self.bursting.may_use_lease(job, place):
            return False
        return self._lot(place).fits(need_of(job), job.nodes) and self.caps.blocking(job, at) is None

    def _place(self, job: JobView, place: int) -> None:
        at, lot, now = self.world.places[place], self._lot(place), self.world.now
        hosts = hosts_for(job, at, lot)
        assert hosts is not None, "it fits"
        lot.put(need_of(job), hosts)
        self.caps.take(job, at)
        members = tuple(lot.members[host] for host in hosts)
        self.result.bookings[job.id] = Booking(place, now, now + at.run_s(job), members=members)

    def _rent(self, job: JobView) -> None:
        if self.rentals >= MOST_RENTALS:
            return
        for case in self.bursting.cases(job):
            if self._rents_now(job, case):
                self.rentals += 1
                self.caps.take(job, self.world.places[case.place])
                self.result.bookings[job.id] = Booking(case.place, case.start_at, case.finish_at, rents=True)
                return

    def _rents_now(self, job: JobView, case: Case) -> bool:
        at = self.world.places[case.place]
        rented = sum(b.rents and b.place == case.place for b in self.result.bookings.values())
        left = at.offer is not None and at.offer.offer.available > rented
        return left and case.is_now(self.world.now) and self.caps.blocking(job, at) is None

    def _lot(self, place: int) -> Lot:
        if place not in self.lots:
            self.lots[place] = free_hosts(self.world.places[place])
        return self.lots[place]


class Sieve:
    """Of very many waiting jobs, those that are worth a look: what fits somewhere now, or has waited long enough to be rented for.

    It asks only for models, sites and room, so it lets too many through; what it holds back could not have started. So a long line costs what
    could move in it, not what waits in it.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.now = snapshot.taken_at
        self.pools: dict[tuple[str, str], list[PoolView]] = {}
        for pool in snapshot.pools:
            if pool.open and pool.free and (pool.ready_at or 0.0) <= self.now:
                self.pools.setdefault((pool.site, pool.pool), []).append(pool)
        self.after_s = min(_waits_s(snapshot.rules), default=None) if snapshot.offers else None
        self._room: dict[tuple[object, ...], bool] = {}

    def of(self, jobs: Iterable[JobView]) -> Iterator[JobView]:
        """These, in their order, at most `MOST_LOOKS`; of those that only a rental can help, as many as one turn may rent for."""
        left, rentals = MOST_LOOKS, 2 * MOST_RENTALS
        for job in jobs:
            if left and self._fits(job):
                left -= 1
                yield job
            elif rentals and self.after_s is not None and self.now - job.submitted_at >= self.after_s:
                rentals -= 1
                yield job

    def _fits(self, job: JobView) -> bool:
        alike = (*need_of(job), job.nodes, job.models, job.sites)
        if alike not in self._room:
            self._room[alike] = any(self._holds(job, views) for views in self.pools.values())
        return self._room[alike]

    def _holds(self, job: JobView, views: Sequence[PoolView]) -> bool:
        first = views[0]
        if (job.sites and first.site not in job.sites) or (
            job.gpus and job.models and first.model not in job.models
        ):
            return False
        return largest_gang((shape for view in views for shape in view.free), *need_of(job)) >= job.nodes


def _waits_s(rules: Iterable[object]) -> Iterator[float]:
    """After how long each policy that permits renting does."""
    for rule in rules:
        if isinstance(rule, Filter) and rule.effect is Effect.ALLOW and rule.after_wait_s is not None:
            yield rule.after_wait_s


def _wake_at(snapshot: Snapshot, plan: Plan) -> float | None:
    """When the next job has waited for long enough to be rented for; the next turn where there are more than one turn rents for."""
    begun = {action.job for action in plan.actions}
    waiting = [job.submitted_at for job in snapshot.jobs if job.id not in begun] if snapshot.offers else []
    times = [at + wait_s for wait_s in _waits_s(snapshot.rules) for at in waiting]
    ahead = [at for at in times if at > snapshot.taken_at]
    more = sum(isinstance(action, Rent) for action in plan.actions) >= MOST_RENTALS
    return snapshot.taken_at + 1.0 if more else min(ahead, default=None)


def free_hosts(at: Candidate) -> Lot:
    """What is free now at a place; what is busy is not asked when it will end."""
    hosts: list[Host] = []
    members: list[int] = []
    for member, view in enumerate(at.views):
        for shape in view.free:
            hosts += [Host(shape.gpus, shape.cpus_milli, shape.memory_mib)] * shape.count
            members += [member] * shape.count
    return Lot(hosts, members=members)


def cheapest(job: JobView, fitting: Sequence[int], world: World) -> int:
    """Where its run costs least; of equals, the one that it fills best, then the first."""
    places = world.places
    return min(
        fitting,
        key=lambda p: (
            round(places[p].price_usd_gpu_h * places[p].run_s(job), 9),
            places[p].gpus - job.gpus,
            p,
        ),
    )
