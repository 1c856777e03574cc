"""Who may run where: filters in one published order, and one reason per rejected place.

The first filter that rejects a place is *the* reason for it. The order goes from what nobody can change today (the site is
closed) over what the job asks for (its constraints, its size) to what a policy or a cap forbids, so that the reason shown is
the one to remove first. Filters are pure questions about one job and one place: they need no plan and no solver, so that they
always answer. What depends on the moment and on other jobs (free shapes, queue limits, budgets) comes after them, as
`SITUATIONS`: these are found while planning, in this order too.

The tables `FILTERS` and `SITUATIONS` are the source of the reference page.
"""
# ruff: noqa: ARG001 - every filter is asked with the same three arguments, whichever it needs

from collections.abc import Callable
from typing import NamedTuple

from federator.kernel.quantities import format_mib
from federator.model.capacity import Market
from federator.model.rules import BurstMode
from federator.model.snapshot import JobView, OfferView, PoolView, Snapshot
from federator.planning.candidates import Candidate, of_offer, of_pool
from federator.planning.rulebook import RuleBook, open_at
from federator.planning.wording import gpus, moment, money, span


class Rejection(NamedTuple):
    """Why a place is not for a job. `change` is the smallest change that lifts this reason, in words."""

    filter: str
    text: str
    change: str


class Ground(NamedTuple):
    """What a filter may look at beside the job and the place."""

    snapshot: Snapshot
    book: RuleBook


Answer = tuple[str, str] | None
"""None when the place passes, else the text of the reason and the change that would lift it."""


class Test(NamedTuple):
    """A filter: its stable name, the sentence that documents it, and the question it asks."""

    name: str
    says: str
    ask: Callable[[JobView, Candidate, Ground], Answer]


def _closed(job: JobView, at: Candidate, ground: Ground) -> Answer:
    if at.standing is None or at.standing.open:
        return None
    text = at.standing.closed_because or "nothing new may start there now"
    if len(at.views) > 1:
        text = f"none of its {len(at.views)} members takes work; {at.standing.member}: {text}"
    return text, f"when {at.site} takes work again"


def _burst_paused(job: JobView, at: Candidate, ground: Ground) -> Answer:
    if at.offer is None or not ground.snapshot.burst_paused:
        return None
    return "renting is paused for the whole federation", "an operator runs `federator burst resume`"


def _home_away(job: JobView, at: Candidate, ground: Ground) -> Answer:
    """Only a site that the job may use is waited for. What is away is home, and home is never of kind `cloud`."""
    if at.offer is None or (job.kinds and set(job.kinds) <= {"cloud"}):
        return None
    away = [
        site
        for site in ground.snapshot.away
        if (not job.sites or site in job.sites) and site not in job.not_sites
    ]
    if not away:
        return None
    sites = ", ".join(away)
    return f"nothing is rented while site {sites}, away for a moment, may come back", "wait a moment"


def _avoided(job: JobView, at: Candidate, ground: Ground) -> Answer:
    now = ground.snapshot.taken_at
    if at.offer is None or at.offer.avoid_until_at is None or at.offer.avoid_until_at <= now:
        return None
    until = moment(at.offer.avoid_until_at, now)
    because = at.offer.avoid_because or "its last launch failed"
    return f"{because}; it is not tried again before {until}", f"wait until {until}"


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
    text = f"{at.site} refused it or did not answer, twice or more; it is not tried again before {until}"
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


def _lends_to(job: JobView, at: Candidate, ground: Ground) -> Answer:
    lends = at.standing.lends_to if at.standing else ()
    if not lends or any(job.queue == path or job.queue.startswith(path + "/") for path in lends):
        return None
    return (
        f"it lends only to {', '.join(lends)}; the job is in {job.queue}",
        f"submit to {lends[0]}, or ask {at.site} to lend to {job.queue}",
    )


def _fencing(job: JobView, at: Candidate, ground: Ground) -> Answer:
    if not job.needs_fencing or (at.standing is not None and at.standing.self_fencing):
        return None
    if at.standing is None or at.standing.ready_at is not None:
        text = "whether it ends work that is cut off is known only once its agent has reported"
        return f"on_disconnect asks for stop_within; {text}", "write on_disconnect: keep"
    text = "nothing there ends work that is cut off when the agent itself is dead"
    return f"on_disconnect asks for stop_within; {text}", "write on_disconnect: keep"


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


def _gpus_per_node(job: JobView, at: Candidate, ground: Ground) -> Answer:
    if job.gpus <= at.gpus:
        return None
    change = f"ask for {gpus(at.gpus)} per node" if at.gpus else ""
    return f"the job asks for {gpus(job.gpus)} per node; a host there has {at.gpus}", change


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
    return min(fits)


