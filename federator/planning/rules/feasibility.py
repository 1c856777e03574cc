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

from federator.kernel.quantities import format_mib
from federator.model.jobs import APART, cuts_of, in_gpus
from federator.model.snapshot import JobView, OfferView, PoolView, Snapshot
from federator.planning.places.candidates import Candidate, of_offer, of_pool
from federator.planning.places.data import data_book
from federator.planning.rules import permits
from federator.planning.rules.asking import Answer, Ground, Rejection, Test
from federator.planning.rules.calendars import closed_by_calendar, next_start
from federator.planning.rules.lending import isolation, lends_to
from federator.planning.rules.rulebook import RuleBook
from federator.planning.wording import gpus, moment, span
from federator.wire.needs import DATA, FORMS, IMAGES, RENTED, TOGETHER


def _closed(job: JobView, at: Candidate, ground: Ground) -> Answer:
    if at.standing is None or at.standing.open:
        return None
    text = at.standing.closed_because or "nothing new may start there now"
    if len(at.views) > 1:
        text = f"none of its {len(at.views)} members takes work; {at.standing.member}: {text}"
    return text, f"when {at.site} takes work again"


def _calendar(job: JobView, at: Candidate, ground: Ground) -> Answer:
    return closed_by_calendar(job, at, ground.book)


def _sites(job: JobView, at: Candidate, ground: Ground) -> Answer:
    if not job.sites or at.site in job.sites:
        return None
    if job.resumes_at:
        lift = f"when {job.resumes_at} has room, or is declared dead because it is gone for good"
        return f"what the job has saved is at {job.resumes_at}, where it goes on", lift
    return f"the job may run only at {', '.join(job.sites)}", f"add {at.site} to placement.sites"


def _not_sites(job: JobView, at: Candidate, ground: Ground) -> Answer:
    if at.site not in job.not_sites:
        return None
    return f"the job excludes {at.site}", f"remove {at.site} from placement.not_sites"


def _refused(job: JobView, at: Candidate, ground: Ground) -> Answer:
    now = ground.snapshot.taken_at
    until_at = max((until_at for site, until_at in job.refused if site == at.site), default=now)
    if until_at <= now:
        return None
    until = moment(until_at, now)
    text = f"{at.site} has evicted or repeatedly refused it; it is not tried again before {until}"
    return text, f"wait until {until}"


def _kinds(job: JobView, at: Candidate, ground: Ground) -> Answer:
    if not job.kinds or at.kind in job.kinds:
        return None
    return (
        f"the job may run only at sites of kind {' or '.join(job.kinds)}; this one is {at.kind}",
        f"add {at.kind} to placement.kinds",
    )


def _site_labels(job: JobView, at: Candidate, ground: Ground) -> Answer:
    missing = [
        f"{key}={value}" for key, value in sorted(job.site_labels.items()) if at.labels.get(key) != value
    ]
    if not missing:
        return None
    wanted = ", ".join(missing)
    return (
        f"the job asks for a site with {wanted}",
        f"remove {wanted} from placement.labels, or label {at.site} so",
    )


def _abilities(job: JobView, at: Candidate, ground: Ground) -> Answer:
    has = at.standing.abilities if at.standing is not None else RENTED
    lacking = next((need for need in job.needs if need not in has), None)
    if lacking is None:
        return None
    if lacking == IMAGES:
        return "the job names an image, and no containers run there", "leave image out"
    if lacking == DATA:
        return (
            "the job has inputs, or a checkpoint.uri, and it cannot bring data",
            f"an operator of {at.site} adds data to its site file",
        )
    if lacking == TOGETHER:
        return "its agent is too old for a job that says how its nodes lie", "leave placement.together out"
    if lacking == FORMS:
        return (
            "its agent is too old for a job that may run in several forms",
            f"upgrade the agents of {at.site}",
        )
    if at.standing is None:
        return f"it has no {lacking.replace(':', ' ')}", f"leave {lacking.replace(':', ' ')} out"
    return f"it has no {lacking.replace(':', ' ')}", "a site's operator adds secrets to its site file"


def _fencing(job: JobView, at: Candidate, ground: Ground) -> Answer:
    if not job.needs_fencing or (at.standing is not None and at.standing.self_fencing):
        return None
    if at.standing is None or at.standing.ready_at is not None:
        text = "whether it ends work that is cut off is known only once its agent has reported"
        return f"on_disconnect asks for stop_within; {text}", "write on_disconnect: keep"
    text = "nothing there ends work that is cut off when the agent itself is dead"
    return f"on_disconnect asks for stop_within; {text}", "write on_disconnect: keep"


