"""A relaxed plan of the whole line: which classes it starts now or rents for, what the others will use, and the prices of it all.

It is the certificate's model, solved from the last prices, with its values. That takes some seconds for 10,000 jobs, so no turn waits for it: it is
made aside, and turns use the last one (`planning.outlook`).
"""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from federator.model.outlook import Outlook
from federator.model.snapshot import JobView, Problem
from federator.planning import columns as cut
from federator.planning.columns import Columns, Kind
from federator.planning.objective import Evaluator
from federator.planning.outlook import LEAST, SHARED_ROWS
from federator.planning.problem import World
from federator.solving import linear
from federator.solving.packed import SERVES

AT_ONCE = (Kind.NOW, Kind.RENT, Kind.SHARE)
DIGITS = 6
MOST_CHOICES = 400_000
"""Classes × places of a line, up to which it is looked at: some 1.5 million columns, and 2 GB."""


def look_ahead(problem: Problem, counts: Sequence[int]) -> Outlook | None:
    """What to expect of a line of so many jobs like each of the problem's; None where it is too long for that, or a solve hit its limit."""
    jobs: list[JobView] = []
    number_of: dict[str, int] = {}
    for number, (job, count) in enumerate(zip(problem.snapshot.jobs, counts, strict=True)):
        for each in range(count):
            name = f"{job.id}.{each}"
            number_of[name] = number
            jobs.append(replace(job, id=name, behind_s=0.0))
    world = World(replace(problem, snapshot=replace(problem.snapshot, jobs=tuple(jobs)), outside={}))
    evaluator = Evaluator(world)
    if not jobs or len(world.places) * len(counts) > MOST_CHOICES:
        return None
    table = cut.build(evaluator)
    found = linear.relaxed(table, problem.warm_prices)
    return None if found is None else _told(table, found, number_of, world.now)


def _told(table: Columns, found: linear.Relaxed, number_of: Mapping[str, int], taken_at: float) -> Outlook:
    used = np.flatnonzero((found.values > LEAST) & (table.klass >= 0) & (table.kind != Kind.NEVER))
    used = used[np.lexsort((used, table.start_s[used], table.klass[used]))]
    at_once = np.isin(table.kind[used], AT_ONCE).tolist()
    starts: list[tuple[int, float, float, bool]] = []
    sources: list[int] = []
    for column, soon in zip(used.tolist(), at_once, strict=True):
        members = table.classes[table.klass[column]]
        whose: dict[int, int] = {}
        for job in members:
            whose[number_of[job.id]] = whose.get(number_of[job.id], 0) + 1
        for number, count in whose.items():
            share = float(found.values[column]) * count / len(members)
            start_s = round(float(table.start_s[column]), DIGITS)
            starts.append((number, start_s, round(share, DIGITS), soon))
            sources.append(column)
    rows, columns, coefficients = table.terms
    names = [row.name for row in table.rows]
    shared = np.array([name.startswith(SHARED_ROWS) for name in names], dtype=bool)
    term_of = np.argsort(columns, kind="stable")
    begins = np.searchsorted(columns[term_of], np.arange(len(table.cost) + 1))
    uses: list[tuple[int, int, float]] = []
    for start, column in enumerate(sources):
        mine = term_of[begins[column] : begins[column + 1]]
        mine = mine[shared[rows[mine]]]
        uses += [
            (start, row, round(use, DIGITS))
            for row, use in zip(rows[mine].tolist(), coefficients[mine].tolist(), strict=True)
        ]
    wanted = sorted({row for _, row, _ in uses} | set(_priced(names, found)))
    place = {row: number for number, row in enumerate(wanted)}
    return Outlook(
        taken_at=taken_at,
        klass=tuple(number for number, _, _, _ in starts),
        start_s=tuple(at_s for _, at_s, _, _ in starts),
        jobs=tuple(count for _, _, count, _ in starts),
        now=tuple(soon for _, _, _, soon in starts),
        start=tuple(start for start, _, _ in uses),
        row=tuple(place[row] for _, row, _ in uses),
        use=tuple(use for _, _, use in uses),
        rows=tuple(names[row] for row in wanted),
        usd=tuple(round(abs(float(found.duals[row])), DIGITS) for row in wanted),
    )


def _priced(names: Sequence[str], found: linear.Relaxed) -> list[int]:
    """Rows with a price: with them the next outlook begins."""
    dear = np.flatnonzero(np.abs(found.duals) > LEAST).tolist()
    return [row for row in dear if not names[row].startswith(SERVES)]
