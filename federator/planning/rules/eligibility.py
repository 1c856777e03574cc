"""Which places are open to which jobs, asked as seldom as can be: jobs that are alike in what a filter reads get its answers together.

A federation has few kinds of request, of queues, of lists of sites, also where no two jobs are the same. What a filter reads of a job is seen while it
is asked, so no filter has to say so. A filter is quick if it reads as little as it needs: `JobView.bounded`, say, and not the job's `max_duration_s`. Whoever wants to know *why* a place is closed asks `feasibility.reject`.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from federator.model.snapshot import JobView
from federator.planning.places.candidates import Candidate
from federator.planning.rules.filters import FilterContext, Test


class Gates:
    """The filters, at all places of a world."""

    def __init__(self, places: Sequence[Candidate], context: FilterContext, filters: Sequence[Test]) -> None:
        """Nothing is asked yet."""
        self._places, self._ground = places, context
        self._filters = [_Answers(test) for test in filters]

    def open_to(self, job: JobView) -> tuple[int, ...]:
        """Places that pass all filters, by index. A filter is asked only of those that pass the ones before it."""
        passing = (1 << len(self._places)) - 1
        for answers in self._filters:
            passing &= self._passes(answers, job, passing)
        return tuple(_bits(passing))

    def furthest(self, job: JobView, places: Iterable[int], but: str) -> tuple[int, ...]:
        """Of these places those that pass the most filters, the one called `but` left out."""
        passing = sum(1 << place for place in places)
        for answers in self._filters:
            if answers.name == but:
                continue
            left = passing & self._passes(answers, job, passing)
            if not left:
                break
            passing = left
        return tuple(_bits(passing))

    def _passes(self, answers: "_Answers", job: JobView, among: int) -> int:
        """Those that pass one filter, of `among` all of them."""
        known = answers.known(job)
        while left := among & ~known.asked:
            known = answers.ask(job, self._places, self._ground, left)
        return known.passes


class _Known:
    """What a filter has said of jobs with these values: places as bits."""

    __slots__ = ("asked", "passes")

    def __init__(self) -> None:
        self.asked = self.passes = 0


class _Answers:
    """One filter, with all that it reads of jobs, and its answers by that."""

    def __init__(self, test: Test) -> None:
        self._test, self.name = test, test.name
        self._reads: tuple[str, ...] = ()
        self._by_values: dict[tuple[Any, ...], _Known] = {}

    def known(self, job: JobView) -> _Known:
        """What is known of such jobs."""
        values = tuple(_value(job, name) for name in self._reads)
        found = self._by_values.get(values)
        if found is None:
            found = self._by_values[values] = _Known()
        return found

    def ask(self, job: JobView, places: Sequence[Candidate], context: FilterContext, asked: int) -> _Known:
        """Answers of so many more places. Where more was read than before, all others are forgotten: jobs were told apart too little."""
        seen, passes = cast("JobView", reader := _Seen(job)), 0
        for place in _bits(asked):
            if self._test.ask(seen, places[place], context) is None:
                passes |= 1 << place
        more = vars(reader).keys() - {"_job", *self._reads}
        if more:
            self._reads = (*self._reads, *sorted(more))
            self._by_values.clear()
        known = self.known(job)
        known.asked |= asked
        known.passes |= passes
        return known


class _Seen:
    """A job that keeps what is read of it: whatever it has, somebody asked for."""

    def __init__(self, job: JobView) -> None:
        self._job = job

    def __getattr__(self, name: str) -> Any:
        value = self.__dict__[name] = getattr(self._job, name)
        return value


def _value(job: JobView, name: str) -> Any:
    value = getattr(job, name)
    return tuple(sorted(value.items())) if isinstance(value, dict) else value


def _bits(mask: int) -> Iterator[int]:
    """The places in it, in their order."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
