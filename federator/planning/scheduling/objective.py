"""What a decision is worth: the one evaluator by which greedy's and the solver's plans are compared.

A decision is the set of jobs that start now, and where (an offer stands for a rental). The evaluator carries it out, lets the list
schedule go on from there, and adds up, over all jobs, the run, the rent, the wait and the missed deadline; then what guarantees are
short of, and what a policy asked for and did not get. A job that would miss, but for which a rental later still meets the deadline
and pays, is charged that rental: renting early has no advantage over renting as late as is safe.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from federator.model.snapshot import JobView
from federator.planning.renting.burst import Bursting
from federator.planning.renting.case import Case, HomeForecast
from federator.planning.rules.caps import Caps
from federator.planning.scheduling.bookings import Booking, Schedule
from federator.planning.scheduling.forecast import home_forecast
from federator.planning.scheduling.listed import carry_out
from federator.planning.scheduling.schedule import schedule
from federator.planning.world.chances import late_share
from federator.planning.world.prices import Cost, cost, longer_s, never_usd
from federator.planning.world.problem import World, under

if TYPE_CHECKING:
    from federator.planning.scheduling.carried import Carried
    from federator.planning.scheduling.displacing import Displacing

REQUIRED_USD = 1.0
"""What not doing as a policy requires costs, beyond the price of doing it."""
SHORTFALL_H = 1.0
"""For how long a guarantee's shortfall is charged: until about the next occasion to make it good."""
WORK = 500_000
"""Looks at one job and one place that greedy may take while it tries rentals: some 20 ms of the kernel, two seconds of plain Python."""
STAGE_WORK = 1_000_000
"""As many each later stage may take beyond what was taken when it began: no stage can use up another's."""
CARRYING_OUT = 5_000
"""What carrying out a decision takes besides, in looks: laying out its tables for the kernel, a fifth of a millisecond."""
PROOF_WORK = 2_000_000
"""While a decision has taken less than this, rentals in it are each tried without."""
TERMS = ("miss", "rent", "run", "egress", "wait", "shortfall", "policy")
DISPLACED = "displaced"
"""A term besides, where the problem says what work outside the window uses."""
EPSILON_USD = 1e-6
"""Differences below this are none."""


@dataclass(frozen=True)
class Scored:
    """A decision, carried out and priced. `starts` is what really starts now; `later` the rentals that are put off."""

    starts: dict[str, int]
    total: float
    terms: dict[str, float]
    costs: Mapping[str, Cost]
    schedule: Schedule
    caps: Caps
    later: Mapping[str, Case]
    rents: tuple[str, ...] = ()
    """Jobs that something is rented for."""

    def booking(self, job: str) -> Booking | None:
        """The job's place in the schedule that follows."""
        return self.schedule.bookings.get(job)


@dataclass
class Work:
    """Looks taken by all schedules of one decision. Improving stops at the limit: what is known by then is the answer."""

    looks: int = 0
    limit: int = WORK

    @property
    def spent(self) -> bool:
        """Whether there is to be no more trying."""
        return self.looks > self.limit

    def begin_stage(self) -> None:
        """A stage has its own part, whatever the ones before it took."""
        self.limit = self.looks + STAGE_WORK

    def end_stages(self) -> None:
        """What stages left over is not for others: rentals are proven while all have taken less than they might have."""
        self.limit = PROOF_WORK


def _displacing(world: World) -> "Displacing | None":
    """What takes from work outside the window; None where there is none, and so no numpy is needed."""
    if not world.problem.outside:
        return None
    from federator.planning.scheduling.displacing import Displacing  # noqa: PLC0415 - for that reason

    return Displacing(world)


