"""The priced problem in the form that prices are sought in: classes that share out their jobs over columns, and rows of what columns use.

Every row but a class's own is brought to `use ≤ limit`, so that a price is never negative. What no plan can get below is then a sum over classes at
any prices (`bound`): no solver has to be trusted for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from federator.planning.linear.columns import ColumnKind, Columns
from federator.planning.world.free_hours import Floats, Ints


class Answer(NamedTuple):
    """What classes would do at some prices: `bound` in USD, and what each class pays for its last job."""

    bound: float
    marginal: Floats


@dataclass(frozen=True)
class Packed:
    """Columns lie class by class; `klass` of those that belong to none is the number of classes. `base_usd` is what is decided already."""

    cost: Floats
    upper: Floats
    klass: Ints
    count: Floats
    """Jobs of each class."""
    column_of: Ints
    row_of: Ints
    use: Floats
    """Terms, column by column: which column, which row, how much of it."""
    limit: Floats
    """Of each row."""
    origin: Ints
    """The columns' numbers in `Columns`,"""
    row_origin: Ints
    """and the rows'."""
    sign: Floats
    """1, or -1 for a row that asks for at least so much."""
    serves: Ints
    """Rows of `Columns` that serve the classes, class by class,"""
    rows: int
    """and how many it has in all."""
    never: Ints
    """Columns of jobs that never run: with them there is always a plan."""
    base_usd: float = 0.0

    @cached_property
    def first(self) -> Ints:
        """Where the columns of each class begin, and where those of none do."""
        return np.searchsorted(self.klass, np.arange(len(self.count) + 1))

    @cached_property
    def ends(self) -> Ints:
        """Where the terms of each column begin, and where all end."""
        return np.searchsorted(self.column_of, np.arange(len(self.cost) + 1))

    def reduced(self, prices: Floats) -> Floats:
        """What a job costs in each column with what it uses."""
        paid = np.bincount(self.column_of, prices[self.row_of] * self.use, minlength=len(self.cost))
        return self.cost + paid

    def answer(self, prices: Floats, reduced: Floats | None = None) -> Answer:
        """The bound at these prices: every class's jobs in its cheapest columns, as far as their upper limits go."""
        paid = self.reduced(prices) if reduced is None else reduced
        free = self.first[-1]
        total = float(np.minimum(paid[free:], 0.0) @ self.upper[free:]) - float(prices @ self.limit)
        paid = np.where(self.upper[:free] > 0.0, paid[:free], np.inf)
        best = np.minimum.reduceat(paid, self.first[:-1]) if free else np.empty(0)
        cheapest = (paid == best[self.klass[:free]]) & (self.upper[:free] >= self.count[self.klass[:free]])
        whole = np.zeros(len(self.count), dtype=bool)
        whole[self.klass[:free][cheapest]] = True
        whole |= self.count <= 0.0
        served = self.count > 0.0
        total += float(best[whole & served] @ self.count[whole & served])
        marginal = best.copy()
        some = np.flatnonzero(~whole[self.klass[:free]])
        if len(some):
            value, last = self._filled(paid, some)
            total += value
            marginal[~whole] = last[~whole]
        return Answer(total + self.base_usd, marginal)

    def _filled(self, paid: Floats, some: Ints) -> tuple[float, Floats]:
        """Classes whose cheapest column is not for all of them: the next cheapest after it."""
        order = some[np.lexsort((paid[some], self.klass[some]))]
        klass, room = self.klass[order], self.upper[order]
        begins = np.flatnonzero(np.r_[True, klass[1:] != klass[:-1]])
        running = np.cumsum(room)
        before = running - room
        before -= np.repeat(before[begins], np.diff(np.r_[begins, len(order)]))
        taken = np.clip(self.count[klass] - before, 0.0, room)
        used = taken > 0.0
        last = np.full(len(self.count), -np.inf)
        np.maximum.at(last, klass[used], paid[order][used])
        return float(paid[order][used] @ taken[used]), last

    def fixed(self, values: Floats, committed: Ints) -> "Packed":
        """What is left once the committed columns (by their numbers in `Columns`) are at these values and nothing else."""
        place = np.empty_like(self.origin)
        place[self.origin] = np.arange(len(self.origin))
        upper, decided = self.upper.copy(), np.zeros(len(self.cost))
        upper[place[committed]], decided[place[committed]] = 0.0, values
        spent = np.bincount(self.row_of, decided[self.column_of] * self.use, minlength=len(self.limit))
        taken = np.bincount(self.klass, decided, minlength=len(self.count) + 1)[: len(self.count)]
        return replace(
            self,
            upper=upper,
            count=self.count - taken,
            limit=self.limit - spent,
            base_usd=self.base_usd + float(self.cost @ decided),
        )

    def only(self, columns: Ints) -> "Packed":
        """The same with these columns alone, which are in rising order; `origin` is then by what they were here."""
        number = np.full(len(self.cost), -1)
        number[columns] = np.arange(len(columns))
        mine = number[self.column_of] >= 0
        return replace(
            self,
            cost=self.cost[columns],
            upper=self.upper[columns],
            klass=self.klass[columns],
            column_of=number[self.column_of[mine]],
            row_of=self.row_of[mine],
            use=self.use[mine],
            origin=np.arange(len(columns)),
            never=number[self.never][number[self.never] >= 0],
        )

    def duals(self, prices: Floats, marginal: Floats) -> Floats:
        """These prices, and what each class pays, as a solver of `Columns` would tell them, row by row."""
        found = np.zeros(self.rows)
        found[self.row_origin] = -self.sign * prices
        found[self.serves] = marginal
        return found