def _longest_run(job: JobView, at: Candidate, ground: Ground) -> Answer:
    """Without a max_duration it is the run as forecast that must not be too long."""
    if at.longest_s is None or longest_of(job, at) <= at.longest_s:
        return None
    said = (
        "its max_duration is"
        if job.max_duration_s is not None
        else "without a max_duration, it is forecast to run for"
    )
    most = span(at.longest_s)
    return (
        f"the site ends what runs there after {most}, and {said} {span(longest_of(job, at))}",
        f"set max_duration to {most}",
    )


def longest_of(job: JobView, at: Candidate) -> float:
    """How long the job's own run there may become."""
    if job.max_duration_s is not None:
        return job.max_duration_s
    return at.run_s(job) - at.transfer(job).seconds


def _gpu_model(job: JobView, at: Candidate, ground: Ground) -> Answer:
    if not job.gpus or not job.models or at.model in job.models:
        return None
    has = f"it has {at.model}" if at.gpus else "it has no GPUs"
    return f"the job asks for {' or '.join(job.models)}; {has}", f"allow {at.model}" if at.gpus else ""


def _gpu_memory(job: JobView, at: Candidate, ground: Ground) -> Answer:
    if not job.gpus or job.gpu_memory_mib <= at.gpu_memory_mib:
        return None
    has = format_mib(at.gpu_memory_mib)
    return (
        f"the job asks for {format_mib(job.gpu_memory_mib)} per GPU; it has {has}",
        f"ask for {has} per GPU",
    )


def _shared_gpus(job: JobView, at: Candidate, ground: Ground) -> Answer:
    if not job.gpus or (job.shared == at.shared and _cut_fits(job, at)):
        return None
    if job.shared and at.shared:
        part = in_gpus(at.cut_milli, shared=True)
        asks = f"the job asks for {gpus(in_gpus(job.gpus, shared=True))}"
        return f"its GPUs are cut into parts of {part:g}, and {asks}", f"ask for {gpus(part)}"
    if not job.shared:
        # A part is of one GPU; half of what needs eight would be no small change, and nodes apart have no parts yet.
        change = "ask for part of a GPU (0.5)" if job.gpus == 1 and job.together != APART else ""
        return "its GPUs are shared, and the job asks for whole ones", change
    change = "ask for a whole GPU" if at.gpus else ""
    return "the job asks for part of a GPU, and none there is shared", change


