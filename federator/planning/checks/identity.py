"""Promise 2, never two at once: the action is about a job that waits, as it was seen, and about no job twice. And not before its time."""

from collections.abc import Iterator

from federator.model.plans import Place, Rent
from federator.planning.checks.context import PERMISSION, CheckContext, Fault


def check_identity(context: CheckContext, action: Place | Rent) -> Iterator[Fault]:
    """The job waits in this snapshot at the revision the plan saw, runs nowhere, has no other action, and may start now."""
    if action.job in context.acted:
        yield Fault(2, "the plan has another action for this job")
    if action.job in context.running_jobs:
        yield Fault(2, "a placement of this job still runs")
    job = context.jobs.get(action.job)
    if job is None:
        yield Fault(2, "no such job waits")
        return
    if job.revision != action.revision:
        yield Fault(
            2, f"the job has changed: the plan saw revision {action.revision}, it is now {job.revision}"
        )
    if job.not_before_at is not None and job.not_before_at > context.now:
        yield Fault(PERMISSION, f"the job may not start for another {job.not_before_at - context.now:.0f} s")
