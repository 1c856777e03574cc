"""The linear stage: GLOP on the columns, then a dive that makes what is decided now whole.

The linear program is solved, the now-columns that are whole are kept, the most nearly whole of the others is fixed upwards, and so
on until all are whole or the dive's few steps are used up. Work is limited by iterations, never by a clock, so that a stage repeats
itself exactly.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from ortools.linear_solver.python.model_builder_helper import (
    ModelBuilderHelper,
    ModelSolverHelper,
    SolveStatus,
)

from federator.planning.columns import Columns

ITERATIONS = 200_000
"""Simplex iterations of one solve."""
MANY_COLUMNS = 60_000
"""Beyond so many the dual simplex is quicker than the primal one."""
DIVE_STEPS = 12
DIVE_COLUMNS = 120_000
"""Solves after the first: so many, and no more columns in all of them together."""
WHOLE = 1e-6
"""Distance from an integer that counts as none."""


@dataclass(frozen=True)
class LinearAnswer:
    """The relaxation's bound, prices per row, reduced costs per column, and what each step of the dive came to, last first.

    In `rounds` the committed columns are rounded down: whatever that leaves open is greedy's to fill.
    """

    bound_usd: float
    prices: dict[str, float]
    reduced: list[float]
    rounds: list[list[float]]

    @property
    def values(self) -> list[float]:
        """The dive's end."""
        return self.rounds[0]


def solve(columns: Columns) -> LinearAnswer | None:
    """Solve and dive; None when the limit was reached before the first solve was optimal (the stage did not complete)."""
    model = Model(columns)
    first = model.relax({})
    if first is None:
        return None
    committed = set(columns.committed())
    rounds = [
        [float(math.floor(v + WHOLE)) if c in committed else v for c, v in enumerate(step)]
        for step in reversed([first.values, *_dive(model, columns, first.values)])
    ]
    prices = {
        r.name: round(dual, 6) for r, dual in zip(columns.rows, first.duals, strict=True) if abs(dual) > WHOLE
    }
    return LinearAnswer(first.objective, prices, first.reduced, rounds)


Bounds = dict[int, tuple[float, float]]


def _dive(model: "Model", columns: Columns, values: list[float]) -> Iterator[list[float]]:
    """Make now-columns whole, the most nearly whole first; yield the values after each step."""
    committed = columns.committed()
    lower, upper = dict.fromkeys(committed, 0.0), {c: columns.upper[c] for c in committed}
    solves = 1
    steps = min(DIVE_STEPS, DIVE_COLUMNS // max(1, len(columns.cost)))
    while solves <= steps:
        broken = [c for c in committed if abs(values[c] - round(values[c])) > WHOLE]
        if not broken:
            break
        lower |= {c: max(lower[c], math.floor(values[c] + WHOLE)) for c in committed}
        broken.sort(key=lambda c: (math.floor(values[c]) - values[c], columns.cost[c], c))
        batch = broken[: max(1, len(broken) // (steps - solves + 1))]
        ups = {c: float(math.ceil(values[c])) for c in batch}
        answer = model.relax(_bounds(lower | ups, upper))
        if answer is not None:
            lower |= ups
        else:
            upper[batch[0]] = lower[batch[0]]
            answer = model.relax(_bounds(lower, upper))
        solves += 1
        if answer is None:
            break
        values = answer.values
        yield values


def _bounds(lower: dict[int, float], upper: dict[int, float]) -> Bounds:
    return {column: (low, max(low, upper[column])) for column, low in lower.items()}


class Relaxed(NamedTuple):
    """One solve: the objective, values and reduced costs by column, duals by row."""

    objective: float
    values: list[float]
    duals: list[float]
    reduced: list[float]


class Model:
    """The relaxation, built once; who dives, or fixes what is decided, only moves bounds."""

    def __init__(self, columns: Columns) -> None:
        """Hand the columns to the solver."""
        self._model = model = ModelBuilderHelper()
        count = len(columns.cost)
        dual = "true" if count > MANY_COLUMNS else "false"
        self._parameters = f"max_number_of_iterations: {ITERATIONS} use_dual_simplex: {dual}"
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

    def relax(self, bounds: Bounds) -> Relaxed | None:
        """Solve with these bounds moved, too; None unless it is solved to the end."""
        for column, (low, high) in bounds.items():
            self._model.set_var_lower_bound(column, low)
            self._model.set_var_upper_bound(column, high)
        solver = ModelSolverHelper("glop")
        solver.set_solver_specific_parameters(self._parameters)
        solver.solve(self._model)
        if solver.status() != SolveStatus.OPTIMAL:
            return None
        values, duals, reduced = solver.variable_values(), solver.dual_values(), solver.reduced_costs()
        return Relaxed(solver.objective_value(), values.tolist(), duals.tolist(), reduced.tolist())
