"""The priced problem as numbers: columns and rows that any linear or integer solver can read.

A column is so many jobs of one class, at one place, from one time on: *now* (integer), in a later bucket (fluid), rented now
(integer), rented as late as is safe, beside a job that rents, or never. A row is a class to be served, room on hosts, GPU-hours of a
bucket, a cap, a guarantee, or what a policy requires. The formulation and why it is this one: `docs/explanation/planning.md`.

Costs are those of `prices`, in USD; the columns are built with numpy, one array per class and place, because building a model in
Python costs more than solving it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from federator.model.rules import CapUnit
from federator.model.snapshot import JobView
from federator.planning.burst import Case
from federator.planning.candidates import size
from federator.planning.caps import Caps
from federator.planning.objective import REQUIRED_USD, SHORTFALL_H, Evaluator
from federator.planning.prices import cost, late_share, never_usd
from federator.planning.problem import under
from federator.planning.starts import BUCKETS, BUCKETS_H, Standing, Starts


class Kind(IntEnum):
    """What a column decides. NOW and RENT are commitments and integer; the rest is what is expected to follow."""

    NOW = 0
    RENT = 1
    FUTURE = 2
    SHARE = 3
    LATER = 4
    NEVER = 5
    SLACK = 6


COMMITTED = frozenset({Kind.NOW, Kind.RENT})


@dataclass
class Row:
    """`low` ≤ Σ coefficients × columns ≤ `high`."""

    name: str
    low: float
    high: float
    columns: list[int] = field(default_factory=list)
    coefficients: list[float] = field(default_factory=list)

    def add(self, column: int, coefficient: float) -> None:
        """One more term; a zero is left out."""
        if coefficient:
            self.columns.append(column)
            self.coefficients.append(coefficient)


@dataclass
class Columns:
    """One problem in numbers. Parallel lists, one entry per column; `klass` -1 for slacks."""

    classes: list[list[JobView]] = field(default_factory=list)
    kind: list[Kind] = field(default_factory=list)
    klass: list[int] = field(default_factory=list)
    place: list[int] = field(default_factory=list)
    cost: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def add(self, kind: Kind, klass: int, place: int, price: float, upper: float) -> int:
        """One more column; return its index."""
        self.kind.append(kind)
        self.klass.append(klass)
        self.place.append(place)
        self.cost.append(price)
        self.upper.append(upper)
        return len(self.kind) - 1

    def committed(self) -> list[int]:
        """The columns that must be integer."""
        return [column for column, kind in enumerate(self.kind) if kind in COMMITTED]

    def jobs_for(self, values: Sequence[float], evaluator: Evaluator) -> dict[str, int]:
        """Jobs that start now, and where, when the columns have these (integer) values. Members of a class go in their order."""
        starts: dict[str, int] = {}
        for column in sorted(self.committed(), key=lambda c: (self.kind[c] is not Kind.RENT, c)):
            count = round(values[column])
            if count <= 0:
                continue
            place = self.place[column]
            free = [j for j in self.classes[self.klass[column]] if j.id not in starts]
            able = [j for j in free if _able(evaluator, j, place, self.kind[column])]
            starts.update({job.id: place for job in able[:count]})
        return starts

    def known(self, starts: Mapping[str, int]) -> list[float]:
        """A feasible point of the model: these starts, and everybody else never. Where a search may begin."""
        column_of = {(self.klass[c], self.place[c]): c for c in self.committed()}
        values = [
            upper if kind is Kind.SLACK else 0.0 for kind, upper in zip(self.kind, self.upper, strict=True)
        ]
        left = [len(members) for members in self.classes]
        for klass, members in enumerate(self.classes):
            for job in members:
                column = column_of.get((klass, starts.get(job.id, -1)))
                if column is not None:
                    values[column] += 1.0
                    left[klass] -= 1
        for column, kind in enumerate(self.kind):
            if kind is Kind.NEVER:
                values[column] = float(left[self.klass[column]])
        return values


def _able(evaluator: Evaluator, job: JobView, place: int, kind: Kind) -> bool:
    """Whether this member of a class has a case for a rental now, or may use a lease; owned places are for all of them."""
    if kind is Kind.RENT:
        case = evaluator.bursting.case(job, place)
        return isinstance(case, Case) and case.is_now(evaluator.world.now)
    return not evaluator.world.places[place].rented or evaluator.bursting.may_use_lease(job, place)


def build(evaluator: Evaluator) -> Columns:
    """Cut a world into columns and rows."""
    return _Builder(evaluator).build()


class _Builder:
    """Makes the columns of each class, noting in passing what they take; rows are written at the end."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator, self.world = evaluator, evaluator.world
        self.now = self.world.now
        self.lots = [self.world.lot(place) for place in range(len(self.world.places))]
        self.caps = Caps(self.world.snapshot, self.world.book.caps)
        self.edges = np.array(BUCKETS_H) * 3600.0
        self.standing = Standing(self.world, self.lots)
        self.named: dict[str, Row] = {}
        self.entries: list[tuple[int, Starts]] = []
        """Starts of a class, and the index of the first of their columns."""
        self.out = Columns()
        grouped: dict[object, list[JobView]] = {}
        for job in self.world.jobs:
            grouped.setdefault(self.world.key(job), []).append(job)
        self.out.classes = list(grouped.values())
        places = len(self.world.places)
        self.gpu_hours: list[list[Row]] = [self._bucket_rows(p) for p in range(places)]
        self.fit: list[list[tuple[int, JobView]]] = [[] for _ in range(places)]
        self.cap_rows = [
            Row(f"cap/{row.policy}/{row.unit.value}", -np.inf, max(0.0, row.limit - used))
            for row, used in zip(self.caps.rows, self.caps.used, strict=True)
        ]

    def build(self) -> Columns:
        for klass in range(len(self.out.classes)):
            self._class(klass)
        self._hours()
        self._fit_rows()
        self._guarantee_rows()
        rows = [row for rows in self.gpu_hours for row in rows] + self.cap_rows
        self.out.rows += [row for row in rows if row.columns]
        return self.out

    # -- columns ------------------------------------------------------------------------------------------------------

    def _class(self, klass: int) -> None:
        """All columns of one class, its row, and what policies require for it."""
        members = self.out.classes[klass]
        serve = Row(f"class/{members[0].id}", len(members), len(members))
        committed: list[int] = []
        places = self.world.open_to(members[0])
        able = {place: self._able(members, place) for place in places if not self._offered(place)}
        starts = self._starts(klass, {place: count for place, count in able.items() if count}, serve)
        committed += starts
        for place in places:
            if self._offered(place):
                committed += self._rented(klass, place, serve)
        job = members[0]
        home = self.entries[-1][1].cheapest_run_usd if able else 0.0
        # Without the run, the model would save by never running what it could run later.
        never = never_usd(self.world.book, job).total + home
        serve.add(self.out.add(Kind.NEVER, klass, -1, never, len(members)), 1.0)
        self.out.rows.append(serve)
        self._required(klass, committed)

    def _offered(self, place: int) -> bool:
        return self.world.places[place].offer is not None

    def _able(self, members: Sequence[JobView], place: int) -> int:
        """How many of a class may use a place that exists: a lease is for those that have a case."""
        if not self.world.places[place].rented:
            return len(members)
        return sum(self.evaluator.bursting.may_use_lease(job, place) for job in members)

    def _starts(self, klass: int, able: Mapping[int, int], serve: Row) -> list[int]:
        """Starts at places that exist, now and later; those of now are to be whole."""
        job, first = self.out.classes[klass][0], len(self.out.kind)
        starts = self.standing.starts(job, list(able), list(able.values()))
        count = len(starts.place)
        self.entries.append((first, starts))
        self.out.kind += [Kind.NOW if now else Kind.FUTURE for now in starts.now.tolist()]
        self.out.klass += [klass] * count
        self.out.place += starts.place.tolist()
        self.out.cost += starts.cost.tolist()
        self.out.upper += starts.upper.tolist()
        serve.columns += range(first, first + count)
        serve.coefficients += [1.0] * count
        committed = (np.flatnonzero(starts.now) + first).tolist()
        for column in committed:
            self.fit[self.out.place[column]].append((column, job))
            self._use_caps(column, job, self.out.place[column])
        return committed

    def _rented(self, klass: int, place: int, serve: Row) -> list[int]:
        """Rent now, rent later, or run beside a job that rents: by how many of the class have a case."""
        members, at = self.out.classes[klass], self.world.places[place]
        cases = [c for job in members if isinstance(c := self.evaluator.bursting.case(job, place), Case)]
        if not cases or members[0].id in self.world.forbidden or at.offer is None:
            return []
        job, case = members[0], cases[0]
        now = sum(1 for c in cases if c.is_now(self.now))
        wait_h = self.world.book.wait_usd_h(job) / 3600.0
        committed = []
        if now:
            price = cost(self.world.book, job, at, case.start_at, rents=True).total
            column = self.out.add(Kind.RENT, klass, place, price, min(now, at.offer.offer.available))
            serve.add(column, 1.0)
            self._use_caps(column, job, place)
            self._spare(place).add(column, -(at.gpus - job.gpus_total))
            self._available(place).add(column, 1.0)
            committed.append(column)
        if len(cases) > now and job.deadline_at is not None:
            rent_at = next(c.rent_at for c in cases if not c.is_now(self.now))
            start_s = rent_at - self.now + case.start_at - self.now
            risk = late_share(job, self.now + start_s, at.run_s(job))
            price = case.cost_usd + wait_h * start_s + self.world.book.value_usd(job) * risk
            column = self.out.add(Kind.LATER, klass, place, price, len(cases) - now)
            serve.add(column, 1.0)
            self._use_caps(column, job, place)
        share = cost(self.world.book, job, at, case.start_at, committed_until=case.finish_at)
        pro_rata = at.instance_usd_h * at.run_s(job) / 3600.0 * size(job) / max(1, at.gpus)
        column = self.out.add(Kind.SHARE, klass, place, share.total + pro_rata, len(cases))
        serve.add(column, 1.0)
        self._spare(place).add(column, float(job.gpus_total or 0.01))
        return committed

    def _required(self, klass: int, committed: Iterable[int]) -> None:
        """Jobs that a policy wants rented now: not starting them costs the rent and a little more."""
        members = self.out.classes[klass]
        prices = [
            min((c.cost_usd for c in self.evaluator.bursting.required(job, self.caps)), default=None)
            for job in members
        ]
        wanted = [price for price in prices if price is not None]
        if not wanted:
            return
        row = Row(f"required/{members[0].id}", len(wanted), np.inf)
        for column in committed:
            row.add(column, 1.0)
        row.add(self.out.add(Kind.SLACK, -1, -1, min(wanted) + REQUIRED_USD, len(wanted)), 1.0)
        self.out.rows.append(row)

    # -- rows ---------------------------------------------------------------------------------------------------------

    def _bucket_rows(self, place: int) -> list[Row]:
        """GPU-seconds that are expected to be free in each bucket."""
        at, lot = self.world.places[place], self.lots[place]
        if at.offer is not None:
            return []
        times = np.array([0.0] + [max(0.0, r.at - self.now) for r in lot.releases])
        gains = np.array(
            [float(sum(h.gpus for h in lot.hosts))] + [float(r.need[0] * len(r.hosts)) for r in lot.releases]
        )
        rows = []
        for low, high in zip(self.edges[:-1], self.edges[1:], strict=True):
            free = float(np.sum(gains * np.clip(high - np.maximum(times, low), 0.0, None)))
            rows.append(Row(f"hours/{at.key}/{low / 3600.0:g}h", -np.inf, free / 3600.0))
        return rows

    def _hours(self) -> None:
        """What all starts take of the buckets' GPU-hours, into their rows."""
        if not self.entries:
            return
        columns = np.concatenate([first + starts.hours_column for first, starts in self.entries])
        numbers = np.concatenate([starts.hours_row for _, starts in self.entries])
        gpu_h = np.concatenate([starts.gpu_h for _, starts in self.entries])
        order = np.argsort(numbers, kind="stable")
        numbers, columns, gpu_h = numbers[order], columns[order], gpu_h[order]
        cuts = np.flatnonzero(np.diff(numbers)) + 1
        for begin, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(numbers)], strict=True):
            if begin < end:
                place, bucket = divmod(int(numbers[begin]), BUCKETS)
                row = self.gpu_hours[place][bucket]
                row.columns, row.coefficients = columns[begin:end].tolist(), gpu_h[begin:end].tolist()

    def _use_caps(self, column: int, job: JobView, place: int) -> None:
        for row, adds in zip(self.cap_rows, self.caps.adds(job, self.world.places[place]), strict=True):
            later = self.out.kind[column] is Kind.LATER and not row.name.endswith(f"/{CapUnit.USD.value}")
            row.add(column, 0.0 if later else adds)

    def _fit_rows(self) -> None:
        """Room on hosts now: one row per step of GPUs (exact for gangs of powers of two), and totals of CPU and memory."""
        for place, columns in enumerate(self.fit):
            if not columns:
                continue
            lot, key = self.lots[place], self.world.places[place].key
            steps = sorted({1, 2, 4, 8, *(job.gpus for _, job in columns)} - {0})
            for step in steps:
                row = Row(f"fit/{key}/{step}", -np.inf, float(sum(h.gpus // step for h in lot.hosts)))
                for column, job in columns:
                    row.add(column, float(job.nodes * (job.gpus // step)))
                self.out.rows.append(row)
            cpus = Row(f"cpus/{key}", -np.inf, float(sum(h.cpus_milli for h in lot.hosts)))
            memory = Row(f"memory/{key}", -np.inf, float(sum(h.memory_mib for h in lot.hosts)))
            for column, job in columns:
                cpus.add(column, float(job.nodes * job.cpus_milli))
                memory.add(column, float(job.nodes * job.memory_mib))
            self.out.rows += [cpus, memory]

    def _spare(self, place: int) -> Row:
        """GPUs beside the jobs that rent there: sharers never exceed them."""
        return self._row(f"spare/{self.world.places[place].key}", 0.0)

    def _available(self, place: int) -> Row:
        offer = self.world.places[place].offer
        return self._row(
            f"available/{self.world.places[place].key}", float(offer.offer.available if offer else 0)
        )

    def _row(self, name: str, high: float) -> Row:
        if name not in self.named:
            self.named[name] = Row(name, -np.inf, high)
            self.out.rows.append(self.named[name])
        return self.named[name]

    def _guarantee_rows(self) -> None:
        """Guaranteed GPUs, as far as there is work that wants them; what is short is charged."""
        for guarantee in self.world.guarantees:
            mine = [
                k for k, members in enumerate(self.out.classes) if under(members[0].queue, guarantee.queue)
            ]
            wanted = sum(job.gpus_total for k in mine for job in self.out.classes[k] if self.world.home(job))
            used = self.world.in_use(guarantee)
            target = min(guarantee.gpus, used + wanted) - used
            if target <= 0:
                continue
            row = Row(f"guarantee/{guarantee.queue}/{guarantee.model}", float(target), np.inf)
            chosen = set(mine)
            for column, kind in enumerate(self.out.kind):
                if kind is Kind.NOW and self.out.klass[column] in chosen:
                    at = self.world.places[self.out.place[column]]
                    if not at.rented and guarantee.model in ("", at.model):
                        row.add(column, float(self.out.classes[self.out.klass[column]][0].gpus_total))
            price = guarantee.shortfall_usd_gpu_h * SHORTFALL_H
            row.add(self.out.add(Kind.SLACK, -1, -1, price, float(target)), 1.0)
            self.out.rows.append(row)