def _cut_fits(job: JobView, at: Candidate) -> bool:
    """Whether parts of that size, on one GPU each rank, are what the job asks for: nobody gets more than is booked."""
    ranks = max(1, job.ranks_in_one)
    return not at.cut_milli or cuts_of(job.gpus // ranks, at.cut_milli) > 0


def _together(job: JobView, at: Candidate, ground: Ground) -> Answer:
    lift = "leave placement.together out"
    if job.ranks_in_one:
        if job.gpus <= at.gpus and job.cpus_milli <= at.cpus_milli and job.memory_mib <= at.memory_mib:
            return None
        asks = f"{gpus(job.gpus_total)}, {job.cpus_milli / 1000:g} CPUs and {format_mib(job.memory_mib)}"
        return (
            f"its {job.ranks_in_one} nodes are to be on one host and ask for {asks}; none there has so much",
            lift,
        )
    if job.nodes == 1 or job.together in ("", APART) or job.together in at.labels:
        return None
    text = f"the job's nodes are to be in one {job.together}, and no label says which {job.together} its hosts are in"
    return text, f"label them {job.together}: …, or {lift}"


def _gpus_per_node(job: JobView, at: Candidate, ground: Ground) -> Answer:
    if job.gpus <= at.gpus:
        return None
    change = f"ask for {gpus(in_gpus(at.gpus, shared=at.shared))} per node" if at.gpus else ""
    asks, has = (in_gpus(count, shared=at.shared) for count in (job.gpus, at.gpus))
    return f"the job asks for {gpus(asks)} per node; a host there has {has}", change


def _cpus_per_node(job: JobView, at: Candidate, ground: Ground) -> Answer:
    if job.cpus_milli <= at.cpus_milli:
        return None
    has = f"{at.cpus_milli / 1000:g}"
    return (
        f"the job asks for {job.cpus_milli / 1000:g} CPUs per node; a host there has {has}",
        f"ask for {has} CPUs",
    )


def _memory_per_node(job: JobView, at: Candidate, ground: Ground) -> Answer:
    if job.memory_mib <= at.memory_mib:
        return None
    has = format_mib(at.memory_mib)
    return (
        f"the job asks for {format_mib(job.memory_mib)} of memory per node; a host there has {has}",
        f"ask for {has}",
    )


def ranks_ever(job: JobView, at: Candidate, *, shut: bool = False) -> int:
    """How many ranks of the job the place would hold if nothing else ran there; with `shut`, if all its members were open too."""
    fits, nodes = [job.nodes], at.nodes + (sum(view.nodes for view in at.shut) if shut else 0)
    for wanted, has in (
        (job.gpus, at.gpus),
        (job.cpus_milli, at.cpus_milli),
        (job.memory_mib, at.memory_mib),
    ):
        if wanted:
            fits.append(nodes * (has // wanted))
    if job.apart:
        fits.append(nodes if min(fits) else 0)
    return min(fits)


def _gang(job: JobView, at: Candidate, ground: Ground) -> Answer:
    holds = ranks_ever(job, at)
    if holds >= job.nodes:
        return None
    if at.offer is not None:
        return None  # so many machines are rented as hold it
    if at.rented:
        text = f"a machine that is rented already holds {holds} of the gang's {job.nodes} nodes"
        return text, f"ask for {holds} node{'s' if holds != 1 else ''}"
    if ranks_ever(job, at, shut=True) >= job.nodes:
        first = at.shut[0]
        names = first.member if len(at.shut) == 1 else f"{first.member} and {len(at.shut) - 1} more"
        text = f"its open members hold {holds} of the gang's {job.nodes} nodes even empty; {first.member}: {first.closed_because}"
        return text, f"when {names} of {at.site} {'takes' if len(at.shut) == 1 else 'take'} work again"
    return (
        f"even empty it holds {holds} of the gang's {job.nodes} nodes{', each on a host of its own' if job.apart else ''}; a host there has {gpus(in_gpus(at.gpus, shared=at.shared))} and {at.cpus_milli / 1000:g} CPUs",
        f"ask for {holds} node{'s' if holds != 1 else ''}",
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
        "Launching this offer failed a moment ago, or a machine of it was taken back; it is left alone for a while.",
        permits.avoided,
    ),
    Test("sites", "The job names the sites it may run at (or its checkpoint is at another one).", _sites),
    Test("not-sites", "The job excludes this site.", _not_sites),
    Test("refused", "It refused this gang, or did not answer, again and again: it is left alone.", _refused),
    Test("kinds", "The job names the kinds of site it may run at.", _kinds),
    Test("site-labels", "The job asks for a site with certain labels.", _site_labels),
    Test("lends-to", "The site lends only to certain queues, owners or teams.", lends_to),
    Test(
        "isolation",
        "Nothing keeps jobs apart at the site (`shared-trust`), and it does not trust the job's owner, queue or team.",
        isolation,
    ),
    Test("abilities", "The job needs an image, data or a secret that the site cannot give it.", _abilities),
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

SITUATIONS: tuple[tuple[str, str], ...] = (
    ("not-before", "The job must not start yet (a retry's backoff)."),
    (
        "no-need",
        "Nothing justifies renting: no deadline, or it will be met at home, or it has not waited long enough.",
    ),
    ("approval", "Its worst case costs so much that a person has to approve it first."),
    ("too-late", "Even rented now it would finish after the deadline."),
    ("no-gain", "The deadline is worth less than the rent."),
    ("not-yet", "It may be rented, but a later start still meets the deadline."),
    ("booting", "The capacity is rented and boots."),
    ("queue-limit", "A cap on GPUs or jobs of the queue is reached."),
    ("budget", "A cap on money, on hourly rent or on instances is reached."),
    (
        "sold-out",
        "The provider has no more of it, or too little left of a stock, such as a quota, that it draws on with others.",
    ),
    ("busy", "No free shape holds the job now."),
    ("held", "Free GPUs are held for a named job until a named time."),
    ("better-elsewhere", "It fits, but another place is better for it."),
)
"""What can keep a job from a place that passes all filters, in the order in which it is looked at."""


_BUT_FOR_THE_HOUR = tuple(test for test in FILTERS if test.name not in (CLOSED, "calendar"))


def reject(job: JobView, at: Candidate, ground: Ground, by: tuple[Test, ...] = FILTERS) -> Rejection | None:
    """The first filter that rejects the place, or None when all pass."""
    for test in by:
        answer = test.ask(job, at, ground)
        if answer is not None:
            return Rejection(test.name, *answer)
    return None


def opens_in_time(job: JobView, at: Candidate, ground: Ground) -> bool:
    """Whether nothing but a calendar keeps the job from a place, and that opens soon enough for the deadline, if there is one."""
    if not ground.book.openings or reject(job, at, ground, _BUT_FOR_THE_HOUR) is not None:
        return False
    start = next_start(job, at, ground.book, ground.snapshot.taken_at)
    return (
        start + at.run_s(job) <= (math.inf if job.deadline_at is None else job.deadline_at)
        and start < math.inf
    )


def eligibility(job: JobView, place: PoolView | OfferView, snapshot: Snapshot) -> Rejection | None:
    """The reason why the job may not run at a pool or offer, or None when it may. Needs no plan."""
    data = data_book(snapshot)
    at = of_offer(place, data) if isinstance(place, OfferView) else of_pool(place, data)
    return reject(job, at, Ground(snapshot, RuleBook(snapshot.rules, snapshot.taken_at)))
