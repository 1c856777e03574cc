"""Which tasks of `array: 0-99%4` may start: the first of those that could, as many as the limit leaves room for.

A task that cannot start now holds no place of the four: one whose own predecessor (`after: {each: …}`) has not succeeded is not in line, and one
that is to be tried again later, or is set aside, stands behind all others. Lines are sorted lists of ids, so that a change or a question costs a
bisection, however many tasks there are.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from federator.model.jobs import TERMINAL, Follows, Job, JobStatus

AT_REST = TERMINAL | {JobStatus.PENDING, JobStatus.HELD}


class _Line:
    """The tasks of one array: those that run, and those that wait and follow nothing any more."""

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self.running: set[str] = set()
        self.ready: list[str] = []
        self.later: list[str] = []
        """Those that are passed over for now."""

    @property
    def room(self) -> int:
        """So many more may start."""
        return max(0, self.at_once - len(self.running))

    def between(self, start: int, stop: int) -> Iterator[str]:
        """The tasks at these places."""
        ready = len(self.ready)
        yield from self.ready[max(0, start) : stop]
        yield from self.later[max(0, start - ready) : max(0, stop - ready)]


class ArrayLimits:
    """The lines of all arrays that have a limit. Told of every change of a job by `put` and `drop`."""

    def __init__(self, find: Callable[[str], Job | None]) -> None:
        """`find`: a job by its id, or a task that is not expanded."""
        self._find = find
        self._lines: dict[str, _Line] = {}
        self._later: dict[str, float] = {}
        """Tasks that are passed over, and until when."""
        self._changes: Counter[str] = Counter()
        """How often the line of each array has changed since somebody asked."""

    def put(self, job: Job, followers: Iterable[str]) -> None:
        """The job is about to be on record; these follow it."""
        if job.at_once is not None and job.array is not None:
            self._stand(job)
        if job.status is JobStatus.SUCCEEDED:
            for follower in map(self._find, followers):
                if follower is not None and follower.at_once is not None and follower.array is not None:
                    self._stand(follower, after=job)

    def drop(self, job: Job) -> None:
        """The job is on record no more."""
        line = self._lines.get(job.array or "")
        if line is not None:
            self._leave(line, job.id)
            if not (line.running or line.ready or line.later):
                del self._lines[job.array or ""]

    def pass_over(self, job: Job, until_at: float) -> None:
        """Let others of its array go before it until then, or until its record changes."""
        line = self._lines.get(job.array or "")
        if line is not None and (_has(line.ready, job.id) or job.id in self._later):
            self._leave(line, job.id)
            self._enter(job, until_at)

    def take_changed(self, now: float) -> set[str]:
        """Tasks of which `keeps` may answer another than when this was last asked. Those whose time has come stand in line again."""
        for name in [name for name, until_at in self._later.items() if until_at <= now]:
            job = self._find(name)
            assert job is not None, "what is passed over is on record"
            self._leave(self._line(job), name)
            self._enter(job, None)
        changes, self._changes = self._changes, Counter()
        found = set[str]()
        for array, times in changes.items():
            if line := self._lines.get(array):
                found.update(line.between(line.room - times, line.room + times))
        return found

    def keeps(self, job: Job) -> bool:
        """Whether a task that waits may not start, because as many of its array as may run at once do, or come before it."""
        line = self._lines.get(job.array or "")
        if line is None:
            return False
        before = bisect_left(line.ready, job.id)
        if job.id in self._later:
            before = len(line.ready) + bisect_left(line.later, job.id)
        return before >= line.room

    def _stand(self, job: Job, after: Job | None = None) -> None:
        """Put a task where it belongs, now that `after` has succeeded."""
        array = job.array or ""
        if line := self._lines.get(array):
            self._leave(line, job.id)
            self._changes[array] += 1
        if job.status is JobStatus.PENDING:
            if not self._follows(job, after):
                self._enter(job, job.not_before_at)
        elif job.status not in AT_REST:
            self._line(job).running.add(job.id)

    def _follows(self, job: Job, after: Job | None) -> bool:
        """Whether a task of its own that it must follow has not succeeded. What the whole array follows keeps all of it alike."""
        for name, how in job.follows():
            before = after if after is not None and after.id == name else self._find(name)
            if how is Follows.EACH and before is not None and before.status is not JobStatus.SUCCEEDED:
                return True
        return False

    def _line(self, job: Job) -> _Line:
        return self._lines.setdefault(job.array or "", _Line(job.at_once or 0))

    def _enter(self, job: Job, later_until_at: float | None) -> None:
        """Let it wait in line."""
        line = self._line(job)
        self._changes[job.array or ""] += 1
        if later_until_at is None:
            insort(line.ready, job.id)
        else:
            insort(line.later, job.id)
            self._later[job.id] = later_until_at

    def _leave(self, line: _Line, name: str) -> None:
        line.running.discard(name)
        ids = line.later if self._later.pop(name, None) is not None else line.ready
        if _has(ids, name):
            del ids[bisect_left(ids, name)]


def _has(ids: list[str], name: str) -> bool:
    place = bisect_left(ids, name)
    return place < len(ids) and ids[place] == name
