"""Jobs that must follow others: one that will never start, because of what a predecessor has come to, is told so at once and ended."""

from msgspec.structs import replace

from federator.control.administration.visibility import told_of
from federator.control.record.batches import write_each
from federator.control.record.event_writer import EventWriter
from federator.control.record.records import Changes, Records
from federator.model.arrays import JobArray, joined
from federator.model.jobs import TERMINAL, Follows, Job, JobStatus, Outcome, TerminalReason
from federator.model.lifecycle import allows

FAILED = TERMINAL - {JobStatus.SUCCEEDED}


async def settle_dependents(records: Records, event_writer: EventWriter) -> None:
    """End every waiting job that may never start; those that follow it are next, until none is left.

    One of whose predecessors has failed fails, too. One that was to start only if another fails is cancelled: nothing went wrong. Tasks of an
    array that are no jobs yet never become any: they are cancelled, all at once.
    """
    index = records.index

    def settle(changes: Changes, name: str) -> None:
        array = records.job_arrays.get(name)
        job = array.template if array is not None else records.open_jobs.get(name)
        broken = _broken(records, job, whole=array is not None) if job is not None else None
        if job is None or broken is None or not allows(job.status, "dependency-failed"):
            return
        not_needed = broken.status is JobStatus.SUCCEEDED
        if not_needed:
            because = f"not needed: it was to start if {told_of(job, broken)} failed, and that has succeeded"
        else:
            because = f"it must follow {told_of(job, broken)}, which is {broken.status}"
        if array is not None:
            changes.put(_without_rest(array, because, event_writer.clock.now()))
            return
        reason = TerminalReason.CANCELLED if not_needed else TerminalReason.DEPENDENCY_FAILED
        event = "cancel" if not_needed else "dependency-failed"
        event_writer.job(changes, job, event, because, outcome=Outcome(reason, because))

    tried: set[str] = set()
    while names := sorted((index.unsettled | _broken_arrays(records)) - tried):
        tried.update(names)
        await write_each(records, names, settle)
    index.unsettled = {name for name in index.unsettled if _is_broken(records, name)}


def _broken_arrays(records: Records) -> set[str]:
    """Arrays of which tasks are no jobs yet that may never start."""
    left = (array for array in records.job_arrays.values() if array.left and array.template.after)
    return {array.id for array in left if _broken(records, array.template, whole=True) is not None}


def _without_rest(array: JobArray, because: str, now: float) -> JobArray:
    """The array, whose tasks that are no jobs yet are cancelled."""
    cancelled = joined((*array.cancelled, *array.left))
    return replace(array, left=(), cancelled=cancelled, cancelled_at=now, cancelled_because=because)


def _is_broken(records: Records, name: str) -> bool:
    """Whether the job is open and may never start, though it cannot be ended just now."""
    job = records.open_jobs.get(name)
    return job is not None and _broken(records, job) is not None


def _broken(records: Records, job: Job, *, whole: bool = False) -> Job | None:
    """The predecessor because of which it may never start: one that has not succeeded before one that has.

    `whole`: for all tasks of the array whose template it is; where each follows its own, when none of those has succeeded or may.
    """
    each = {name for name, how in job.follows() if whole and how is Follows.EACH}
    for name, met in records.predecessors(job):
        some_may = name in each and not records.index.task_counts(name).keys() <= FAILED
        if met is False and not some_may:
            broken = records.one_of(name, FAILED) or records.one_of(name, TERMINAL)
            if broken is not None:
                return broken
    return None
