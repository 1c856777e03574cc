"""The filter about lending: a site takes work of certain queues, and advice names only such as the job's owner may submit to."""
# ruff: noqa: ARG001 - every filter is asked with the same three arguments, whichever it needs

from federator.model.rules import admits_queue
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


def usable_of(lends: tuple[str, ...], job: JobView) -> str:
    """The first of the queues that a site lends to, or of those below, that the job's owner may submit to; empty: none."""
    if job.usable_queues is None:
        return lends[0]
    return next((queue for path in lends for queue in job.usable_queues if admits_queue((path,), queue)), "")
