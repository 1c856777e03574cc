"""What a higher priority would do for a job that waits: the lowest at which it starts earlier, and who starts later for it.

Unlike other advice it is scheduled again, on owned capacity, for what a priority does depends on everybody else's: a forecast at home with the priority that the
job has, and one for each that is tried. What is rented, and what would have to make room, is left out of both.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

from msgspec.structs import replace

from federator.model.changes import AskFor, Delay, Remedy
from federator.model.plans import Explanation
from federator.model.snapshot import Problem
from federator.planning.explanations.advice import in_words
from federator.planning.explanations.changes import apply
from federator.planning.rentals.candidate import HomeForecast
from federator.planning.scheduling.forecast import home_forecast_of
from federator.planning.wording import MINUTE_S, higher_priority

MOST_JOBS = 1000
"""Where a problem holds more, no priority is tried: each try schedules them all."""
SHOWN = 3
"""So many of those that would start later are named, those that lose most."""


class PriorityTrials:
    """The what-ifs of one problem; what they have in common is made once, and each answer is kept."""

    def __init__(self, problem: Problem) -> None:
        """Nothing is tried yet."""
        self.problem = problem
        self._found: dict[tuple[tuple[str, ...], int], Remedy | None] = {}

    def lowest(self, jobs: tuple[str, ...], most: int) -> Remedy | None:
        """The lowest priority up to `most` at which these have all started earlier by a minute or more; None where there is none, or where that would take too long to find.

        It is one job, or tasks of an array, whose first is the one that advice is about. It is found by halves: a higher priority is taken to be as good as a lower one, at least.
        """
        if (jobs, most) not in self._found:
            self._found[jobs, most] = self._lowest(jobs, most)
        return self._found[jobs, most]

    def _lowest(self, jobs: tuple[str, ...], most: int) -> Remedy | None:
        known = self.problem.snapshot.jobs
        first = next((view for view in known if view.id == jobs[0]), None)
        if first is None or len(known) > MOST_JOBS or first.priority >= most:
            return None
        in_vain, enough = first.priority, most
        best = self._at(jobs, most)
        if not self._sooner(jobs, best):
            return None
        while enough - in_vain > 1:
            middle = (in_vain + enough) // 2
            then = self._at(jobs, middle)
            if self._sooner(jobs, then):
                enough, best = middle, then
            else:
                in_vain = middle
        return self._remedy(jobs, enough, best)

    @cached_property
    def _now(self) -> Mapping[str, HomeForecast]:
        return home_forecast_of(self.problem)

    def _at(self, jobs: tuple[str, ...], priority: int) -> Mapping[str, HomeForecast]:
        return home_forecast_of(apply(self.problem, [AskFor(job, "priority", priority) for job in jobs]))

    def _sooner(self, jobs: tuple[str, ...], then: Mapping[str, HomeForecast]) -> bool:
        return _all_started_at(jobs, then) <= _all_started_at(jobs, self._now) - MINUTE_S < math.inf

    def _remedy(self, jobs: tuple[str, ...], priority: int, then: Mapping[str, HomeForecast]) -> Remedy:
        names = {view.id: f"{view.name} ({view.id})" for view in self.problem.snapshot.jobs}
        late = {
            other: then[other].start_at - before.start_at
            for other, before in self._now.items()
            if other not in jobs and other in then
        }
        ranked = sorted(late, key=lambda other: (-late[other], other))
        delays = tuple(Delay(other, late[other]) for other in ranked if late[other] >= MINUTE_S)
        start_at = _all_started_at(jobs, then)
        told = [(names[each.job], each.by_s) for each in delays[:SHOWN]]
        now = self.problem.snapshot.taken_at
        text = higher_priority(priority, len(jobs), start_at, told, len(delays) - len(told), now)
        return Remedy(
            text, (AskFor(jobs[0], "priority", priority),), start_at=start_at, delays=delays[:SHOWN]
        )


def _all_started_at(jobs: tuple[str, ...], forecasts: Mapping[str, HomeForecast]) -> float:
    """When the last of them starts; infinite where one never does."""
    return max(forecasts[job].start_at if job in forecasts else math.inf for job in jobs)


def with_advice(found: Explanation, more: Remedy) -> Explanation:
    """An explanation with one more piece of advice: the last, because others pay for it."""
    advice: Sequence[Remedy] = (*found.remedies, more)
    return replace(found, remedies=tuple(advice), changes=in_words(advice, "", found.sites))
