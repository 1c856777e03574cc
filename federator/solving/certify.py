"""How good a plan's decisions of now are: the best fluid future that they leave, over a bound that no plan of the model can beat.

The bound is the linear relaxation's, and it is proven by its dual prices with plain arithmetic: whatever prices a solver answers, the
sum made here is below every plan of the model. So a certificate needs no trust in the solver that found the prices.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from federator.planning import columns as cut
from federator.planning.columns import Columns
from federator.planning.objective import Evaluator
from federator.solving import linear

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Certified:
    """A proven bound, what the decisions of now come to at best, both in USD of the model, and the model's size."""

    bound_usd: float
    completed_usd: float | None
    columns: int
    rows: int

    @property
    def gap(self) -> float | None:
        """The decision gap: 0.01 is one per cent. None where it is not defined."""
        if self.completed_usd is None or self.bound_usd <= 0.0:
            return 0.0 if self.completed_usd is not None and self.completed_usd <= self.bound_usd else None
        return max(0.0, self.completed_usd / self.bound_usd - 1.0)


def certify(evaluator: Evaluator, *decisions: Mapping[str, int]) -> tuple[Certified, ...] | None:
    """A certificate for each set of starts (job to place; an offer is rented); None when the model was not solved within the limit."""
    table = cut.build(evaluator)
    model = linear.Model(table)
    first = model.relax({})
    if first is None:
        return None
    bound = proven_bound(table, first.duals)
    found = []
    for starts in decisions:
        fixed = _fixed(table, starts)
        best = None if fixed is None else model.relax(fixed)
        completed = None if best is None else round(best.objective, 6)
        found.append(Certified(round(bound, 6), completed, len(table.cost), len(table.rows)))
    return tuple(found)


def proven_bound(table: Columns, prices: Floats | Sequence[float]) -> float:
    """What no plan of the model costs less than: Lagrange's sum at these row prices."""
    price = np.asarray(prices, dtype=np.float64)
    limits = np.where(price > 0, [row.low for row in table.rows], [row.high for row in table.rows])
    price = np.where(np.isfinite(limits), price, 0.0)
    rows, columns, coefficients = table.terms
    reduced = table.cost - np.bincount(columns, coefficients * price[rows], len(table.cost))
    total = np.sum(price[price != 0.0] * limits[price != 0.0])
    return float(total + np.sum(np.minimum(reduced, 0.0) * table.upper))


def _fixed(table: Columns, starts: Mapping[str, int]) -> dict[int, tuple[float, float]] | None:
    """The committed columns at what these starts make them; None where the model has no column for a start."""
    committed = table.committed
    values = table.known(starts)[committed]
    if round(float(values.sum())) != len(starts):
        return None
    return {column: (value, value) for column, value in zip(committed.tolist(), values.tolist(), strict=True)}
