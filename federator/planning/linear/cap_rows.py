"""Rows of caps: what all starts together may use of a limit at once, in each later bucket, and of money until its period ends.

Of now a cap is exact: what runs counts, what starts counts. Later it is a fluid like GPU-hours: in a bucket of an hour, a limit of eight GPUs leaves eight hours less what is
expected to run on. Rates and instances are counted from the moment of renting until the machine is gone. A budget is no rate: whatever is started or rented before its
period ends counts whole, as the dispatcher books it. A cap that all work together could not fill has no rows.
"""

import numpy as np

from federator.model.rules import CapRow, CapUnit, Period
from federator.model.snapshot import JobView
from federator.planning.linear.hours import WIDTHS_H
from federator.planning.linear.starts import Starts
from federator.planning.linear.terms import Terms
from federator.planning.places.host_sets import expected_end
from federator.planning.rules.caps import QUEUE_UNITS, Caps, busy_use, row_names, standing_use
from federator.planning.rules.periods import period_end
from federator.planning.rules.rulebook import capped
from federator.planning.world.buckets import BUCKETS, BUCKETS_H
from federator.planning.world.free_hours import EDGES_H, Floats, Ints
from federator.planning.world.model_arrays import ModelArrays
from federator.planning.world.problem import World


class _Cap:
    """One cap: its row of now, or of the whole period, and its terms in later buckets."""

    def __init__(self, number: int, row: CapRow, name: str, world: World, caps: Caps) -> None:
        self.number, self.row = number, row
        self.now = Terms(f"cap/{name}", -np.inf, max(0.0, row.limit - caps.used[number]))
        self.name = name
        self.selected = np.array([at.selected_by(row.pools) for at in world.places], dtype=bool)
        ends = None if row.period is Period.NOW else period_end(row.period, world.now)
        self.until_s = np.inf if ends is None else ends - world.now
        self.parts: list[tuple[Ints, Ints, Floats]] = []
        """Columns, buckets and uses of the later buckets."""

    @property
    def is_rate(self) -> bool:
        """Whether it is about what is in use at once; else about a sum of money."""
        return self.row.unit is not CapUnit.USD


