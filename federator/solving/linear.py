"""The linear stage: GLOP on the columns, then a dive that makes what is decided now whole.

The linear program is solved, the now-columns that are whole are kept, the most nearly whole of the others is fixed upwards, and so
on until all are whole or the dive's few steps are used up. Work is limited by iterations, never by a clock, so that a stage repeats
itself exactly.
"""

from collections.abc import Iterator
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

from federator.planning.columns import Columns

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ITERATIONS = 200_000
"""Simplex iterations of one solve."""
DIVE_STEPS = 12
DIVE_COLUMNS = 120_000
"""Solves after the first: so many, and no more columns in all of them together."""
WHOLE = 1e-6
"""Distance from an integer that counts as none."""


@dataclass(frozen=True)
class LinearAnswer:
    """The relaxation's bound, prices per row, reduced costs per column, and what each step of the dive came to, last first.

    In `rounds` the committed columns are rounded down: whatever that leaves open is greedy's to fill. `ended` is the last of them as it was.
    """

    bound_usd: float
    prices: dict[str, float]
    reduced: Floats
    rounds: list[Floats]
    ended: Floats

    @property
    def values(self) -> Floats:
        """The dive's end."""
        return self.rounds[0]


def solve(columns: Columns) -> LinearAnswer | None:
    """Solve and dive; None when the limit was reached before the first solve was optimal (the stage did not complete)."""
    model = Model(columns)
    first = model.relax({})
    if first is None:
        return None
    steps = [first.values, *_dive(model, columns, first.values)]
    rounds = []
    for step in reversed(steps):
        values = step.copy()
        values[columns.committed] = np.floor(step[columns.committed] + WHOLE)
        rounds.append(values)
    prices = {
        row.name: round(dual, 6)
        for row, dual in zip(columns.rows, first.duals.tolist(), strict=True)
        if abs(dual) > WHOLE
    }
    return LinearAnswer(first.objective, prices, first.reduced, rounds, steps[-1])


Bounds = dict[int, tuple[float, float]]


def _dive(model: "Model", columns: Columns, values: Floats) -> Iterator[Floats]:
    """Make now-columns whole, the most nearly whole first; yield the values after each step."""
    committed = columns.committed
    lower = np.zeros(len(committed))
    upper = columns.upper[committed].copy()
    solves = 1
    steps = min(DIVE_STEPS, DIVE_COLUMNS // max(1, len(columns.cost)))
    while solves <= steps:
        now = values[committed]
        lower = np.maximum(lower, np.floor(now + WHOLE))
        broken = np.flatnonzero(np.abs(now - np.rint(now)) > WHOLE)
        if not len(broken):
            break
        broken = broken[
            np.lexsort((broken, columns.cost[committed[broken]], np.floor(now[broken]) - now[broken]))
        ]
        batch = broken[: max(1, len(broken) // (steps - solves + 1))]
        raised = lower.copy()
        raised[batch] = np.ceil(now[batch])
        answer = model.relax(_bounds(committed, raised, upper))
        if answer is not None:
            lower = raised
        else:
            upper[batch[0]] = lower[batch[0]]
            answer = model.relax(_bounds(committed, lower, upper))
        solves += 1
        if answer is None:
            break
        values = answer.values
        yield values


def _bounds(committed: Ints, lower: Floats, upper: Floats) -> Bounds:
    limits = zip(lower.tolist(), np.maximum(lower, upper).tolist(), strict=True)
    return dict(zip(committed.tolist(), limits, strict=True))


class Relaxed(NamedTuple):
    """One solve: the objective, values and reduced costs by column, duals by row."""

    objective: float
    values: Floats
    duals: Floats
    reduced: Floats


class Model:
    """The relaxation, handed to GLOP once; who dives, or fixes what is decided, only moves bounds.

    It goes on from the last basis then, which takes some tens of iterations instead of some thousands. Presolve would give that up: a model that
    it has made smaller is another one each time.
    """

    def __init__(self, columns: Columns) -> None:
        """Hand the columns to the solver."""
        self._columns = len(columns.cost)
        model, every = ModelProto(), range(self._columns)
        model.variables.ids.extend(every)
        model.variables.lower_bounds.extend([0.0] * self._columns)
        model.variables.upper_bounds.extend(columns.upper.tolist())
        model.variables.integers.extend([False] * self._columns)
        model.objective.linear_coefficients.ids.extend(every)
        model.objective.linear_coefficients.values.extend(columns.cost.tolist())
        model.linear_constraints.ids.extend(range(len(columns.rows)))
        model.linear_constraints.lower_bounds.extend([row.low for row in columns.rows])
        model.linear_constraints.upper_bounds.extend([row.high for row in columns.rows])
        rows, entries, coefficients = columns.terms
        model.linear_constraint_matrix.row_ids.extend(rows.tolist())
        model.linear_constraint_matrix.column_ids.extend(entries.tolist())
        model.linear_constraint_matrix.coefficients.extend(coefficients.tolist())
        self._solver = solver.new(SOLVER_TYPE_GLOP, model, SolverInitializerProto())
        self._parameters = SolveParametersProto()
        self._parameters.glop.use_preprocessing = False
        self._parameters.glop.use_dual_simplex = True
        self._parameters.glop.max_number_of_iterations = ITERATIONS

    def relax(self, bounds: Bounds) -> Relaxed | None:
        """Solve with these bounds moved, too; None unless it is solved to the end."""
        if bounds:
            self._move(bounds)
        found = self._solver.solve(
            self._parameters, ModelSolveParametersProto(), None, CallbackRegistrationProto(), None, None
        )
        if found.termination.reason != TERMINATION_REASON_OPTIMAL:
            return None
        best = found.solutions[0]
        return Relaxed(
            best.primal_solution.objective_value,
            np.array(best.primal_solution.variable_values.values),
            np.array(best.dual_solution.dual_values.values),
            np.array(best.dual_solution.reduced_costs.values),
        )

    def _move(self, bounds: Bounds) -> None:
        moved, columns = ModelUpdateProto(), sorted(bounds)
        lower, upper = moved.variable_updates.lower_bounds, moved.variable_updates.upper_bounds
        lower.ids.extend(columns)
        lower.values.extend([bounds[column][0] for column in columns])
        upper.ids.extend(columns)
        upper.values.extend([bounds[column][1] for column in columns])
        taken = self._solver.update(moved)
        assert taken, "GLOP takes other bounds"
