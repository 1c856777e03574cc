"""Who may run where: filters in one published order, and one reason per rejected place.

The first filter that rejects a place is *the* reason for it. The order goes from what nobody can change today (the site is
closed) over what the job asks for (its constraints, its size) to what a policy or a cap forbids, so that the reason shown is
the one to remove first. Filters are pure questions about one job and one place: they need no plan and no solver, so that they
always answer. What depends on the moment and on other jobs (free shapes, queue limits, budgets) comes after them, as
`SITUATIONS`: these are found while planning, in this order too.

The tables `FILTERS` and `SITUATIONS` are the source of the reference page.
"""
# ruff: noqa: ARG001 - every filter is asked with the same three arguments, whichever it needs

import math
from typing import NamedTuple

from federator.model import rejections as why
from federator.model.jobs import APART, cuts_of, in_gpus
from federator.model.rules import admits_queue
from federator.model.snapshot import JobView
from federator.model.whose import is_among, queues_of
from federator.planning.places.candidates import Candidate, ranks_on_one
from federator.planning.rules import permits
from federator.planning.rules.calendars import closed_by_calendar, next_start
from federator.planning.rules.filters import Answer, FilterContext, Rejection, Test
from federator.wire.needs import RENTED


def _closed(job: JobView, at: Candidate, context: FilterContext) -> Answer:
    if at.standing is None or at.standing.open:
        return None
    first = at.standing
    return why.Closed(
        site=at.site, said=first.closed_because, members=max(1, len(at.views)), member=first.member
    )


def _calendar(job: JobView, at: Candidate, context: FilterContext) -> Answer:
    return closed_by_calendar(job, at, context.book)


def _sites(job: JobView, at: Candidate, context: FilterContext) -> Answer:
    if not job.sites or at.site in job.sites:
        return None
    if job.resumes_at:
        return why.SavedAt(site=job.resumes_at)
    return why.OtherSites(sites=job.sites, site=at.site)


def _not_sites(job: JobView, at: Candidate, context: FilterContext) -> Answer:
    return why.SiteExcluded(site=at.site) if at.site in job.not_sites else None


def _refused(job: JobView, at: Candidate, context: FilterContext) -> Answer:
    now = context.snapshot.taken_at
    until_at = max((until_at for site, until_at in job.refused if site == at.site), default=now)
    return why.SiteRefused(site=at.site, until_at=until_at) if until_at > now else None


def _kinds(job: JobView, at: Candidate, context: FilterContext) -> Answer:
    if not job.kinds or at.kind in job.kinds:
        return None
    return why.OtherKinds(kinds=job.kinds, site_kind=at.kind)


def _site_labels(job: JobView, at: Candidate, context: FilterContext) -> Answer:
    missing = tuple(
        f"{key}={value}" for key, value in sorted(job.site_labels.items()) if at.labels.get(key) != value
    )
    return why.LabelsMissing(labels=missing, site=at.site) if missing else None


def _lends_to(job: JobView, at: Candidate, context: FilterContext) -> Answer:
    lends = at.standing.lends_to if at.standing else ()
    if not lends or is_among(lends, job.whose):
        return None
    return why.LendsToOthers(
        site=at.site,
        lends_to=tuple(lends),
        queue=job.whose.queue,
        owner=job.whose.owner,
        team=job.whose.team,
        usable=_usable_of(lends, job),
    )


def _isolation(job: JobView, at: Candidate, context: FilterContext) -> Answer:
    trusts = at.standing.trusts if at.standing is not None else None
    if trusts is None or is_among(trusts, job.whose):
        return None
    return why.Untrusted(site=at.site, trusts=tuple(trusts), owner=job.owner)


def _usable_of(lends: tuple[str, ...], job: JobView) -> str:
    """The first of the queues that a site lends to, or of those below, that the job's owner may submit to; empty: none."""
    queues = queues_of(lends)
    if job.usable_queues is None:
        return next(iter(queues), "")
    return next((queue for path in queues for queue in job.usable_queues if admits_queue((path,), queue)), "")


