"""The starts that one class of jobs could have on capacity that exists, now and in each later bucket: all places at once, in numpy.

There are as many of these columns as classes × places × buckets, ten times all others together, and a turn makes them anew. One at a
time in Python that cost fifteen times what solving them does. What is asked of hosts depends on the request alone, so it is asked once.
Costs are those of `prices.cost`, term by term; a property test holds the two together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from federator.model.capacity import Market
from federator.model.rules import PriceKind
from federator.model.snapshot import JobView
from federator.planning.kernels import late_shares
from federator.planning.kernels.pricing import gpus_usd
from federator.planning.places.candidates import SPOT_REWORK, size
from federator.planning.places.yard import Lot, Room, need_of
from federator.planning.world.buckets import BUCKETS, BUCKETS_H
from federator.planning.world.chances import spread_of
from federator.planning.world.prices import cost, doubt_usd, longer_s
from federator.planning.world.problem import World

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SOON_S = 900.0
"""In a bucket that is open from its beginning, a start is expected half so long after it, or in its middle if that is sooner."""


@dataclass(frozen=True)
class Starts:
    """Columns of one class, place by place and in the order of time; parallel arrays."""

    place: Ints
    now: NDArray[np.bool_]
    cost: Floats
    upper: Floats
    start_s: Floats
    """From now."""
    hours_row: Ints
    """When each of them runs: `place * BUCKETS + bucket`,"""
    hours_column: Ints
    """index into this class's columns,"""
    hours: Floats
    """and for how long of that bucket."""
    cheapest_run_usd: float
    """At home; 0 where there is none."""


class _Asked(NamedTuple):
    """What the hosts of a place say to a request: gangs that fit now, and when one would at the soonest (infinite: never)."""

    gangs: int
    earliest_at: float


NEVER_S = 1e12
"""As far ahead as numbers have to go."""


