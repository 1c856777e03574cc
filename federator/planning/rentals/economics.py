"""What all rented places come to for jobs, and whether renting them pays in economic mode: for many jobs and places at once, in arrays.

Policy decides what may be rented (`burst`), this whether it should be: there must be a *cause*, in time it must be a *cure*, and it must *gain* the job more than its part of the bill.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from federator.model.capacity import Market
from federator.model.snapshot import JobView
from federator.planning import kernels
from federator.planning.kernels import tables as t
from federator.planning.places.candidates import typical_share
from federator.planning.rentals.gains import Gains, gained_usd, part_of_bill, ready_at
from federator.planning.rentals.interruptions import Interruptions
from federator.planning.rules.rulebook import NEVER_WAIT_H
from federator.planning.world.free_hours import Bools, Floats, Ints
from federator.planning.world.model_arrays import numbers_of
from federator.planning.world.problem import World

SAFETY_S = 60.0
"""Time kept between the latest start that still meets the deadline and the one that is planned; a quarter of the boot delay comes on top."""
DELAY_SAFETY = 0.25
PAYS, IN_TIME, TOO_LATE, UNSAFE, DEAR = range(5)
"""What is said of a rental: it pays; home is in time, and no surer there by enough; it is too late there, and no chance of it is worth the bill; too late if spot is taken back; it gains less than it costs."""


class Rented(NamedTuple):
    """If it is rented for now: when it begins, how long it runs, in seconds, and the bill. The rest is of economic mode, for a job with a deadline."""

    start_at: float
    run_s: float
    rent_usd: float
    egress_usd: float
    """What moving its data costs."""
    again_s: float
    """What the worst interruption costs in time; 0 where nobody asks."""
    rent_at: float
    """When to stop waiting for home (`kernels.optimal_stopping`)."""
    verdict: int

    @property
    def finish_at(self) -> float:
        """When it ends, if nothing interrupts it."""
        return self.start_at + self.run_s

    @property
    def bill_usd(self) -> float:
        """All that is paid."""
        return self.rent_usd + self.egress_usd


class Economics:
    """Asked of one world and one forecast at home."""

    def __init__(self, world: World, gains: Gains) -> None:
        """Keep both."""
        self.world, self.gains = world, gains
        self.interruptions = Interruptions(world)
        self.ready_at = np.array([ready_at(at, world.now) for at in world.places])
        self.spot = np.array([at.market is Market.SPOT for at in world.places], dtype=bool)

    def all_of(self, jobs: Sequence[JobView]) -> list[dict[int, Rented]]:
        """Of each job, what every rented place comes to that is open to it, by choice."""
        ways = [numbers_of(self.world).rented_ways(job) for job in jobs]
        if not ways:
            return []
        found, begin = [], 0
        rows = self._weighed(jobs, np.concatenate(ways), [len(each) for each in ways])
        for each in ways:
            found.append(dict(zip(each["choice"].tolist(), rows[begin : begin + len(each)], strict=True)))
            begin += len(each)
        return found

    def of(self, job: JobView, place: int) -> Rented:
        """What one place comes to, also where it is not open to the job."""
        way = numbers_of(self.world).ways_by(job.of or job, [place])
        return self._weighed([job], way, [1])[0]

    def _weighed(self, jobs: Sequence[JobView], ways: t.Records, counts: Sequence[int]) -> list[Rented]:
        """Of each way, one of so many for each job in turn."""
        rows = _Rows(self, jobs, ways, np.repeat(np.arange(len(jobs)), counts))
        verdict, rent_at = rows.judged()
        columns = (
            rows.start_at,
            ways["run_s"],
            ways["whole_usd"],
            ways["egress_usd"],
            rows.again_s,
            rent_at,
            verdict,
        )
        return list(map(Rented._make, zip(*(column.tolist() for column in columns), strict=True)))


class _Rows:
    """Ways of jobs, and what of the jobs is asked for each of them."""

    def __init__(
        self,
        of: Economics,
        jobs: Sequence[JobView],
        ways: t.Records,
        row: Ints,
    ) -> None:
        self.now, self.numbers, gains = of.world.now, numbers_of(of.world), of.gains
        self.ways, self.place, self.row = ways, ways["place"], row
        stakes = [gains.stake(job) for job in jobs]
        homes = [gains.home.get(job.id) for job in jobs]
        self.start_at = of.ready_at[self.place]
        self.offer = self.numbers.places["kind"][self.place] == t.OFFER
        self.deadline = self._each(math.inf if job.deadline_at is None else job.deadline_at for job in jobs)
        self.value_usd = self._each(stake.value_usd for stake in stakes)
        self.wait_usd_h = self._each(stake.wait_usd_h for stake in stakes)
        self.spread = (
            self._each(stake.spread[0] for stake in stakes),
            self._each(stake.spread[1] for stake in stakes),
        )
        self.typical = self._each(map(typical_share, jobs))
        self.ahead_s = self._each(stake.home.ahead_s for stake in stakes)
        self.home_run_s = self._each(stake.home.run_s for stake in stakes)
        self.risk = self._each(stake.risk for stake in stakes)
        self.weighed_risk = self._each(map(gains.weighed_risk, jobs))
        self.home_start_at = self._each(math.inf if home is None else home.start_at for home in homes)
        self.home_finish_at = self._each(math.inf if home is None else home.finish_at for home in homes)
        self.home_usd = self._each(0.0 if home is None else home.usd for home in homes)
        self.may_wait = self._each(map(of.world.home_may_take, jobs)) != 0.0
        self.not_before = self._each(job.not_before_at or 0.0 for job in jobs)
        self.again_s = np.zeros(len(ways))
        asks = self._each(job.spot_policy == "auto" for job in jobs) != 0.0
        for index in np.flatnonzero(of.spot[self.place] & asks).tolist():
            choice = int(ways["choice"][index])
            self.again_s[index] = of.interruptions.again_s(of.world.as_form(jobs[row[index]], choice), choice)

    def _each(self, values: Iterable[float]) -> Floats:
        """What each job has, by way."""
        found: Floats = np.array(list(values), dtype=np.float64)[self.row]
        return found

    def _late(self, begins_at: Floats) -> Floats:
        """The chance that the deadline is missed on a machine on which it begins then."""
        late: Floats = kernels.late_shares(self.deadline, begins_at, self.ways["run_s"], 0.0, *self.spread)
        return late

    def judged(self) -> tuple[Ints, Floats]:
        """What is said of each, and when it would be rented."""
        bill_usd = self.ways["whole_usd"] + self.ways["egress_usd"]
        late = self._late(self.start_at)
        finish_at = self.start_at + self.ways["run_s"]
        at_risk = self.offer & (self.ahead_s > 0.0) & ((self.weighed_risk - late) * self.value_usd > bill_usd)
        in_time = (self.home_finish_at <= self.deadline) & ~at_risk
        by_chance = (1.0 - late) * self.value_usd > bill_usd
        too_late = (self.start_at + self.typical * self.ways["run_s"] - self.deadline > 0) & ~by_chance
        unsafe = (self.again_s != 0.0) & (finish_at + self.again_s > self.deadline)
        put_off = self.offer & self.may_wait & ~(in_time | too_late | unsafe) & np.isfinite(self.deadline)
        rent_at = self._rent_at(put_off, finish_at)
        begins_at = self.start_at + np.maximum(0.0, rent_at - self.now)
        spared_h = np.where(
            self.home_start_at == np.inf, NEVER_WAIT_H, (self.home_start_at - begins_at) / 3600.0
        )
        surer = self.risk - self._late(begins_at)
        gains_usd = gained_usd(surer, self.value_usd, self.wait_usd_h, spared_h, self.home_usd)
        machine_gpus = self.ways["machines"] * self.numbers.places["gpus"][self.place]
        dear = self.offer & ~(part_of_bill(self.ways["gpus_total"], machine_gpus) * bill_usd < gains_usd)
        said = [in_time, too_late, unsafe, dear]
        return np.select(said, [IN_TIME, TOO_LATE, UNSAFE, DEAR], PAYS), rent_at

    def _rent_at(self, put_off: Bools, finish_at: Floats) -> Floats:
        """As late as is safe, of what may be put off; of the rest at once."""
        delay_s = self.numbers.places["delay_s"][self.place]
        spare_s = self.deadline - finish_at - self.again_s - SAFETY_S - DELAY_SAFETY * delay_s
        waits_s = np.where(put_off, np.maximum(0.0, spare_s), 0.0)
        weighed = np.flatnonzero(put_off & (self.value_usd > 0.0) & (spare_s > 0.0))
        if len(weighed):
            # What could start at home now and would be late does not wait for that.
            ahead_s = np.where(self.ahead_s <= 0.0, np.inf, self.ahead_s)
            run_s = np.where(self.home_run_s == np.inf, self.ways["run_s"], self.home_run_s)
            asked = (
                self.deadline, *self.spread, ahead_s, run_s, self.start_at, self.ways["run_s"], self.ways["whole_usd"],
                self.value_usd, spare_s,
            )  # fmt: skip
            waits_s[weighed] = kernels.put_off_s(self.now, *(each[weighed] for each in asked))
        return np.maximum(np.maximum(self.now, self.now + waits_s), self.not_before)
