"""The jobs in order, by what people and loops ask for: so that an answer costs what it shows, and not what there is.

Ids are in the order of submission, so every list here is a sorted list of ids, kept up to date by one bisection per change. Jobs of one
owner, queue, status and team share a *cell*; there are few of those, however many jobs, and a page or a count is put together from them.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import merge
from itertools import islice, takewhile

from federator.control.record.array_limits import AT_REST, ArrayLimits
from federator.control.record.unexpanded import Unexpanded
from federator.model.arrays import JobArray, task_id
from federator.model.jobs import TERMINAL, Follows, Job, JobStatus

CellKey = tuple[str, str, JobStatus, str]
"""Owner, queue, status, team."""
NEWEST = 100
"""Jobs of one name and owner among which one is looked for that is shown to somebody."""


class JobIndex:
    """Sorted ids of the jobs in a dictionary that others keep. Told of every change by `put` and `drop`."""

    def __init__(self, jobs: Mapping[str, Job], arrays: Mapping[str, JobArray]) -> None:
        self._jobs = jobs
        self.unexpanded = Unexpanded(arrays)
        """Tasks of arrays that are no jobs yet."""
        self._cells: dict[CellKey, list[str]] = {}
        self._names: dict[str, dict[str, list[str]]] = {}
        """Ids by name and owner."""
        self._specs: dict[str, list[str]] = {}
        """Ids by the hash of their spec."""
        self._tasks: dict[str, dict[CellKey, list[str]]] = {}
        """Ids of the tasks of each array, by cell."""
        self._followers: dict[str, set[str]] = {}
        """Open jobs by the names (of jobs or arrays) that they must follow."""
        self.limits = ArrayLimits(lambda name: jobs.get(name) or self.unexpanded.task(name))
        """Which tasks may start of arrays of which only some may run at once."""
        self.unsettled: set[str] = set()
        """Open jobs that must follow others, and may never: new ones, and those one of whose predecessors has failed."""

    def put(self, former: Job | None, job: Job) -> None:
        """The job is on record, in place of `former`."""
        cell = cell_of(job)
        if former is None:
            _insert(self._names.setdefault(job.name, {}).setdefault(job.owner, []), job.id)
            _insert(self._specs.setdefault(job.spec_hash, []), job.id)
            _insert(self._cells.setdefault(cell, []), job.id)
        elif cell_of(former) != cell:
            self._leave(former)
            _insert(self._cells.setdefault(cell, []), job.id)
        if former is not None and former.spec_hash != job.spec_hash:
            self._leave_spec(former)
            _insert(self._specs.setdefault(job.spec_hash, []), job.id)
        if job.array is not None and (former is None or cell_of(former) != cell):
            if former is not None:
                self._leave_array(former)
            _insert(self._tasks.setdefault(job.array, {}).setdefault(cell, []), job.id)
        self.limits.put(job, self._followers.get(job.id, ()))
        for name in job.after:
            if job.terminal:
                self._unfollow(name, job.id)
            else:
                self._followers.setdefault(name, set()).add(job.id)
        if former is None and job.after:
            self.unsettled.add(job.id)
        if job.terminal:
            self.unsettled |= self._unsettled_by(job)

    def put_array(self, former: JobArray | None, array: JobArray) -> None:
        """What is left of an array is on record, in place of `former`."""
        self.unexpanded.put(array)
        if former is not None and former.cancelled != array.cancelled:
            self.unsettled |= self.followers_of(array)

    def followers_of(self, array: JobArray) -> set[str]:
        """Open jobs that must follow the array, or a task of it."""
        last = task_id(array.id, len(array.indices) - 1)
        names = [name for name in self._followers if array.id <= name <= last]
        return {job for name in names for job in self._followers[name]}

    def drop(self, job: Job) -> None:
        """The job is on record no more."""
        self._leave(job)
        self.limits.drop(job)
        if job.array is not None:
            self._leave_array(job)
        owners = self._names[job.name]
        _remove(owners[job.owner], job.id)
        if not owners[job.owner]:
            del owners[job.owner]
        if not owners:
            del self._names[job.name]
        self._leave_spec(job)
        for name in job.after:
            self._unfollow(name, job.id)

    def _leave_spec(self, job: Job) -> None:
        _remove(self._specs[job.spec_hash], job.id)
        if not self._specs[job.spec_hash]:
            del self._specs[job.spec_hash]

    # -- counts -------------------------------------------------------------------------------------------------------

    def counts(self) -> dict[JobStatus, int]:
        """How many jobs there are of each status."""
        found: dict[JobStatus, int] = {}
        for (_, _, status, _), ids in self._cells.items():
            found[status] = found.get(status, 0) + len(ids)
        for (_, _, status, _), count in self.unexpanded.cells():
            found[status] = found.get(status, 0) + count
        return found

    def pending_by_queue(self) -> dict[str, int]:
        """How many jobs wait in each queue itself, those below it left out."""
        found: dict[str, int] = {}
        for (_, queue, status, _), ids in self._cells.items():
            if status is JobStatus.PENDING:
                found[queue] = found.get(queue, 0) + len(ids)
        for (_, queue, status, _), count in self.unexpanded.cells():
            if status is JobStatus.PENDING:
                found[queue] = found.get(queue, 0) + count
        return found

    def oldest_pending(self) -> dict[str, float]:
        """When the longest waiting job of each queue itself was submitted."""
        found: dict[str, float] = {}
        for (_, queue, _, _), ids in self.cells(JobStatus.PENDING):
            at = self._jobs[ids[0]].submitted_at
            found[queue] = min(at, found.get(queue, at))
        return found

    def cells(self, status: JobStatus) -> list[tuple[CellKey, list[str]]]:
        """The cells of that status with their ids, in order; not to be changed."""
        return [(cell, ids) for cell, ids in self._cells.items() if cell[2] is status and ids]

    def running_queues(self) -> set[str]:
        """Queues with jobs that have been placed."""
        return {queue for _, queue, status, _ in self._cells if status not in AT_REST}

    def open_queues(self) -> set[str]:
        """Queues with jobs that are not terminal."""
        return {queue for _, queue, status, _ in self._cells if status not in TERMINAL}

    # -- who ----------------------------------------------------------------------------------------------------------

    def newest(self, name: str, owner: str) -> Job | None:
        """That owner's newest job of that name."""
        ids = self._names.get(name, {}).get(owner)
        return self._jobs[ids[-1]] if ids else None

    def newest_of_all(self, name: str, shown: Callable[[Job], bool]) -> Job | None:
        """The newest job of that name that is shown, whoever owns it, among the newest hundred of each owner."""
        each = (
            next((job for job in reversed(ids[-NEWEST:]) if shown(self._jobs[job])), None)
            for ids in self._names.get(name, {}).values()
        )
        newest = max((job for job in each if job is not None), default=None)
        return self._jobs[newest] if newest is not None else None

    def labelled(self, name: str, owner: str, index: int) -> Job | None:
        """That owner's newest task of that name with that index: the tasks of an array were named in one go, in the order of their indices."""
        ids = self._names.get(name, {}).get(owner, [])
        end = len(ids)
        while end:
            newest = self._jobs[ids[end - 1]]
            if newest.array is None:
                end -= 1
                continue
            first = bisect_left(ids, newest.array, 0, end)
            found = bisect_left(ids, index, first, end, key=lambda job: self._jobs[job].array_index or 0)
            if found < end and self._jobs[ids[found]].array_index == index:
                return self._jobs[ids[found]]
            if self.unexpanded.covers(newest.array, index):
                return self.unexpanded.indexed(newest.array, index)
            end = first
        return None

    def task(self, array: str, tasks: Mapping[str, Job], index: int) -> Job | None:
        """The task of that index of an array, of which these are the tasks."""
        one = next(iter(tasks.values()))
        ids = self._names[one.name][one.owner]
        first = bisect_left(ids, array)
        last = first + len(tasks)
        found = bisect_left(ids, index, first, last, key=lambda job: self._jobs[job].array_index or 0)
        task = self._jobs[ids[found]] if found < last else None
        if task is not None and task.array_index == index:
            return task
        return self.unexpanded.indexed(array, index)

    def owners_of(self, name: str) -> list[str]:
        """Who has jobs of that name."""
        return list(self._names.get(name, ()))

    def named(self, name: str) -> list[str]:
        """Ids of all jobs of that name, in no order."""
        return [job for ids in self._names.get(name, {}).values() for job in ids]

    def about(self, text: str) -> Iterator[str]:
        """Ids of all jobs whose name has that text somewhere, capitals left out of account, or whose id begins with it; in no order."""
        for name, owners in self._names.items():
            whole = text in name.lower()
            for ids in owners.values():
                if whole:
                    yield from ids
                elif text.startswith("job-"):
                    yield from takewhile(lambda each: each.startswith(text), ids[bisect_left(ids, text) :])

    def beginning(self, prefix: str, limit: int) -> list[str]:
        """At most so many ids that begin like that, in no order."""
        found: list[str] = []
        for ids in self._cells.values():
            begin = bisect_left(ids, prefix)
            found += takewhile(lambda each: each.startswith(prefix), islice(ids, begin, begin + limit))
            if len(found) >= limit:
                break
        return found[:limit]

    def of_spec(self, digest: str) -> list[str]:
        """Ids of the jobs of that spec."""
        return self._specs.get(digest, [])

    def followers(self, job: Job) -> set[str]:
        """Open jobs that must follow this one, or the array that it is of."""
        return self._followers.get(job.id, set()) | self._followers.get(job.array or "", set())

    def _unsettled_by(self, ended: Job) -> set[str]:
        """Those of its followers that may never start now."""
        followers = self.followers(ended)
        if ended.status is not JobStatus.SUCCEEDED:
            return followers
        return {name for name in followers if Follows.FAILED in self._jobs[name].after_how}

    # -- arrays -------------------------------------------------------------------------------------------------------

    def task_counts(self, array: str) -> dict[JobStatus, int]:
        """How many tasks of the array are in each status, those that are not expanded among them."""
        counts = self.unexpanded.counts(array)
        for (_, _, status, _), ids in self._tasks.get(array, {}).items():
            counts[status] = counts.get(status, 0) + len(ids)
        return counts

    def waiting_tasks(self, array: str) -> int:
        """How many jobs of the array wait."""
        return sum(map(len, self.tasks(array, JobStatus.PENDING)))

    def tasks(self, array: str, status: JobStatus) -> list[list[str]]:
        """Ids of the tasks in that status, in order within each cell: no list is made of all of them."""
        return [ids for (_, _, each, _), ids in self._tasks.get(array, {}).items() if each is status]

    def more_tasks(self, wanted: Callable[[CellKey], bool]) -> int:
        """How many jobs of some cells are tasks of an array beside its first there."""
        counts = (
            sum(len(ids) for cell, ids in cells.items() if wanted(cell)) for cells in self._tasks.values()
        )
        return sum(count - 1 for count in counts if count)

    def arrays_of(self, wanted: Callable[[CellKey], bool]) -> Iterator[tuple[str, Iterable[str]]]:
        """Each array of which there are tasks in some cells, with those."""
        for array, cells in self._tasks.items():
            found = [ids for cell, ids in cells.items() if wanted(cell)]
            if found:
                yield array, (job for ids in found for job in ids)

    def _leave_array(self, job: Job) -> None:
        tasks, cell = self._tasks[job.array or ""], cell_of(job)
        _remove(tasks[cell], job.id)
        if not tasks[cell]:
            del tasks[cell]
        if not tasks:
            del self._tasks[job.array or ""]

    # -- pages --------------------------------------------------------------------------------------------------------

    def of_cells(self, wanted: Callable[[CellKey], bool], more: list[str] | None = None) -> "Cells":
        """The jobs of some cells, and `more`: sorted ids of jobs that are in none of them."""
        found = [ids for key, ids in self._cells.items() if ids and wanted(key)]
        return Cells([*found, more] if more else found)

    def oldest(self, limit: int, wanted: Callable[[CellKey], bool]) -> list[str]:
        """At most so many ids of some cells in order: of open jobs, and then of terminal ones."""
        cells = [(key[2] in TERMINAL, ids) for key, ids in self._cells.items() if wanted(key)]
        found = list(islice(merge(*(ids for terminal, ids in cells if not terminal)), limit))
        ended = merge(*(ids for terminal, ids in cells if terminal))
        return found + list(islice(ended, limit - len(found)))

    def _leave(self, job: Job) -> None:
        cell = cell_of(job)
        _remove(self._cells[cell], job.id)
        if not self._cells[cell]:
            del self._cells[cell]

    def _unfollow(self, name: str, job: str) -> None:
        followers = self._followers.get(name)
        if followers is not None:
            followers.discard(job)
            if not followers:
                del self._followers[name]


