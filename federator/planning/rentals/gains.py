"""What a rental gains the job that it is made for: its deadline, as far as that is likelier to be met, the wait that it is spared, and what its run at home would cost: its GPUs, and by the
linear model's prices what others would do with the room.

In economic mode its part of the bill must be less than this. Whether others pay for the rest of a machine is found by planning with it. What others gain in that plan does not justify it: in a long line that is mostly chance, and of the many rentals that are
tried each turn some always look good for everybody else, so that far too much would be rented (docs/decisions/0030-a-rental-pays-for-its-own-job.md).
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from federator.model.reasons import GainsLess
from federator.model.snapshot import JobView
from federator.planning.places.candidates import Candidate, machines
from federator.planning.rentals.candidate import BurstCandidate, BurstRejection, HomeForecast
from federator.planning.rules.rulebook import NEVER_WAIT_H
from federator.planning.world.chances import late_share, spread_of
from federator.planning.world.prices import worth_usd
from federator.planning.world.problem import World

MOST_RISK = 0.5
"""What is planned in time at home counts as likelier in time than not, whatever its range: as the checker has it."""
LEAST_SURER, MOST_SURE = 0.05, 0.995
"""Where a deadline is hardly likelier to be met for renting, no value of it is advised; where it is sure to be, that is not said."""


class AtHome(NamedTuple):
    """How long until it is expected to begin there (infinite: nobody knows), and how long it then runs, in seconds."""

    ahead_s: float
    run_s: float

    def risk(self, job: JobView, now: float) -> float:
        """The chance that the deadline is missed there: the run has a range, and so has the end of the work that it waits for."""
        if self.ahead_s == math.inf:
            return 1.0
        return late_share(job, now + self.ahead_s, self.run_s, self.ahead_s)


class Stake(NamedTuple):
    """What of a job is the same for each rental: itself in form 0, its forecast at home and the chance that it is late there, its deadline's worth, the price of its waiting, its range."""

    job: JobView
    home: AtHome
    risk: float
    value_usd: float
    wait_usd_h: float
    spread: tuple[float, float]


class Gains:
    """What rentals gain over the forecast at home."""

    def __init__(self, world: World, home: Mapping[str, HomeForecast]) -> None:
        """Keep both."""
        self.world = world
        self.home = home
        self._stakes: dict[str, Stake] = {}

    def stake(self, job: JobView) -> "Stake":
        """What of the job is the same for each rental."""
        whole = job.of or job
        known = self._stakes.get(whole.id)
        if known is None or known.job is not whole:
            book, home = self.world.book, self._at_home(whole)
            risk = home.risk(whole, self.world.now)
            known = Stake(whole, home, risk, book.value_usd(whole), book.wait_usd_h(whole), spread_of(whole))
            self._stakes[whole.id] = known
        return known

    def _at_home(self, job: JobView) -> AtHome:
        """How long the job would wait there, and run."""
        home, now = self.home.get(job.id), self.world.now
        if home is None:
            return AtHome(math.inf, math.inf)
        return AtHome(max(0.0, home.start_at - now), max(1.0, home.finish_at - home.start_at))

    def risk(self, job: JobView) -> float:
        """The chance that the job misses its deadline at home."""
        return self.stake(job).risk

    def weighed_risk(self, job: JobView) -> float:
        """The same of what is planned in time there, as it is recorded and checked."""
        return min(round(self.risk(job), 6), MOST_RISK)

    def if_it_pays(
        self, job: JobView, answer: BurstCandidate | BurstRejection
    ) -> BurstCandidate | BurstRejection:
        """The same, unless it is a rental that costs more than it gains."""
        if isinstance(answer, BurstRejection) or self.world.places[answer.place].offer is None:
            return answer
        its_part_usd = part_of(job, self.world.places[answer.place]) * answer.cost_usd
        return answer if its_part_usd < self.usd(job, answer) else self.dear(job, answer)

    def usd(self, job: JobView, case: BurstCandidate) -> float:
        """What the rental gains, in USD. A job that can never run at home is spared as long a wait as it would be charged for."""
        home, stake = self.home.get(job.id), self.stake(job)
        spared_h = NEVER_WAIT_H if home is None else (home.start_at - self._begins_at(case)) / 3600.0
        home_usd = home.usd if home is not None else 0.0
        surer = self.surer(job, case)
        return float(gained_usd(surer, stake.value_usd, stake.wait_usd_h, spared_h, home_usd))

    def surer(self, job: JobView, case: BurstCandidate) -> float:
        """How much likelier the deadline is met if the job is rented for, as late as it would be, than at home."""
        return self.risk(job) - late_share(job, self._begins_at(case), case.run_s)

    def _begins_at(self, case: BurstCandidate) -> float:
        return case.start_at + max(0.0, case.rent_at - self.world.now)

    def dear(self, job: JobView, case: BurstCandidate) -> BurstRejection:
        """That it is not made, because it costs more than it gains."""
        if job.deadline_at is None:
            saved_usd = self.usd(job, case)
            return BurstRejection("no-gain", GainsLess(cost_usd=case.cost_usd, value_usd=saved_usd), case)
        value, surer = self.world.book.value_usd(job), self.surer(job, case)
        partly = job.id in self.home and 0.0 < surer < MOST_SURE
        reason = GainsLess(
            cost_usd=case.cost_usd,
            value_usd=value,
            deadline=True,
            surer=surer if partly else None,
            enough_usd=worth_usd(case.cost_usd, surer) if surer >= LEAST_SURER else None,
        )
        return BurstRejection("no-gain", reason, case)


def part_of(job: JobView, at: Candidate) -> float:
    """Of the machines that would be rented for the job, how much it takes by its GPUs: others may share the rest, and its bill."""
    return float(part_of_bill(job.gpus_total, machines(job, at) * at.gpus))


def part_of_bill(gpus: Any, machine_gpus: Any) -> Any:
    """Of machines with so many GPUs, how much a job of so many takes."""
    return np.where((gpus > 0) & (machine_gpus > 0), np.minimum(1.0, gpus / np.maximum(1, machine_gpus)), 1.0)


def gained_usd(surer: Any, value_usd: Any, wait_usd_h: Any, spared_h: Any, home_usd: Any) -> Any:
    """A deadline that is met so much likelier, so long a wait, and what the run at home would cost."""
    return surer * value_usd + (wait_usd_h * np.maximum(0.0, spared_h) + home_usd)


def ready_at(at: Candidate, now: float) -> float:
    """When a machine there could begin to work."""
    if at.offer is not None:
        return now + at.offer.offer.delay_s
    return max(now, at.ready_at or 0.0)