class CapRows:
    """The caps of one world that its work could fill, while their rows are made. `line`: all work that the rows are to be good for."""

    def __init__(self, world: World, line: World) -> None:
        """Find out which of them matter, and to whom."""
        self.world, self.caps = world, world.caps.copy()
        names = row_names(self.caps.rows)
        wanted = _wanted(line, self.caps)
        self.each = [
            _Cap(number, row, names[number], world, self.caps)
            for number, row in enumerate(self.caps.rows)
            if self.caps.used[number] + wanted[number] > row.limit
        ]
        self._about: dict[int, list[_Cap]] = {}

    def add_starts(self, starts: Starts, numbers: ModelArrays) -> None:
        """Starts of all classes on capacity that exists, now and later: the first columns."""
        ways = numbers.ways
        for cap in self.each:
            about = np.array([capped(cap.row, job) for job in numbers.heads], dtype=bool)
            mine = about[starts.klass] & cap.selected[starts.at]
            if cap.row.unit in QUEUE_UNITS:
                of_jobs = np.array([cap.row.counts(0.0, job.licenses) for job in numbers.heads])
                of_gpus = cap.row.unit is CapUnit.GPUS
                adds = ways["gpus_total"][starts.way] if of_gpus else of_jobs[starts.klass]
                each = np.where(mine, adds, 0.0)
                now = np.flatnonzero(starts.now)
                cap.now.extend(now, each[now])
                used = np.flatnonzero(mine[starts.hours_column])
                columns = starts.hours_column[used]
                cap.parts.append(
                    (columns, starts.hours_row[used] % BUCKETS, each[columns] * starts.hours[used])
                )
            elif cap.row.unit is CapUnit.USD:
                counts = mine & (starts.start_s < cap.until_s)
                cap.now.extend(np.arange(len(counts)), np.where(counts, ways["worst_usd"][starts.way], 0.0))

    def add_rental(self, column: int, job: JobView, place: int, rent_s: float, *, now: bool) -> None:
        """A rental so many seconds from now: a decision of `now`, or one that is put off."""
        at = self.world.places[place]
        delay_s, gone_s = (at.offer.offer.delay_s, at.offer.offer.teardown_s) if at.offer else (0.0, 0.0)
        begins = (rent_s + delay_s) / 3600.0
        ends = begins + at.run_s(job) / 3600.0
        for cap in self._about_job(job):
            adds = self._adds(cap, job, place)
            if (now and cap.is_rate) or (not cap.is_rate and rent_s < cap.until_s):
                cap.now.add(column, adds)
            if adds and cap.is_rate:
                own = cap.row.unit in QUEUE_UNITS
                self._runs(
                    cap,
                    column,
                    adds,
                    begins if own else rent_s / 3600.0,
                    ends if own else ends + gone_s / 3600.0,
                )

    def add_shared_run(self, column: int, job: JobView, place: int, start_s: float) -> None:
        """A run on an instance that is rented for another: it takes of what queues may use, and no money."""
        begins, run_h = start_s / 3600.0, self.world.places[place].run_s(job) / 3600.0
        for cap in self._about_job(job):
            adds = self._adds(cap, job, place) if cap.row.unit in QUEUE_UNITS else 0.0
            if adds:
                self._runs(cap, column, adds, begins, begins + run_h)

    def rows(self) -> list[Terms]:
        """Those of now, and behind them those of later buckets that could bind."""
        return [row for cap in self.each for row in (cap.now, *self._later(cap)) if row]

    def _later(self, cap: _Cap) -> list[Terms]:
        if not cap.parts:
            return []
        columns, buckets, uses = (np.concatenate(parts) for parts in zip(*cap.parts, strict=True))
        order = np.lexsort((columns, buckets))
        columns, buckets, uses = columns[order], buckets[order], uses[order]
        free = _free_hours(cap, self.world)
        rows = []
        for bucket in np.unique(buckets).tolist():
            low, high = np.searchsorted(buckets, (bucket, bucket + 1))
            row = Terms(f"cap-hours/{cap.name}/{BUCKETS_H[bucket]:g}h", -np.inf, float(free[bucket]))
            row.extend(columns[low:high], uses[low:high])
            rows.append(row)
        return rows

    def _about_job(self, job: JobView) -> list[_Cap]:
        key = self.world.key(job.of or job)
        if key not in self._about:
            self._about[key] = [cap for cap in self.each if capped(cap.row, job)]
        return self._about[key]

    def _adds(self, cap: _Cap, job: JobView, place: int) -> float:
        return self.caps.adds_to(cap.row, job, self.world.places[place])

    def _runs(self, cap: _Cap, column: int, adds: float, begin_h: float, end_h: float) -> None:
        hours = np.clip(np.minimum(EDGES_H[1:], end_h) - np.maximum(EDGES_H[:-1], begin_h), 0.0, None)
        used = np.flatnonzero(hours)
        cap.parts.append((np.full(len(used), column), used, adds * hours[used]))


def _wanted(line: World, caps: Caps) -> Floats:
    """The most that all work of a line adds to each cap: infinite for money, which depends on where it runs."""
    wanted = np.array([0.0 if row.unit in QUEUE_UNITS else np.inf for row in caps.rows])
    for members in line.alike.values():
        job, count = members[0], len(members)
        gpus = max(float(job.as_form(n).gpus_total) for n in range(1 + len(job.forms)))
        for number, row in caps.about(job):
            wanted[number] += count * row.counts(gpus, job.licenses)
    return wanted


def _free_hours(cap: _Cap, world: World) -> Floats:
    """What the limit leaves in each bucket, beside what runs until it is expected to end, and what is rented until it is paid for."""
    used: list[tuple[float, float]] = []
    for pool in world.snapshot.pools:
        ends = [expected_end(busy, world.now) for busy in pool.busy]
        if cap.row.unit in QUEUE_UNITS:
            used += [(busy_use(cap.row, busy, pool), end) for busy, end in zip(pool.busy, ends, strict=True)]
        else:
            used.append((standing_use(cap.row, pool), max(world.now, pool.paid_until_at or 0.0, *ends)))
    each, until = np.array([(0.0, world.now), *used]).T
    left_h = (until - world.now)[:, np.newaxis] / 3600.0
    taken: Floats = each @ np.clip(np.minimum(EDGES_H[1:], left_h) - EDGES_H[:-1], 0.0, None)
    return np.maximum(cap.row.limit * WIDTHS_H - taken, 0.0)
