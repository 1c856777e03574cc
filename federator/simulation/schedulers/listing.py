"""List scheduling: the waiting jobs in some order, each at a place where it fits now, or not at all.

What the baselines have in common. A `Rule` says in which order, at which of the fitting places, and after how long to rent for a job that fits nowhere.
Nothing is known of run times but what `Rule.order` asks for, and nothing is planned beyond the moment.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from federator.model.capacity import largest_gang
from federator.model.plans import Plan, Rent
from federator.model.snapshot import JobView, PoolView, Problem, Snapshot
from federator.planning.kernels.start_cost import gpus_usd
from federator.planning.places.candidates import Candidate, machines, size
from federator.planning.places.host_sets import Host, HostSet, hosts_for, need_of
from federator.planning.plans.plan_builder import write_starts
from federator.planning.rentals.candidate import BurstCandidate
from federator.planning.rules.caps import Caps
from federator.planning.scheduling.list_schedule import Booking
from federator.planning.scheduling.objective import Evaluator, Scored
from federator.planning.world.problem import World
from federator.simulation.schedulers.port import Alter, Bind, Scheduler, listed, opens, renting_by_itself
from federator.simulation.world import WorldSpec as Setting

MOST_LOOKS = 1000
"""Jobs that could start which one turn looks at."""
ROUNDING_S = 1e-3
WAIT_S = 1800.0
"""Baselines that rent do so after so long."""
MOST_RENTALS = 16
"""Machines asked for in one turn: the next turn asks for more."""


class Rule(Protocol):
    """How a baseline chooses. Its constructor is given the seed, and what is simulated."""

    shares: bool
    """Whether a job may go to a machine that is rented for another one before it may be rented for itself."""
    patience: float
    """It waits so many times as long as it is known for before it rents."""

    def __init__(self, seed: int, setting: Setting) -> None:
        """Begin anew."""
        ...

    def order(self, job: JobView) -> Any:
        """Jobs are looked at in growing order of this."""
        ...

    def choose(self, job: JobView, fitting: Sequence[int], world: World) -> int:
        """One of the places where it fits now, of which there is at least one; they are in the order of their sites."""
        ...

    def asked(self, waited_s: float) -> Collection[str]:
        """The sites that may have a job after so long a wait."""
        ...

    def rents_after_s(self, job: JobView, site: str) -> float:
        """After so long a wait it may be rented for at that cloud."""
        ...

    def stirs_s(self, job: JobView, *, renting: bool) -> Collection[float]:
        """Waits after which something changes for it, though nothing happens; `renting`: whether there is anything to rent."""
        ...


class Fifo:
    """In order of arrival; the first listed site that has room; what does not fit is passed over (backfill). Rents after half an hour."""

    shares = False
    patience = 1.0

    def __init__(self, seed: int, setting: Setting) -> None:
        del seed
        self._sites = listed(setting)
        self._clouds = tuple(dict.fromkeys(setting.cloud_sites.values()))

    def order(self, job: JobView) -> Any:
        """Arrival."""
        return job.submitted_at, job.name

    def choose(self, job: JobView, fitting: Sequence[int], world: World) -> int:
        """The first."""
        del job, world
        return fitting[0]

    def asked(self, waited_s: float) -> Collection[str]:
        """All sites."""
        del waited_s
        return self._sites

    def rents_after_s(self, job: JobView, site: str) -> float:
        """Half an hour, whatever the job and the cloud."""
        del job, site
        return WAIT_S * self.patience

    def stirs_s(self, job: JobView, *, renting: bool) -> Collection[float]:
        """When it may be rented for."""
        return {self.rents_after_s(job, site) for site in self._clouds} if renting else ()


class Threshold(Fifo):
    """By deadline; the cheapest site that has room now. Rents after half an hour."""

    def order(self, job: JobView) -> Any:
        """The deadline; jobs without one come last, in order of arrival."""
        return math.inf if job.deadline_at is None else job.deadline_at, job.submitted_at, job.name

    def choose(self, job: JobView, fitting: Sequence[int], world: World) -> int:
        """The cheapest."""
        return cheapest(job, fitting, world)


class ListSolver:
    """A `Solver` that follows a rule."""

    def __init__(self, name: str, rule: Rule, sites: Sequence[str]) -> None:
        self._name = name
        self._rule = rule
        self._rank = {site: number for number, site in enumerate(sites)}

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
        jobs = tuple(Sieve(snapshot, self._rule).of(sorted(snapshot.jobs, key=self._rule.order)))
        looked_at = msgspec.structs.replace(snapshot, jobs=jobs)
        world = World(msgspec.structs.replace(problem, snapshot=looked_at))
        plan = _Pass(world, self._rule, self._rank).plan(self._name, seed)
        return msgspec.structs.replace(plan, wake_at=_wake_at(snapshot, plan, self._rule))

    async def close(self) -> None:
        """Nothing to end."""


def listing(
    name: str,
    rule: type[Rule],
    *,
    alter: Alter = renting_by_itself,
    bind: Bind | None = None,
    change: Callable[[Setting], Setting] | None = None,
    patience: float = 1.0,
) -> Scheduler:
    """The scheduler that follows a rule. `patience`: it waits so many times as long before it rents."""

    def solver(seed: int, world: Setting) -> ListSolver:
        made = rule(seed, world)
        made.patience = patience
        return ListSolver(name, made, listed(world))

    return Scheduler(name, solver, alter=alter, bind=bind, change=change)


class _Pass:
    """One look at the line."""

    def __init__(self, world: World, rule: Rule, rank: Mapping[str, int]) -> None:
        self.world, self.rule, self.rank = world, rule, rank
        self.evaluator = Evaluator(world, home={})
        self.bursting = self.evaluator.bursting
        self.caps = Caps(world.snapshot, world.book.caps)
        self.bookings: dict[str, Booking] = {}
        self.stocks = self.world.stocks.copy()
        self.host_sets: dict[int, HostSet] = {}
        self.full: set[tuple[object, ...]] = set()
        self.listed: dict[tuple[int, ...], tuple[int, ...]] = {}
        self.rentals = 0
        self.clouds = {place.site for place in world.places if place.offer is not None}

    def plan(self, name: str, seed: int) -> Plan:
        """All starts of this moment."""
        for job in sorted(self.world.jobs, key=self.rule.order):
            if job.not_before_at is None or job.not_before_at <= self.world.now:
                self._start(job)
        starts = {job: booking.place for job, booking in self.bookings.items()}
        scored = Scored(starts, self.bookings, self.caps)
        plan = write_starts(self.evaluator, scored, name, seed)
        return msgspec.structs.replace(plan, winner=name, winner_because="by its rule")

    def _start(self, job: JobView) -> None:
        asked = self.rule.asked(_waited_s(job, self.world.now))
        places = tuple(p for p in self._listed(job) if self.world.places[p].site in asked)
        alike = (*need_of(job), job.nodes, job.avoid_nodes, places)
        if alike not in self.full:
            fitting = [p for p in places if self._fits(job, p)]
            if fitting:
                self._place(job, self.rule.choose(job, fitting, self.world))
                return
            if not self.caps.rows and not any(self.world.places[p].rented for p in places):
                self.full.add(alike)
        self._rent(job)

    def _listed(self, job: JobView) -> tuple[int, ...]:
        """What is there already, in the order of the sites."""
        open_to = (*self.world.home(job), *self.world.leases(job))
        return self.listed.setdefault(open_to, tuple(sorted(open_to, key=self._order)))

    def _order(self, place: int) -> tuple[int, int]:
        return self.rank.get(self.world.places[place].site, len(self.rank)), place

    def _fits(self, job: JobView, place: int) -> bool:
        at = self.world.places[place]
        if at.ready_at is not None and at.ready_at > self.world.now:
            return False
        if at.rented and not self._may_use(job, place):
            return False
        return self._host_set(place).fits(need_of(job), job.nodes) and self.caps.blocking(job, at) is None

    def _may_use(self, job: JobView, place: int) -> bool:
        pool, site = self.world.places[place].standing, self.world.places[place].site
        its_own = pool is not None and pool.rented_for == job.id
        open_to_it = its_own or self.rule.shares or self._may_be_rented_for(job, site)
        return open_to_it and self.bursting.may_use_lease(job, place)

    def _may_be_rented_for(self, job: JobView, site: str) -> bool:
        return _waited_s(job, self.world.now) >= self.rule.rents_after_s(job, site)

    def _place(self, job: JobView, place: int) -> None:
        at, host_set, now = self.world.places[place], self._host_set(place), self.world.now
        hosts = hosts_for(job, at, host_set)
        assert hosts is not None, "it fits"
        host_set.put(need_of(job), hosts)
        self.caps.take(job, at)
        members = tuple(host_set.members[host] for host in hosts)
        self.bookings[job.id] = Booking(place, now, now + at.run_s(job), members=members)

    def _rent(self, job: JobView) -> None:
        if self.rentals >= MOST_RENTALS or not any(
            self._may_be_rented_for(job, site) for site in self.clouds
        ):
            return
        for case in self.bursting.cases(job):
            site = self.world.places[case.place].site
            if self._may_be_rented_for(job, site) and self._rents_now(job, case):
                self.rentals += 1
                at = self.world.places[case.place]
                self.caps.take(job, at)
                self.stocks.take(self.world.place_of(case.place), machines(job, at))
                self.bookings[job.id] = Booking(case.place, case.start_at, case.finish_at, rents=True)
                return

    def _rents_now(self, job: JobView, case: BurstCandidate) -> bool:
        at = self.world.places[case.place]
        left = self.stocks.room(self.world.place_of(case.place)) >= machines(job, at)
        return left and case.is_now(self.world.now) and self.caps.blocking(job, at) is None

    def _host_set(self, place: int) -> HostSet:
        if place not in self.host_sets:
            self.host_sets[place] = free_hosts(self.world.places[place])
        return self.host_sets[place]


class Sieve:
    """Of very many waiting jobs, those that are worth a look: what fits somewhere now, or has waited long enough to be rented for.

    It asks only for models, sites and room, so it lets too many through; what it holds back could not have started. So a long line costs what
    could move in it, not what waits in it.
    """

    def __init__(self, snapshot: Snapshot, rule: Rule) -> None:
        self.now, self.rule = snapshot.taken_at, rule
        self.pools: dict[tuple[str, str], list[PoolView]] = {}
        for pool in snapshot.pools:
            if pool.open and pool.free and (pool.ready_at or 0.0) <= self.now:
                self.pools.setdefault((pool.site, pool.pool), []).append(pool)
        self.clouds = {view.site for view in snapshot.offers} if _renting(snapshot) else set()
        self._room: dict[tuple[object, ...], bool] = {}

    def of(self, jobs: Iterable[JobView]) -> Iterator[JobView]:
        """These, in their order, at most `MOST_LOOKS`; of those that only a rental can help, as many as one turn may rent for."""
        left, rentals = MOST_LOOKS, 2 * MOST_RENTALS
        for job in jobs:
            if left and self._fits(job):
                left -= 1
                yield job
            elif rentals and self._may_be_rented_for(job):
                rentals -= 1
                yield job

    def _may_be_rented_for(self, job: JobView) -> bool:
        waited_s = _waited_s(job, self.now)
        return any(waited_s >= self.rule.rents_after_s(job, site) for site in self.clouds)

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


def _waited_s(job: JobView, now: float) -> float:
    """A hair more than it is, for a turn that is taken at a moment must find that it has come."""
    return now - job.submitted_at + ROUNDING_S


def _renting(snapshot: Snapshot) -> bool:
    """Whether there is anything to rent, and a policy that permits it."""
    return bool(snapshot.offers) and any(opens(rule) for rule in snapshot.rules)


def _wake_at(snapshot: Snapshot, plan: Plan, rule: Rule) -> float | None:
    """When something changes for a waiting job: it has waited long enough to be rented for, say. The next turn where there are more than one turn rents for."""
    if sum(isinstance(action, Rent) for action in plan.actions) >= MOST_RENTALS:
        return snapshot.taken_at + 1.0
    begun = {action.job for action in plan.actions}
    renting, now = _renting(snapshot), snapshot.taken_at
    return min(
        (
            job.submitted_at + wait_s
            for job in snapshot.jobs
            if job.id not in begun
            for wait_s in rule.stirs_s(job, renting=renting)
            if wait_s > _waited_s(job, now)
        ),
        default=None,
    )


def free_hosts(at: Candidate) -> HostSet:
    """What is free now at a place; what is busy is not asked when it will end."""
    hosts: list[Host] = []
    members: list[int] = []
    for member, view in enumerate(at.views):
        for shape in view.free:
            hosts += [Host(shape.gpus, shape.cpus_milli, shape.memory_mib)] * shape.count
            members += [member] * shape.count
    return HostSet(hosts, members=members)


def cheapest(job: JobView, fitting: Sequence[int], world: World) -> int:
    """Where its run costs least; of equals, the one that it fills best, then the first."""
    places = world.places
    return min(
        fitting,
        key=lambda p: (
            round(_usd(job, places[p]), 9),
            places[p].gpus - job.gpus,
            p,
        ),
    )


def _usd(job: JobView, at: Candidate) -> float:
    """What its GPUs cost there for as long as it is planned to have them, and bringing its data."""
    return float(gpus_usd(at.price_usd_gpu_h, size(job), at.run_s(job))) + at.transfer(job).usd
