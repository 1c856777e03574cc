"""All rentals of a world as numbers: which jobs may use what is rented, what may be rented later, and what policies require now.

Made once per world and forecast at home, from `burst.Bursting`, which says what a case is. Schedules ask these arrays and not it.
"""

from typing import NamedTuple

import numpy as np

from federator.planning.kernels import tables as t
from federator.planning.rentals.burst import Bursting
from federator.planning.rentals.candidate import BurstCandidate
from federator.planning.scheduling.model_arrays import ModelArrays

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
    usable = np.zeros((len(world.jobs), most), dtype=np.uint8)
    rows: list[tuple[int, float, float, float]] = []
    later: dict[int, BurstCandidate] = {}
    speakers: dict[tuple[int, int] | None, tuple[int, list[int]]] = {}
    for index, job in enumerate(world.jobs if bursting is not None else ()):
        assert bursting is not None, "there is one"
        first = int(numbers.classes["first_way"][numbers.klass[index]])
        for place in world.leases(job):
            usable[index, numbers.way(index, place) - first] = bursting.may_use_lease(job, place)
        if not world.offers(job) or bursting.no_need(job):
            continue
        equivalence_class = bursting.equivalence_class(job)
        alike = None if equivalence_class is None else (numbers.klass[index], equivalence_class)
        if alike in speakers:
            speaker, usable[index, speakers[alike][1]] = speakers[alike][0], 1
            jobs[RANGES][index] = jobs[RANGES][speaker]
            continue
        found = bursting.cases(job)
        ways = [numbers.way(index, case.place) - first for case in found]
        usable[index, ways] = 1
        if alike is not None:
            speakers[alike] = index, ways
        now = [case for case in found if case.is_now(world.now)]
        ahead = [case for case in found if not case.is_now(world.now)]
        own = jobs[index]
        own["first_case"], own["last_case"] = len(rows), len(rows) + len(ahead)
        later |= dict(enumerate(ahead, len(rows)))
        required = [case for case in now if case.required]
        own["first_required"] = own["last_case"]
        own["last_required"] = own["last_case"] + len(required)
        rows += [
            (numbers.way(index, case.place), case.rent_at, case.start_at, case.cost_usd)
            for case in (*ahead, *required)
        ]
    return Cases(np.array(rows, dtype=t.CASE), later, jobs, *numbers.flags(usable))
