"""An array as one: a line of a list, and all its tasks added up."""

from collections import Counter

from federator.control.record.records import Records
from federator.model.arrays import NEVER_A_JOB, Archived, Indices, size
from federator.model.jobs import TERMINAL, Job, JobSpec, JobStatus
from federator.wire.http import ArrayDetail, JobRow

ORDER = (
    JobStatus.RUNNING, JobStatus.STARTING, JobStatus.PLACED, JobStatus.SUSPENDING, JobStatus.CANCELLING, JobStatus.RECOVERING,
    JobStatus.PENDING, JobStatus.HELD, JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.SUCCEEDED,
)  # fmt: skip
"""The first of these in which a task is, is told as the array's status."""


def first_to_tell(records: Records, array: str) -> Job:
    """The task whose reason is told for all: the first that waits, else the first in the array's status."""
    there = (records.index.tasks(array, status) for status in (JobStatus.PENDING, *ORDER))
    return records.jobs[min(ids[0] for ids in next(filter(None, there)))]


def tasks_by_status(records: Records, array: str) -> dict[str, int]:
    """How many of its tasks are in each status, what lives first."""
    counts = records.index.task_counts(array)
    return {str(each): counts[each] for each in ORDER if each in counts}


def as_array(row: JobRow, records: Records, array: str) -> JobRow:
    """The line of the task that tells, as that of its array."""
    counts, tasks = records.index.task_counts(array), records.arrays[array]
    status = next(each for each in ORDER if each in counts)
    last, indices = next(reversed(tasks.values())), indices_of(records, array)
    by_status = tasks_by_status(records, array)
    told = ", ".join(f"{count} {each}" for each, count in by_status.items())
    waits = f": {row.because}" if row.status == JobStatus.PENDING and row.because else ""
    return JobRow(
        id=array,
        name=row.name,
        owner=row.owner,
        queue=row.queue,
        status=status,
        priority=row.priority,
        nodes=row.nodes,
        gpus=row.gpus,
        models=row.models,
        submitted_at=row.submitted_at,
        started_at=row.started_at if status is JobStatus.RUNNING else None,
        finished_at=last.finished_at if counts.keys() <= TERMINAL else None,
        deadline_at=row.deadline_at,
        because=told + waits,
        array=array,
        tasks=by_status,
        indices="-".join(str(index) for index in dict.fromkeys((indices[0], indices[-1]))),
        reason=row.reason,
        labels=row.labels,
        width=row.width,
        team=row.team,
    )


def added_up(records: Records, array: str, tells: JobRow, spec: JobSpec) -> ArrayDetail:
    """All tasks; `tells` is the line of the first that waits, or of another where none does."""
    tasks, row = records.arrays[array].values(), records.job_arrays.get(array)
    one, indices, over = (
        next(iter(tasks)),
        indices_of(records, array),
        records.index.task_counts(array).keys() <= TERMINAL,
    )
    past = row.archived if row is not None and row.archived is not None else Archived()
    has_outputs = records.outputs.__contains__
    ended = past.with_tasks((job for job in tasks if job.terminal), indices, has_outputs)
    open_jobs = [job for job in tasks if not job.terminal]
    placements = (records.placements.get(job.placement or "") for job in open_jobs)
    begun = [job.started_at for job in open_jobs if job.started_at is not None]
    begun += [] if ended.started_at is None else [ended.started_at]
    told = {why: str(indices.at(spans)) for why, spans in sorted(ended.ended.items())}
    if row is not None and row.cancelled:
        told[NEVER_A_JOB] = str(indices.at(row.cancelled))
    return ArrayDetail(
        id=array,
        name=one.name,
        indices=str(indices),
        owner=one.owner,
        queue=one.queue,
        spec=spec,
        tasks=tasks_by_status(records, array),
        at_once=one.at_once,
        after=one.after,
        submitted_at=one.submitted_at,
        started_at=min(begun, default=None),
        finished_at=ended.finished_at if over else None,
        deadline_at=one.deadline_at,
        expected_finish_at=tells.expected_finish_at if row is None or not row.left else None,
        unexpanded=size(row.left) if row is not None else 0,
        mean_run_s=ended.run_s / ended.runs if ended.runs else None,
        spent_usd=ended.spent_usd + sum(job.spent_usd for job in open_jobs),
        gpu_s=ended.gpu_s + sum(job.gpu_s for job in open_jobs),
        sites=dict(Counter(each.site for each in placements if each is not None and not each.ended)),
        waits=tells.because if tells.status == JobStatus.PENDING else "",
        ended=told,
        outputs=str(indices.at(ended.outputs)),
    )


def indices_of(records: Records, array: str) -> Indices:
    """The indices of its tasks: all of them, or those on record of an array that was small."""
    row = records.job_arrays.get(array)
    if row is not None:
        return row.indices
    return Indices.of(sorted(job.array_index or 0 for job in records.arrays[array].values()))
