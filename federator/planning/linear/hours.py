"""Rows of the future: what all starts take of each place's GPU-hours, core-hours and memory-hours, bucket by bucket.

GPU-hours are always a row. A start in the first buckets is expected in their middle, so it takes half of their hours: by hours alone, twice as many could start
there as there are GPUs. For what is proven (certificates), what is in use when such a bucket ends is a row, too. Turns go without it: with it, three days of the online family
lost 4 % more (`docs/explanation/planning.md`).

Cores and memory are one only where they could run out before the GPUs do: a place whose hosts have more of them for each GPU than any
work asks for never lacks them. Most places are like that, and rows that cannot bind make a model slower for nothing.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from federator.model.snapshot import JobView
from federator.planning.linear.starts import Starts
from federator.planning.linear.terms import Terms
from federator.planning.places.host_sets import HostSet
from federator.planning.world.buckets import BUCKETS, BUCKETS_H, hours_row
from federator.planning.world.free_hours import EDGES_H, KINDS, Floats, free_gpus, free_hours
from federator.planning.world.model_arrays import ModelArrays
from federator.planning.world.problem import World

IN_USE = "gpus"
HALVED = 2
"""Of so many buckets, the first: later ones are so long that starts in them are expected near their beginning."""
WIDTHS_H = np.diff(EDGES_H)


def in_use_rows(world: World, host_sets: Sequence[HostSet], starts: Starts, asks: Floats) -> list[Terms]:
    """GPUs in use when each of the first buckets ends, by place: no more than are free then. The starts are the first columns; `asks` as `asked_by` has it."""
    rows: list[Terms] = []
    start_h = starts.start_s[starts.hours_column] / 3600.0
    at, bucket_of = np.divmod(starts.hours_row, BUCKETS)
    for bucket in range(1, HALVED + 1):
        low_h = BUCKETS_H[bucket]
        over = np.flatnonzero((bucket_of == bucket) & (start_h < low_h))
        for place in np.unique(at[over]).tolist():
            name = hours_row(world.places[place].key, bucket, IN_USE)
            row = Terms(name, -np.inf, free_gpus(host_sets[place], world.now, low_h))
            columns = starts.hours_column[over[at[over] == place]]
            row.extend(columns, asks[starts.way[columns], 0])
            rows.append(row)
    return rows


def hour_rows(
    world: World, host_sets: Sequence[HostSet], starts: Starts, asks: Floats, line: World
) -> list[Terms]:
    """The rows of all places that exist, by place, bucket and kind. `line` is all work that the rows are to be good for; the rest as for `in_use_rows`."""
    order = np.argsort(starts.hours_row, kind="stable")
    numbers, columns, hours = starts.hours_row[order], starts.hours_column[order], starts.hours[order]
    asks = asks[starts.way[columns]]
    demand = Demand(line)
    rows: list[Terms] = []
    for place in np.unique(numbers // BUCKETS).tolist():
        free = free_hours(host_sets[place], world.now)
        binding = demand.may_bind(free, shared=world.places[place].shared)
        cuts = np.searchsorted(numbers, place * BUCKETS + np.arange(BUCKETS + 1)).tolist()
        for bucket, (begin, end) in enumerate(pairwise(cuts)):
            for number, (name, unit) in enumerate(KINDS):
                if begin == end or not binding[number, bucket]:
                    continue
                row_name = hours_row(world.places[place].key, bucket, name)
                begins_h = np.inf if number else BUCKETS_H[bucket]  # of GPU-hours alone
                row = Terms(row_name, -np.inf, unit * float(free[number, bucket]), begins_h=begins_h)
                row.extend(columns[begin:end], hours[begin:end] * (unit * asks[begin:end, number]))
                rows.append(row)
    return [row for row in rows if row]


def asked_by(numbers: ModelArrays) -> Floats:
    """By way: GPUs, milli-cores and MiB of the whole job."""
    ways = numbers.ways
    sizes = np.column_stack([ways["gpus"], ways["cpus"], ways["memory"]])
    asks: Floats = (ways["nodes"][:, np.newaxis] * sizes).astype(np.float64)
    return asks


def asked(job: JobView) -> tuple[int, int, int]:
    """GPUs, milli-cores and MiB of the whole job."""
    return job.nodes * job.gpus, job.nodes * job.cpus_milli, job.nodes * job.memory_mib


class Demand:
    """What a line asks of cores and memory, as far as it says that a place could lack them."""

    def __init__(self, line: World) -> None:
        """Look at every job, in every form."""
        self.total = np.zeros(len(KINDS))
        """Of all jobs together, each in the form that asks for most,"""
        self.without = np.zeros(len(KINDS))
        """of those that ask for no GPU,"""
        self.per_gpu = {shared: np.zeros(len(KINDS)) for shared in (False, True)}
        """and the most that a job asks for beside each of its GPUs."""
        for members in line.alike.values():
            job, count = members[0], len(members)
            forms = [job, *(job.as_form(n) for n in range(1, 1 + len(job.forms)))]
            asks = np.array([asked(form) for form in forms], dtype=np.float64)
            self.total += count * asks.max(axis=0)
            for form, ask in zip(forms, asks, strict=True):
                if form.gpus:
                    most = self.per_gpu[form.shared]
                    np.maximum(most, ask / ask[0], out=most)
                else:
                    self.without += count * ask

    def may_bind(self, free: Floats, *, shared: bool) -> Floats:
        """By kind and bucket, whether the row could be what stops a start, beside that of the GPUs."""
        whole = self.total[:, np.newaxis] * WIDTHS_H
        beside = self.per_gpu[shared][:, np.newaxis] * free[0] + self.without[:, np.newaxis] * WIDTHS_H
        binding: Floats = np.minimum(whole, beside) > free * (1.0 + 1e-9)
        binding[0] = True
        return binding
