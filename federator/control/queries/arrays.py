"""An array as one: a line of a list, and all its tasks added up."""

from collections import Counter, defaultdict

from federator.control.record.records import Records
from federator.model.jobs import Job, JobSpec, JobStatus
from federator.wire.addresses import in_ranges
from federator.wire.http import ArrayDetail, JobRow

ORDER = (
    JobStatus.RUNNING, JobStatus.STARTING, JobStatus.PLACED, JobStatus.SUSPENDING, JobStatus.CANCELLING, JobStatus.RECOVERING,
    JobStatus.PENDING, JobStatus.HELD, JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.SUCCEEDED,
)  # fmt: skip
"""The first of these in which a task is, is told as the array's status."""


def first_to_tell(records: Records, array: str) -> Job:
    """The task whose reason is told for all: the first that waits, else the first in the array's status."""
    counts = records.index.task_counts(array)
    status = (
        JobStatus.PENDING if JobStatus.PENDING in counts else next(each for each in ORDER if each in counts)
    )
    return records.jobs[min(ids[0] for ids in records.index.tasks(array, status))]


def tasks_by_status(records: Records, array: str) -> dict[str, int]:
    """How many of its tasks are in each status, what lives first."""
    counts = records.index.task_counts(array)
    return {str(each): counts[each] for each in ORDER if each in counts}


def as_array(row: JobRow, records: Records, array: str) -> JobRow:
    """The line of the task that tells, as that of its array."""
    counts, tasks = records.index.task_counts(array), records.arrays[array]
    status = next(each for each in ORDER if each in counts)
    last = next(reversed(tasks.values()))
    indices = (next(iter(tasks.values())).array_index, last.array_index)
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
        finished_at=last.finished_at if all(each.terminal for each in (last, records.jobs[row.id])) else None,
        deadline_at=row.deadline_at,
        because=told + waits,
        array=array,
        tasks=by_status,
        indices="-".join(str(index) for index in dict.fromkeys(indices)),
        reason=row.reason,
        labels=row.labels,
        width=row.width,
    )


def added_up(records: Records, array: str, tells: JobRow, spec: JobSpec) -> ArrayDetail:
    """All tasks; `tells` is the line of the first that waits, or of another where none does."""
    tasks = list(records.arrays[array].values())
    sites: Counter[str] = Counter()
    ended: defaultdict[str, list[int]] = defaultdict(list)
    for job in tasks:
        placement = records.placements.get(job.placement or "")
        if placement is not None and not placement.ended:
            sites[placement.site] += 1
        if job.terminal and job.status is not JobStatus.SUCCEEDED:
            ended[_why(job)].append(job.array_index or 0)
    runs_s = [
        job.finished_at - job.started_at
        for job in tasks
        if job.status is JobStatus.SUCCEEDED and job.started_at is not None and job.finished_at is not None
    ]
    begun, over = (
        [job.started_at for job in tasks if job.started_at],
        [job.finished_at for job in tasks if job.finished_at],
    )
    return ArrayDetail(
        id=array,
        name=tasks[0].name,
        indices=in_ranges(sorted(job.array_index or 0 for job in tasks)),
        owner=tasks[0].owner,
        queue=tasks[0].queue,
        spec=spec,
        tasks=tasks_by_status(records, array),
        at_once=tasks[0].at_once,
        after=tasks[0].after,
        submitted_at=tasks[0].submitted_at,
        started_at=min(begun, default=None),
        finished_at=max(over) if all(job.terminal for job in tasks) else None,
        deadline_at=tasks[0].deadline_at,
        expected_finish_at=tells.expected_finish_at,
        mean_run_s=sum(runs_s) / len(runs_s) if runs_s else None,
        spent_usd=sum(job.spent_usd for job in tasks),
        gpu_s=sum(job.gpu_s for job in tasks),
        sites=dict(sites),
        waits=tells.because if tells.status == JobStatus.PENDING else "",
        ended={why: in_ranges(sorted(indices)) for why, indices in sorted(ended.items())},
        outputs=in_ranges(sorted(job.array_index or 0 for job in tasks if job.id in records.outputs)),
    )


def _why(job: Job) -> str:
    """Why a task did not succeed, in so few words that many have the same."""
    outcome = job.outcome
    if outcome is None:
        return str(job.status)
    code = "" if outcome.exit_code is None else f" {outcome.exit_code}"
    return f"{job.status}, {outcome.reason}{code}"