class Evaluator:
    """Prices decisions in one world."""

    def __init__(
        self, world: World, home: Mapping[str, HomeForecast] | None = None, work: Work | None = None
    ) -> None:
        """Make the counterfactual once, unless it is given: it does not depend on what may be rented."""
        self.world = world
        self.home = home_forecast(world) if home is None else home
        self.bursting = Bursting(world, self.home)
        self.work = work or Work()
        self.displacing = _displacing(world)
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

    def without_rentals_for(self, job: str) -> "Evaluator":
        """The same world, except that nothing may be rented for the job. What is derived from it is shared."""
        other = copy(self)
        other.world = self.world.without_rentals_for(job)
        other.bursting = self.bursting.within(other.world)
        return other

    def score(self, starts: Mapping[str, int]) -> Scored:
        """Carry out `starts`, fill what is left free, schedule the rest, and add up: by the kernel, where it is at hand."""
        carried = carry_out(self.world, self.bursting, starts, self.order, required_usd=REQUIRED_USD)
        return self.score_plainly(starts) if carried is None else self._scored(carried)

    def _scored(self, carried: "Carried") -> Scored:
        self.work.looks += CARRYING_OUT + carried.attempts
        terms = {name: round(carried.term(name), 6) for name in TERMS}
        if self.displacing is not None:
            terms[DISPLACED] = round(carried.displaced_usd(self.displacing), 6)
        return Scored(
            starts=carried.starts(),
            total=round(sum(terms.values()), 6),
            terms=terms,
            costs=carried.costs(),
            schedule=carried.schedule(),
            caps=carried.caps(),
            later=carried.later(),
            rents=carried.rents(),
        )

    def score_plainly(self, starts: Mapping[str, int]) -> Scored:
        """The same in plain Python: what the kernel is held to, and what there is while nothing is compiled."""
        plan = schedule(self.world, self.bursting, starts, self.order)
        assert plan.caps is not None, "the schedule has passed its first moment"
        self.work.looks += CARRYING_OUT + plan.attempts
        costs: dict[str, Cost] = {}
        later: dict[str, Case] = {}
        for job in self.world.jobs:
            costs[job.id] = self._cost(job, plan.bookings.get(job.id), plan.caps, later)
        now = {job: b.place for job, b in plan.bookings.items() if self._starts(b)}
        terms = {
            "miss": sum(c.miss for c in costs.values()),
            "rent": sum(c.rent for c in costs.values()),
            "run": sum(c.run for c in costs.values()),
            "egress": sum(c.egress for c in costs.values()),
            "wait": sum(c.wait for c in costs.values()),
            "shortfall": self._shortfall(now),
            "policy": sum(self._unmet(job, plan.bookings.get(job.id), plan.caps) for job in self.world.jobs),
        }
        if self.displacing is not None:
            here = {job: booking for job, booking in plan.bookings.items() if job not in later}
            terms[DISPLACED] = self.displacing.of(here)
        terms = {name: round(value, 6) for name, value in terms.items()}
        rents = tuple(job for job in now if plan.bookings[job].rents)
        return Scored(now, round(sum(terms.values()), 6), terms, costs, plan, plan.caps, later, rents)

    def _starts(self, booking: Booking) -> bool:
        """Whether the booking is a decision of now: a rental, or a start at once on capacity that is there.

        An estimate is none, whatever its time: beyond the limit on work nobody has looked for room.
        """
        if booking.rents:
            return True
        at = self.world.places[booking.place]
        return booking.exact and booking.start_at <= self.world.now and at.offer is None

    def _cost(self, job: JobView, booking: Booking | None, caps: Caps, later: dict[str, Case]) -> Cost:
        book = self.world.book
        if booking is None:
            planned = never_usd(book, job)
        else:
            at, job = self.world.places[booking.place], self.world.as_form(job, booking.place)
            planned = cost(
                book, job, at, booking.start_at, rents=booking.rents, committed_until=booking.committed_until
            )
            if booking.rents:
                return planned
            if booking.start_at <= self.world.now:
                return planned
        case = self.bursting.later_case(job, caps)
        if case is None:
            return planned
        delay_s = case.start_at - self.world.now
        start = case.rent_at + delay_s
        at, job = self.world.places[case.place], self.world.as_form(job, case.place)
        put_off = Cost(
            rent=case.cost_usd,
            wait=book.wait_usd_h(job) * (start - self.world.now + longer_s(job, at)) / 3600.0,
            miss=book.value_usd(job) * late_share(job, start, at.run_s(job)),
        )
        if put_off.total >= planned.total:
            return planned
        later[job.id] = case
        return put_off

    def _unmet(self, job: JobView, booking: Booking | None, caps: Caps) -> float:
        """What a policy requires to be rented now, and this decision does not."""
        if booking is not None and (
            booking.rents or self._starts(booking) or self.world.places[booking.place].rented
        ):
            return 0.0
        wanted = [case.cost_usd for case in self.bursting.required(job, caps)]
        return min(wanted) + REQUIRED_USD if wanted else 0.0

    def _shortfall(self, starts: Mapping[str, int]) -> float:
        """What guarantees are short of after this decision, as far as there is work that wants it."""
        total = 0.0
        for row, counted in self.world.shortfalls.items():
            used, wanted = counted.used, 0.0
            for job in self.world.jobs:
                if not under(job.queue, row.queue):
                    continue
                place, home = starts.get(job.id), self.world.home(job)
                if place is None:
                    wanted += counted.of(self.world.as_form(job, home[0])) if home else 0.0
                elif not self.world.places[place].rented and row.model in (
                    "",
                    self.world.places[place].model,
                ):
                    used += counted.of(self.world.as_form(job, place))
            short = min(counted.due, used + wanted) - used
            total += max(0.0, short) * row.shortfall_usd_gpu_h * SHORTFALL_H
        return total