def _gang(job: JobView, at: Candidate, ground: Ground) -> Answer:
    holds = ranks_ever(job, at)
    if holds >= job.nodes:
        return None
    if at.rented:
        return (
            f"a gang over several rented instances is not supported yet; one holds {holds} of {job.nodes} nodes",
            f"ask for {holds} nodes",
        )
    if ranks_ever(job, at, shut=True) >= job.nodes:
        first = at.shut[0]
        names = first.member if len(at.shut) == 1 else f"{first.member} and {len(at.shut) - 1} more"
        text = f"its open members hold {holds} of the gang's {job.nodes} nodes even empty; {first.member}: {first.closed_because}"
        return text, f"when {names} of {at.site} {'takes' if len(at.shut) == 1 else 'take'} work again"
    return (
        f"even empty it holds {holds} of the gang's {job.nodes} nodes; a host there has {gpus(at.gpus)} and {at.cpus_milli / 1000:g} CPUs",
        f"ask for {holds} node{'s' if holds != 1 else ''}",
    )


def _spot_policy(job: JobView, at: Candidate, ground: Ground) -> Answer:
    if at.market is Market.SPOT and job.spot_policy == "on-demand":
        return "it is spot capacity, and the job asks for on-demand", "set spot_policy to auto"
    if at.market is Market.ON_DEMAND and job.spot_policy == "spot":
        return "it is on-demand capacity, and the job asks for spot", "set spot_policy to auto"
    return None


def _denied(job: JobView, at: Candidate, ground: Ground) -> Answer:
    rule = ground.book.denial(job, at)
    if rule is None:
        return None
    return f"policy {rule.policy} forbids it" + (
        f": {rule.reason}" if rule.reason else ""
    ), f"a platform team changes policy {rule.policy}"


def _no_permit(job: JobView, at: Candidate, ground: Ground) -> Answer:
    if not at.rented:
        return None
    permits = ground.book.permits_for(job, at)
    if not permits:
        return (
            f"no burst policy lets queue {job.queue} rent there",
            f"a platform team adds a BurstPolicy for {job.queue}",
        )
    off = next((p for p in permits if p.mode is BurstMode.OFF and open_at(p.window, ground.book.at)), None)
    if off is not None:
        return (
            f"burst policy {off.policy} is switched off",
            f"a platform team sets another mode in {off.policy}",
        )
    open_ones = [permit for permit in permits if permit.mode is not BurstMode.OFF]
    if (at.offer is None and open_ones) or any(ground.book.in_force(permit) for permit in open_ones):
        return None
    first = permits[0].policy
    return f"burst policy {first} is outside its hours", f"wait for the hours of {first}"


def _price_limit(job: JobView, at: Candidate, ground: Ground) -> Answer:
    if at.offer is None:
        return None
    permits = [permit for permit in ground.book.permits_for(job, at) if ground.book.in_force(permit)]
    if any(p.max_price_usd_h is None or at.instance_usd_h <= p.max_price_usd_h for p in permits):
        return None
    dearest = max(permits, key=lambda p: (p.max_price_usd_h or 0.0, p.policy))
    limit, price = dearest.max_price_usd_h or 0.0, at.instance_usd_h
    text = f"it costs {money(price)} per hour; policy {dearest.policy} admits at most {money(limit)}"
    return text, f"a platform team raises the price limit of {dearest.policy} by {money(price - limit)}"


def _max_duration(job: JobView, at: Candidate, ground: Ground) -> Answer:
    if not at.rented or job.max_duration_s is not None:
        return None
    return (
        "the job has no max_duration, so its worst cost is not bounded and nothing can be rented for it",
        "set max_duration",
    )


def worst_rent_s(job: JobView, at: Candidate) -> float:
    """For how long rent is paid in the worst case: boot, the job's whole limit and grace, slack, teardown, and at least the minimum billed."""
    run = job.max_duration_s if job.max_duration_s is not None else at.run_s(job)
    run += job.grace_s
    if at.offer is None:
        return run + (at.standing.tail_s if at.standing else 0.0)
    offer = at.offer.offer
    return max(offer.minimum_billing_s, offer.delay_s + run + at.offer.slack_s + offer.teardown_s)


def worst_usd(job: JobView, at: Candidate) -> float:
    """The most that the job can cost in rent there; 0 on owned capacity."""
    return at.instance_usd_h * worst_rent_s(job, at) / 3600.0