def pack(columns: Columns) -> Packed:
    """The same model, class by class."""
    classes = len(columns.classes)
    rows, terms, coefficients = columns.terms
    served = np.array([row.serves for row in columns.rows], dtype=np.int64)
    serving = served >= 0
    serves = np.empty(classes, dtype=np.int64)
    serves[served[serving]] = np.flatnonzero(serving)
    low = np.array([row.low for row in columns.rows], dtype=np.float64)
    high = np.array([row.high for row in columns.rows], dtype=np.float64)
    row_origin = np.flatnonzero(~serving & (np.isfinite(low) | np.isfinite(high)))
    low, high = low[row_origin], high[row_origin]
    number = np.full(len(columns.rows), -1)
    number[row_origin] = np.arange(len(row_origin))
    sign = np.where(np.isfinite(high), 1.0, -1.0)
    kept = number[rows] >= 0
    row_of = number[rows[kept]]
    return _by_class(
        columns.cost,
        columns.upper,
        np.where(columns.klass < 0, classes, columns.klass),
        (terms[kept], row_of, coefficients[kept] * sign[row_of]),
        np.flatnonzero(columns.kind == ColumnKind.NEVER),
        count=np.array([len(members) for members in columns.classes], dtype=np.float64),
        limit=np.where(sign > 0, high, -low),
        row_origin=row_origin,
        sign=sign,
        serves=serves,
        rows=len(columns.rows),
    )


def joined(parts: Sequence[tuple[Packed, Ints]], limit: Floats) -> Packed:
    """One model of several, each with which rows of the whole its own are. `origin` is by the columns of all parts, one part after the other."""
    firsts = np.cumsum([0, *(len(part.count) for part, _ in parts)]).tolist()
    begins = np.cumsum([0, *(len(part.cost) for part, _ in parts)]).tolist()
    classes = firsts[-1]
    klass = [
        np.where(part.klass < len(part.count), part.klass + first, classes)
        for (part, _), first in zip(parts, firsts[:-1], strict=True)
    ]
    shifted = list(zip((part for part, _ in parts), begins[:-1], strict=True))
    return _by_class(
        np.concatenate([part.cost for part, _ in parts]),
        np.concatenate([part.upper for part, _ in parts]),
        np.concatenate(klass),
        (
            np.concatenate([part.column_of + begin for part, begin in shifted]),
            np.concatenate([rows[part.row_of] for part, rows in parts]),
            np.concatenate([part.use for part, _ in parts]),
        ),
        np.concatenate([part.never + begin for part, begin in shifted]),
        count=np.concatenate([part.count for part, _ in parts]),
        limit=limit,
        row_origin=np.arange(len(limit)),
        sign=np.ones(len(limit)),
        serves=np.arange(classes) + len(limit),
        rows=len(limit) + classes,
    )


def _by_class(
    cost: Floats, upper: Floats, klass: Ints, terms: tuple[Ints, Ints, Floats], never: Ints, **rest: Any
) -> Packed:
    """Columns put class by class, and their terms (column, row, use) column by column."""
    origin = np.argsort(klass, kind="stable")
    place = np.empty_like(origin)
    place[origin] = np.arange(len(origin))
    column_of, row_of, use = place[terms[0]], terms[1], terms[2]
    order = np.lexsort((row_of, column_of))
    return Packed(
        cost=cost[origin],
        upper=upper[origin],
        klass=klass[origin],
        column_of=column_of[order],
        row_of=row_of[order],
        use=use[order],
        origin=origin,
        never=np.sort(place[never]),
        **rest,
    )
