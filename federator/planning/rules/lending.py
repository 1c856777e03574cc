"""Filters about whose work a site takes: that of the queues that it lends to, and without isolation that of whom it trusts."""
# ruff: noqa: ARG001 - every filter is asked with the same three arguments, whichever it needs

from federator.model.rules import admits_queue
from federator.model.sites import is_trusted
from federator.model.snapshot import JobView
from federator.planning.places.candidates import Candidate
from federator.planning.rules.asking import Answer, Ground


def lends_to(job: JobView, at: Candidate, ground: Ground) -> Answer:
    """The site lends to certain queues, and the job's is none of them."""
    lends = at.standing.lends_to if at.standing else ()
    if admits_queue(lends, job.queue):
        return None
    usable = usable_of(lends, job)
    ask = f"ask {at.site} to lend to {job.queue}"
    return (
        f"it lends only to {', '.join(lends)}; the job is in {job.queue}",
        f"submit to {usable}, or {ask}" if usable else ask,
    )


def isolation(job: JobView, at: Candidate, ground: Ground) -> Answer:
    """Nothing keeps jobs apart at the site, and it does not trust the job's owner or queue."""
    trusts = at.standing.trusts if at.standing is not None else None
    if trusts is None or is_trusted(trusts, job.owner, job.queue):
        return None
    whose = ", ".join(each.replace(":", " ") for each in trusts) or "nobody"
    return (
        f"this site runs work without isolation and takes only that of {whose}",
        f"{at.site} isolates jobs (federator-agent check says what it lacks), or adds owner:{job.owner} to isolation.trusts",
    )


def usable_of(lends: tuple[str, ...], job: JobView) -> str:
    """The first of the queues that a site lends to, or of those below, that the job's owner may submit to; empty: none."""
    if job.usable_queues is None:
        return lends[0]
    return next((queue for path in lends for queue in job.usable_queues if admits_queue((path,), queue)), "")
