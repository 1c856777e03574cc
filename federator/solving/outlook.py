"""A relaxed plan of the whole line: which classes it starts now or rents for, what the others will use, and the prices of it all.

It is the certificate's model, solved from the last prices, with its values. That takes some seconds for 10,000 jobs, so no turn waits for it: it is
made aside, and turns use the last one (`planning.world.outlook`).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from federator.model.outlook import Outlook
from federator.model.snapshot import JobView, Problem
from federator.planning.linear import columns as cut
from federator.planning.linear.columns import ColumnKind, Columns
from federator.planning.scheduling.objective import Evaluator
from federator.planning.world.free_hours import Floats
from federator.planning.world.outlook import LEAST
from federator.planning.world.problem import World
from federator.solving import linear
from federator.solving.packed import pack

AT_ONCE = (ColumnKind.NOW, ColumnKind.RENT, ColumnKind.SHARE)
DIGITS = 6
MOST_CHOICES = 400_000
"""Classes × places of a line, up to which it is looked at: some 1.5 million columns, and 2 GB."""
MOST_JOBS = 200_000
"""Jobs of a line, up to which it is looked at: some 8 KB each."""


def look_ahead(problem: Problem, counts: Sequence[int]) -> Outlook | None:
    """What to expect of a line of so many jobs like each of the problem's; None where it is too long for that, or a solve hit its limit."""
    heads = World(problem)
    if not heads.jobs or len(heads.places) * len(counts) > MOST_CHOICES or sum(counts) > MOST_JOBS:
        return None
    jobs: list[JobView] = []
    number_of: dict[str, int] = {}
    for number, (job, count) in enumerate(zip(problem.snapshot.jobs, counts, strict=True)):
        for each in range(count):
            name = f"{job.id}.{each}"
            number_of[name] = number
            jobs.append(replace(job, id=name, behind_s=0.0))
    world = World(replace(problem, snapshot=replace(problem.snapshot, jobs=tuple(jobs)), outside={}))
    table = cut.build(Evaluator(world))
    packed = pack(table)
    found = linear.relaxation(table, packed, problem.warm_prices)
    if found is None:
        return None
    values = np.zeros(len(table.cost))
    values[packed.origin[found.kept]] = found.values
    return _told(table, values, packed.duals(found.latest, found.paid), number_of, world)


class _Start(NamedTuple):
    """So many jobs of a class of the line, in one column of the model."""

    column: int
    klass: int
    start_s: float
    jobs: float
    now: bool
    choice: int
    rents: bool


def _told(
    table: Columns, values: Floats, duals: Floats, number_of: Mapping[str, int], world: World
) -> Outlook:
    starts = list(_starts(table, values, number_of))
    names = [row.name for row in table.rows]
    uses = list(_uses(table, starts))
    wanted = sorted({row for _, row, _ in uses} | set(_priced(table, duals)))
    place = {row: number for number, row in enumerate(wanted)}
    return Outlook(
        taken_at=world.now,
        klass=tuple(each.klass for each in starts),
        start_s=tuple(each.start_s for each in starts),
        jobs=tuple(each.jobs for each in starts),
        now=tuple(each.now for each in starts),
        place=tuple(world.place_of(each.choice) if each.rents else -1 for each in starts),
        form=tuple(world.form_of(each.choice) for each in starts),
        start=tuple(start for start, _, _ in uses),
        row=tuple(place[row] for _, row, _ in uses),
        use=tuple(use for _, _, use in uses),
        places=tuple(at.key for at in world.places),
        rows=tuple(names[row] for row in wanted),
        usd=tuple(round(abs(float(duals[row])), DIGITS) for row in wanted),
    )


def _starts(table: Columns, values: Floats, number_of: Mapping[str, int]) -> Iterator[_Start]:
    """What the plan starts. What the model takes for one class, and the line for several, is shared out by their sizes."""
    used = np.flatnonzero((values > LEAST) & (table.klass >= 0) & (table.kind != ColumnKind.NEVER))
    used = used[np.lexsort((used, table.start_s[used], table.klass[used]))]
    at_once = np.isin(table.kind[used], AT_ONCE).tolist()
    for column, soon in zip(used.tolist(), at_once, strict=True):
        members = table.classes[table.klass[column]]
        start_s, value = round(float(table.start_s[column]), DIGITS), float(values[column])
        for number, count in Counter(number_of[job.id] for job in members).items():
            jobs = round(value * count / len(members), DIGITS)
            rents, choice = bool(table.kind[column] == ColumnKind.RENT), int(table.place[column])
            yield _Start(column, number, start_s, jobs, soon, choice, rents)


def _uses(table: Columns, starts: Sequence[_Start]) -> Iterator[tuple[int, int, float]]:
    """By start and row, what one job uses of what is shared with others."""
    rows, columns, coefficients = table.terms
    shared = np.isfinite([row.begins_h for row in table.rows])
    term_of = np.argsort(columns, kind="stable")
    begins = np.searchsorted(columns[term_of], np.arange(len(table.cost) + 1))
    for number, start in enumerate(starts):
        mine = term_of[begins[start.column] : begins[start.column + 1]]
        mine = mine[shared[rows[mine]]]
        for row, use in zip(rows[mine].tolist(), coefficients[mine].tolist(), strict=True):
            yield number, row, round(use, DIGITS)


def _priced(table: Columns, duals: Floats) -> list[int]:
    """Rows with a price: with them the next outlook begins."""
    dear = np.flatnonzero(np.abs(duals) > LEAST).tolist()
    return [row for row in dear if table.rows[row].serves < 0]
