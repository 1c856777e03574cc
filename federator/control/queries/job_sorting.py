"""Jobs in the orders that people ask for: by deadline, size, cost and the like, so that a page of any order costs what it shows.

An order is made when it is first asked for, and then kept up to date change by change: to sort 100,000 jobs anew for each page would take longer than a turn.
It has the cells of the job index – jobs of one owner, queue, status and team – with a sorted list in each, single jobs apart from tasks of arrays. Orders that
nobody asks for any more are dropped.
"""

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import merge
from typing import Literal, NamedTuple, Protocol

from federator.control.record.job_index import CellKey, cell_of
from federator.control.record.records import Changes, Records
from federator.model.jobs import TERMINAL, Job, JobStatus
from federator.model.plans import Waiting
from federator.wire.http import JobOrder

Value = float | str
Key = tuple[Value, str]
"""A job's value, and its id: jobs of one value are in the order of their submission."""
InOrder = JobOrder | Literal["late"]
"""What people can sort by, and by how much each misses its deadline."""
AFTER_ALL = "~"
"""Comes after every id."""
LATE = float("inf")
"""Of a moment that nobody knows: after all that are known."""
OF_THE_PLAN = frozenset({"ends", "late", "reason", "starts"})
"""Orders that a later plan makes anew."""
REST = 20.0
"""They are good for so many times as long as it took to make them, whatever is planned meanwhile: who looks costs a twentieth of the loop at most."""
STEP = 1000
"""Jobs looked at in one go while an order is made."""
UNUSED = 50_000
"""After so many changes of jobs for which nobody has asked for an order, it is dropped."""


class _Place(NamedTuple):
    cell: CellKey
    task: bool
    value: Value


class OrderedJobs:
    """All jobs by one value."""

    def __init__(self, value: Callable[[Job], Value]) -> None:
        """Of no job yet: `build` comes first."""
        self.unused = 0
        self.stamp: object = None
        """Of what the values are, beside the jobs themselves."""
        self.good_until = 0.0
        """Until when it is good, whatever the stamp; in the loop's seconds."""
        self.built = False
        """Whether its lists are there."""
        self._value = value
        self._places: dict[str, _Place] = {}
        self._lists: dict[tuple[CellKey, bool], list[Key]] = {}
        self._meanwhile: list[tuple[Callable[[str, _Place], None], str, _Place]] = []
        """What has changed while the lists are made."""

    async def build(self, jobs: Mapping[str, Job]) -> None:
        """Look at all jobs, in steps: others have their turn between them, and `put` and `drop` what they change."""
        for number, name in enumerate(list(jobs)):
            if number % STEP == 0:
                await asyncio.sleep(0)
            job = jobs.get(name)
            if job is not None and name not in self._places:
                self._places[name] = self._place(job)
        places = list(self._places.items())
        self._meanwhile.clear()
        for number, (name, place) in enumerate(places):
            if number % STEP == 0:
                await asyncio.sleep(0)
            self._lists.setdefault(place[:2], []).append((place.value, name))
        for keys in self._lists.values():
            await asyncio.sleep(0)
            keys.sort()
        self.built = True
        for act, name, place in self._meanwhile:
            act(name, place)
        self._meanwhile.clear()

    def put(self, job: Job) -> None:
        """The job is on record, for the first time or again."""
        place = self._place(job)
        if self._places.get(job.id) != place:
            self.drop(job.id)
            self._places[job.id] = place
            self._change(self._insert, job.id, place)

    def drop(self, job: str) -> None:
        """It is on record no more."""
        place = self._places.pop(job, None)
        if place is not None:
            self._change(self._remove, job, place)

    def key(self, job: str) -> Key:
        """Where a job comes."""
        return self._places[job].value, job

    def has(self, job: str, value: Value) -> bool:
        """Whether a job has that value."""
        place = self._places.get(job)
        return place is not None and place.value == value

    def lists(self, wanted: Callable[[CellKey], bool], *, tasks: bool) -> list[list[Key]]:
        """Sorted lists of the jobs of some cells, with the tasks of arrays or without."""
        return [keys for (cell, task), keys in self._lists.items() if (tasks or not task) and wanted(cell)]

    def equal(self, value: str, wanted: Callable[[CellKey], bool]) -> Iterator[str]:
        """Ids of the jobs of some cells that have that value, in no order."""
        for keys in self.lists(wanted, tasks=True):
            for number in range(bisect_left(keys, (value, "")), len(keys)):
                if keys[number][0] != value:
                    break
                yield keys[number][1]

    def above(self, value: float, wanted: Callable[[CellKey], bool]) -> Iterator[str]:
        """Ids of the jobs of some cells whose value is larger, in no order."""
        for keys in self.lists(wanted, tasks=True):
            yield from (name for _, name in keys[bisect_left(keys, (value, AFTER_ALL)) :])

    def exceeds(self, job: str, value: float) -> bool:
        """Whether a job's value is larger."""
        place = self._places.get(job)
        return place is not None and float(place.value) > value

    def of_array(self, array: str, jobs: Iterable[str], *, largest: bool) -> Key:
        """Where an array comes: as the first of these tasks of it."""
        values = [self._places[job].value for job in jobs]
        return (max(values) if largest else min(values)), array

    def _change(self, act: Callable[[str, _Place], None], job: str, place: _Place) -> None:
        if self.built:
            act(job, place)
        else:
            self._meanwhile.append((act, job, place))

    def _insert(self, job: str, place: _Place) -> None:
        insort(self._lists.setdefault(place[:2], []), (place.value, job))

    def _remove(self, job: str, place: _Place) -> None:
        keys = self._lists[place[:2]]
        del keys[bisect_left(keys, (place.value, job))]
        if not keys:
            del self._lists[place[:2]]

    def _place(self, job: Job) -> _Place:
        return _Place(cell_of(job), job.array is not None, self._value(job))