class Cells:
    """Jobs of several cells, as one list that is newest first. To be used at once: it is a view of what changes."""

    def __init__(self, lists: list[list[str]]) -> None:
        self._lists = lists

    def __len__(self) -> int:
        return sum(len(ids) for ids in self._lists)

    def __iter__(self) -> Iterator[str]:
        return self.before(None)

    def before(self, name: str | None) -> Iterator[str]:
        """Ids that sort before `name` (None: all), newest first."""
        return merge(*(_down(ids, name) for ids in self._lists), reverse=True)

    def within(self, low: str | None, high: str | None) -> Iterator[str]:
        """Ids from `low` on that sort before `high` (None: no bound), in no order."""
        for ids in self._lists:
            begin = 0 if low is None else bisect_left(ids, low)
            end = len(ids) if high is None else bisect_left(ids, high)
            yield from islice(ids, begin, end)

    def ids(self) -> Iterable[str]:
        """All ids, in no order: for a filter that has to look at each."""
        return (job for ids in self._lists for job in ids)


def cell_of(job: Job) -> CellKey:
    """The cell that a job is in."""
    return job.owner, job.queue, job.status, job.team


def _down(ids: list[str], before: str | None) -> Iterator[str]:
    """The ids below `before`, from its place downwards."""
    end = len(ids) if before is None else bisect_left(ids, before)
    return (ids[number] for number in range(end - 1, -1, -1))


def _insert(ids: list[str], job: str) -> None:
    """Mostly at the end: new ids are the greatest."""
    if not ids or ids[-1] < job:
        ids.append(job)
        return
    ids.insert(bisect_left(ids, job), job)


def _remove(ids: list[str], job: str) -> None:
    del ids[bisect_left(ids, job)]
