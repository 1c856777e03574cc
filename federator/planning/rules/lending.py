"""Filters about whose work a site takes: that of the queues that it lends to, and without isolation that of whom it trusts."""
# ruff: noqa: ARG001 - every filter is asked with the same three arguments, whichever it needs

from federator.model.rules import admits_queue
from federator.model.snapshot import JobView
from federator.model.whose import TEAM, in_words, is_among, queues_of
from federator.planning.places.candidates import Candidate
from federator.planning.rules.asking import Answer, Ground


def lends_to(job: JobView, at: Candidate, ground: Ground) -> Answer:
    """The site lends to some, and the job is not theirs."""
    lends = at.standing.lends_to if at.standing else ()
    if not lends or is_among(lends, job.whose):
        return None
    usable = usable_of(lends, job)
    ways = (
        f"submit to {usable}" if usable else "",
        _by_team(lends, job),
        f"ask {at.site} to lend to {job.queue}",
    )
    return f"it lends only to {in_words(lends)}; the job is of {job.whose.shown}", ", or ".join(
        filter(None, ways)
    )


def isolation(job: JobView, at: Candidate, ground: Ground) -> Answer:
    """Nothing keeps jobs apart at the site, and it does not trust whose the job is."""
    trusts = at.standing.trusts if at.standing is not None else None
    if trusts is None or is_among(trusts, job.whose):
        return None
    ask = f"{at.site} isolates jobs (federator-agent check says what it lacks), or adds owner:{job.owner} to isolation.trusts"
    return (
        f"this site runs work without isolation and takes only that of {in_words(trusts)}",
        ", or ".join(filter(None, (_by_team(trusts, job), ask))),
    )


def _by_team(names: tuple[str, ...], job: JobView) -> str:
    """What who is in several teams may do; empty: the site names no team."""
    teams = [name.removeprefix(TEAM) for name in names if name.startswith(TEAM)]
    return f"submit as team {' or '.join(teams)}, if {job.owner} is in it" if teams else ""


def usable_of(lends: tuple[str, ...], job: JobView) -> str:
    """The first of the queues that a site lends to, or of those below, that the job's owner may submit to; empty: none."""
    queues = queues_of(lends)
    if job.usable_queues is None:
        return next(iter(queues), "")
    return next((queue for path in queues for queue in job.usable_queues if admits_queue((path,), queue)), "")
