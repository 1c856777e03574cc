"""The linear stage: GLOP on the columns, then a dive that makes what is decided now whole.

The linear program is solved, the now-columns that are whole are kept, the most nearly whole of the others is fixed upwards, and so
on until all are whole or the dive's few steps are used up. Work is limited by iterations, never by a clock, so that a stage repeats
itself exactly.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from ortools.math_opt.callback_pb2 import CallbackRegistrationProto
from ortools.math_opt.core.python import solver
from ortools.math_opt.model_parameters_pb2 import ModelSolveParametersProto
from ortools.math_opt.model_pb2 import ModelProto
from ortools.math_opt.model_update_pb2 import ModelUpdateProto
from ortools.math_opt.parameters_pb2 import (
    SOLVER_TYPE_GLOP,
    SolveParametersProto,
    SolverInitializerProto,
)
from ortools.math_opt.result_pb2 import TERMINATION_REASON_OPTIMAL
from pybind11_abseil.status import StatusNotOk

from federator.planning.linear.columns import Columns, Kind
from federator.solving import sifting
from federator.solving.packed import pack

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ITERATIONS = 200_000
"""Simplex iterations of one solve."""
DIVE_STEPS = 12
DIVE_COLUMNS = 120_000
"""Solves after the first: so many, and no more columns in all of them together."""
SIFTED_COLUMNS = 20_000
"""Beyond so many columns the relaxation is sifted: from the last turn's prices, some thousands of them are enough."""
SIFTED_NEAR = 2e-3
FEW_COLUMNS = 3_000
DIVED_PER_CLASS = 12
"""Of a model of more than so few columns, the dive takes each class's so many cheapest at the prices found, and those that are used."""
WHOLE = 1e-6
"""Distance from an integer that counts as none."""


@dataclass(frozen=True)
class LinearAnswer:
    """The relaxation's bound, prices per row, and what the dive came to.

    In `values` the committed columns are rounded down: whatever that leaves open is greedy's to fill. `ended` are the values before that.
    """

    bound_usd: float
    prices: dict[str, float]
    values: Floats
    ended: Floats
    solves: int


def solve(columns: Columns, warm: Mapping[str, float] | None = None) -> LinearAnswer | None:
    """Solve and dive; None when the limit was reached before the first solve was optimal (the stage did not complete).

    `warm`: prices by row's name, as an answer of the turn before had them.
    """
    if len(columns.cost) > SIFTED_COLUMNS:
        found = _sifted(columns, warm or {})
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


def relaxed(columns: Columns, warm: Mapping[str, float]) -> "Relaxed | None":
    """The relaxation alone, from prices by row's name; None where a limit was reached."""
    if len(columns.cost) <= SIFTED_COLUMNS:
        return Model(Matrix.of(columns)).relax()
    found = _sifted(columns, warm)
    return None if found is None else found[0]


def _sifted(columns: Columns, warm: Mapping[str, float]) -> tuple["Relaxed", float] | None:
    """The relaxation among the columns that matter, in terms of all of them; and a bound of the whole."""
    packed = pack(columns)
    names = [columns.rows[row].name for row in packed.row_origin.tolist()]
    if warm:
        start = np.array([abs(warm.get(name, 0.0)) for name in names])
    else:
        start = sifting.smoothed(packed, sifting.hours_of(columns, packed.row_origin))
    sifted = sifting.sift(packed, start, near=SIFTED_NEAR)
    if sifted is None:
        return None
    kept = np.sort(packed.origin[sifted.active])
    matrix = Matrix.of(columns)
    found = Model(matrix.only(kept)).relax()
    if found is None:
        return None
    values = np.zeros(len(columns.cost))
    values[kept] = found.values
    paid = np.bincount(
        matrix.column_of, matrix.coefficients * found.duals[matrix.row_of], minlength=len(columns.cost)
    )
    return Relaxed(found.objective, values, found.duals, columns.cost - paid), sifted.bound


def _dive(model: "Model | None", columns: Columns, first: "Relaxed") -> tuple[Floats, int]:
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


def _cheapest(columns: Columns, first: "Relaxed") -> Ints:
    """The columns that a dive is likely to use: what is used already, and each class's cheapest at these prices; and those of no class."""
    order = np.lexsort((first.reduced, columns.klass))
    klass = columns.klass[order]
    nth = np.arange(len(order)) - np.searchsorted(klass, klass)
    kept = first.values > WHOLE
    kept[order[nth < DIVED_PER_CLASS]] = True
    kept |= (columns.kind == Kind.SLACK) | (columns.kind == Kind.NEVER)
    return np.flatnonzero(kept)


