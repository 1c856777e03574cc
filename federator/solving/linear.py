"""The linear stage: GLOP on the columns, then a dive that makes what is decided now whole.

The linear program is solved, the now-columns that are whole are kept, the most nearly whole of the others is fixed upwards, and so
on until all are whole or the dive's few steps are used up. Work is limited by iterations, never by a clock, so that a stage repeats
itself exactly.
"""

import math
from dataclasses import dataclass

import numpy as np
from ortools.linear_solver.python.model_builder_helper import (
    ModelBuilderHelper,
    ModelSolverHelper,
    SolveStatus,
)

from federator.planning.columns import Columns

ITERATIONS = 200_000
"""Simplex iterations of one solve."""
DIVE_STEPS = 12
"""Solves after the first."""
WHOLE = 1e-6
"""Distance from an integer that counts as none."""


@dataclass(frozen=True)
class LinearAnswer:
    """The relaxation's bound, prices per row, reduced costs per column, and the dive's last values."""

    bound_usd: float
    prices: dict[str, float]
    reduced: list[float]
    values: list[float]
    solves: int


def solve(columns: Columns) -> LinearAnswer | None:
    """Solve and dive; None when the limit was reached before the first solve was optimal (the stage did not complete)."""
    model = _model(columns)
    first = _relax(model, {})
    if first is None:
        return None
    bound, values, duals, reduced = first
    values, solves = _dive(model, columns, values)
    committed = set(columns.committed())
    whole = [float(math.floor(v + WHOLE)) if c in committed else v for c, v in enumerate(values)]
    prices = {
        r.name: round(dual, 6) for r, dual in zip(columns.rows, duals, strict=True) if abs(dual) > WHOLE
    }
    return LinearAnswer(bound, prices, reduced, whole, solves)


Bounds = dict[int, tuple[float, float]]


def _dive(model: ModelBuilderHelper, columns: Columns, values: list[float]) -> tuple[list[float], int]:
    """Fix now-columns from the most nearly whole on; return the last values and how many solves it took."""
    bounds: Bounds = {}
    solves = 1
    while solves <= DIVE_STEPS:
        broken = [c for c in columns.committed() if abs(values[c] - round(values[c])) > WHOLE]
        if not broken:
            break
        column = max(broken, key=lambda c: (values[c] - math.floor(values[c]), -columns.cost[c], -c))
        whole = {c: float(math.floor(values[c] + WHOLE)) for c in columns.committed()}
        up, down = float(math.ceil(values[column])), whole[column]
        bounds |= {c: (low, columns.upper[c]) for c, low in whole.items() if low and c not in bounds}
        bounds[column] = (up, columns.upper[column])
        answer = _relax(model, bounds)
        if answer is None:
            bounds[column] = (down, down)
            answer = _relax(model, bounds)
        solves += 1
        if answer is None:
            break
        values = answer[1]
    return values, solves


Relaxed = tuple[float, list[float], list[float], list[float]]


def _model(columns: Columns) -> ModelBuilderHelper:
    """The relaxation, built once; a dive only moves bounds."""
    model = ModelBuilderHelper()
    count = len(columns.cost)
    lower, upper, whole = np.zeros(count), np.array(columns.upper), np.zeros(count, dtype=bool)
    model.add_var_array_with_bounds(lower, upper, whole, "")  # type: ignore[arg-type]  # its stubs predate numpy 2
    model.set_objective_coefficients(list(range(count)), columns.cost)
    for row in columns.rows:
        constraint = model.add_linear_constraint()
        model.set_constraint_lower_bound(constraint, row.low)
        model.set_constraint_upper_bound(constraint, row.high)
        for column, coefficient in zip(row.columns, row.coefficients, strict=True):
            model.add_term_to_constraint(constraint, column, coefficient)
    model.set_maximize(False)
    return model


def _relax(model: ModelBuilderHelper, bounds: Bounds) -> Relaxed | None:
    """Objective, values, duals and reduced costs of the linear relaxation; None unless it is optimal."""
    for column, (low, high) in bounds.items():
        model.set_var_lower_bound(column, low)
        model.set_var_upper_bound(column, high)
    solver = ModelSolverHelper("glop")
    solver.set_solver_specific_parameters(f"max_number_of_iterations: {ITERATIONS}")
    solver.solve(model)
    if solver.status() != SolveStatus.OPTIMAL:
        return None
    values, duals, reduced = solver.variable_values(), solver.dual_values(), solver.reduced_costs()
    return solver.objective_value(), values.tolist(), duals.tolist(), reduced.tolist()