def _abilities(job: JobView, at: Candidate, context: FilterContext) -> Answer:
    has = at.standing.abilities if at.standing is not None else RENTED
    lacking = next((need for need in job.needs if need not in has), None)
    if lacking is None:
        return None
    return why.AbilityMissing(ability=lacking, site=at.site, offered=at.standing is None)


def _fencing(job: JobView, at: Candidate, context: FilterContext) -> Answer:
    if not job.needs_fencing or (at.standing is not None and at.standing.self_fencing):
        return None
    return why.Unfenced(unknown=at.standing is None or at.standing.ready_at is not None)


def _longest_run(job: JobView, at: Candidate, context: FilterContext) -> Answer:
    """Without a max_duration it is the run as forecast that must not be too long."""
    if at.longest_s is None or longest_of(job, at) <= at.longest_s:
        return None
    forecast = job.max_duration_s is None
    return why.RunTooLong(longest_s=at.longest_s, run_s=longest_of(job, at), forecast=forecast)


def longest_of(job: JobView, at: Candidate) -> float:
    """How long the job's own run there may become."""
    if job.max_duration_s is not None:
        return job.max_duration_s
    return at.run_s(job) - at.transfer(job).seconds


def _licenses(job: JobView, at: Candidate, context: FilterContext) -> Answer:
    for name, asks in sorted(job.licenses.items()):
        here = (r.limit for r in context.book.licenses if r.license == name and at.selected_by(r.pools))
        most = int(min(here, default=0))
        if asks > most:
            return why.NoLicense(license=name, asks=asks, most=most)
    return None


def _gpu_model(job: JobView, at: Candidate, context: FilterContext) -> Answer:
    if not job.gpu_models or at.model in job.gpu_models:
        return None
    return why.OtherModels(models=job.gpu_models, has=at.model if at.gpus else "")


def _gpu_memory(job: JobView, at: Candidate, context: FilterContext) -> Answer:
    if not job.gpus or job.gpu_memory_mib <= at.gpu_memory_mib:
        return None
    return why.GpuMemory(asks_mib=job.gpu_memory_mib, has_mib=at.gpu_memory_mib)


def _shared_gpus(job: JobView, at: Candidate, context: FilterContext) -> Answer:
    if not job.gpus or (job.shared == at.shared and _cut_fits(job, at)):
        return None
    if job.shared and at.shared:
        return why.OtherParts(
            part=float(in_gpus(at.cut_milli, shared=True)), asks=float(in_gpus(job.gpus, shared=True))
        )
    if not job.shared:
        # A part is of one GPU; half of what needs eight would be no small change, and nodes apart have no parts yet.
        return why.GpusShared(part=job.gpus == 1 and job.together != APART)
    return why.GpusWhole(gpus=bool(at.gpus))


