"""Rows of the future: what all starts take of each place's GPU-hours, core-hours and memory-hours, bucket by bucket.

GPU-hours are always a row. A start in the first buckets is expected in their middle, so it takes half of their hours: by hours alone, twice as many could start
there as there are GPUs. For what is proven (certificates), what is in use when such a bucket ends is a row, too. Turns go without it: with it, three days of the online family
lost 4 % more (`docs/explanation/planning.md`).

Cores and memory are one only where they could run out before the GPUs do: a place whose hosts have more of them for each GPU than any
work asks for never lacks them. Most places are like that, and rows that cannot bind make a model slower for nothing.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from federator.model.snapshot import JobView
from federator.planning.linear.growing import Floats, Terms
from federator.planning.linear.starts import Starts
from federator.planning.places.yard import Lot
from federator.planning.world.buckets import BUCKETS, BUCKETS_H
from federator.planning.world.free_hours import EDGES_H, KINDS, free_gpus, free_hours, hours_row
from federator.planning.world.problem import World

IN_USE = "gpus"
HALVED = 2
"""Of so many buckets, the first: later ones are so long that starts in them are expected near their beginning."""
WIDTHS_H = np.diff(EDGES_H)


class Entry(NamedTuple):
    """Starts of a class in one form: the first of their columns, and what each of its jobs asks for."""

    first: int
    starts: Starts
    job: JobView


def in_use_rows(world: World, lots: Sequence[Lot], entries: Sequence[Entry]) -> list[Terms]:
    """GPUs in use when each of the first buckets ends, by place: no more than are free then."""
    rows: dict[tuple[int, int], Terms] = {}
    for each in entries:
        found, gpus = each.starts, float(asked(each.job)[0])
        start_h = found.start_s[found.hours_column] / 3600.0
        for bucket in range(1, HALVED + 1):
            low_h = BUCKETS_H[bucket]
            over = np.flatnonzero((found.hours_row % BUCKETS == bucket) & (start_h < low_h))
            for place in np.unique(found.hours_row[over] // BUCKETS).tolist():
                name = hours_row(world.places[place].key, bucket, IN_USE)
                if (place, bucket) not in rows:
                    rows[place, bucket] = Terms(name, -np.inf, free_gpus(lots[place], world.now, low_h))
                mine = over[found.hours_row[over] // BUCKETS == place]
                rows[place, bucket].extend(each.first + found.hours_column[mine], np.full(len(mine), gpus))
    return list(rows.values())


def hour_rows(world: World, lots: Sequence[Lot], entries: Sequence[Entry], line: World) -> list[Terms]:
    """The rows of all places that exist, by place, bucket and kind. `line` is all work that the rows are to be good for."""
    if not entries:
        return []
    columns = np.concatenate([each.first + each.starts.hours_column for each in entries])
    numbers = np.concatenate([each.starts.hours_row for each in entries])
    hours = np.concatenate([each.starts.hours for each in entries])
    asks = np.array([asked(each.job) for each in entries], dtype=np.float64)
    entry = np.repeat(np.arange(len(entries)), [len(each.starts.hours) for each in entries])
    order = np.argsort(numbers, kind="stable")
    numbers, columns, hours, entry = numbers[order], columns[order], hours[order], entry[order]
    cuts = (np.flatnonzero(np.diff(numbers)) + 1).tolist()
    demand = Demand(line)
    rows: list[Terms] = []
    free, binding = _NO_HOURS, _NO_HOURS
    known = -1
    for begin, end in zip([0, *cuts], [*cuts, len(numbers)], strict=True):
        if begin == end:
            continue
        place, bucket = divmod(int(numbers[begin]), BUCKETS)
        if place != known:
            known, free = place, free_hours(lots[place], world.now)
            binding = demand.may_bind(free, shared=world.places[place].shared)
        for kind, (name, unit) in enumerate(KINDS):
            if binding[kind, bucket]:
                row_name = hours_row(world.places[place].key, bucket, name)
                row = Terms(row_name, -np.inf, unit * float(free[kind, bucket]))
                row.extend(columns[begin:end], hours[begin:end] * (unit * asks[entry[begin:end], kind]))
                rows.append(row)
    return [row for row in rows if row]


_NO_HOURS: Floats = np.zeros((len(KINDS), BUCKETS))


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
