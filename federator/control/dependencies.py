"""Jobs that must follow others: a job whose predecessor did not succeed will never start, and is told so at once."""

from federator.control.records import Changes, Records
from federator.control.scribe import Scribe
from federator.model.jobs import Job, JobStatus, Outcome, TerminalReason
from federator.model.lifecycle import allows

PASS_ROWS = 100
"""Rows written in one pass; stores take 120 at once."""


async def settle_dependents(records: Records, scribe: Scribe) -> None:
    """Fail every waiting job one of whose predecessors has ended without success; those that follow it are next, until none is left."""

    def compute() -> Changes:
        changes = Changes()
        for job in records.open_jobs.values():
            if len(changes.rows) >= PASS_ROWS:
                break
            broken = _broken(records, job) if job.after else None
            if broken is not None and allows(job.status, "dependency-failed"):
                because = f"it must follow {broken.name}, which is {broken.status}"
                scribe.job(
                    changes,
                    job,
                    "dependency-failed",
                    because,
                    outcome=Outcome(TerminalReason.DEPENDENCY_FAILED, because),
                )
        return changes

    while await records.transact(compute):
        pass


def _broken(records: Records, job: Job) -> Job | None:
    ended = (before for before in records.followed(job) if before.terminal)
    return next((before for before in ended if before.status is not JobStatus.SUCCEEDED), None)
