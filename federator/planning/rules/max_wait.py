"""`max_wait` of a queue as the deadline of a start: by when a job of it is to have begun, and the deadline that stands for it.

A job that has waited for longer is not given up: each further `max_wait` is another such moment, so what is late is always among what presses most.
The deadline is that moment and the planned run where it takes longest of what the job names, but at most one `max_wait` later than where it takes least: slow capacity that is
free is used rather than let go by, and fast capacity does not make a start late by much more than was promised.
"""

import math

from msgspec.structs import replace

from federator.model.snapshot import JobView


def start_by(submitted_at: float, max_wait_s: float, now: float) -> float:
    """The next moment by which such a job is to start; always ahead."""
    waits = max(1, math.floor((now - submitted_at) / max_wait_s) + 1)
    return submitted_at + waits * max_wait_s


def bounded(job: JobView, max_wait_s: float | None, now: float) -> JobView:
    """The job with that as its deadline, unless its own is earlier, or must be met."""
    if max_wait_s is None or job.must:
        return job
    by = start_by(job.submitted_at, max_wait_s, now)
    deadline_at = by + _longest_s(job, max_wait_s)
    if job.deadline_at is not None and job.deadline_at <= deadline_at:
        return job
    return replace(job, deadline_at=deadline_at, start_by_at=by)


def _longest_s(job: JobView, max_wait_s: float) -> float:
    models = job.models or (*job.speed, "")
    speeds = [job.speed.get(model, 1.0) for model in models]
    rates = [1.0, *(form.throughput for form in job.forms)]
    least_s, most_s = (job.run_s / (pick(speeds) * pick(rates)) for pick in (max, min))
    return min(most_s, least_s + max_wait_s)
