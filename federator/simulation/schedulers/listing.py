"""List scheduling: the waiting jobs in some order, each at a place where it fits now, or not at all.

What the baselines have in common. A `Rule` says in which order, at which of the fitting places, and whether to rent for a job that fits nowhere.
Nothing is known of run times but what `Rule.order` asks for, and nothing is planned beyond the moment.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from federator.model.plans import Plan
from federator.model.snapshot import JobView, Problem
from federator.planning.burst import Case
from federator.planning.candidates import Candidate
from federator.planning.caps import Caps
from federator.planning.interpret import write_starts
from federator.planning.objective import Evaluator, Scored
from federator.planning.problem import World
from federator.planning.schedule import Booking, Schedule
from federator.planning.yard import Host, Lot, hosts_for, need_of

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

    def places(self, job: JobView, world: World) -> Sequence[int]:
        """Where the job may run as far as this rule goes, by index."""
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
        """What starts now."""
        return _Pass(World(problem), self._rule).plan(self._name, seed)

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
        """All starts of this moment, and when to look again though nothing happens."""
        for job in sorted(self.world.jobs, key=self.rule.order):
            if job.not_before_at is None or job.not_before_at <= self.world.now:
                self._start(job)
        starts = {job: booking.place for job, booking in self.result.bookings.items()}
        scored = Scored(starts, 0.0, {}, {}, self.result, self.caps, {})
        plan = write_starts(self.evaluator, scored, name, seed)
        return msgspec.structs.replace(
            plan, winner=name, winner_because="by its rule", wake_at=self._wake_at()
        )

    def _start(self, job: JobView) -> None:
        places = tuple(self.rule.places(job, self.world))
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

    def _wake_at(self) -> float | None:
        """When the next job has waited for long enough to be rented for."""
        now = self.world.now
        after = [rule.after_wait_s for rule in self.world.book.permits if rule.after_wait_s is not None]
        waiting = [job.submitted_at for job in self.world.jobs if job.id not in self.result.bookings]
        times = [at + wait_s for wait_s in after for at in waiting]
        return min((at for at in times if at > now), default=None)


def free_hosts(at: Candidate) -> Lot:
    """What is free now at a place; what is busy is not asked when it will end."""
    hosts: list[Host] = []
    members: list[int] = []
    for member, view in enumerate(at.views):
        for shape in view.free:
            hosts += [Host(shape.gpus, shape.cpus_milli, shape.memory_mib)] * shape.count
            members += [member] * shape.count
    return Lot(hosts, members=members)


def owned_first(job: JobView, world: World) -> tuple[int, ...]:
    """All places that the job may use: its home, then what is rented already."""
    return (*world.home(job), *world.leases(job))


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