def _max_cost(job: JobView, at: Candidate, ground: Ground) -> Answer:
    if job.max_cost_usd is None or not at.rented:
        return None
    left, worst = job.max_cost_usd - job.spent_usd, worst_usd(job, at)
    if worst <= left + 1e-9:
        return None
    text = f"it could cost {money(worst)} in the worst case ({span(worst_rent_s(job, at))}); the job's max_cost leaves {money(left)}"
    return text, f"raise max_cost by {money(worst - left)}, or shorten max_duration"


CLOSED = "closed"
FILTERS: tuple[Test, ...] = (
    Test(CLOSED, "The site drains, is paused, is unreachable, or its report is too old.", _closed),
    Test("burst-paused", "An operator has paused renting for the whole federation.", _burst_paused),
    Test(
        "home-away",
        "A site of your own has been away for a moment only, or is not back yet after a restart: that justifies no rental.",
        _home_away,
    ),
    Test(
        "offer-avoided",
        "Launching this offer failed a moment ago, or a machine of it was taken back; it is left alone for a while.",
        _avoided,
    ),
    Test("sites", "The job names the sites it may run at (or its checkpoint is at another one).", _sites),
    Test("not-sites", "The job excludes this site.", _not_sites),
    Test("refused", "It refused this gang, or did not answer, again and again: it is left alone.", _refused),
    Test("kinds", "The job names the kinds of site it may run at.", _kinds),
    Test("site-labels", "The job asks for a site with certain labels.", _site_labels),
    Test("lends-to", "The site lends only to certain queues.", _lends_to),
    Test(
        "fencing",
        "The job is to stop where its site is cut off (`stop_within`), and nothing there enforces that.",
        _fencing,
    ),
    Test("gpu-model", "The job asks for certain GPU models.", _gpu_model),
    Test("gpu-memory", "The job asks for more memory per GPU.", _gpu_memory),
    Test("gpus-per-node", "No host there has so many GPUs.", _gpus_per_node),
    Test("cpus-per-node", "No host there has so many CPUs.", _cpus_per_node),
    Test("memory-per-node", "No host there has so much memory.", _memory_per_node),
    Test(
        "gang",
        "Even empty, the place does not hold the whole gang; one instance is rented per job for now.",
        _gang,
    ),
    Test("spot-policy", "The job wants spot only, or on-demand only.", _spot_policy),
    Test("denied", "A policy forbids this job this place.", _denied),
    Test("no-burst-policy", "Rented capacity is closed unless a burst policy in force opens it.", _no_permit),
    Test("price-limit", "The instance is dearer per hour than every burst policy admits.", _price_limit),
    Test(
        "max-duration",
        "Without a max_duration the worst cost is unbounded, so nothing is rented.",
        _max_duration,
    ),
    Test("max-cost", "In the worst case it would cost more than the job's max_cost leaves.", _max_cost),
)
"""The published order."""

SITUATIONS: tuple[tuple[str, str], ...] = (
    ("not-before", "The job must not start yet (a retry's backoff)."),
    (
        "no-need",
        "Nothing justifies renting: no deadline, or it will be met at home, or it has not waited long enough.",
    ),
    ("too-late", "Even rented now it would finish after the deadline."),
    ("no-gain", "The deadline is worth less than the rent."),
    ("not-yet", "It may be rented, but a later start still meets the deadline."),
    ("booting", "The capacity is rented and boots."),
    ("queue-limit", "A cap on GPUs or jobs of the queue is reached."),
    ("budget", "A cap on money, on hourly rent or on instances is reached."),
    ("sold-out", "The provider has no more of it."),
    ("busy", "No free shape holds the job now."),
    ("held", "Free GPUs are held for a named job until a named time."),
    ("better-elsewhere", "It fits, but another place is better for it."),
)
"""What can keep a job from a place that passes all filters, in the order in which it is looked at."""


def reject(job: JobView, at: Candidate, ground: Ground, by: tuple[Test, ...] = FILTERS) -> Rejection | None:
    """The first filter that rejects the place, or None when all pass."""
    for test in by:
        answer = test.ask(job, at, ground)
        if answer is not None:
            return Rejection(test.name, *answer)
    return None


def eligibility(job: JobView, place: PoolView | OfferView, snapshot: Snapshot) -> Rejection | None:
    """The reason why the job may not run at a pool or offer, or None when it may. Needs no plan."""
    at = of_offer(place) if isinstance(place, OfferView) else of_pool(place)
    return reject(job, at, Ground(snapshot, RuleBook(snapshot.rules, snapshot.taken_at)))
