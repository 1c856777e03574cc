"""Columns and rows while they are made: whole arrays where there are many, one at a time where there are few, and arrays in the end.

A model of a window has some ten to fifty thousand columns and a hundred thousand terms. Python objects for each of them cost more than solving it does.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from federator.planning.world.free_hours import Floats, Ints

NO_INTS: Ints = np.empty(0, dtype=np.int64)
NO_FLOATS: Floats = np.empty(0, dtype=np.float64)


class Row(NamedTuple):
    """`low` ≤ Σ coefficients × columns ≤ `high`. The name is what its price is kept by from turn to turn; nothing is read out of it."""

    name: str
    low: float
    high: float
    columns: Ints
    coefficients: Floats
    serves: int = -1
    """The class whose jobs it shares out over its columns; -1 for all other rows."""
    begins_h: float = np.inf
    """In how many hours the GPU-hours of a bucket are there, which are shared with work that a window does not show; infinite for all other rows."""


@dataclass
class Terms:
    """A row that is being made. Parts come in the order of their columns."""

    name: str
    low: float
    high: float
    serves: int = -1
    begins_h: float = np.inf
    _columns: list[Ints | Sequence[int]] = field(default_factory=list)
    _coefficients: list[Floats | Sequence[float]] = field(default_factory=list)

    def add(self, column: int, coefficient: float) -> None:
        """One more term; a zero is left out."""
        if coefficient:
            self._columns.append((column,))
            self._coefficients.append((coefficient,))

    def extend(self, columns: Ints, coefficients: Floats) -> None:
        """Many more; zeros are left out."""
        used = coefficients != 0.0
        if used.any():
            self._columns.append(columns[used])
            self._coefficients.append(coefficients[used])

    def __bool__(self) -> bool:
        """Whether there are any terms."""
        return bool(self._columns)

    def row(self) -> Row:
        """What it has come to."""
        columns = np.concatenate([NO_INTS, *self._columns]).astype(np.int64, copy=False)
        coefficients = np.concatenate([NO_FLOATS, *self._coefficients])
        return Row(self.name, self.low, self.high, columns, coefficients, self.serves, self.begins_h)


class Pile:
    """Columns that are being made: kind, class, place, cost in USD, upper limit, and expected start in seconds from now of each."""

    TYPES = (np.int64, np.int64, np.int64, np.float64, np.float64, np.float64)

    def __init__(self) -> None:
        """An empty one."""
        self._few: list[tuple[float, ...]] = []
        self._parts: list[Sequence[NDArray[Any]]] = [[np.empty(0, dtype=each) for each in self.TYPES]]
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, kind: int, klass: int, place: int, price: float, upper: float, start_s: float = 0.0) -> int:
        """One more column; return its index."""
        self._few.append((kind, klass, place, price, upper, start_s))
        self._count += 1
        return self._count - 1

    def extend(
        self, kind: Ints, klass: Ints, place: Ints, price: Floats, upper: Floats, start_s: Floats
    ) -> None:
        """Many more."""
        self._flush()
        self._parts.append((kind, klass, place, price, upper, start_s))
        self._count += len(kind)

    def arrays(self) -> tuple[Any, Any, Any, Any, Any, Any]:
        """All of them."""
        self._flush()
        kind, klass, place, price, upper, start_s = map(np.concatenate, zip(*self._parts, strict=True))
        return kind, klass, place, price, upper, start_s

    def _flush(self) -> None:
        if self._few:
            columns = zip(zip(*self._few, strict=True), self.TYPES, strict=True)
            self._parts.append([np.array(values, dtype=kind) for values, kind in columns])
            self._few = []
