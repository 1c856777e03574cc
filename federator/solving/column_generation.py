"""The whole model's optimum, as nearly as asked, without ever solving the whole of it.

A federation of 10,000 jobs and 50 sites has half a million columns, of which a plan uses some thousands. So prices come first: a smoothed dual, where every
class shares its jobs out over its columns by how cheap they are, and rows that are overused get dearer. At these prices the columns that could
matter are few; GLOP solves the model of those alone, which is a plan (an upper bound), and tells better prices (a lower one). Columns that are cheap at
the better prices are added, until the two bounds meet. A class of very many jobs has most of the cost, so it gets most of the columns.

Prices swing while there are few columns, so the bound is also asked on the way from the best prices so far to the new ones. All of it is arithmetic
in a fixed order with limits of work: the same model has the same answer.
"""

from dataclasses import dataclass

import numpy as np

from federator.planning.linear.columns import Columns
from federator.planning.world.free_hours import Bools, Floats, Ints
from federator.solving.glop import Matrix, Model
from federator.solving.packed import Packed

NEAR = 1e-3
"""Bounds so near each other, as a part of the value, have met."""
ROUNDS = 12
SMOOTH = (0.3, 0.1)
"""How much dearer a column may be and still get a share: this part of what the class pays."""
STEPS = 15
"""Steps of prices at each."""
FLATS_USD = (0.4, 0.8, 1.6, 3.2, 6.4, 12.8)
FADES_H = (2.0, 4.0, 8.0, 16.0, 32.0)
"""Where the search begins: a price of a GPU-hour now, and in how many hours it falls to a third."""
PICKED, PICKED_BY_SHARE = 8, 5
"""Columns that a class gets at a time: so many, and so many more per average share of the cost that it has."""
WAYS = (1.0, 0.75, 0.5, 0.25, 0.1)
"""How far to go from the best prices to the latest ones: where the bound is asked."""


@dataclass(frozen=True)
class Generated:
    """`value` is what a plan of the (fluid) model comes to, `bound` what none gets below; `prices` by row, `marginal` by class."""

    value: float
    bound: float
    prices: Floats
    marginal: Floats
    model: Model
    """The last model that was solved,"""
    kept: Ints
    """its columns,"""
    values: Floats
    """their values,"""
    latest: Floats
    """the prices that it told,"""
    paid: Floats
    """and what each class pays by them."""


def solve(
    packed: Packed, prices: Floats, active: Bools | None = None, *, near: float = NEAR
) -> Generated | None:
    """Solve from these prices on, and from these columns (None: the cheapest at them); None where nothing serves every class, or a solve hit its limit."""
    if (packed.count < 0.0).any():
        return None
    best, found = packed.answer(prices), None
    usable = packed.upper > 0.0
    most, rows = _picks(packed, best.marginal), len(packed.limit)
    kept = always(packed)
    kept |= cheapest(packed, packed.reduced(prices), usable, most) if active is None else active
    for _ in range(ROUNDS):
        columns = np.flatnonzero(kept & usable)
        model = Model(_matrix(packed, columns))
        solved = model.relax()
        if solved is None:
            return found
        value = solved.objective + packed.base_usd
        latest, paid = np.maximum(0.0, -solved.duals[:rows]), solved.duals[rows:]
        asked = [(packed.answer(prices + far * (latest - prices)), far) for far in WAYS]
        nearest, far = max(asked, key=lambda each: each[0].bound)
        middle = prices + 0.5 * (latest - prices)
        if nearest.bound > best.bound:
            best, prices = nearest, prices + far * (latest - prices)
        found = Generated(
            value, best.bound, prices, best.marginal, model, columns, solved.values, latest, paid
        )
        if value - best.bound <= near * max(1.0, abs(value)):
            break
        fresh = _fresh(packed, kept, usable, paid, (latest, middle, prices), most)
        if not fresh.any():
            break
        kept = kept | fresh
    return found


def smoothed(packed: Packed, hours: Floats) -> Floats:
    """Prices from nothing. `hours`: of each row when its capacity is, in hours from now; infinite where it is not GPU-hours."""
    prices = _flat(packed, hours)
    best = packed.answer(prices).bound
    for smooth in SMOOTH:
        here = prices
        marginal = np.abs(packed.answer(here).marginal)
        typical = float(marginal @ packed.count) / max(1.0, float(packed.count.sum()))
        width = smooth * np.maximum(marginal, 1e-2 * typical)
        ahead, pace = here, 1.0
        for _ in range(STEPS):
            bound, slope, stiff = _shared(packed, ahead, width)
            if bound > best:
                best, prices = bound, ahead
            floor = 1e-3 * np.maximum(packed.limit, 1e-6) / np.maximum(ahead, 0.01)
            most = 0.5 * np.maximum(ahead, 0.02)
            moved = np.maximum(0.0, ahead + np.clip(slope / np.maximum(2.0 * stiff, floor), -most, most))
            faster = (1.0 + np.sqrt(1.0 + 4.0 * pace * pace)) / 2.0
            swing = (pace - 1.0) / faster
            if float((moved - here) @ slope) < 0.0:
                faster, swing = 1.0, 0.0
            ahead, here, pace = np.maximum(0.0, moved + swing * (moved - here)), moved, faster
    return prices


def hours_of(table: Columns, rows: Ints) -> Floats:
    """In how many hours what these rows are about is there; infinite where that is not GPU-hours of a bucket."""
    return np.array([table.rows[row].begins_h for row in rows.tolist()])