class Standing:
    """The places that exist, as numbers."""

    def __init__(self, world: World, lots: Sequence[Lot]) -> None:
        """Take what does not depend on the job."""
        self._world, self._lots, self._now = world, lots, world.now
        self._edges = np.array(BUCKETS_H) * 3600.0
        there = [at for at in world.places if at.offer is None]
        names = sorted({at.model for at in there})
        self._names, self._places = names, there
        self._model = np.array([names.index(at.model) for at in there], dtype=np.int64)
        self._slower = np.array([SPOT_REWORK if at.market is Market.SPOT else 1.0 for at in there])
        self._price = np.array([at.price_usd_gpu_h for at in there])
        self._rented = np.array([at.rented for at in there], dtype=bool)
        self._surcharged = any(term.kind is PriceKind.POOL for term in world.book.prices)
        self._doubted = any(at.doubt for at in there)
        self._asked: dict[tuple[int, Room, int], _Asked] = {}

    def starts(self, job: JobView, places: Sequence[int], able: Sequence[int]) -> Starts:
        """The columns of the job's class, as it is in one form, at these choices; of each, so many of its jobs may use it."""
        choices = np.array(places, dtype=np.int64)
        at = choices % max(1, len(self._world.places))
        run_s = self._run_s(job)[at]
        fixed = self._fixed(job, at, run_s)
        asked = [self._ask(place, job) for place in places]
        gangs = np.array([each.gangs for each in asked], dtype=np.int64)
        earliest = np.array([each.earliest_at for each in asked])
        start_s = np.zeros((len(at), 1 + BUCKETS))
        start_s[:, 1:], usable = self._later(job, earliest)
        ready = (job.not_before_at or 0.0) <= self._now
        exists = np.column_stack([(gangs > 0) & ready, usable])
        value = self._world.book.value_usd(job)
        late = self._late_share(job, start_s, run_s[:, np.newaxis])
        waited_s = start_s
        if (job.of or job).forms:
            longer = np.array([longer_s(job, self._world.places[place]) for place in places])
            waited_s = start_s + longer[:, np.newaxis]
        wait = self._world.book.wait_usd_h(job) * waited_s / 3600.0
        prices = fixed[:, np.newaxis] + wait + value * late
        most = np.array(able, dtype=np.float64)
        upper = np.repeat(most[:, np.newaxis], 1 + BUCKETS, axis=1)
        upper[:, 0] = np.minimum(most, gangs)
        row, when = np.nonzero(exists)
        hours_column, bucket, hours = self._hours(start_s[row, when], run_s[row])
        home = ~self._rented[at]
        return Starts(
            place=choices[row],
            now=when == 0,
            cost=prices[row, when],
            upper=upper[row, when],
            start_s=start_s[row, when],
            hours_row=at[row][hours_column] * BUCKETS + bucket,
            hours_column=hours_column,
            hours=hours,
            cheapest_run_usd=float(fixed[home].min()) if home.any() else 0.0,
        )

    def _late_share(self, job: JobView, start_s: Floats, run_s: Floats) -> Floats:
        """As `chances.late_share` has it, for all places and starts."""
        if job.deadline_at is None:
            return np.zeros_like(start_s)
        start_s = np.minimum(start_s, NEVER_S)
        shares: Floats = late_shares(job.deadline_at, self._now + start_s, run_s, start_s, *spread_of(job))
        return shares

    def _run_s(self, job: JobView) -> Floats:
        """By place, as `Candidate.run_s` has it."""
        speeds = [max(job.speed.get(name, 1.0) if name else 1.0, 1e-6) for name in self._names]
        run_s: Floats = job.run_s / np.array(speeds)[self._model] * self._slower
        if job.inputs:
            run_s = run_s + [at.transfer(job).seconds for at in self._places]
        return run_s

    def _fixed(self, job: JobView, at: Ints, run_s: Floats) -> Floats:
        """What does not depend on the start: the run, or the rent of a lease beyond what is committed, and what policies add."""
        whole = job.of or job
        charged_s = run_s if whole is job else self._run_s(whole)[at]
        usd: Floats = gpus_usd(self._price[at], whole.gpus_total, charged_s)
        if self._surcharged:
            book, places = self._world.book, self._world.places
            added = np.array([book.surcharge_usd_gpu_h(job, places[place]) for place in at.tolist()])
            usd = usd + gpus_usd(added, size(whole), charged_s)
        if self._doubted:
            usd = usd + [doubt_usd(self._world.book, job, self._world.places[place]) for place in at.tolist()]
        for index in np.flatnonzero(self._rented[at]).tolist():
            place = int(at[index])
            releases = self._lots[place].releases
            price = cost(
                self._world.book,
                job,
                self._world.places[place],
                self._now,
                committed_until=releases[-1].at if releases else 0.0,
            )
            usd[index] = price.run + price.rent
        if job.inputs:
            usd = usd + [self._world.places[place].transfer(job).usd for place in at.tolist()]
        return usd

    def _ask(self, place: int, job: JobView) -> _Asked:
        key = (place, need_of(job), job.nodes)
        if key not in self._asked:
            lot = self._lots[place]
            earliest = lot.earliest(key[1], job.nodes)
            gangs = lot.gangs(key[1], job.nodes)
            self._asked[key] = _Asked(gangs, np.inf if earliest is None else earliest)
        return self._asked[key]

    def _later(self, job: JobView, earliest_at: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """By place and bucket: when a start is expected there, and whether there is one. Not before hosts could hold the gang if nothing else started."""
        soonest = max(job.not_before_at or 0.0, self._now + job.behind_s)
        earliest_s = (np.maximum(earliest_at, soonest) - self._now)[:, np.newaxis]
        low, high = self._edges[:-1], self._edges[1:]
        usual = (low + np.minimum(high, low + SOON_S)) / 2
        starts = np.where(earliest_s <= low, usual, earliest_s)
        return starts, starts < high

    def _hours(self, start_s: Floats, run_s: Floats) -> tuple[Ints, Ints, Floats]:
        """How long each start runs in each bucket."""
        begin, end = start_s[:, np.newaxis], (start_s + run_s)[:, np.newaxis]
        overlap = np.minimum(self._edges[1:], end) - np.maximum(self._edges[:-1], begin)
        hours = np.clip(overlap, 0.0, None) / 3600.0
        column, bucket = np.nonzero(hours)
        return column, bucket, hours[column, bucket]
