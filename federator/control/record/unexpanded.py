"""Tasks of arrays that are no jobs yet: how many there are, and any of them by its id or index. None of them is held in memory by itself."""

from bisect import bisect_right, insort
from collections.abc import Collection, Iterator, Mapping

from federator.model.arrays import JobArray, Spans, has, size
from federator.model.jobs import Job, JobStatus

Cell = tuple[str, str, JobStatus, str]
"""Owner, queue, status, team."""


class Unexpanded:
    """What is asked of the arrays in a dictionary that others keep. Told of every change by `put` and `drop`."""

    def __init__(self, arrays: Mapping[str, JobArray]) -> None:
        self._arrays = arrays
        self._ids: list[str] = []
        self._left: dict[str, tuple[Cell, int]] = {}
        """Of each array of which tasks are left, in which cell they are and how many."""

    def put(self, array: JobArray) -> None:
        """The array is on record."""
        if array.id not in self._arrays:
            insort(self._ids, array.id)
        job = array.template
        self._left[array.id] = (job.owner, job.queue, job.status, job.team), size(array.left)
        if not array.left:
            del self._left[array.id]

    def drop(self, array: JobArray) -> None:
        """It is on record no more."""
        del self._ids[bisect_right(self._ids, array.id) - 1]
        self._left.pop(array.id, None)

    def cells(self) -> Iterator[tuple[Cell, int]]:
        """How many tasks of each array are left, and where they count."""
        yield from self._left.values()

    def counts(self, array: str) -> dict[JobStatus, int]:
        """How many of its tasks are in each status."""
        row = self._arrays.get(array)
        counts: dict[JobStatus, int] = {}
        if row is not None and row.left:
            counts[row.template.status] = size(row.left)
        if row is not None and row.cancelled:
            counts[JobStatus.CANCELLED] = size(row.cancelled)
        if row is not None and row.archived is not None:
            for status, count in row.archived.tasks.items():
                counts[JobStatus(status)] = counts.get(JobStatus(status), 0) + count
        return counts

    def task(self, name: str) -> Job | None:
        """The task with that id, as people are shown it."""
        array, place = self._place(name)
        return None if array is None else _told(array, place)

    def past(self, name: str) -> Job | None:
        """The task with that id that is in the archive, while others of its array are not: its id and status."""
        array, place = self._place(name)
        return array.past(place) if array is not None and array.archived is not None else None

    def _place(self, name: str) -> tuple[JobArray | None, int]:
        number = bisect_right(self._ids, name) - 1
        array = self._arrays[self._ids[number]] if number >= 0 else None
        place = array.place_of(name) if array is not None else None
        return (None, 0) if place is None else (array, place)

    def covers(self, name: str, index: int) -> bool:
        """Whether that array has a task with that index, whatever has become of it."""
        array = self._arrays.get(name)
        return array is not None and index in array.indices

    def indexed(self, name: str, index: int) -> Job | None:
        """The task of that array with that index."""
        array = self._arrays.get(name)
        places = array.indices.places((index,)) if array is not None else ()
        return _told(array, places[0][0]) if array is not None and places else None

    def one_of(self, name: str, statuses: Collection[JobStatus]) -> Job | None:
        """The first task of that array that is in one of these."""
        array = self._arrays.get(name)
        if array is None:
            return None
        here: list[Spans] = [array.left] if array.template.status in statuses else []
        here += [array.cancelled] if JobStatus.CANCELLED in statuses else []
        first = min((spans[0][0] for spans in here if spans), default=None)
        if first is None and array.archived is not None:
            ended = (
                spans for why, spans in array.archived.ended.items() if why.partition(",")[0] in statuses
            )
            place = min((spans[0][0] for spans in ended), default=None)
            return None if place is None else array.past(place)
        return None if first is None else array.told(first)


def _told(array: JobArray, place: int) -> Job | None:
    return array.told(place) if has(array.left, place) or has(array.cancelled, place) else None
