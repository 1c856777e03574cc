"""Arrays: which indices one has, and which of its tasks are not expanded, which means that they are no jobs yet.

Tasks of an array have places, 0, 1, 2 and so on in the order of their indices, and sets of tasks are spans of places: a million tasks that wait are
one pair of numbers. The id of a task follows from that of its array and its place, so that it is known before the task is a job.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import overload

import msgspec
from msgspec.structs import replace

from federator.kernel.ids import following, value_of
from federator.model.jobs import Job, JobStatus, Outcome, TerminalReason

Span = tuple[int, int]
"""Places from the first number on up to, and without, the second."""
Spans = tuple[Span, ...]
"""In growing order, none of which touches another."""

EVERYWHERE: Spans = ((0, 1 << 62),)
NEVER_A_JOB = f"{JobStatus.CANCELLED}, before it was a job"
"""How a task is said to have ended that was cancelled while it was not expanded."""


class Run(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Indices that are equally far apart."""

    first: int
    count: int
    step: int = 1

    @property
    def last(self) -> int:
        """The greatest of them."""
        return self.first + (self.count - 1) * self.step


class Indices(Sequence[int]):
    """Indices in growing order, as runs: a million of them take no more room than two."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self.runs = tuple(runs)
        self._ends = list(accumulate(run.count for run in self.runs))
        self._firsts = [run.first for run in self.runs]

    @classmethod
    def of(cls, indices: Iterable[int]) -> "Indices":
        """Numbers in growing order, none twice."""
        if isinstance(indices, Indices):
            return indices
        runs: list[Run] = []
        for index in indices:
            last = runs[-1] if runs else None
            if last is not None and (last.count == 1 or index == last.last + last.step):
                runs[-1] = Run(last.first, last.count + 1, index - last.last)
            else:
                runs.append(Run(index, 1))
        return cls(runs)

    @classmethod
    def read(cls, words: str) -> "Indices":
        """Those of which `str` has made these words."""
        runs = list[Run]()
        for part in words.split(",") if words else ():
            span, _, step = part.partition(":")
            first, _, last = span.partition("-")
            apart = int(step or 1)
            runs.append(Run(int(first), (int(last or first) - int(first)) // apart + 1, apart))
        return cls(runs)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[int]:
        for run in self.runs:
            yield from range(run.first, run.last + 1, run.step)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[int]: ...
    def __getitem__(self, place: int | slice) -> int | Sequence[int]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        place += len(self) if place < 0 else 0
        if not 0 <= place < len(self):
            raise IndexError(place)
        number = bisect_right(self._ends, place)
        run = self.runs[number]
        return run.first + (place - self._ends[number] + run.count) * run.step

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int) and self._place(index) is not None

    def index(self, value: int, start: int = 0, stop: int | None = None) -> int:
        """The place of an index. Raises `ValueError` for one that is not among them."""
        place = self._place(value)
        if place is None or not start <= place < (len(self) if stop is None else stop):
            raise ValueError(value)
        return place

    def _place(self, index: int) -> int | None:
        number = bisect_right(self._firsts, index) - 1
        run = self.runs[number] if number >= 0 else None
        if run is None or index > run.last or (index - run.first) % run.step:
            return None
        return self._ends[number] - run.count + (index - run.first) // run.step

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(int.__eq__, self, other))

    def __hash__(self) -> int:
        return hash(self.runs)

    def __repr__(self) -> str:
        return f"Indices({self})"

    def __str__(self) -> str:
        """As people write them: `0-99`, `0-9,20`, `0-99:5`."""
        return ",".join(map(_in_words, self.runs))

    def at(self, places: Spans) -> "Indices":
        """Those at some places."""
        runs: list[Run] = []
        for first, end in places:
            for number in range(bisect_right(self._ends, first), len(self.runs)):
                run, begin = self.runs[number], self._ends[number] - self.runs[number].count
                if begin >= end:
                    break
                here = max(first, begin)
                count = min(end, self._ends[number]) - here
                runs.append(Run(run.first + (here - begin) * run.step, count, run.step))
        return Indices(runs)

    def places(self, wanted: Sequence[int]) -> Spans:
        """Where those of these are that are among them; `wanted` in growing order."""
        return joined(span for run in Indices.of(wanted).runs for span in self._places_of(run))

    def _places_of(self, wanted: Run) -> Iterator[Span]:
        number = bisect_right(self._firsts, wanted.first) - 1
        for place in range(max(0, number), len(self.runs)):
            run, begin = self.runs[place], self._ends[place] - self.runs[place].count
            if run.first > wanted.last:
                return
            low, high = max(wanted.first, run.first), min(wanted.last, run.last)
            if wanted.step == 1 or (wanted.step == run.step and (wanted.first - run.first) % run.step == 0):
                first, end = -(-(low - run.first) // run.step), (high - run.first) // run.step + 1
                if first < end:
                    yield begin + first, begin + end
                continue
            values = range(wanted.first, wanted.last + 1, wanted.step)
            for value in values[-(-(low - wanted.first) // wanted.step) :]:
                if value > high:
                    break
                if (value - run.first) % run.step == 0:
                    at = begin + (value - run.first) // run.step
                    yield at, at + 1


def _in_words(run: Run) -> str:
    if run.count < 3:
        return (
            ",".join(str(run.first + number * run.step) for number in range(run.count))
            if run.step > 1 or run.count == 1
            else f"{run.first}-{run.last}"
        )
    return f"{run.first}-{run.last}" + (f":{run.step}" if run.step > 1 else "")


# -- spans ------------------------------------------------------------------------------------------------------------


def joined(spans: Iterable[Span]) -> Spans:
    """All places of these, in whatever order they come."""
    found: list[Span] = []
    for first, end in sorted(spans):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((first, end))
    return tuple(found)


def size(spans: Spans) -> int:
    """How many places they are."""
    return sum(end - first for first, end in spans)


def has(spans: Spans, place: int) -> bool:
    """Whether a place is among them."""
    number = bisect_right(spans, place, key=lambda span: span[0]) - 1
    return number >= 0 and place < spans[number][1]


def both(spans: Spans, others: Spans) -> Spans:
    """The places that are in both."""
    found: list[Span] = []
    for first, end in others:
        number = max(0, bisect_right(spans, first, key=lambda span: span[0]) - 1)
        while number < len(spans) and spans[number][0] < end:
            low, high = max(first, spans[number][0]), min(end, spans[number][1])
            if low < high:
                found.append((low, high))
            number += 1
    return tuple(found)


def without(spans: Spans, others: Spans) -> Spans:
    """The places of the one that are not in the other."""
    if not spans:
        return ()
    gaps = pairwise((spans[0][0], *(each for span in others for each in span), spans[-1][1]))
    return both(
        spans,
        tuple((first, end) for number, (first, end) in enumerate(gaps) if number % 2 == 0 and first < end),
    )


def first_of(spans: Spans, count: int) -> Spans:
    """The first places of them, so many at most."""
    found: list[Span] = []
    for first, end in spans:
        if count <= 0:
            break
        found.append((first, min(end, first + count)))
        count -= end - first
    return tuple(found)


# -- arrays -----------------------------------------------------------------------------------------------------------


class Archived(msgspec.Struct, frozen=True, kw_only=True):
    """What has become of an array's tasks that are in the archive while others are not over."""

    tasks: dict[str, int] = {}
    """How many there are, by status."""
    ended: dict[str, Spans] = {}
    """Those that did not succeed, by why."""
    outputs: Spans = ()
    """Those that have collected outputs."""
    spent_usd: float = 0.0
    gpu_s: float = 0.0
    runs: int = 0
    """How many ran to success, and for how long together."""
    run_s: float = 0.0
    started_at: float | None = None
    """When the first of them started."""
    finished_at: float | None = None
    """When the last of them ended."""

    @property
    def failed(self) -> Spans:
        """Those that failed."""
        return joined(
            span for why, spans in self.ended.items() if why.startswith(JobStatus.FAILED) for span in spans
        )

    @property
    def pieces(self) -> int:
        """How long the lists of them are."""
        return len(self.outputs) + sum(map(len, self.ended.values()))

    def with_tasks(
        self, tasks: Iterable[Job], indices: Indices, has_outputs: Callable[[str], bool]
    ) -> "Archived":
        """With more that have ended, of an array with these indices. `has_outputs`: whether the job with that id has collected any."""
        ended = {why: list(spans) for why, spans in self.ended.items()}
        outputs, counts, runs_s = list(self.outputs), dict(self.tasks), list[float]()
        begun = [] if self.started_at is None else [self.started_at]
        spent_usd, gpu_s, finished_at = self.spent_usd, self.gpu_s, self.finished_at or 0.0
        for job in tasks:
            counts[job.status] = counts.get(job.status, 0) + 1
            if job.status is not JobStatus.SUCCEEDED:
                ended.setdefault(why(job), []).append(_place_in(indices, job))
            elif job.started_at is not None and job.finished_at is not None:
                runs_s.append(job.finished_at - job.started_at)
            if has_outputs(job.id):
                outputs.append(_place_in(indices, job))
            begun += [] if job.started_at is None else [job.started_at]
            spent_usd, gpu_s = spent_usd + job.spent_usd, gpu_s + job.gpu_s
            finished_at = max(finished_at, job.finished_at or 0.0)
        return Archived(
            tasks={str(status): count for status, count in counts.items()},
            ended={why: joined(spans) for why, spans in ended.items()},
            outputs=joined(outputs),
            spent_usd=spent_usd,
            gpu_s=gpu_s,
            runs=self.runs + len(runs_s),
            run_s=self.run_s + sum(runs_s),
            started_at=min(begun, default=None),
            finished_at=finished_at or None,
        )