class Told(Protocol):
    """What a plan says of jobs, see `Explainer`."""

    def found(self, job_id: str) -> Waiting | None:
        """Of one that waits."""

    def reason_of(self, job: Job) -> str:
        """The kind of the reason why it waits, or is as it is."""


class JobOrders:
    """The orders that were asked for lately."""

    def __init__(self, records: Records, told: Told, plan: Callable[[], object]) -> None:
        """`plan`: the one of which `told` tells."""
        self._records = records
        self._told = told
        self._plan = plan
        self._orders: dict[InOrder, OrderedJobs] = {}
        self._one_at_a_time = asyncio.Lock()
        self._values = self._all()
        records.subscribe(self._note)

    async def of(self, name: InOrder) -> OrderedJobs:
        """All jobs in that order. To be used at once: what changes later moves its jobs."""
        async with self._one_at_a_time:
            clock = asyncio.get_running_loop().time
            begun = clock()
            stamp = self._plan() if name in OF_THE_PLAN else None
            order = self._orders.get(name)
            if order is None or (order.stamp is not stamp and begun >= order.good_until):
                order = self._orders[name] = OrderedJobs(self._values[name])
                order.stamp = stamp
                try:
                    await order.build(self._records.jobs)
                except BaseException:
                    self._orders.pop(name, None)
                    raise
                order.good_until = clock() + REST * (clock() - begun)
            order.unused = 0
            return order

    def _note(self, changes: Changes) -> None:
        if not self._orders:
            return
        jobs = [row for row in changes.rows.values() if isinstance(row, Job)]
        gone = [key.removeprefix("job/") for key in changes.deletes if key.startswith("job/")]
        for name, order in list(self._orders.items()):
            order.unused += len(jobs) + len(gone)
            if order.built and order.unused > UNUSED:
                del self._orders[name]
                continue
            for job in jobs:
                order.put(job)
            for job_id in gone:
                order.drop(job_id)

    def _all(self) -> dict[InOrder, Callable[[Job], Value]]:
        return {
            "deadline": lambda job: LATE if job.deadline_at is None else job.deadline_at,
            "ends": self._ends_at,
            "finished": lambda job: job.finished_at or 0.0,
            "gpus": self._gpus,
            "late": self._late_s,
            "name": lambda job: job.name,
            "owner": lambda job: job.owner,
            "priority": lambda job: job.priority,
            "queue": lambda job: job.queue,
            "reason": self._told.reason_of,
            "site": self._site,
            "spent": lambda job: job.spent_usd,
            "started": lambda job: job.started_at or 0.0,
            "starts": self._starts_at,
            "status": lambda job: str(job.status),
            "submitted": lambda job: job.submitted_at,
        }

    def _gpus(self, job: Job) -> float:
        spec, placement = self._records.spec(job.spec_hash), self._records.placements.get(job.placement or "")
        has = spec if placement is None or placement.ended else spec.as_form(placement.form)
        return has.nodes * has.resources.gpus.total

    def _site(self, job: Job) -> str:
        placement = self._records.placements.get(job.placement or "")
        return placement.site if placement is not None else ""

    def _starts_at(self, job: Job) -> float:
        waiting = None if job.status in TERMINAL else self._told.found(job.id)
        at = waiting.expected_start_at if waiting is not None else None
        return LATE if at is None else at

    def _late_s(self, job: Job) -> float:
        """By how many seconds it is expected to miss its deadline; 0 where nothing is said of its end."""
        if job.deadline_at is None or job.terminal:
            return 0.0
        if job.status is JobStatus.PENDING and self._told.found(job.id) is None:
            return 0.0
        placement = self._records.placements.get(job.placement or "")
        if job.status is not JobStatus.PENDING and (placement is None or placement.ended):
            return 0.0
        return max(0.0, self._ends_at(job) - job.deadline_at)

    def _ends_at(self, job: Job) -> float:
        if job.status in TERMINAL:
            return LATE
        placement = self._records.placements.get(job.placement or "")
        if placement is not None and not placement.ended:
            at = placement.expected_end_at
        else:
            waiting = self._told.found(job.id)
            at = waiting.expected_finish_at if waiting is not None else None
        return LATE if at is None else at


def in_order(lists: Iterable[list[Key]], after: Key | None, *, largest: bool) -> Iterator[Key]:
    """Sorted lists as one, from what comes after a place on; `largest` first, or smallest."""
    return merge(*(_from(keys, after, largest=largest) for keys in lists), reverse=largest)


def _from(keys: list[Key], after: Key | None, *, largest: bool) -> Iterator[Key]:
    if largest:
        end = len(keys) if after is None else bisect_left(keys, after)
        return (keys[number] for number in range(end - 1, -1, -1))
    begin = 0 if after is None else bisect_right(keys, after)
    return (keys[number] for number in range(begin, len(keys)))
