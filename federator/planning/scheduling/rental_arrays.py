"""All rentals of a world as numbers: which jobs may use what is rented, what may be rented later, and what policies require now.

Made once per world and forecast at home, from `burst.Bursting`, which says what a case is. Schedules ask these arrays and not it.
"""

from typing import NamedTuple

import numpy as np

from federator.planning.kernels import tables as t
from federator.planning.rentals.burst import Bursting
from federator.planning.rentals.candidate import BurstCandidate
from federator.planning.world.model_arrays import ModelArrays

RANGES = ["first_case", "last_case", "first_required", "last_required"]


class Cases(NamedTuple):
    """`later`, by index in `records`; those that are required now have none. `jobs` knows which records are whose."""

    records: t.Records
    later: dict[int, BurstCandidate]
    jobs: t.Records
    flags: t.Flags
    begins: dict[str, int]


def cases_of(numbers: ModelArrays, bursting: Bursting | None) -> Cases:
    """The same, made once."""
    if bursting is None:
        return tabulate(numbers, None)
    if not isinstance(bursting.table, Cases):
        bursting.table = tabulate(numbers, bursting)
    return bursting.table


def tabulate(numbers: ModelArrays, bursting: Bursting | None) -> Cases:
    """The cases of all jobs; without `bursting` there are none."""
    world, jobs = numbers.world, numbers.jobs.copy()
    most = int((numbers.classes["last_way"] - numbers.classes["first_way"]).max(initial=0))
    usable, rentable = np.zeros((2, len(world.jobs), most), dtype=np.uint8)
    if bursting is None:
        return Cases(np.zeros(0, dtype=t.CASE), {}, jobs, *numbers.flags(usable))
    ranges = np.zeros((len(world.jobs), len(RANGES)), dtype=np.int64)
    rows: list[tuple[int, float, float, float]] = []
    later: dict[int, BurstCandidate] = {}
    speakers: dict[object, int] = {}
    speaker = list(range(len(world.jobs)))
    first_way = numbers.classes["first_way"].tolist()
    for index, job in enumerate(world.jobs):
        if world.offers(job) and not bursting.no_need(job):
            speaker[index] = speakers.setdefault(bursting.alike(job), index)
    bursting.weigh([world.jobs[index] for index in speakers.values()])
    for index, job in enumerate(world.jobs):
        first = first_way[numbers.klass[index]]
        for place in world.leases(job):
            usable[index, numbers.way(index, place) - first] = bursting.may_use_lease(job, place)
    for index in speakers.values():
        job, first = world.jobs[index], first_way[numbers.klass[index]]
        found = bursting.cases(job)
        ways = [numbers.way(index, case.place) for case in found]
        rentable[index, [way - first for way in ways]] = 1
        told = [
            (way, case.rent_at, case.start_at, case.cost_usd) for way, case in zip(ways, found, strict=True)
        ]
        ahead = [n for n, case in enumerate(found) if not case.is_now(world.now)]
        required = [n for n, case in enumerate(found) if case.required and case.is_now(world.now)]
        later |= {len(rows) + n: found[case] for n, case in enumerate(ahead)}
        begins, between = len(rows), len(rows) + len(ahead)
        rows += [told[n] for n in (*ahead, *required)]
        ranges[index] = begins, between, between, len(rows)
    for number, name in enumerate(RANGES):
        jobs[name] = ranges[speaker, number]
    return Cases(np.array(rows, dtype=t.CASE), later, jobs, *numbers.flags(usable | rentable[speaker]))
