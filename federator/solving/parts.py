"""The certificate of a line so long that its model would not fit: columns are made part by part, priced, and only the cheapest are kept.

First prices come from a sample: the classes with most work, and of the others every so many, each counted for those that it stands for. At these prices
every class is asked once, and the columns that could matter go into one small model. GLOP's answer there is a plan of the whole (an upper bound), and its
prices go round again. A bound is summed over all parts at the same prices, so it holds whatever the sample was. The same line has the same answer.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace as changed

from federator.model.snapshot import JobView
from federator.planning.linear import columns as cut
from federator.planning.linear.columns import ColumnKind, Columns
from federator.planning.scheduling.objective import Evaluator
from federator.planning.world.buckets import BUCKETS
from federator.planning.world.free_hours import Bools, Floats, Ints
from federator.planning.world.problem import World
from federator.solving import column_generation
from federator.solving.column_generation import Generated
from federator.solving.packed import Packed, joined, pack

WHOLE_COLUMNS = 1_500_000
"""Up to about so many columns the model is made in one piece."""
PART_COLUMNS = 400_000
"""About so many columns are in memory at a time."""
HELD_COLUMNS = 6_000_000
"""Up to so many, what was made is held for the next pass: some 120 bytes each."""
SAMPLE_COLUMNS = 700_000
PASSES = 4
"""All columns are asked so often at most."""

Starts = Mapping[str, int]


class Judged(NamedTuple):
    """A bound of the whole, the best (fluid) plan known, what each decision comes to (None: it does not fit the model), columns and rows."""

    bound: float
    value: float
    completed: list[float | None]
    columns: int
    rows: int


def too_long(evaluator: Evaluator) -> bool:
    """Whether the model is to be made in parts. Guarantees look at all classes at once, so with them it never is."""
    world = evaluator.world
    return (
        _columns_of(world, len({world.key(job) for job in world.jobs})) > WHOLE_COLUMNS
        and not world.guarantees
    )


def certify(evaluator: Evaluator, decisions: Sequence[Starts]) -> Judged | None:
    """A bound of the whole line, and the best completion of each decision; None where a solve hit its limit."""
    line = _Line(evaluator, decisions)
    prices, bound = line.sampled(), -np.inf
    found: Generated | None = None
    latest = prices
    for _ in range(PASSES):
        between = (
            [] if found is None else [prices + far * (latest - prices) for far in column_generation.WAYS[1:]]
        )
        asked = line.ask([latest, *between], {0, len(between)})
        at = int(np.argmax(asked.bounds))
        if asked.bounds[at] > bound:
            bound, prices = asked.bounds[at], asked.prices[at]
        if found is not None and found.value - bound <= column_generation.NEAR * max(1.0, abs(found.value)):
            break
        whole = line.kept()
        found = column_generation.solve(whole, line.grown(prices), np.ones(len(whole.cost), dtype=bool))
        if found is None:
            return None
        latest, prices = found.prices, line.grown(prices)
    assert found is not None, "there is at least one pass"
    tried = [line.completed(number, found.prices) for number in range(len(decisions))]
    # What is decided leaves other columns worth having than what is best: they are looked for once.
    line.ask([best.prices for best in tried if best is not None], range(len(tried)))
    after = [
        None if best is None else line.completed(number, best.prices) for number, best in enumerate(tried)
    ]
    completed = [None if best is None else best.value for best in after]
    return Judged(bound, found.value, completed, line.columns, len(line.limit) + len(line.classes))


class _Asked(NamedTuple):
    prices: list[Floats]
    bounds: list[float]


class _Made(NamedTuple):
    """One part: its model, which rows of the whole its own are, and of each column its kind and what each decision makes of it."""

    packed: Packed
    rows: Ints
    kind: Ints
    decided: list[Floats]


@dataclass
class _Kept:
    """Of one part, the columns that could matter, by their numbers in the part, and what each decision makes of them."""

    packed: Packed
    rows: Ints
    chosen: Ints
    committed: Ints
    decided: list[Floats]


class _Line:
    """All classes, in parts that are made anew each time they are asked."""

    def __init__(self, evaluator: Evaluator, decisions: Sequence[Starts]) -> None:
        self.evaluator, self.decisions = evaluator, decisions
        self.classes = list(evaluator.world.alike.values())
        self.names: dict[str, int] = {}
        self.limit: Floats = np.empty(0)
        self.columns = 0
        self.parts: list[_Kept] = []
        self._held: list[_Made] | None = None
        self.average_usd = 1.0
        """What a class costs on average, by the sample."""

    def sampled(self) -> Floats:
        """Prices of a sample, by row."""
        world = self.evaluator.world
        many = max(1, SAMPLE_COLUMNS // max(1, _columns_of(world, 1)))
        by_work = sorted(range(len(self.classes)), key=lambda k: (-_work(self.classes[k]), k))
        first, rest = by_work[: many // 2], by_work[many // 2 :]
        stride = max(1, -(-len(rest) // max(1, many - many // 2)))
        weight = {self.classes[k][0].id: 1.0 for k in first}
        weight |= {self.classes[k][0].id: float(stride) for k in rest[::stride]}
        table, packed, rows = self._part([self.classes[k] for k in (*first, *rest[::stride])])
        weights = np.array([weight[members[0].id] for members in table.classes])
        packed = replace(
            packed, count=packed.count * weights, upper=packed.upper * np.append(weights, 1.0)[packed.klass]
        )
        start = column_generation.smoothed(packed, column_generation.hours_of(table, packed.row_origin))
        found = column_generation.solve(packed, start)
        prices = np.zeros(len(self.limit))
        prices[rows] = start if found is None else found.prices
        self.average_usd = max(1e-9, packed.answer(prices[rows]).bound / max(1.0, float(weights.sum())))
        return prices

    def ask(self, prices: Sequence[Floats], picking: Container[int]) -> _Asked:
        """The bound of the whole at each of these prices; the cheapest columns at those of them that are for `picking` are kept."""
        sums, kept, columns = [0.0] * len(prices), [], 0
        before: Sequence[_Kept | None] = self.parts or [None] * len(self.classes)
        for number, part in enumerate(self._made()):
            packed, rows = part.packed, part.rows
            columns += len(packed.cost)
            chosen = np.zeros(len(packed.cost), dtype=bool)
            known = before[number]
            if known is not None:
                chosen[known.chosen] = True
            for index, at in enumerate(prices):
                here = self.grown(at)[rows]
                reduced = packed.reduced(here)
                answer = packed.answer(here, reduced)
                sums[index] += answer.bound + float(here @ packed.limit)
                if index in picking:
                    chosen |= column_generation.cheapest(
                        packed, reduced, packed.upper > 0.0, self._picks(packed, answer.marginal)
                    )
            kept.append(_kept(part, chosen))
        self.parts, self.columns = kept, columns
        grown = [self.grown(at) for at in prices]
        return _Asked(grown, [total - float(at @ self.limit) for total, at in zip(sums, grown, strict=True)])

    def kept(self) -> Packed:
        """The model of all columns that were kept."""
        return joined([(each.packed, each.rows) for each in self.parts], self.limit)

    def completed(self, number: int, prices: Floats) -> Generated | None:
        """The best completion of a decision among these columns; None where they do not hold it."""
        values = np.concatenate([each.decided[number] for each in self.parts])
        if round(float(values.sum())) != len(self.decisions[number]):
            return None
        firsts = np.cumsum([0, *(len(each.chosen) for each in self.parts)])[:-1].tolist()
        committed = np.concatenate(
            [each.committed + first for each, first in zip(self.parts, firsts, strict=True)]
        )
        whole = self.kept()
        return column_generation.solve(
            whole.fixed(values, committed), self.grown(prices), np.ones(len(whole.cost), dtype=bool)
        )

    def grown(self, prices: Floats) -> Floats:
        """The same prices, with nothing for rows that were not known yet."""
        return np.concatenate([prices, np.zeros(len(self.limit) - len(prices))])

    # -- parts --------------------------------------------------------------------------------------------------------

    def _part(self, classes: Sequence[Sequence[JobView]]) -> tuple[Columns, Packed, Ints]:
        """The columns of some classes, and which rows of the whole theirs are."""
        problem = self.evaluator.world.problem
        jobs = tuple(job for members in classes for job in members)
        world = World(changed(problem, snapshot=changed(problem.snapshot, jobs=jobs)))
        table = cut.build(Evaluator(world, self.evaluator.home), self.evaluator.world, in_use=True)
        packed = pack(table)
        names = [table.rows[row].name for row in packed.row_origin.tolist()]
        fresh = [number for number, name in enumerate(names) if name not in self.names]
        for number in fresh:
            self.names[names[number]] = len(self.names)
        self.limit = np.concatenate([self.limit, packed.limit[fresh]])
        return table, packed, np.array([self.names[name] for name in names], dtype=np.int64)

    def _made(self) -> Iterator[_Made]:
        """All parts, one after the other; where all of them fit, they are made once."""
        if self._held is not None:
            yield from self._held
            return
        held: list[_Made] | None = []
        columns = 0
        for classes in self._split():
            table, packed, rows = self._part(classes)
            here = {job.id for members in classes for job in members}
            known = [table.known({j: p for j, p in starts.items() if j in here}) for starts in self.decisions]
            part = _Made(packed, rows, table.kind[packed.origin], [values[packed.origin] for values in known])
            columns += len(packed.cost)
            held = [*held, part] if held is not None and columns <= HELD_COLUMNS else None
            yield part
        self._held = held

    def _split(self) -> Iterator[Sequence[Sequence[JobView]]]:
        step = self._step()
        for first in range(0, len(self.classes), step):
            yield self.classes[first : first + step]

    def _step(self) -> int:
        return max(1, PART_COLUMNS // max(1, _columns_of(self.evaluator.world, 1)))

    def _picks(self, packed: Packed, marginal: Floats) -> Ints:
        share = np.abs(np.where(np.isfinite(marginal), marginal, 0.0)) * packed.count / self.average_usd
        return (column_generation.PICKED + column_generation.PICKED_BY_SHARE * share).astype(np.int64)


def _kept(part: _Made, chosen: Bools) -> _Kept:
    """The chosen columns of a part, and those that any decision needs, or that there must be."""
    committed = (part.kind == ColumnKind.NOW) | (part.kind == ColumnKind.RENT)
    for values in part.decided:
        chosen = chosen | (committed & (values > 0.0))
    few = np.flatnonzero(chosen | column_generation.always(part.packed))
    mine = np.flatnonzero(committed[few])
    return _Kept(part.packed.only(few), part.rows, few, mine, [values[few][mine] for values in part.decided])


def _work(members: Sequence[JobView]) -> float:
    return len(members) * members[0].gpus_total * members[0].run_s


def _columns_of(world: World, classes: int) -> int:
    return classes * len(world.places) * (1 + BUCKETS)
