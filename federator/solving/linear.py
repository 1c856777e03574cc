"""The linear stage: GLOP on the columns that matter, then a dive that makes what is decided now whole.

Prices, those of the turn before where there are any, say which columns matter (`column_generation`). In the model of these the now-columns that are
most nearly whole are fixed, upwards or downwards, whichever is nearer, a part of them at a time; the others move freely at each solve, until all are
whole. Work is limited by iterations, never by a clock, so that a stage repeats itself exactly.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from federator.planning.linear.columns import Columns
from federator.planning.world.free_hours import Floats, Ints
from federator.solving import column_generation
from federator.solving.column_generation import Generated
from federator.solving.packed import Packed, pack

NEAR = 2e-3
"""How near the relaxation's bound and value have to be to each other, as a part of the value."""
FEW_COLUMNS = 3_000
"""Up to so many columns all of them are looked at at once."""
PART = 3
"""At each solve of a dive one in so many of the columns that are not whole is fixed."""
DIVE_STEPS = 40
DIVE_COLUMNS = 120_000
"""Solves of a dive: so many, and no more columns in all of them together."""
HALF = 0.5 + 1e-6
"""A half is rounded upwards."""
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
    packed = pack(columns)
    found = relaxation(columns, packed, warm or {})
    if found is None:
        return None
    committed = np.zeros(len(columns.cost), dtype=bool)
    committed[columns.committed] = True
    ended, solves = _dive(packed, found, np.flatnonzero(committed[packed.origin[found.kept]]))
    dived = np.zeros(len(columns.cost))
    dived[packed.origin[found.kept]] = ended
    rounded = dived.copy()
    rounded[columns.committed] = np.floor(dived[columns.committed] + WHOLE)
    duals = packed.duals(found.latest, found.paid).tolist()
    prices = {
        row.name: round(dual, 6) for row, dual in zip(columns.rows, duals, strict=True) if abs(dual) > WHOLE
    }
    return LinearAnswer(found.bound, prices, rounded, dived, solves)


def relaxation(columns: Columns, packed: Packed, warm: Mapping[str, float]) -> Generated | None:
    """The relaxation alone, from prices by row's name; None where a limit was reached."""
    every = np.ones(len(columns.cost), dtype=bool) if len(columns.cost) <= FEW_COLUMNS else None
    if warm or every is not None:
        names = [columns.rows[row].name for row in packed.row_origin.tolist()]
        start = np.array([abs(warm.get(name, 0.0)) for name in names])
    else:
        start = column_generation.smoothed(packed, column_generation.hours_of(columns, packed.row_origin))
    return column_generation.solve(packed, start, every, near=NEAR)


def _dive(packed: Packed, found: Generated, committed: Ints) -> tuple[Floats, int]:
    """Make the committed columns whole, given by their numbers in the model: the values of all its columns at the end, and how many solves the whole took."""
    lower, upper, values = np.zeros(len(committed)), packed.upper[found.kept][committed], found.values
    steps, solves = min(DIVE_STEPS, DIVE_COLUMNS // max(1, len(found.kept))), 1
    while solves <= steps:
        now = values[committed]
        nearest = np.floor(now + HALF)
        broken = np.flatnonzero(np.abs(now - nearest) > WHOLE)
        if not len(broken):
            break
        # Whatever a solver answers, bounds stay bounds: one that is handed others is of no more use.
        lower, nearest = np.clip(np.floor(now + WHOLE), lower, upper), np.clip(nearest, lower, upper)
        broken = broken[np.argsort(np.abs(now - nearest)[broken], kind="stable")]
        fixed = broken[: max(1, len(broken) // PART)]
        tried = lower.copy(), upper.copy()
        tried[0][fixed] = tried[1][fixed] = nearest[fixed]
        answer = found.model.relax(committed, *tried)
        if answer is None:  # it does not fit: the first of them is left out
            tried = lower, upper.copy()
            tried[1][broken[0]] = lower[broken[0]]
            answer = found.model.relax(committed, *tried)
        solves += 1
        if answer is None:
            break
        (lower, upper), values = tried, answer.values
    return values, solves
