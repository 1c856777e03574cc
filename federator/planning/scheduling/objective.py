"""What a decision is worth: the one evaluator by which greedy's and the solver's plans are compared.

A decision is the set of jobs that start now, and where (an offer stands for a rental). The evaluator carries it out, lets the list
schedule go on from there, and adds up, over all jobs, the run, the rent, the wait and the missed deadline; then what guarantees are
short of, and what a policy asked for and did not get. A job that would miss, but for which a rental later still meets the deadline
and pays, is charged that rental: renting early has no advantage over renting as late as is safe.
"""

from collections import UserDict
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np

from federator.model.snapshot import JobView
from federator.planning.rentals.burst import Bursting
from federator.planning.rentals.candidate import BurstCandidate, HomeForecast
from federator.planning.rules.caps import Caps
from federator.planning.scheduling.blocks import BUSY, Block
from federator.planning.scheduling.forecast import home_forecast
from federator.planning.scheduling.list_schedule import Booking, ListSchedule
from federator.planning.scheduling.opportunity_cost import Displacing
from federator.planning.world.free_hours import Floats
from federator.planning.world.prices import Cost
from federator.planning.world.problem import World

REQUIRED_USD = 1.0
"""What not doing as a policy requires costs, beyond the price of doing it."""
SHORTFALL_H = 1.0
"""For how long a guarantee's shortfall is charged: until about the next occasion to make it good."""
CARRYING_OUT = 5_000
"""What carrying out a decision takes besides, in attempts: laying out its tables for the kernel, a fifth of a millisecond."""
TERMS = ("miss", "rent", "run", "egress", "wait", "shortfall", "policy")
DISPLACED = "displaced"
"""A term besides, where the problem says what work outside the window uses."""
EPSILON_USD = 1e-6
"""Differences below this are none."""

T = TypeVar("T")


class _Lazy(UserDict[str, T]):
    """A dictionary that is made when it is first looked into."""

    def __init__(self, make: Callable[[], dict[str, T]]) -> None:
        self._make = make

    @cached_property
    def data(self) -> dict[str, T]:  # type: ignore[override]
        """What it holds."""
        return self._make()


class Expected(NamedTuple):
    """Where and in which form (a choice), and from when to when."""

    place: int
    start_at: float
    finish_at: float


@dataclass(frozen=True)
class Scored:
    """A decision, carried out and priced. `starts` is what really starts now."""

    starts: dict[str, int]
    bookings: Mapping[str, Booking]
    """Of each job that ever starts."""
    caps: Caps
    """After what starts now."""
    attempts: int = 0
    total: float = 0.0
    terms: dict[str, float] = field(default_factory=dict)
    costs: Mapping[str, Cost] = field(default_factory=dict)
    blocks: Mapping[str, Block] = field(default_factory=dict)
    """Of each job that does not start at once: why."""
    later: Mapping[str, BurstCandidate] = field(default_factory=dict)
    """Rentals that are put off."""
    rents: tuple[str, ...] = ()
    """Jobs that something is rented for."""
    usd: Floats = field(default_factory=lambda: np.empty(0), compare=False)
    """What each job costs in all, in the order of the world's jobs."""

    def booking(self, job: str) -> Booking | None:
        """The job's place in the schedule that follows."""
        return self.bookings.get(job)

    def expected(self, job: str, now: float) -> Expected | None:
        """When and where a job that ever starts is expected to run; one whose rental is put off, when that is rented."""
        later, booking = self.later.get(job), self.bookings.get(job)
        if later is not None:
            shift_s = later.rent_at - now
            return Expected(later.place, later.start_at + shift_s, later.finish_at + shift_s)
        return None if booking is None else Expected(booking.place, booking.start_at, booking.finish_at)

    def block(self, job: str) -> Block:
        """Why the job did not start."""
        return self.blocks.get(job, BUSY)


@dataclass
class Work:
    """Attempts, to start a job at a place, that all schedules of one decision have taken."""

    attempts: int = 0


class Evaluator:
    """Prices decisions in one world."""

    def __init__(self, world: World, home: Mapping[str, HomeForecast] | None = None) -> None:
        """Make the counterfactual once, unless it is given: it does not depend on what may be rented."""
        self.world = world
        self.home = home_forecast(world) if home is None else home
        self.bursting = Bursting(world, self.home)
        self.work = Work()
        self.displacing = Displacing(world) if world.problem.outside else None
        self.order: Mapping[str, int] | None = None
        """The turn of each job that waits, where it is not the published one."""

    def in_order(self, order: Mapping[str, int] | None) -> "Evaluator":
        """The same world, in which those that wait go on in this order: every job's turn."""
        other = copy(self)
        other.order = order
        return other

    @property
    def line(self) -> Sequence[JobView]:
        """All jobs, in the order in which those that wait go on."""
        order, jobs = self.order, self.world.jobs
        return jobs if order is None else sorted(jobs, key=lambda job: order[job.id])

    def score(self, starts: Mapping[str, int]) -> Scored:
        """Carry out `starts`, fill what is left free, schedule the rest, and add up."""
        carried = ListSchedule(self.world, self.bursting, starts, self.order, required_usd=REQUIRED_USD)
        self.work.attempts += CARRYING_OUT + carried.attempts
        terms = {name: round(carried.term(name), 6) for name in TERMS}
        if self.displacing is not None:
            terms[DISPLACED] = round(carried.displaced_usd(self.displacing), 6)
        return Scored(
            starts=carried.starts(),
            total=round(sum(terms.values()), 6),
            terms=terms,
            costs=_Lazy(carried.costs),
            usd=carried.usd(),
            bookings=_Lazy(carried.bookings),
            blocks=_Lazy(carried.blocks),
            attempts=carried.attempts,
            caps=carried.caps(),
            later=_Lazy(carried.later),
            rents=carried.rents(),
        )
