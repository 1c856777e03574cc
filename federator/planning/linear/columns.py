"""The priced problem as numbers: columns and rows that any linear or integer solver can read.

A column is so many jobs of one class, at one place, from one time on: *now* (integer), in a later bucket (fluid), rented now
(integer), rented as late as is safe, beside a job that rents, or never. A row is a class to be served, room on hosts, GPU-hours of a
bucket, a cap, a guarantee, or what a policy requires. The formulation and why it is this one: `docs/explanation/planning.md`.

Costs are those of `prices`, in USD; the columns are built with numpy, one array per class and place, because building a model in
Python costs more than solving it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import pairwise

import numpy as np

from federator.model.queues import under
from federator.model.snapshot import JobView
from federator.planning.kernels.start_cost import wait_usd
from federator.planning.kernels.tables import LEASE
from federator.planning.linear.cap_rows import CapRows
from federator.planning.linear.hours import asked_by, hour_rows, in_use_rows
from federator.planning.linear.starts import starts_of
from federator.planning.linear.terms import NO_INTS, Pile, Row, Terms
from federator.planning.places.candidates import machines
from federator.planning.rentals.burst import Bursting
from federator.planning.rentals.candidate import BurstCandidate
from federator.planning.scheduling.objective import REQUIRED_USD, SHORTFALL_H, Evaluator
from federator.planning.world.chances import late_share
from federator.planning.world.free_hours import Floats, Ints
from federator.planning.world.model_arrays import numbers_of
from federator.planning.world.prices import cost, longer_s, never_usd
from federator.planning.world.problem import World


class ColumnKind(IntEnum):
    """What a column decides. NOW and RENT are commitments and integer; the rest is what is expected to follow."""

    NOW = 0
    RENT = 1
    FUTURE = 2
    SHARE = 3
    LATER = 4
    NEVER = 5
    SLACK = 6


@dataclass(frozen=True)
class Columns:
    """One problem in numbers. Parallel arrays, one entry per column; `klass` and `place` are -1 where there is none."""

    classes: list[list[JobView]]
    kind: Ints
    klass: Ints
    place: Ints
    cost: Floats
    upper: Floats
    start_s: Floats
    """When it is expected to start, in seconds from now; infinite: never."""
    rows: list[Row]

    @cached_property
    def committed(self) -> Ints:
        """The columns that must be integer."""
        return np.flatnonzero((self.kind == ColumnKind.NOW) | (self.kind == ColumnKind.RENT))

    @cached_property
    def terms(self) -> tuple[Ints, Ints, Floats]:
        """All coefficients, row by row: their rows, their columns in rising order, and they themselves."""
        lengths = [len(row.columns) for row in self.rows]
        rows = np.repeat(np.arange(len(self.rows)), lengths)
        columns = np.concatenate([NO_INTS, *(row.columns for row in self.rows)])
        coefficients = np.concatenate([np.empty(0), *(row.coefficients for row in self.rows)])
        order = np.lexsort((columns, rows))
        return rows, columns[order], coefficients[order]

    def jobs_for(self, values: Floats | Sequence[float], evaluator: Evaluator) -> dict[str, int]:
        """Jobs that start now, and where, when the columns have these (integer) values. Members of a class go in their order; rentals first."""
        counts = np.rint(np.asarray(values)[self.committed]).astype(np.int64)
        chosen, counts = self.committed[counts > 0], counts[counts > 0]
        rents = self.kind[chosen] == ColumnKind.RENT
        starts: dict[str, int] = {}
        for index in np.concatenate([np.flatnonzero(rents), np.flatnonzero(~rents)]).tolist():
            column, count = int(chosen[index]), int(counts[index])
            place, kind = int(self.place[column]), ColumnKind(self.kind[column])
            free = [j for j in self.classes[self.klass[column]] if j.id not in starts]
            able = [j for j in free if _able(evaluator, j, place, kind)]
            starts.update({job.id: place for job in able[:count]})
        return starts

    def known(self, starts: Mapping[str, int]) -> Floats:
        """A feasible point of the model: these starts, and everybody else never. Where a search may begin."""
        mine = self.committed
        column_of = dict(
            zip(
                zip(self.klass[mine].tolist(), self.place[mine].tolist(), strict=True),
                mine.tolist(),
                strict=True,
            )
        )
        values = np.where(self.kind == ColumnKind.SLACK, self.upper, 0.0)
        left = np.array([len(members) for members in self.classes], dtype=np.float64)
        klass_of = {job.id: klass for klass, members in enumerate(self.classes) for job in members}
        for job, place in starts.items():
            klass = klass_of.get(job, -1)
            column = column_of.get((klass, place))
            if column is not None:
                values[column] += 1.0
                left[klass] -= 1.0
        never = self.kind == ColumnKind.NEVER
        values[never] = left[self.klass[never]]
        return values


def _able(evaluator: Evaluator, job: JobView, place: int, kind: ColumnKind) -> bool:
    """Whether this member of a class has a case for a rental now, or may use a lease; owned places are for all of them."""
    if kind is ColumnKind.RENT:
        return evaluator.bursting.case_now(job, place) is not None
    return not evaluator.world.places[place].rented or evaluator.bursting.may_use_lease(job, place)


def _apart(bursting: Bursting, jobs: Iterable[JobView]) -> list[tuple[JobView, int]]:
    """Of jobs of one class, those whose cases are not the same, in their order; and for how many each speaks."""
    found: dict[object, tuple[JobView, int]] = {}
    for job in jobs:
        first, count = found.get(bursting.alike(job), (job, 0))
        found[bursting.alike(job)] = first, count + 1
    return list(found.values())


def build(evaluator: Evaluator, line: World | None = None, *, in_use: bool = False) -> Columns:
    """Cut a world into columns and rows. `line`: all work, of which this world may show a part; rows that it could not fill are left out.

    `in_use`: with rows of the GPUs in use when each of the first buckets ends.
    """
    return _Builder(evaluator, line).build(in_use=in_use)


class _Builder:
    """Makes all columns, the starts first, noting in passing what they take; rows are written at the end."""

    def __init__(self, evaluator: Evaluator, line: World | None) -> None:
        self.evaluator, self.world = evaluator, evaluator.world
        self.now = self.world.now
        self.host_sets = self.world.host_sets()
        self.line = self.world if line is None else line
        self.numbers = numbers_of(self.world)
        self.classes = list(self.world.alike.values())
        self.starts = starts_of(self.numbers, self.host_sets, self._able())
        self.asks = asked_by(self.numbers)
        self.caps = CapRows(self.world, self.line)
        self.rows: list[Terms] = []
        self.named: dict[str, Terms] = {}
        self.pile = Pile()

    def build(self, *, in_use: bool) -> Columns:
        starts = self.starts
        kind = np.where(starts.now, int(ColumnKind.NOW), int(ColumnKind.FUTURE))
        choice = self.numbers.ways["choice"][starts.way]
        self.pile.extend(kind, starts.klass, choice, starts.cost, starts.upper, starts.start_s)
        self.caps.add_starts(starts, self.numbers)
        cuts = np.searchsorted(starts.klass, np.arange(len(self.classes) + 1)).tolist()
        for klass, (begin, end) in enumerate(pairwise(cuts)):
            self._class(klass, np.arange(begin, end))
        self._fit_rows()
        self._guarantee_rows()
        self.rows += hour_rows(self.world, self.host_sets, starts, self.asks, self.line)
        self.rows += in_use_rows(self.world, self.host_sets, starts, self.asks) if in_use else []
        self.rows += self.caps.rows()
        self._leave_to_others()
        return Columns(self.classes, *self.pile.arrays(), [row.row() for row in self.rows])

    # -- columns ------------------------------------------------------------------------------------------------------

    def _able(self) -> Floats:
        """By way, how many of its class may use it: a lease is for those that have a case."""
        numbers, bursting = self.numbers, self.evaluator.bursting
        klass = numbers.class_of_way
        able = np.array([len(members) for members in self.classes], dtype=np.float64)[klass]
        leases = np.flatnonzero(numbers.places["kind"][numbers.ways["place"]] == LEASE)
        for way in leases.tolist():
            choice, members = int(numbers.ways["choice"][way]), self.classes[klass[way]]
            able[way] = sum(bursting.may_use_lease(job, choice) for job in members)
        return able

    def _class(self, klass: int, starts: Ints) -> None:
        """The other columns of one class, its row, and what policies require for it."""
        members = self.classes[klass]
        serve = Terms(f"class/{members[0].id}", len(members), len(members), serves=klass)
        serve.extend(starts, np.ones(len(starts)))
        committed: list[int] = starts[self.starts.now[starts]].tolist()
        bursting, offers = self.evaluator.bursting, self.world.offers(members[0])
        needy = _apart(bursting, (job for job in members if not bursting.no_need(job))) if offers else []
        for choice in offers if needy else ():
            committed += self._rented(klass, choice, needy, serve)
        # Without the run, the model would save by never running what it could run later.
        never = never_usd(self.world.book, members[0]).total + float(self.starts.home_usd[klass])
        serve.add(self.pile.add(ColumnKind.NEVER, klass, -1, never, len(members), np.inf), 1.0)
        self.rows.append(serve)
        self._required(klass, committed)

    def _rented(
        self, klass: int, place: int, needy: Sequence[tuple[JobView, int]], serve: Terms
    ) -> list[int]:
        """Rent now, rent later, or run beside a job that rents: by how many of the class have a case."""
        members, at, case_of = self.classes[klass], self.world.places[place], self.evaluator.bursting.case
        cases = [(c, of) for job, of in needy if isinstance(c := case_of(job, place), BurstCandidate)]
        if not cases or at.offer is None:
            return []
        job, case = self.world.as_form(members[0], place), cases[0][0]
        all_, now = sum(of for _, of in cases), sum(of for c, of in cases if c.is_now(self.now))
        count = machines(job, at)
        most = min(now, self.world.stocks.room(self.world.place_of(place)) // count)
        committed = []
        if most:
            price = cost(self.world.book, job, at, case.start_at, rents=True).total
            column = self.pile.add(ColumnKind.RENT, klass, place, price, most)
            serve.add(column, 1.0)
            self.caps.add_rental(column, job, place, 0.0, now=True)
            self._spare(place).add(column, -(at.gpus * count - job.gpus_total))
            for source, each in self.world.stocks.draws[self.world.place_of(place)]:
                self._left(source).add(column, float(count * each))
            committed.append(column)
        if all_ > now and job.deadline_at is not None:
            rent_at = next(c.rent_at for c, _ in cases if not c.is_now(self.now))
            start_s = rent_at - self.now + case.start_at - self.now
            book, risk = self.world.book, late_share(job, self.now + start_s, at.run_s(job))
            price = case.cost_usd + wait_usd(book.wait_usd_h(job), start_s, longer_s(job, at))
            price += book.value_usd(job) * risk
            column = self.pile.add(ColumnKind.LATER, klass, place, price, all_ - now, start_s)
            serve.add(column, 1.0)
            self.caps.add_rental(column, job, place, rent_at - self.now, now=False)
        if count > 1:
            return committed
        share = cost(self.world.book, job, at, case.start_at, committed_until=case.finish_at)
        column = self.pile.add(ColumnKind.SHARE, klass, place, share.total, all_)
        serve.add(column, 1.0)
        self._spare(place).add(column, float(job.gpus_total or 0.01))
        self.caps.add_shared_run(column, job, place, case.start_at - self.now)
        return committed

    def _required(self, klass: int, committed: Iterable[int]) -> None:
        """Jobs that a policy wants rented now: not starting them costs the rent and a little more."""
        members = self.classes[klass]
        prices = [
            min((c.cost_usd for c in self.evaluator.bursting.required(job, self.world.caps)), default=None)
            for job in members
        ]
        wanted = [price for price in prices if price is not None]
        if not wanted:
            return
        row = Terms(f"required/{members[0].id}", len(wanted), np.inf)
        for column in committed:
            row.add(column, 1.0)
        row.add(self.pile.add(ColumnKind.SLACK, -1, -1, min(wanted) + REQUIRED_USD, len(wanted)), 1.0)
        self.rows.append(row)

    # -- rows ---------------------------------------------------------------------------------------------------------

    def _leave_to_others(self) -> None:
        """What jobs outside the window use is not for those inside, but at its price."""
        outside = self.world.problem.outside
        for row in self.rows if outside else ():
            taken = outside.get(row.name)
            if taken is None or not np.isfinite(row.high):
                continue
            used = min(taken.used, max(0.0, row.high))
            if used > 0.0:
                row.high -= used
                row.add(self.pile.add(ColumnKind.SLACK, -1, -1, taken.usd, used), -1.0)

    def _fit_rows(self) -> None:
        """Room on hosts now: one row per step of GPUs (exact for gangs of powers of two), and totals of CPU and memory."""
        columns = np.flatnonzero(self.starts.now)
        columns = columns[np.argsort(self.starts.at[columns], kind="stable")]
        places = self.starts.at[columns]
        for place in np.unique(places).tolist():
            low, high = np.searchsorted(places, (place, place + 1))
            self._fit(place, columns[low:high])

    def _fit(self, place: int, columns: Ints) -> None:
        """The rows of one place, of the columns that start there now."""
        host_set, key, ways = self.host_sets[place], self.world.places[place].key, self.starts.way[columns]
        nodes, gpus = self.numbers.ways["nodes"][ways], self.numbers.ways["gpus"][ways]
        usual = (1,) if self.world.places[place].shared else (1, 2, 4, 8)
        for step in sorted({*usual, *gpus.tolist()} - {0}):
            room = float(sum(h.gpus // step for h in host_set.hosts))
            row = Terms(f"fit/{key}/{step}", -np.inf, room)
            row.extend(columns, (nodes * (gpus // step)).astype(np.float64))
            self.rows.append(row)
        for kind, name, free in (
            (1, "cpus", sum(h.cpus_milli for h in host_set.hosts)),
            (2, "memory", sum(h.memory_mib for h in host_set.hosts)),
        ):
            row = Terms(f"{name}/{key}", -np.inf, float(free))
            row.extend(columns, self.asks[ways, kind])
            self.rows.append(row)

    def _spare(self, place: int) -> Terms:
        """GPUs beside the jobs that rent there: sharers never exceed them."""
        return self._row(f"spare/{self.world.places[place].key}", 0.0)

    def _left(self, source: int) -> Terms:
        """What is left of an offer, or of a stock that several draw on."""
        return self._row(self.world.stocks.sources[source].row, float(self.world.stocks.left[source]))

    def _row(self, name: str, high: float) -> Terms:
        if name not in self.named:
            self.named[name] = Terms(name, -np.inf, high)
            self.rows.append(self.named[name])
        return self.named[name]

    def _guarantee_rows(self) -> None:
        """What is guaranteed, as far as there is work that wants it; what is short is charged."""
        starts, now = self.starts, np.flatnonzero(self.starts.now)
        for guarantee, counted in self.world.shortfalls.items():
            wanted = sum(
                counted.of(self.world.as_form(job, self.world.home(job)[0]))
                for members in self.classes
                for job in members
                if under(job.queue, guarantee.queue) and self.world.home(job)
            )
            target = min(counted.due, counted.used + wanted) - counted.used
            if target <= 0:
                continue
            name = f"guarantee/{guarantee.queue}/{guarantee.model}"
            row = Terms(name, float(target), np.inf)
            inside = np.array([under(job.queue, guarantee.queue) for job in self.numbers.heads], dtype=bool)
            counts = [not at.rented and guarantee.model in ("", at.model) for at in self.world.places]
            mine = now[inside[starts.klass[now]] & np.array(counts, dtype=bool)[starts.at[now]]]
            row.extend(mine, self._amounts(counted.kind)[starts.way[mine]] * counted.each)
            price = guarantee.shortfall_usd_gpu_h * SHORTFALL_H
            row.add(self.pile.add(ColumnKind.SLACK, -1, -1, price, float(target)), 1.0)
            self.rows.append(row)

    def _amounts(self, kind: int) -> Floats:
        """By way, what a job asks for of one of the kinds that guarantees count in: whole GPUs, milli-cores, MiB."""
        amounts: Floats = self.numbers.ways["gpus_total"] if kind == 0 else self.asks[:, kind]
        return amounts
