"""The one door to OR-Tools: a linear program in arrays, and GLOP, which solves it and solves it again with other bounds.

OR-Tools' own Python model takes columns one by one; whole arrays go into its messages (`ModelProto`).
"""

from typing import NamedTuple

import numpy as np
from ortools.math_opt.callback_pb2 import CallbackRegistrationProto
from ortools.math_opt.core.python import solver
from ortools.math_opt.model_parameters_pb2 import ModelSolveParametersProto
from ortools.math_opt.model_pb2 import ModelProto
from ortools.math_opt.model_update_pb2 import ModelUpdateProto
from ortools.math_opt.parameters_pb2 import SOLVER_TYPE_GLOP, SolveParametersProto, SolverInitializerProto
from ortools.math_opt.result_pb2 import TERMINATION_REASON_OPTIMAL
from pybind11_abseil.status import StatusNotOk

from federator.planning.world.free_hours import Floats, Ints

ITERATIONS = 200_000
"""Simplex iterations of one solve."""


class Relaxed(NamedTuple):
    """One solve: the objective, values by column, duals by row."""

    objective: float
    values: Floats
    duals: Floats


class Matrix(NamedTuple):
    """A linear program in arrays: columns, rows, and coefficients row by row."""

    cost: Floats
    upper: Floats
    low: Floats
    high: Floats
    row_of: Ints
    column_of: Ints
    coefficients: Floats


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
        )

    def _move(self, columns: Ints, lower: Floats, upper: Floats) -> None:
        update, ids = ModelUpdateProto(), columns.tolist()
        update.variable_updates.lower_bounds.ids.extend(ids)
        update.variable_updates.lower_bounds.values.extend(lower.tolist())
        update.variable_updates.upper_bounds.ids.extend(ids)
        update.variable_updates.upper_bounds.values.extend(upper.tolist())
        taken = self._solver.update(update)
        assert taken, "GLOP takes other bounds"
