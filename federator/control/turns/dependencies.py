"""Jobs that must follow others: one that will never start, because of what a predecessor has come to, is told so at once and ended."""

from federator.control.administration.visibility import told_of
from federator.control.record.batches import write_each
from federator.control.record.event_writer import EventWriter
from federator.control.record.records import Changes, Records
from federator.model.jobs import Job, JobStatus, Outcome, TerminalReason
from federator.model.lifecycle import allows


async def settle_dependents(records: Records, event_writer: EventWriter) -> None:
    """End every waiting job that may never start; those that follow it are next, until none is left.

    One of whose predecessors has failed fails, too. One that was to start only if another fails is cancelled: nothing went wrong.
    """
    index = records.index

    def settle(changes: Changes, name: str) -> None:
        job = records.open_jobs.get(name)
        broken = _broken(records, job) if job is not None else None
        if job is None or broken is None or not allows(job.status, "dependency-failed"):
            return
        if broken.status is JobStatus.SUCCEEDED:
            because = f"not needed: it was to start if {told_of(job, broken)} failed, and that has succeeded"
            outcome = Outcome(TerminalReason.CANCELLED, because)
            event_writer.job(changes, job, "cancel", because, outcome=outcome)
            return
        because = f"it must follow {told_of(job, broken)}, which is {broken.status}"
        outcome = Outcome(TerminalReason.DEPENDENCY_FAILED, because)
        event_writer.job(changes, job, "dependency-failed", because, outcome=outcome)

    tried: set[str] = set()
    while names := sorted(index.unsettled - tried):
        tried.update(names)
        await write_each(records, names, settle)
    index.unsettled = {name for name in index.unsettled if _is_broken(records, name)}


def _is_broken(records: Records, name: str) -> bool:
    """Whether the job is open and may never start, though it cannot be ended just now."""
    job = records.open_jobs.get(name)
    return job is not None and _broken(records, job) is not None


def _broken(records: Records, job: Job) -> Job | None:
    """The predecessor because of which it may never start: one that has not succeeded before one that has."""
    for before, how in records.predecessors(job):
        if before and how.met(before) is False:
            return next(
                (each for each in before if each.terminal and each.status is not JobStatus.SUCCEEDED),
                before[0],
            )
    return None