def _steps(
    model: "Model", columns: Columns, committed: Ints, values: Floats, kept: Ints | None = None
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


class Relaxed(NamedTuple):
    """One solve: the objective, values and reduced costs by column, duals by row."""

    objective: float
    values: Floats
    duals: Floats
    reduced: Floats


class Matrix(NamedTuple):
    """A linear program in arrays: columns, rows, and coefficients row by row."""

    cost: Floats
    upper: Floats
    low: Floats
    high: Floats
    row_of: Ints
    column_of: Ints
    coefficients: Floats

    @classmethod
    def of(cls, columns: Columns) -> "Matrix":
        """All of a model."""
        low = np.array([row.low for row in columns.rows], dtype=np.float64)
        high = np.array([row.high for row in columns.rows], dtype=np.float64)
        return cls(columns.cost, columns.upper, low, high, *columns.terms)

    def only(self, kept: Ints) -> "Matrix":
        """The same rows over these columns alone."""
        number = np.full(len(self.cost), -1)
        number[kept] = np.arange(len(kept))
        used = number[self.column_of] >= 0
        column_of = number[self.column_of[used]]
        return Matrix(
            self.cost[kept],
            self.upper[kept],
            self.low,
            self.high,
            self.row_of[used],
            column_of,
            self.coefficients[used],
        )


class Model:
    """The relaxation, handed to GLOP once; who dives, or fixes what is decided, only moves bounds.

    It goes on from the last basis then, which takes some tens of iterations instead of some thousands. Presolve would give that up: a model that
    it has made smaller is another one each time.
    """

    def __init__(self, matrix: Matrix) -> None:
        """Hand the columns to the solver."""
        count = len(matrix.cost)
        model = ModelProto()
        model.variables.ids.extend(range(count))
        model.variables.lower_bounds.extend([0.0] * count)
        model.variables.upper_bounds.extend(matrix.upper.tolist())
        model.variables.integers.extend([False] * count)
        model.objective.linear_coefficients.ids.extend(range(count))
        model.objective.linear_coefficients.values.extend(matrix.cost.tolist())
        model.linear_constraints.ids.extend(range(len(matrix.low)))
        model.linear_constraints.lower_bounds.extend(matrix.low.tolist())
        model.linear_constraints.upper_bounds.extend(matrix.high.tolist())
        model.linear_constraint_matrix.row_ids.extend(matrix.row_of.tolist())
        model.linear_constraint_matrix.column_ids.extend(matrix.column_of.tolist())
        model.linear_constraint_matrix.coefficients.extend(matrix.coefficients.tolist())
        self._solver = solver.new(SOLVER_TYPE_GLOP, model, SolverInitializerProto())
        self._parameters = SolveParametersProto()
        self._parameters.glop.use_preprocessing = False
        self._parameters.glop.use_dual_simplex = True
        self._parameters.glop.max_number_of_iterations = ITERATIONS

    def relax(
        self, moved: Ints | None = None, lower: Floats | None = None, upper: Floats | None = None
    ) -> Relaxed | None:
        """Solve, with the bounds of some columns (in rising order) moved, too; None unless it is solved to the end."""
        if moved is not None and lower is not None and upper is not None:
            self._move(moved, lower, upper)
        try:
            found = self._solver.solve(
                self._parameters, ModelSolveParametersProto(), None, CallbackRegistrationProto(), None, None
            )
        except StatusNotOk:  # numbers that it cannot reckon with
            return None
        if found.termination.reason != TERMINATION_REASON_OPTIMAL:
            return None
        best = found.solutions[0]
        return Relaxed(
            best.primal_solution.objective_value,
            np.array(best.primal_solution.variable_values.values),
            np.array(best.dual_solution.dual_values.values),
            np.array(best.dual_solution.reduced_costs.values),
        )

    def _move(self, columns: Ints, lower: Floats, upper: Floats) -> None:
        update, ids = ModelUpdateProto(), columns.tolist()
        update.variable_updates.lower_bounds.ids.extend(ids)
        update.variable_updates.lower_bounds.values.extend(lower.tolist())
        update.variable_updates.upper_bounds.ids.extend(ids)
        update.variable_updates.upper_bounds.values.extend(upper.tolist())
        taken = self._solver.update(update)
        assert taken, "GLOP takes other bounds"
