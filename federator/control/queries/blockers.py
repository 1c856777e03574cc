"""Why no plan sees a job that waits: what it must follow has not come about, or enough tasks of its array run."""

from federator.control.administration.visibility import told_of
from federator.control.record.records import Records
from federator.model.jobs import TERMINAL, Follows, Job, JobStatus

TO = {Follows.OK: "to succeed", Follows.EACH: "to succeed", Follows.ANY: "to end", Follows.FAILED: "to fail"}

OPEN = frozenset(JobStatus) - TERMINAL


def blocked_by(records: Records, job: Job) -> str:
    """In words; empty where nothing does."""
    waits: dict[str, dict[str, None]] = {}
    for (name, met), (_, how) in zip(records.predecessors(job), job.follows(), strict=True):
        before = records.one_of(name, OPEN) if met is None else None
        if before is not None:
            waits.setdefault(TO[how], {})[told_of(job, before)] = None
    if waits:
        return "waits for " + ", and for ".join(f"{', '.join(names)} {to}" for to, names in waits.items())
    if records.index.limits.keeps(job):
        return f"at most {job.at_once} tasks of {job.name} run at once (array: …%{job.at_once})"
    return ""
