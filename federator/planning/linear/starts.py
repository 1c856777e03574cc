"""All starts that a world's jobs could have on capacity that exists, now and in each later bucket: a column each, made in numpy at once.

There are as many of these columns as classes × places × buckets, ten times all others together, and a turn makes them anew. What a way of running costs
and how long it takes is read from `world.model_arrays`, which the kernel reads, too; a property test holds the columns and `prices.cost` together. What is asked of hosts
depends on the request alone, so it is asked once.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from federator.planning.kernels import late_shares
from federator.planning.kernels.start_cost import machines_usd, waited_usd
from federator.planning.kernels.tables import LEASE, OFFER, OWNED, Records
from federator.planning.places.host_sets import HostSet
from federator.planning.world.buckets import BUCKETS, BUCKETS_H
from federator.planning.world.free_hours import Bools, Floats, Ints
from federator.planning.world.model_arrays import ModelArrays

SOON_S = 900.0
"""In a bucket that is open from its beginning, a start is expected half so long after it, or in its middle if that is sooner."""
NEVER_S = 1e12
"""As far ahead as numbers have to go."""
EDGES_S = np.array(BUCKETS_H) * 3600.0


class Starts(NamedTuple):
    """Columns, class by class, way by way and in the order of time; parallel arrays but for the last four."""

    way: Ints
    """Index into `ModelArrays.ways`,"""
    klass: Ints
    """and into its classes."""
    at: Ints
    """The place, without the form."""
    now: Bools
    cost: Floats
    upper: Floats
    start_s: Floats
    """From now."""
    hours_row: Ints
    """When each of them runs: `at * BUCKETS + bucket`,"""
    hours_column: Ints
    """index into these columns,"""
    hours: Floats
    """and for how long of that bucket."""
    home_usd: Floats
    """By class: the least that a run on owned capacity costs; 0 where there is none."""


def starts_of(numbers: ModelArrays, host_sets: Sequence[HostSet], able: Floats) -> Starts:
    """The columns of all classes. `able`: by way, how many jobs of the class may use it; of offers nothing is said here."""
    kinds = numbers.places["kind"]
    usable = (able > 0.0) & (kinds[numbers.ways["place"]] != OFFER)
    chosen = np.flatnonzero(usable)
    ways, klass, now = numbers.ways[chosen], numbers.class_of_way[chosen], numbers.world.now
    at, run_s = ways["place"], ways["run_s"]
    fixed = ways["run_usd"] + ways["egress_usd"] + _beyond_usd(numbers, host_sets, at, run_s)
    gangs, earliest_at = _asked(host_sets, ways)
    heads = _Heads(numbers)
    start_s = np.zeros((len(chosen), 1 + BUCKETS))
    start_s[:, 1:], later = _later_s(np.maximum(earliest_at, heads.soonest_at[klass]) - now)
    exists = np.column_stack([(gangs > 0) & heads.ready[klass], later])
    way, when = np.nonzero(exists)
    start_s, of = start_s[way, when], klass[way]
    cost = fixed[way] + heads.waiting_usd(of, start_s, run_s[way], ways["longer_s"][way], now)
    upper = np.where(when == 0, np.minimum(able[chosen], gangs)[way], able[chosen][way])
    hours_column, bucket, hours = _hours(start_s, run_s[way])
    return Starts(
        way=chosen[way],
        klass=of,
        at=at[way],
        now=when == 0,
        cost=cost,
        upper=upper,
        start_s=start_s,
        hours_row=at[way][hours_column] * BUCKETS + bucket,
        hours_column=hours_column,
        hours=hours,
        home_usd=_least(fixed, klass, kinds[at] == OWNED, len(numbers.classes)),
    )


class _Heads:
    """What of a class decides when its jobs could start and what waiting costs them: that of its first job."""

    def __init__(self, numbers: ModelArrays) -> None:
        world, self.classes = numbers.world, numbers.classes
        self.ready = self.classes["not_before"] <= world.now
        behind_s = np.array([job.behind_s for job in numbers.heads])
        self.soonest_at = np.maximum(self.classes["not_before"], world.now + behind_s)
        self.wait_usd_h = np.array([world.book.wait_usd_h(job) for job in numbers.heads])

    def waiting_usd(
        self, klass: Ints, start_s: Floats, run_s: Floats, longer_s: Floats, now: float
    ) -> Floats:
        """The wait, and the chance that the deadline is missed."""
        mine = self.classes[klass]
        usd: Floats = waited_usd(self.wait_usd_h[klass], start_s + longer_s)
        due = np.flatnonzero((mine["value"] > 0.0) & np.isfinite(mine["deadline"]))
        if len(due):
            mine, waits_s = mine[due], np.minimum(start_s[due], NEVER_S)
            spread = mine["typical"], mine["steep"]
            usd[due] += mine["value"] * late_shares(
                mine["deadline"], now + waits_s, run_s[due], waits_s, *spread
            )
        return usd


def _beyond_usd(numbers: ModelArrays, host_sets: Sequence[HostSet], at: Ints, run_s: Floats) -> Floats:
    """Of leases: the rent of what lies beyond the time until which the machine is needed anyway."""
    now, places = numbers.world.now, numbers.places
    needed = np.array([host_set.releases[-1].at if host_set.releases else 0.0 for host_set in host_sets])
    beyond_s = np.maximum(0.0, now + run_s - np.maximum(now, needed[at]))
    usd: Floats = np.where(places["kind"][at] == LEASE, machines_usd(places["usd_h"][at], 1, beyond_s), 0.0)
    return usd


def _asked(host_sets: Sequence[HostSet], ways: Records) -> tuple[Ints, Floats]:
    """What hosts say to each way: gangs that fit now, and when one would at the soonest (infinite: never)."""
    names = ("place", "nodes", "gpus", "cpus", "memory", "apart")
    known: dict[tuple[int, ...], tuple[int, float]] = {}
    gangs, earliest_at = np.zeros(len(ways), dtype=np.int64), np.full(len(ways), np.inf)
    for way, asked in enumerate(zip(*(ways[name].tolist() for name in names), strict=True)):
        answer = known.get(asked)
        if answer is None:
            place, nodes, *size, apart = asked
            need = (*size, 1) if apart else tuple(size)
            soonest = host_sets[place].earliest(need, nodes)
            answer = known[asked] = (
                host_sets[place].gangs(need, nodes),
                np.inf if soonest is None else soonest,
            )
        gangs[way], earliest_at[way] = answer
    return gangs, earliest_at


def _later_s(earliest_s: Floats) -> tuple[Floats, Bools]:
    """By way and bucket: when a start is expected there, and whether there is one. Not before hosts could hold the gang if nothing else started."""
    low, high = EDGES_S[:-1], EDGES_S[1:]
    usual = (low + np.minimum(high, low + SOON_S)) / 2
    earliest = earliest_s[:, np.newaxis]
    starts = np.where(earliest <= low, usual, earliest)
    return starts, starts < high


def _hours(start_s: Floats, run_s: Floats) -> tuple[Ints, Ints, Floats]:
    """How long each start runs in each bucket."""
    begin, end = start_s[:, np.newaxis], (start_s + run_s)[:, np.newaxis]
    overlap = np.minimum(EDGES_S[1:], end) - np.maximum(EDGES_S[:-1], begin)
    hours = np.clip(overlap, 0.0, None) / 3600.0
    column, bucket = np.nonzero(hours)
    return column, bucket, hours[column, bucket]


def _least(usd: Floats, klass: Ints, among: Bools, classes: int) -> Floats:
    """By class the least of those; 0 where there is none."""
    least = np.full(classes, np.inf)
    np.minimum.at(least, klass[among], usd[among])
    return np.where(np.isfinite(least), least, 0.0)
