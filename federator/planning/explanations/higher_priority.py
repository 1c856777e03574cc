"""What a higher priority would do for a job that waits: the lowest at which it starts earlier, and who starts later for it.

Unlike other advice it is scheduled again, on owned capacity, for what a priority does depends on everybody else's: a forecast at home with the priority that the
job has, and one for each that is tried. What is rented, and what would have to make room, is left out of both.
"""

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
        self._found: dict[tuple[str, int], Remedy | None] = {}

    def lowest(self, job_id: str, most: int) -> Remedy | None:
        """The lowest priority up to `most` at which the job starts earlier by a minute or more; None where there is none, or where that would take too long to find.

        It is found by halves: a higher priority is taken to be as good as a lower one, at least.
        """
        if (job_id, most) not in self._found:
            self._found[job_id, most] = self._lowest(job_id, most)
        return self._found[job_id, most]

    def _lowest(self, job_id: str, most: int) -> Remedy | None:
        jobs = self.problem.snapshot.jobs
        job = next((view for view in jobs if view.id == job_id), None)
        if job is None or len(jobs) > MOST_JOBS or job.priority >= most or job_id not in self._now:
            return None
        in_vain, enough = job.priority, most
        best = self._at(job_id, most)
        if not self._sooner(job_id, best):
            return None
        while enough - in_vain > 1:
            middle = (in_vain + enough) // 2
            then = self._at(job_id, middle)
            if self._sooner(job_id, then):
                enough, best = middle, then
            else:
                in_vain = middle
        return self._remedy(job_id, enough, best)

    @cached_property
    def _now(self) -> Mapping[str, HomeForecast]:
        return home_forecast_of(self.problem)

    def _at(self, job_id: str, priority: int) -> Mapping[str, HomeForecast]:
        return home_forecast_of(apply(self.problem, [AskFor(job_id, "priority", priority)]))

    def _sooner(self, job_id: str, then: Mapping[str, HomeForecast]) -> bool:
        return job_id in then and then[job_id].start_at <= self._now[job_id].start_at - MINUTE_S

    def _remedy(self, job_id: str, priority: int, then: Mapping[str, HomeForecast]) -> Remedy:
        names = {view.id: f"{view.name} ({view.id})" for view in self.problem.snapshot.jobs}
        late = {
            other: then[other].start_at - before.start_at
            for other, before in self._now.items()
            if other != job_id and other in then
        }
        ranked = sorted(late, key=lambda other: (-late[other], other))
        delays = tuple(Delay(other, late[other]) for other in ranked if late[other] >= MINUTE_S)
        start_at = then[job_id].start_at
        told = [(names[each.job], each.by_s) for each in delays[:SHOWN]]
        now = self.problem.snapshot.taken_at
        text = higher_priority(priority, start_at, told, len(delays) - len(told), now)
        return Remedy(text, (AskFor(job_id, "priority", priority),), start_at=start_at, delays=delays[:SHOWN])


def with_advice(found: Explanation, more: Remedy) -> Explanation:
    """An explanation with one more piece of advice: the last, because others pay for it."""
    advice: Sequence[Remedy] = (*found.remedies, more)
    return replace(found, remedies=tuple(advice), changes=in_words(advice, "", found.sites))