def _flat(packed: Packed, hours: Floats) -> Floats:
    """The best of some prices that are the same everywhere and fall with time."""
    best, prices = -np.inf, np.zeros(len(packed.limit))
    for fade in FADES_H:
        share = np.exp(-hours / fade)
        for usd in FLATS_USD:
            bound = packed.answer(usd * share).bound
            if bound > best:
                best, prices = bound, usd * share
    return prices


def _shared(packed: Packed, prices: Floats, width: Floats) -> tuple[float, Floats, Floats]:
    """Every class shares its jobs out: the bound, by how much each row is overused, and how stiffly that answers to its price."""
    reduced = packed.reduced(prices)
    answer = packed.answer(prices, reduced)
    free = packed.first[-1]
    klass = packed.klass[:free]
    above = (reduced[:free] - answer.marginal[klass]) / width[klass]
    near = np.flatnonzero((above < 25.0) & (packed.upper[:free] > 0.0) & (packed.count[klass] > 0.0))
    klass, room = klass[near], packed.upper[:free][near]
    weight = np.exp(np.minimum(-above[near], 50.0))
    left = packed.count.copy()
    given, full = np.zeros(len(near)), np.zeros(len(near), dtype=bool)
    while True:
        total = np.bincount(klass, np.where(full, 0.0, weight), minlength=len(left))
        rate = left / np.maximum(total, 1e-300)
        given = np.where(full, room, rate[klass] * weight)
        over = ~full & (given > room)
        if not over.any():
            break
        full |= over
        left -= np.bincount(klass[over], room[over], minlength=len(left))
        left = np.maximum(left, 0.0)
    jobs, soft = np.zeros(len(packed.cost)), np.zeros(len(packed.cost))
    jobs[near] = given
    soft[near] = np.where(full, 0.0, given / width[klass])
    jobs[free:] = np.where(reduced[free:] < 0.0, packed.upper[free:], 0.0)
    rows = len(packed.limit)
    used = np.bincount(packed.row_of, jobs[packed.column_of] * packed.use, rows)
    stiff = np.bincount(packed.row_of, soft[packed.column_of] * packed.use**2, rows)
    return answer.bound, used - packed.limit, stiff.astype(np.float64)


# -- columns ----------------------------------------------------------------------------------------------------------


def always(packed: Packed) -> Bools:
    """Columns of no class, and those of never running."""
    kept: Bools = packed.klass == len(packed.count)
    kept[packed.never] = True
    return kept


def _picks(packed: Packed, marginal: Floats) -> Ints:
    """How many columns each class gets at a time."""
    share = np.abs(np.where(np.isfinite(marginal), marginal, 0.0)) * packed.count
    average = max(float(share.mean()) if len(share) else 0.0, 1e-12)
    return (PICKED + PICKED_BY_SHARE * share / average).astype(np.int64)


def cheapest(packed: Packed, reduced: Floats, among: Bools, most: Ints) -> Bools:
    """The cheapest so many of each class."""
    found = np.zeros(len(reduced), dtype=bool)
    some = np.flatnonzero(among & (packed.klass < len(packed.count)))
    if not len(some):
        return found
    order = some[np.lexsort((reduced[some], packed.klass[some]))]
    klass = packed.klass[order]
    begins = np.searchsorted(klass, klass)
    found[order[np.arange(len(order)) - begins < most[klass]]] = True
    return found


def _fresh(
    packed: Packed, kept: Bools, usable: Bools, paid: Floats, at: tuple[Floats, ...], most: Ints
) -> Bools:
    """Columns to add: at the latest prices those cheaper than what the class pays, at others those cheaper than its cheapest so far."""
    fresh = np.zeros(len(kept), dtype=bool)
    ours = usable & (packed.klass < len(packed.count))
    inside, outside = np.flatnonzero(kept & ours), ours & ~kept
    for number, prices in enumerate(at):
        reduced = packed.reduced(prices)
        level = np.full(len(paid) + 1, np.inf)
        if number == 0:
            level[:-1] = paid
        else:
            np.minimum.at(level, packed.klass[inside], reduced[inside])
        fresh |= cheapest(packed, reduced, outside & (reduced < level[packed.klass] - 1e-9), most)
    return fresh


# -- the model of a few columns ---------------------------------------------------------------------------------------


def _matrix(packed: Packed, kept: Ints) -> Matrix:
    """The model of these columns alone: its rows, and behind them a row for each class."""
    rows, classes = len(packed.limit), len(packed.count)
    number = np.full(len(packed.cost), -1)
    number[kept] = np.arange(len(kept))
    used = number[packed.column_of] >= 0
    klass = packed.klass[kept]
    served = np.flatnonzero(klass < classes)
    row_of = np.concatenate([packed.row_of[used], rows + klass[served]])
    column_of = np.concatenate([number[packed.column_of[used]], served])
    values = np.concatenate([packed.use[used], np.ones(len(served))])
    order = np.lexsort((column_of, row_of))
    return Matrix(
        cost=packed.cost[kept],
        upper=packed.upper[kept],
        low=np.concatenate([np.full(rows, -np.inf), packed.count]),
        high=np.concatenate([packed.limit, packed.count]),
        row_of=row_of[order],
        column_of=column_of[order],
        coefficients=values[order],
    )