def _cut_fits(job: JobView, at: Candidate) -> bool:
    """Whether parts of that size, on one GPU each rank, are what the job asks for: nobody gets more than is booked."""
    ranks = max(1, job.ranks_in_one)
    return not at.cut_milli or cuts_of(job.gpus // ranks, at.cut_milli) > 0


def _together(job: JobView, at: Candidate, context: FilterContext) -> Answer:
    if job.ranks_in_one:
        if job.gpus <= at.gpus and job.cpus_milli <= at.cpus_milli and job.memory_mib <= at.memory_mib:
            return None
        return why.NotOnOneHost(
            nodes=job.ranks_in_one,
            gpus=float(job.gpus_total),
            cpus_milli=job.cpus_milli,
            memory_mib=job.memory_mib,
        )
    if job.nodes == 1 or job.together in ("", APART) or job.together in at.labels:
        return None
    return why.NotLabelled(label=job.together)


def _gpus_per_node(job: JobView, at: Candidate, context: FilterContext) -> Answer:
    if job.gpus <= at.gpus:
        return None
    asks, has = (float(in_gpus(count, shared=at.shared)) for count in (job.gpus, at.gpus))
    return why.GpusPerNode(asks=asks, has=has)


def _cpus_per_node(job: JobView, at: Candidate, context: FilterContext) -> Answer:
    if job.cpus_milli <= at.cpus_milli:
        return None
    return why.CpusPerNode(asks_milli=job.cpus_milli, has_milli=at.cpus_milli)


def _memory_per_node(job: JobView, at: Candidate, context: FilterContext) -> Answer:
    if job.memory_mib <= at.memory_mib:
        return None
    return why.MemoryPerNode(asks_mib=job.memory_mib, has_mib=at.memory_mib)


def _ranks_ever(job: JobView, at: Candidate, *, shut: bool = False) -> int:
    """How many ranks of the job the place would hold if nothing else ran there; with `shut`, if all its members were open too."""
    nodes = at.nodes + (sum(view.nodes for view in at.shut) if shut else 0)
    return min(job.nodes, nodes * ranks_on_one(job, at))


def _gang(job: JobView, at: Candidate, context: FilterContext) -> Answer:
    holds = _ranks_ever(job, at)
    if holds >= job.nodes or at.offer is not None:
        return None  # of an offer, so many machines are rented as hold it
    if not at.rented and _ranks_ever(job, at, shut=True) >= job.nodes:
        first = at.shut[0]
        return why.GangTooLarge(
            holds=holds,
            nodes=job.nodes,
            site=at.site,
            shut=len(at.shut),
            member=first.member,
            said=first.closed_because,
        )
    return why.GangTooLarge(
        holds=holds,
        nodes=job.nodes,
        leased=at.rented,
        apart=job.apart,
        host_gpus=float(in_gpus(at.gpus, shared=at.shared)),
        host_cpus_milli=at.cpus_milli,
    )


CLOSED = "closed"
FILTERS: tuple[Test, ...] = (
    Test(CLOSED, "The site drains, is paused, is unreachable, or its report is too old.", _closed),
    Test(
        "calendar",
        "A calendar has it closed at this hour, or closes it before the job would be done.",
        _calendar,
    ),
    Test("burst-paused", "An operator has paused renting for the whole federation.", permits.burst_paused),
    Test(
        "home-away",
        "A site of your own has been away for a moment only, or is not back yet after a restart: that justifies no rental.",
        permits.home_away,
    ),
    Test(
        "offer-avoided",
        "Launching this offer failed a moment ago, or a machine of it was taken back; it is not tried again for a while.",
        permits.avoided,
    ),
    Test("sites", "The job names the sites it may run at (or its checkpoint is at another one).", _sites),
    Test("not-sites", "The job excludes this site.", _not_sites),
    Test(
        "refused",
        "It refused this gang, or did not answer, again and again: it is not tried again.",
        _refused,
    ),
    Test("kinds", "The job names the kinds of site it may run at.", _kinds),
    Test("site-labels", "The job asks for a site with certain labels.", _site_labels),
    Test("lends-to", "The site lends only to certain queues, owners or teams.", _lends_to),
    Test(
        "isolation",
        "Nothing keeps jobs apart at the site (`shared-trust`), and it does not trust the job's owner, queue or team.",
        _isolation,
    ),
    Test("abilities", "The job needs an image, data or a secret that the site cannot give it.", _abilities),
    Test("licenses", "No policy has so many of the job's licences for work there.", _licenses),
    Test(
        "fencing",
        "The job is to stop where its site is cut off (`stop_within`), and nothing there enforces that.",
        _fencing,
    ),
    Test(
        "longest-run",
        "The site's own scheduler ends what runs there before the job's `max_duration`, or before its run as forecast.",
        _longest_run,
    ),
    Test("gpu-model", "The job asks for certain GPU models.", _gpu_model),
    Test("gpu-memory", "The job asks for more memory per GPU.", _gpu_memory),
    Test(
        "shared-gpus",
        "The job asks for part of a GPU and none there is shared, or cut into such parts; or it asks for whole ones, and they are.",
        _shared_gpus,
    ),
    Test(
        "together",
        "The job's nodes are to be together, and no host there holds all of them, or none has the label that they are to share.",
        _together,
    ),
    Test("gpus-per-node", "No host there has so many GPUs.", _gpus_per_node),
    Test("cpus-per-node", "No host there has so many CPUs.", _cpus_per_node),
    Test("memory-per-node", "No host there has so much memory.", _memory_per_node),
    Test(
        "gang",
        "Even empty, the place does not hold the whole gang. Of an offer, as many machines are rented as hold it.",
        _gang,
    ),
    Test("spot-policy", "The job wants spot only, or on-demand only.", permits.spot_policy),
    Test("denied", "A policy forbids this job this place.", permits.denied),
    Test(
        "no-right-to-rent",
        "The right by which the job was admitted to its queue is without renting.",
        permits.no_right,
    ),
    Test(
        "no-burst-policy",
        "Rented capacity is closed unless a burst policy in force opens it.",
        permits.no_permit,
    ),
    Test(
        "price-limit", "The instance is dearer per hour than every burst policy admits.", permits.price_limit
    ),
    Test(
        "max-duration",
        "Without a max_duration the worst cost is unbounded, so nothing is rented.",
        permits.max_duration,
    ),
    Test(
        "max-cost", "In the worst case it would cost more than the job's max_cost leaves.", permits.max_cost
    ),
)
"""The published order."""


class Situation(NamedTuple):
    """What is found while planning: its stable name, the kind of `Waiting` that it is, and the sentence that documents it."""

    name: str
    kind: str
    says: str


SITUATIONS: tuple[Situation, ...] = (
    Situation("not-before", "time", "The job must not start yet (a retry's backoff)."),
    Situation(
        "no-need",
        "filter",
        "Nothing justifies renting: no deadline, or it will be met at home, or it has not waited long enough.",
    ),
    Situation("approval", "budget", "Its worst case costs so much that a person has to approve it first."),
    Situation("too-late", "filter", "Even rented now it would finish after the deadline."),
    Situation("no-gain", "filter", "The deadline is worth less than the rent."),
    Situation("not-yet", "later", "It may be rented, but a later start still meets the deadline."),
    Situation("booting", "later", "The capacity is rented and boots."),
    Situation("queue-limit", "quota", "A cap on GPUs or jobs of the queue, or on licences, is reached."),
    Situation("budget", "budget", "A cap on money, on hourly rent or on instances is reached."),
    Situation(
        "sold-out",
        "capacity",
        "The provider has no more of it, or too little left of a stock, such as a quota, that it draws on with others.",
    ),
    Situation("busy", "capacity", "No free shape holds the job now."),
    Situation("held", "capacity", "Free GPUs are held for a named job until a named time."),
    Situation("better-elsewhere", "later", "It fits, but another place is better for it."),
)
"""What can keep a job from a place that passes all filters, in the order in which it is looked at."""
KINDS = {situation.name: situation.kind for situation in SITUATIONS}
"""Of situations; filters are of kind `filter`."""


_BUT_FOR_THE_HOUR = tuple(test for test in FILTERS if test.name not in (CLOSED, "calendar"))


def reject(
    job: JobView, at: Candidate, context: FilterContext, by: tuple[Test, ...] = FILTERS
) -> Rejection | None:
    """The first filter that rejects the place, or None when all pass."""
    for test in by:
        answer = test.ask(job, at, context)
        if answer is not None:
            return Rejection(test.name, answer)
    return None


def opens_in_time(job: JobView, at: Candidate, context: FilterContext) -> bool:
    """Whether nothing but a calendar keeps the job from a place, and that opens soon enough for the deadline, if there is one."""
    if not context.book.openings or reject(job, at, context, _BUT_FOR_THE_HOUR) is not None:
        return False
    start = next_start(job, at, context.book, context.snapshot.taken_at)
    return (
        start + at.run_s(job) <= (math.inf if job.deadline_at is None else job.deadline_at)
        and start < math.inf
    )
