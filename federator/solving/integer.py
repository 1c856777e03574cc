"""The integer stage: CP-SAT on the columns that can still be part of a better plan.

What the linear stage's prices prove too dear is left out (a column whose reduced cost exceeds the distance between the bound and the
best known plan). One worker, a fixed seed and a deterministic limit: the same problem gives the same answer on the same build.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from ortools.sat.python import cp_model

from federator.planning.linear.columns import Columns
from federator.planning.linear.growing import Row
from federator.solving.linear import LinearAnswer

Floats = NDArray[np.float64]

DETERMINISTIC_LIMIT = 0.5
"""CP-SAT's own unit of work, near a second of one core for one."""
MAX_COLUMNS = 6_000
"""Beyond this the stage is left out: within its limit it has not bettered a plan of that size yet, and costs as much as all else."""
CENTS = 10_000
"""Objective units per USD: a hundredth of a cent."""
HOURS = 1_000
"""Units per GPU-hour and per USD in rows."""
SLACK_USD = 1.0
"""Columns this much dearer than the gap are kept: the evaluator and the model do not agree to the cent."""


@dataclass(frozen=True)
class IntegerAnswer:
    """Values per column (whole), the objective and bound of the integer model, and whether it was proven."""

    values: Floats
    objective_usd: float
    bound_usd: float
    proven: bool
    branches: int


class Known(NamedTuple):
    """The best plan so far: what it costs, and the point of the model that it stands for."""

    usd: float
    values: Floats


def solve(columns: Columns, linear: LinearAnswer, known: Known, seed: int) -> IntegerAnswer | str:
    """The best whole plan found within the limit; or why there is none: the model is too large for this stage, or too hard."""
    gap = max(0.0, known.usd - linear.bound_usd) + SLACK_USD
    used = (linear.values != 0.0) | (known.values != 0.0)
    kept = np.flatnonzero((linear.reduced <= gap) | used).tolist()
    if len(kept) > MAX_COLUMNS:
        return f"left out: {len(kept)} columns, it takes {MAX_COLUMNS}"
    model = cp_model.CpModel()
    variables = {c: model.new_int_var(0, math.floor(columns.upper[c] + 1e-9), f"c{c}") for c in kept}
    for row in columns.rows:
        _add_row(model, variables, row)
    model.minimize(sum(variables[c] * round(columns.cost[c] * CENTS) for c in kept))
    for column in kept:
        model.add_hint(variables[column], math.floor(known.values[column] + 1e-9))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    solver.parameters.max_deterministic_time = DETERMINISTIC_LIMIT
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return "no whole plan within the limit"
    values = np.zeros(len(columns.cost))
    for column, variable in variables.items():
        values[column] = solver.value(variable)
    return IntegerAnswer(
        values=values,
        objective_usd=solver.objective_value / CENTS,
        bound_usd=solver.best_objective_bound / CENTS,
        proven=status == cp_model.OPTIMAL,
        branches=solver.num_branches,
    )


def _add_row(model: cp_model.CpModel, variables: dict[int, cp_model.IntVar], row: Row) -> None:
    """One row in whole numbers: coefficients rounded up and limits down, so that what is feasible here is feasible there."""
    terms = [
        (variables[c], value)
        for c, value in zip(row.columns.tolist(), row.coefficients.tolist(), strict=True)
        if c in variables
    ]
    if not terms:
        return
    exact = all(float(value).is_integer() for _, value in terms)
    scale = 1 if exact else HOURS
    whole = [math.ceil(value * scale - 1e-6) for _, value in terms]
    expression = cp_model.LinearExpr.weighted_sum([variable for variable, _ in terms], whole)
    if math.isfinite(row.low):
        model.add(expression >= math.ceil(row.low * scale - 1e-6))
    if math.isfinite(row.high):
        model.add(expression <= math.floor(row.high * scale + 1e-6))