def _place_in(indices: Indices, job: Job) -> Span:
    place = indices.index(job.array_index or 0)
    return place, place + 1


def why(job: Job) -> str:
    """Why a task did not succeed, in so few words that many have the same."""
    outcome = job.outcome
    if outcome is None:
        return str(job.status)
    code = "" if outcome.exit_code is None else f" {outcome.exit_code}"
    return f"{job.status}, {outcome.reason}{code}"


class JobArray(msgspec.Struct, frozen=True, kw_only=True):
    """What is on record of an array beside its jobs: which of its tasks are no jobs yet, and what each of them becomes."""

    id: str
    template: Job
    """A task that is not expanded, but for its id and index."""
    runs: tuple[Run, ...]
    """The indices of all tasks."""
    window: int
    """So many of its tasks wait as jobs at once."""
    left: Spans = ()
    """Tasks that are not expanded,"""
    cancelled: Spans = ()
    """and those that were cancelled before they were."""
    cancelled_at: float | None = None
    """When the last of those was,"""
    cancelled_because: str = ""
    """and why."""
    archived: Archived | None = None
    """Tasks that have left memory for the archive; None where none has."""

    @property
    def indices(self) -> Indices:
        """Of all tasks."""
        return Indices(self.runs)

    def place_of(self, job: str) -> int | None:
        """The place of the task with that id; None for what is no task of it."""
        try:
            place = value_of(job) - value_of(self.id) - 1
        except ValueError:
            return None
        return place if 0 <= place < sum(run.count for run in self.runs) else None

    def task(self, place: int) -> Job:
        """A task as a job that has just come to be."""
        name = task_id(self.id, place)
        return replace(self.template, id=name, array=self.id, array_index=self.indices[place])

    def past(self, place: int) -> Job:
        """A task that is in the archive, as far as what follows it asks: by its id and status."""
        assert self.archived is not None, "some are there"
        ended = (why for why, spans in self.archived.ended.items() if has(spans, place))
        status = next((JobStatus(why.partition(",")[0]) for why in ended), JobStatus.SUCCEEDED)
        return replace(self.task(place), status=status)

    def told(self, place: int) -> Job:
        """A task that is not expanded, as people are shown it."""
        task = self.task(place)
        if not has(self.cancelled, place):
            waiting = f"not expanded yet: at most {self.window} tasks of {task.name} wait as jobs at once, in the order of their indices"
            return replace(task, because=waiting if task.status is JobStatus.PENDING else task.because)
        outcome = Outcome(TerminalReason.CANCELLED, self.cancelled_because)
        return replace(
            task,
            status=JobStatus.CANCELLED,
            because=self.cancelled_because,
            finished_at=self.cancelled_at,
            outcome=outcome,
        )


def task_id(array: str, place: int) -> str:
    """The id of an array's task: ids of one array follow its own, in the order of indices."""
    return following(array, place + 1)
