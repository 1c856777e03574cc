"""How good a plan's decisions of now are: the best fluid future that they leave, over a bound that no plan of the model can beat; and what no plan at all costs less than.

The model expects who starts later some minutes into a bucket, where a schedule may start him at once, so a plan may be cheaper than all of the model: its bound judges decisions,
which are priced by it as well, and not plans. What holds for each plan, as the evaluator prices it, is far lower (`least`).

The model's bound is near the linear relaxation's, and it is proven by prices with plain arithmetic: whatever prices a solver answers, the sum made here is
below every plan of the model. So a certificate needs no trust in the solver that found the prices. The best future is a plan of the relaxation that was
found among some of its columns, so it may be a little too dear, never too cheap: the gap is at most what is told. How both are found quickly: `column_generation`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from federator.planning.linear import columns as cut
from federator.planning.linear.columns import Columns
from federator.planning.scheduling.objective import Evaluator
from federator.planning.world.free_hours import Floats
from federator.solving import column_generation, parts
from federator.solving.least import least_usd
from federator.solving.packed import pack

ALL_COLUMNS = 20_000
"""Up to so many columns, all of them are looked at at once: that is exact, and takes a tenth of a second."""


@dataclass(frozen=True)
class Certified:
    """What no plan costs less than, and what none of the model does; the best plan known of the model where all is fluid; what the decisions of now come to at best; the model's size. USD."""

    bound_usd: float
    model_usd: float
    relaxed_usd: float
    completed_usd: float | None
    columns: int
    rows: int

    @property
    def gap(self) -> float | None:
        """The decision gap: 0.01 is one per cent. None where it is not defined."""
        return gap_of(self.model_usd, self.completed_usd)


def gap_of(model_usd: float, completed_usd: float | None) -> float | None:
    """How far a completion is above the model's bound, as a share of that; None where there is none to tell."""
    if completed_usd is None or model_usd <= 0.0:
        return 0.0 if completed_usd is not None and completed_usd <= model_usd else None
    return max(0.0, completed_usd / model_usd - 1.0)


def certify(evaluator: Evaluator, *decisions: Mapping[str, int]) -> tuple[Certified, ...] | None:
    """A certificate for each set of starts (job to place; an offer is rented); None when the model was not solved within the limit."""
    judged = (parts.certify if parts.too_long(evaluator) else _whole)(evaluator, decisions)
    if judged is None:
        return None
    model = round(judged.bound, 6), round(judged.value, 6)
    least, size = round(least_usd(evaluator), 6), (judged.columns, judged.rows)
    completed = (None if usd is None else round(usd, 6) for usd in judged.completed)
    return tuple(Certified(least, *model, usd, *size) for usd in completed)


def _whole(evaluator: Evaluator, decisions: Sequence[Mapping[str, int]]) -> parts.Judged | None:
    """By the model in one piece."""
    table = cut.build(evaluator, in_use=True)
    packed = pack(table)
    if len(table.cost) <= ALL_COLUMNS:
        start, every = np.zeros(len(packed.limit)), np.ones(len(table.cost), dtype=bool)
        first = column_generation.solve(packed, start, every)
    else:
        start = column_generation.smoothed(packed, column_generation.hours_of(table, packed.row_origin))
        first = column_generation.solve(packed, start)
    if first is None:
        return None
    bound = proven_bound(table, packed.duals(first.prices, first.marginal))
    active, completed = np.zeros(len(table.cost), dtype=bool), []
    active[first.kept] = True
    for starts in decisions:
        values, best = _fixed(table, starts), None
        if values is not None:
            best = column_generation.solve(packed.fixed(values, table.committed), first.prices, active)
        completed.append(None if best is None else best.value)
    return parts.Judged(bound, first.value, completed, len(table.cost), len(table.rows))


def proven_bound(table: Columns, prices: Floats | Sequence[float]) -> float:
    """What no plan of the model costs less than: Lagrange's sum at these row prices."""
    price = np.asarray(prices, dtype=np.float64)
    limits = np.where(price > 0, [row.low for row in table.rows], [row.high for row in table.rows])
    price = np.where(np.isfinite(limits), price, 0.0)
    rows, columns, coefficients = table.terms
    reduced = table.cost - np.bincount(columns, coefficients * price[rows], len(table.cost))
    total = np.sum(price[price != 0.0] * limits[price != 0.0])
    return float(total + np.sum(np.minimum(reduced, 0.0) * table.upper))


def _fixed(table: Columns, starts: Mapping[str, int]) -> Floats | None:
    """What these starts make the committed columns; None where the model has no column for a start."""
    values = table.known(starts)[table.committed]
    return values if round(float(values.sum())) == len(starts) else None
