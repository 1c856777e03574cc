"""Caps as running totals: how much of each is used, and which one stops a job.

Queue limits count GPUs and jobs, and licences are counted as such; burst policies cap hourly rent, instances and money. What runs already counts, what this
plan adds counts, and the worst case is what counts against money.
"""

from collections.abc import Sequence

from federator.model.reasons import CapReached
from federator.model.rules import CapRow, CapUnit, admits_queue, in_scope
from federator.model.snapshot import BusyView, JobView, PoolView, Snapshot
from federator.planning.kernels.start_cost import machines_usd
from federator.planning.places.candidates import Candidate, machines, of_pool
from federator.planning.rules.permits import worst_rent_s, worst_usd
from federator.planning.rules.rulebook import capped, matches

QUEUE_UNITS = frozenset({CapUnit.GPUS, CapUnit.JOBS, CapUnit.LICENSES})
"""Of caps on what is in use."""
EPSILON = 1e-6


def additional_worst_usd(job: JobView, at: Candidate, now: float) -> float:
    """The most that starting the job there adds to what budgets have committed already."""
    if at.standing is None:
        return worst_usd(job, at)
    moves_usd = at.transfer(job).usd
    if not at.rented or at.standing.paid_until_at is None:
        return moves_usd
    end = max(now, at.standing.ready_at or now) + worst_rent_s(job, at)
    beyond_s = max(0.0, end - at.standing.paid_until_at - at.standing.tail_s)
    return moves_usd + float(machines_usd(at.instance_usd_h, 1, beyond_s))


class Caps:
    """The cap rows of one snapshot with what is used of each."""

    def __init__(self, snapshot: Snapshot, rows: Sequence[CapRow]) -> None:
        """Count what runs and what is rented now."""
        self.rows = tuple(rows)
        self.used = [0.0] * len(self.rows)
        self.now = snapshot.taken_at
        self.counting: dict[tuple[object, ...], list[tuple[int, CapRow]]] = {}
        for number, row in enumerate(self.rows):
            self.used[number] = sum(standing_use(row, pool) for pool in snapshot.pools)
            if row.unit is CapUnit.USD:
                self.used[number] += sum(
                    view.spent_usd + view.committed_usd
                    for view in snapshot.spend
                    if (view.policy, view.period, view.share) == (row.policy, row.period, row.share)
                )

    def copy(self) -> "Caps":
        """An independent copy."""
        other = Caps.__new__(Caps)
        other.rows, other.used, other.now = self.rows, list(self.used), self.now
        other.counting = self.counting  # which rows are about whom never changes
        return other

    def blocking(self, job: JobView, at: Candidate) -> CapRow | None:
        """The first cap that starting the job there would exceed."""
        for number, row in self.about(job):
            adds = self.adds_to(row, job, at)
            if adds and self.used[number] + adds > row.limit + EPSILON:
                return row
        return None

    def reached(self, row: CapRow, job: JobView, at: Candidate) -> CapReached:
        """A cap that stops the job there: how full it is, and what the job would add."""
        return CapReached(
            policy=row.policy,
            unit=row.unit.value,
            limit=float(row.limit),
            used=float(self.used[self.rows.index(row)]),
            adds=self.adds_to(row, job, at),
            period=row.period.value,
            share=row.share,
            scope=(*row.scope.owners, *row.scope.queues),
            license=row.license,
        )

    def adds(self, job: JobView, at: Candidate) -> tuple[float, ...]:
        """What starting the job there adds to each row."""
        return tuple(self.adds_to(row, job, at) for row in self.rows)

    def take(self, job: JobView, at: Candidate) -> None:
        """Count the job in."""
        for number, row in self.about(job):
            self.used[number] += self.adds_to(row, job, at)

    def end_busy(self, busy: BusyView, pool: PoolView) -> None:
        """Count out work that ran before this plan."""
        for number, row in enumerate(self.rows):
            if row.unit in QUEUE_UNITS:
                self.used[number] -= busy_use(row, busy, pool)

    def about(self, job: JobView) -> list[tuple[int, CapRow]]:
        """The rows that count such a job; with a cap for every user there are many that do not."""
        key = (job.queue, job.owner, *sorted(job.labels.items()), *sorted(job.licenses))
        if key not in self.counting:
            self.counting[key] = [(n, row) for n, row in enumerate(self.rows) if capped(row, job)]
        return self.counting[key]

    def adds_to(self, row: CapRow, job: JobView, at: Candidate) -> float:
        """What starting the job there adds to one row."""
        if not (matches(row.scope, job) and at.selected_by(row.pools)):
            return 0.0
        if row.unit in QUEUE_UNITS:
            return float(row.counts(job.gpus_total, job.licenses))
        if row.unit is CapUnit.USD:
            return additional_worst_usd(job, at, self.now)
        if at.offer is None:
            return 0.0
        each = 1.0 if row.unit is CapUnit.INSTANCES else at.instance_usd_h
        return each * machines(job, at)


def row_names(rows: Sequence[CapRow]) -> list[str]:
    """What each cap is called among the rows of a model: policy and unit, and a number where several share them, as one for every owner does."""
    names: list[str] = []
    counts: dict[str, int] = {}
    for row in rows:
        name = f"{row.policy}/{row.unit.value}"
        count = counts[name] = counts.get(name, 0) + 1
        names.append(name if count == 1 else f"{name}/{count}")
    return names


def busy_use(row: CapRow, busy: BusyView, pool: PoolView) -> float:
    """What one running placement counts for a cap on what is in use; local work of the site counts for none."""
    if busy.placement is None or not in_scope(
        row.scope, queue=busy.queue, owner=busy.owner, labels=busy.labels
    ):
        return 0.0
    if not of_pool(pool).selected_by(row.pools):
        return 0.0
    return float(row.counts(busy.gpus_total, busy.licenses, float(busy.leads)))


def standing_use(row: CapRow, pool: PoolView) -> float:
    """What a pool contributes to a cap as things stand: its running placements, or its rent."""
    if row.unit in QUEUE_UNITS:
        return sum(busy_use(row, busy, pool) for busy in pool.busy)
    if row.unit is CapUnit.USD or pool.lease is None:
        return 0.0
    at = of_pool(pool)
    ours = not pool.rented_queue or admits_queue(row.scope.queues, pool.rented_queue)
    if not (ours and at.selected_by(row.pools)):
        return 0.0
    return 1.0 if row.unit is CapUnit.INSTANCES else at.instance_usd_h
