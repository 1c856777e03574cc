"""The relaxation of a priced problem, all columns at once: what generating columns is held against."""

import numpy as np

from federator.planning.linear.columns import Columns
from federator.solving.glop import Matrix, Model, Relaxed


def relaxed(columns: Columns) -> Relaxed | None:
    """Solved by GLOP, its rows and columns as they stand."""
    low = np.array([row.low for row in columns.rows])
    high = np.array([row.high for row in columns.rows])
    return Model(Matrix(columns.cost, columns.upper, low, high, *columns.terms)).relax()
