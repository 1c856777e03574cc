"""Why no plan sees a job that waits: what it must follow has not come about, or enough tasks of its array run."""

from federator.control.administration.visibility import told_of
from federator.control.record.records import Records
from federator.model.jobs import Follows, Job

TO = {Follows.OK: "to succeed", Follows.EACH: "to succeed", Follows.ANY: "to end", Follows.FAILED: "to fail"}


def blocked_by(records: Records, job: Job) -> str:
    """In words; empty where nothing does."""
    waits: dict[str, dict[str, None]] = {}
    for before, how in records.predecessors(job):
        if how.met(before) is None:
            names = waits.setdefault(TO[how], {})
            names.update(dict.fromkeys(told_of(job, each) for each in before if not each.terminal))
    if waits:
        return "waits for " + ", and for ".join(f"{', '.join(names)} {to}" for to, names in waits.items())
    if records.index.limits.keeps(job):
        return f"at most {job.at_once} tasks of {job.name} run at once (array: …%{job.at_once})"
    return ""
