"""Jobs that must follow others: a job whose predecessor did not succeed will never start, and is told so at once."""

from federator.control.governing.visibility import told_of
from federator.control.record.batches import write_each
from federator.control.record.records import Changes, Records
from federator.control.record.scribe import Scribe
from federator.model.jobs import Job, JobStatus, Outcome, TerminalReason
from federator.model.lifecycle import allows


async def settle_dependents(records: Records, scribe: Scribe) -> None:
    """Fail every waiting job one of whose predecessors has ended without success; those that follow it are next, until none is left."""
    index = records.index

    def settle(changes: Changes, name: str) -> None:
        job = records.open_jobs.get(name)
        broken = _broken(records, job) if job is not None else None
        if job is None or broken is None or not allows(job.status, "dependency-failed"):
            return
        because = f"it must follow {told_of(job, broken)}, which is {broken.status}"
        outcome = Outcome(TerminalReason.DEPENDENCY_FAILED, because)
        scribe.job(changes, job, "dependency-failed", because, outcome=outcome)

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
    ended = (before for before in records.followed(job) if before.terminal)
    return next((before for before in ended if before.status is not JobStatus.SUCCEEDED), None)
