"""Rerun: what has ended is submitted again, as it was asked for."""

from collections.abc import Sequence

from federator.control.record.records import Records
from federator.kernel.errors import Conflict, Forbidden
from federator.model.identity import Caller
from federator.model.jobs import Job, JobStatus
from federator.wire.addresses import label_of_all
from federator.wire.jobfile import JobRequest


def request_again(
    records: Records, caller: Caller, jobs: Sequence[Job], *, failed: bool, now: float
) -> JobRequest:
    """The request for these jobs once more, or for those that have `failed`: a job, or tasks of one array. What it followed has ended; a deadline that is past is left out. Raises `Forbidden` and `Conflict`."""
    if any(job.owner != caller.name for job in jobs):
        raise Forbidden(
            f"{jobs[0].name} belongs to {jobs[0].owner}",
            remedy="ask them to run it again, or submit a file of yours",
        )
    wanted = [job for job in jobs if job.status is JobStatus.FAILED] if failed else list(jobs)
    if not wanted:
        raise Conflict(
            f"nothing of {label_of_all(jobs)} has failed", remedy="leave out --failed to run all of it again"
        )
    if living := [job for job in wanted if not job.terminal]:
        raise Conflict(
            f"{living[0].label} has not ended: it is {living[0].status}",
            remedy="wait for its end, or let it start anew: federator requeue",
        )
    of_arrays = {job.array for job in wanted}
    if len(of_arrays) > 1:
        raise Conflict(f"{label_of_all(jobs)} are tasks of several arrays", remedy="name those of one array")
    job = wanted[0]
    due_at = job.deadline_at
    return JobRequest(
        spec=records.spec(job.spec_hash),
        queue=job.queue,
        team=job.team,
        priority=job.priority,
        deadline_at=due_at if due_at is not None and due_at > now else None,
        value_usd=job.value_usd,
        must=job.must,
        max_cost_usd=job.max_cost_usd,
        max_duration_s=job.max_duration_s,
        array=tuple(sorted(each.array_index for each in wanted if each.array_index is not None)),
        at_once=job.at_once,
        notify=job.notify,
    )
