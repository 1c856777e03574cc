"""When a job that is not over is expected to start and to end, and between when: one answer for lists, `show` and `explain`.

Of one that waits it is what the newest plan says. Of one that has a place, the run is forecast anew by how long it has lasted.
"""

from typing import Any, NamedTuple

import msgspec

from federator.control.record.records import Records
from federator.control.turns.job_views import JobViews
from federator.kernel.clock import Clock
from federator.model.jobs import Job
from federator.model.placements import Placement
from federator.model.plans import Waiting
from federator.planning.explanations.ranges import ranges
from federator.planning.scheduling.forecast import lasts_s

SHORT, LONG = 0.1, 0.9
"""80 of 100 such runs end between these."""


class ExpectedTimes(NamedTuple):
    """Moments; what nobody knows is None."""

    expected_start_at: float | None = None
    expected_finish_at: float | None = None
    start_low_at: float | None = None
    start_high_at: float | None = None
    finish_low_at: float | None = None
    finish_high_at: float | None = None

    def fields(self) -> dict[str, Any]:
        """By name, as the records that are shown have them."""
        return self._asdict()


NOTHING = ExpectedTimes()


class Expectations:
    """Says what is to be expected of a job now."""

    def __init__(self, records: Records, jobs: JobViews, clock: Clock) -> None:
        self._records = records
        self._jobs = jobs
        self._clock = clock
        self.now = clock.now
        """This moment."""

    def of(self, job: Job, waiting: Waiting | None, placement: Placement | None) -> ExpectedTimes:
        """Of a job with what a plan says of it while it waits, or with where it is."""
        if waiting is not None:
            return self._waits(job, waiting)
        if job.terminal or placement is None or placement.ended or placement.expected_end_at is None:
            return NOTHING
        return self._runs(job, placement, placement.expected_end_at)

    def _waits(self, job: Job, waiting: Waiting) -> ExpectedTimes:
        start_at, finish_at = waiting.expected_start_at, waiting.expected_finish_at
        if start_at is None or finish_at is None:
            return ExpectedTimes(start_at, finish_at)
        start, finish = ranges(self._jobs.of(job), self._clock.now(), start_at, finish_at, waits=True)
        return ExpectedTimes(start_at, finish_at, *start, *finish)

    def _runs(self, job: Job, placement: Placement, planned_at: float) -> ExpectedTimes:
        """As planned, while that may still be; else the middle of what may."""
        now = self._clock.now()
        spec = self._records.spec(placement.spec_hash)
        pace = spec.pace(placement.form, placement.model)
        forecast = self._jobs.forecast(job, spec, placement.model)
        since_at = placement.started_at
        if since_at is None:
            # How long its data or its machine takes is part of the plan.
            whole_s = max(0.0, forecast.run_s - job.saved_s) / pace
            since_at = max(placement.assigned_at, planned_at - whole_s)
        done_s = job.saved_s + max(0.0, now - since_at) * pace
        limit_s = spec.limit_s(job.max_duration_s, placement.form)

        def end_at(share: float) -> float:
            left_s = (lasts_s(forecast, done_s, share) - job.saved_s) / pace
            return max(now, since_at + (left_s if limit_s is None else min(left_s, limit_s)))

        low_at, high_at = end_at(SHORT), end_at(LONG)
        finish_at = planned_at if low_at <= planned_at <= high_at else end_at(0.5)
        return ExpectedTimes(None, finish_at, None, None, low_at, high_at)


def with_expected(found: Any, expected: ExpectedTimes) -> Any:
    """A record that is shown, with these moments."""
    return msgspec.structs.replace(found, **expected.fields())
