"""Expansion: tasks of large arrays become jobs, in the order of their indices, while few enough of their array wait.

Jobs and what is left of their array are one transaction: whatever happens in between, each task becomes a job once.
"""

import asyncio
from collections.abc import Iterable
from functools import partial

from msgspec.structs import replace

from federator.control.record.event_writer import EventWriter
from federator.control.record.records import Changes, Records, row_key
from federator.kernel.errors import Conflict
from federator.model.arrays import JobArray, Span, Spans, first_of, has, joined, size, task_id, without
from federator.model.jobs import Follows, Job, JobStatus

PART = 50
"""Tasks per transaction: two rows each, beside a few that all share; stores take 120 rows at once."""
TURN_S = 0.001
"""Real seconds after each transaction in which others have their turn."""
MOST_SPANS = 5_000
"""Pieces that the tasks of an array may be in which are not expanded, or were cancelled before they were: they are one row, which every change writes."""
PAUSE_S = 0.05
"""Real seconds between two looks: tasks that start one by one are followed by many at once."""


class Expansion:
    """Makes jobs of tasks when there is room for them in their array's window."""

    def __init__(self, records: Records, event_writer: EventWriter) -> None:
        self._records = records
        self._event_writer = event_writer
        self._news = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._changed: set[str] = set()
        """Arrays that may have room."""
        records.subscribe(self._hear)

    async def run(self) -> None:
        """Go on with every array, now and whenever tasks have started."""
        self._changed |= set(self._records.job_arrays)
        while True:
            changed, self._changed = self._changed, set()
            for array in sorted(changed):
                await self.fill(array)
            if not self._changed:
                await self._news.wait()
            self._news.clear()
            await asyncio.sleep(PAUSE_S)

    async def fill(self, array: str) -> None:
        """Make as many jobs of it as may wait, and no more than that many however quickly they start meanwhile."""
        row = self._records.job_arrays.get(array)
        for _ in range(0, row.window if row is not None else 0, PART):
            # One at a time, and with a pause: whoever loses a race for the array's row tries again at once, and comes before the next part.
            async with self._one_at_a_time:
                if not await self._records.transact(partial(self._some, array)):
                    return
                await asyncio.sleep(TURN_S)

    def _some(self, name: str) -> Changes:
        """As many of an array as go into one transaction, if there is room for a good part of them."""
        changes, array = Changes(), self._records.job_arrays.get(name)
        if array is None or not array.left or array.template.status is not JobStatus.PENDING:
            return changes
        room = array.window - self._records.index.waiting_tasks(name)
        if room < min(PART, size(array.left), max(1, array.window // 10)):
            return changes
        tasks, rest = expanded(self._records, array, min(PART, room))
        for task in tasks:
            put_new(changes, self._event_writer, task)
        changes.put(rest)
        return changes

    def _hear(self, changes: Changes) -> None:
        arrays = self._records.job_arrays
        for row in changes.rows.values():
            if isinstance(row, JobArray):
                self._changed.add(row.id)
            elif isinstance(row, Job) and row.status is not JobStatus.PENDING and row.array in arrays:
                self._changed.add(row.array)
        if self._changed:
            self._news.set()


def expanded(records: Records, array: JobArray, most: int) -> tuple[tuple[Job, ...], JobArray]:
    """The first tasks of an array that are not expanded as jobs, so many at most, and what is left of it then."""
    taken = first_of(array.left, min(most, array.window))
    places = (place for first, end in taken for place in range(first, end))
    tasks = tuple(of_its_own(records, array.task(place)) for place in places)
    return tasks, replace(array, left=without(array.left, taken))


def of_its_own(records: Records, task: Job) -> Job:
    """A task that must follow the task with its index of an array, which is named by its id from now on."""
    if Follows.EACH not in task.after_how:
        return task
    after = (
        _with_its_index(records, name, task) if how is Follows.EACH else name for name, how in task.follows()
    )
    return replace(task, after=tuple(after))


def _with_its_index(records: Records, name: str, task: Job) -> str:
    assert task.array_index is not None, "only a task of an array follows another with its index"
    array = records.job_arrays.get(name)
    if array is not None:
        return task_id(name, array.indices.places((task.array_index,))[0][0])
    tasks = records.arrays.get(name)
    before = records.index.task(name, tasks, task.array_index) if tasks else None
    return name if before is None else before.id


def unexpanded(records: Records, job: Job) -> Job | None:
    """The task with that id as the job that it would become; None for what is one, or will be none."""
    array = records.job_arrays.get(job.array or "")
    place = array.place_of(job.id) if array is not None else None
    if array is None or place is None or not has(array.left, place):
        return None
    return of_its_own(records, array.task(place))


def take_out(records: Records, changes: Changes, tasks: Iterable[Job]) -> None:
    """By these changes tasks become jobs: they are not among those that are left of their arrays any more."""
    taken: dict[str, list[Span]] = {}
    for task in tasks:
        array = records.job_arrays[task.array or ""]
        place = array.place_of(task.id)
        assert place is not None, "it was found by its place"
        taken.setdefault(array.id, []).append((place, place + 1))
    for name, places in taken.items():
        row = changes.rows.get(row_key(records.job_arrays[name]), records.job_arrays[name])
        assert isinstance(row, JobArray)
        changes.put(replace(row, left=without(row.left, joined(places))))


def refuse_pieces(array: JobArray, left: Spans, cancelled: Spans) -> None:
    """Raises `Conflict` where an array would come to be in too many pieces, and in more than now."""
    pieces = len(left) + len(cancelled)
    if pieces > MOST_SPANS and pieces > len(array.left) + len(array.cancelled):
        raise _too_many_pieces(array)


def refuse_more_pieces(array: JobArray) -> None:
    """Raises `Conflict` where an array is in so many pieces that no task may be taken out of it by itself."""
    if len(array.left) + len(array.cancelled) >= MOST_SPANS:
        raise _too_many_pieces(array)


def _too_many_pieces(array: JobArray) -> Conflict:
    return Conflict(
        f"what is left of {array.template.name} would be in over {MOST_SPANS} pieces",
        remedy="name tasks that follow each other",
    )


def put_new(changes: Changes, event_writer: EventWriter, task: Job) -> None:
    """A job that is new, with the first line of its timeline."""
    changes.put(task, event_writer.event(task, "submit", submitted_by(task)))


def submitted_by(task: Job) -> str:
    """The first line of a timeline."""
    return f"submitted by {task.owner} to queue {task.queue}"
