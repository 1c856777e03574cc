"""The linear stage: GLOP on the columns, then a dive that makes what is decided now whole.

The linear program is solved, the now-columns that are whole are kept, the most nearly whole of the others is fixed upwards, and so
on until all are whole or the dive's few steps are used up. Work is limited by iterations, never by a clock, so that a stage repeats
itself exactly.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from federator.planning.linear.columns import ColumnKind, Columns
from federator.planning.linear.terms import Floats, Ints
from federator.solving import column_generation
from federator.solving.glop import Matrix, Model, Relaxed
from federator.solving.packed import pack

DIVE_STEPS = 12
DIVE_COLUMNS = 120_000
"""Solves after the first: so many, and no more columns in all of them together."""
GENERATED_COLUMNS = 20_000
"""Beyond so many columns the relaxation is found by generating columns: from the last turn's prices, some thousands of them are enough."""
GENERATED_NEAR = 2e-3
FEW_COLUMNS = 3_000
DIVED_PER_CLASS = 12
"""Of a model of more than so few columns, the dive takes each class's so many cheapest at the prices found, and those that are used."""
WHOLE = 1e-6
"""Distance from an integer that counts as none."""


@dataclass(frozen=True)
class LinearAnswer:
    """The relaxation's bound, prices per row, and what the dive came to.

    In `rounded` the committed columns are rounded down: whatever that leaves open is greedy's to fill. `dived` are the columns before that.
    """

    bound_usd: float
    prices: dict[str, float]
    rounded: Floats
    dived: Floats
    solves: int


def solve(columns: Columns, warm: Mapping[str, float] | None = None) -> LinearAnswer | None:
    """Solve and dive; None when the limit was reached before the first solve was optimal (the stage did not complete).

    `warm`: prices by row's name, as an answer of the turn before had them.
    """
    if len(columns.cost) > GENERATED_COLUMNS:
        found = _generated(columns, warm or {})
        if found is None:
            return None
        first, bound_usd = found
        ended, solves = _dive(None, columns, first)
    else:
        model = Model(Matrix.of(columns))
        answer = model.relax()
        if answer is None:
            return None
        first, bound_usd = answer, answer.objective
        ended, solves = _dive(model, columns, first)
    values = ended.copy()
    values[columns.committed] = np.floor(ended[columns.committed] + WHOLE)
    prices = {
        row.name: round(dual, 6)
        for row, dual in zip(columns.rows, first.duals.tolist(), strict=True)
        if abs(dual) > WHOLE
    }
    return LinearAnswer(bound_usd, prices, values, ended, solves)


def relaxed(columns: Columns, warm: Mapping[str, float]) -> Relaxed | None:
    """The relaxation alone, from prices by row's name; None where a limit was reached."""
    if len(columns.cost) <= GENERATED_COLUMNS:
        return Model(Matrix.of(columns)).relax()
    found = _generated(columns, warm)
    return None if found is None else found[0]


def _generated(columns: Columns, warm: Mapping[str, float]) -> tuple[Relaxed, float] | None:
    """The relaxation among the columns that matter, in terms of all of them; and a bound of the whole."""
    packed = pack(columns)
    names = [columns.rows[row].name for row in packed.row_origin.tolist()]
    if warm:
        start = np.array([abs(warm.get(name, 0.0)) for name in names])
    else:
        start = column_generation.smoothed(packed, column_generation.hours_of(columns, packed.row_origin))
    found_by = column_generation.solve(packed, start, near=GENERATED_NEAR)
    if found_by is None:
        return None
    kept = np.sort(packed.origin[found_by.active])
    matrix = Matrix.of(columns)
    found = Model(matrix.only(kept)).relax()
    if found is None:
        return None
    values = np.zeros(len(columns.cost))
    values[kept] = found.values
    paid = np.bincount(
        matrix.column_of, matrix.coefficients * found.duals[matrix.row_of], minlength=len(columns.cost)
    )
    return Relaxed(found.objective, values, found.duals, columns.cost - paid), found_by.bound


def _dive(model: Model | None, columns: Columns, first: Relaxed) -> tuple[Floats, int]:
    """Make now-columns whole, the most nearly whole first: the values of all columns at the end, and how many solves the whole took."""
    if model is not None and len(columns.cost) <= FEW_COLUMNS:
        return _steps(model, columns, columns.committed, first.values)
    kept = _cheapest(columns, first)
    smaller = Model(Matrix.of(columns).only(kept))
    again = smaller.relax()
    if again is None:
        return first.values, 1
    committed = np.flatnonzero(np.isin(kept, columns.committed, assume_unique=True))
    values, solves = _steps(smaller, columns, committed, again.values, kept)
    every = np.zeros(len(columns.cost))
    every[kept] = values
    return every, solves + 1


def _cheapest(columns: Columns, first: Relaxed) -> Ints:
    """The columns that a dive is likely to use: what is used already, and each class's cheapest at these prices; and those of no class."""
    order = np.lexsort((first.reduced, columns.klass))
    klass = columns.klass[order]
    nth = np.arange(len(order)) - np.searchsorted(klass, klass)
    kept = first.values > WHOLE
    kept[order[nth < DIVED_PER_CLASS]] = True
    kept |= (columns.kind == ColumnKind.SLACK) | (columns.kind == ColumnKind.NEVER)
    return np.flatnonzero(kept)


def _steps(
    model: Model, columns: Columns, committed: Ints, values: Floats, kept: Ints | None = None
) -> tuple[Floats, int]:
    """The dive in a model of these columns (None: of all); `committed` are their numbers in it."""
    cost, upper = (each if kept is None else each[kept] for each in (columns.cost, columns.upper))
    lower, upper = np.zeros(len(committed)), upper[committed].copy()
    solves = 1
    steps = min(DIVE_STEPS, DIVE_COLUMNS // max(1, len(cost)))
    while solves <= steps:
        now = values[committed]
        lower = np.maximum(lower, np.floor(now + WHOLE))
        broken = np.flatnonzero(np.abs(now - np.rint(now)) > WHOLE)
        if not len(broken):
            break
        broken = broken[np.lexsort((broken, cost[committed[broken]], np.floor(now[broken]) - now[broken]))]
        batch = broken[: max(1, len(broken) // (steps - solves + 1))]
        raised = lower.copy()
        raised[batch] = np.ceil(now[batch])
        answer = model.relax(committed, raised, np.maximum(raised, upper))
        if answer is not None:
            lower = raised
        else:
            upper[batch[0]] = lower[batch[0]]
            answer = model.relax(committed, lower, np.maximum(lower, upper))
        solves += 1
        if answer is None:
            break
        values = answer.values
    return values, solves
