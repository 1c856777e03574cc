"""Filters about whose work a site takes: that of the queues that it lends to, and without isolation that of whom it trusts."""
# ruff: noqa: ARG001 - every filter is asked with the same three arguments, whichever it needs

from federator.model.rejections import LendsToOthers, Untrusted
from federator.model.rules import admits_queue
from federator.model.snapshot import JobView
from federator.model.whose import is_among, queues_of
from federator.planning.places.candidates import Candidate
from federator.planning.rules.asking import Answer, Ground


def lends_to(job: JobView, at: Candidate, ground: Ground) -> Answer:
    """The site lends to some, and the job is not theirs."""
    lends = at.standing.lends_to if at.standing else ()
    if not lends or is_among(lends, job.whose):
        return None
    return LendsToOthers(
        site=at.site,
        lends_to=tuple(lends),
        queue=job.whose.queue,
        owner=job.whose.owner,
        team=job.whose.team,
        usable=usable_of(lends, job),
    )


def isolation(job: JobView, at: Candidate, ground: Ground) -> Answer:
    """Nothing keeps jobs apart at the site, and it does not trust whose the job is."""
    trusts = at.standing.trusts if at.standing is not None else None
    if trusts is None or is_among(trusts, job.whose):
        return None
    return Untrusted(site=at.site, trusts=tuple(trusts), owner=job.owner)


def usable_of(lends: tuple[str, ...], job: JobView) -> str:
    """The first of the queues that a site lends to, or of those below, that the job's owner may submit to; empty: none."""
    queues = queues_of(lends)
    if job.usable_queues is None:
        return next(iter(queues), "")
    return next((queue for path in queues for queue in job.usable_queues if admits_queue((path,), queue)), "")
