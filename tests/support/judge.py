"""A second opinion on plans: what a plan breaks, found by trying everything, over the records alone.

The checker is itself written twice over from the planner. This is a third time, for worlds of a few hosts, in the plainest way that there is: sums,
and every way to lay ranks on hosts. It knows owned pools, offers, caps, borrowing limits and a job's own wishes; what else a world may have
(leases, data, calendars) it is not asked about.
"""

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

from federator.model.capacity import Market
from federator.model.plans import Action, Place, Plan, Rent
from federator.model.rules import CapRow, CapUnit, Effect, Filter, GuaranteeRow, PoolSelector, Scope
from federator.model.snapshot import BusyView, JobView, OfferView, PoolView, Problem
from tests.support.worlds import worst_usd

Start = tuple[JobView, PoolView | OfferView]
Host = tuple[int, int, int, tuple[str, ...]]
CENT = 0.005


def broken(problem: Problem, plan: Plan) -> set[str]:
    """What the plan's starts break, taken as one: names of sorts, such as `capacity`; empty where it may be carried out."""
    found = set(_identity(problem, plan))
    if found:
        return found
    starts = list(_starts(problem, plan))
    found |= set(_gangs(problem, plan))
    for job, at in starts:
        found |= set(_wishes(job, at))
        found |= set(_policies(problem, job, at))
    found |= {*_hosts(problem, plan), *_instances(problem, plan)}
    for rule in problem.snapshot.rules:
        if isinstance(rule, CapRow):
            found |= set(_cap(problem, rule, starts))
        elif isinstance(rule, GuaranteeRow) and rule.borrowing_limit is not None:
            found |= set(_borrowing(problem, rule, starts))
    return found


def _identity(problem: Problem, plan: Plan) -> Iterator[str]:
    """Each job waits, as it was seen, once, and where the plan sends it there is something."""
    waiting = {job.id: job.revision for job in problem.snapshot.jobs}
    if any(count > 1 for count in Counter(action.job for action in plan.actions).values()):
        yield "twice"
    running = {work.job for pool in problem.snapshot.pools for work in pool.busy}
    for action in plan.actions:
        if waiting.get(action.job) != action.revision:
            yield "changed"
        if action.job in running:
            yield "runs already"
        job = next((each for each in problem.snapshot.jobs if each.id == action.job), None)
        if job and job.not_before_at is not None and job.not_before_at > problem.snapshot.taken_at:
            yield "too early"
        yield from _form(job, action)
        if isinstance(action, Rent) and _offer(problem, action) is None:
            yield "no such place"
        if isinstance(action, Place):
            if len(action.members) != len(action.sessions) or not action.members:
                yield "ranks"
            elif any(_pool(problem, action, member) is None for member in action.members):
                yield "no such place"


def _form(job: JobView | None, action: Action) -> Iterator[str]:
    if isinstance(action, Place | Rent) and job is not None and not 0 <= action.form <= len(job.forms):
        yield "no such form"


def _starts(problem: Problem, plan: Plan) -> Iterator[Start]:
    jobs = {job.id: job for job in problem.snapshot.jobs}
    for action in plan.actions:
        at: PoolView | OfferView | None = None
        if isinstance(action, Rent):
            at = _offer(problem, action)
        elif isinstance(action, Place):
            at = _pool(problem, action, action.members[0])
        if at is not None:
            yield jobs[action.job].as_form(action.form or 0), at


def _pool(problem: Problem, action: Place, member: str) -> PoolView | None:
    names = action.site, member, action.pool
    return next((p for p in problem.snapshot.pools if (p.site, p.member, p.pool) == names), None)


def _offer(problem: Problem, action: Rent) -> OfferView | None:
    names = action.provider, action.offer
    return next((o for o in problem.snapshot.offers if (o.offer.provider, o.offer.name) == names), None)


def _gangs(problem: Problem, plan: Plan) -> Iterator[str]:
    """All ranks, at open pools of one make, in the sessions that were seen; a rental by its offer's own terms."""
    jobs = {job.id: job for job in problem.snapshot.jobs}
    for action in plan.actions:
        if isinstance(action, Rent):
            yield from _rental(problem, action)
        elif isinstance(action, Place):
            yield from _gang(problem, jobs[action.job].as_form(action.form), action)


def _rental(problem: Problem, action: Rent) -> Iterator[str]:
    offer = _offer(problem, action)
    if offer is None or offer.site != action.site:
        yield "no such place"
    elif offer.avoid_until_at is not None and offer.avoid_until_at > problem.snapshot.taken_at:
        yield "avoided"


def _gang(problem: Problem, job: JobView, action: Place) -> Iterator[str]:
    if len(action.members) != job.nodes:
        yield "ranks"
    pools = [_pool(problem, action, member) for member in action.members]
    makes = {(p.model, p.gpus_per_node, p.cpus_milli_per_node, p.price_usd_gpu_h) for p in pools if p}
    if len(makes) > 1:
        yield "makes"
    for pool, session in zip(pools, action.sessions, strict=True):
        if pool is not None and not pool.open:
            yield "closed"
        if pool is not None and pool.session != session:
            yield "session"


def _wishes(job: JobView, at: PoolView | OfferView) -> Iterator[str]:
    """What the job, and the site, want."""
    model = at.offer.model if isinstance(at, OfferView) else at.model
    memory = at.offer.gpu_memory_mib if isinstance(at, OfferView) else at.gpu_memory_mib
    kind = "cloud" if isinstance(at, OfferView) else at.kind
    market = at.offer.market if isinstance(at, OfferView) else at.market
    if job.gpus and job.models and model not in job.models:
        yield "model"
    if job.gpus and job.shared != (isinstance(at, PoolView) and at.shared):
        yield "shared gpus"
    labels = at.labels
    if job.nodes > 1 and job.together not in ("", "spread") and job.together not in labels:
        yield "together"
    if job.gpus and memory < job.gpu_memory_mib:
        yield "gpu memory"
    if (
        (job.sites and at.site not in job.sites)
        or at.site in job.not_sites
        or (job.kinds and kind not in job.kinds)
    ):
        yield "site"
    if any(at.labels.get(key) != value for key, value in job.site_labels.items()):
        yield "labels"
    if (market, job.spot_policy) in ((Market.SPOT, "on-demand"), (Market.ON_DEMAND, "spot")):
        yield "market"
    if isinstance(at, PoolView):
        yield from _lending(job, at)


def _lending(job: JobView, at: PoolView) -> Iterator[str]:
    if at.trusts is not None and not _named(job, at.trusts):
        yield "isolation"
    if at.lends_to and not _named(job, at.lends_to):
        yield "lending"


def _named(job: JobView, names: tuple[str, ...]) -> bool:
    """Whether a site's word means the job: everything that could be written of it is written out."""
    queues = {job.queue.rsplit("/", n)[0] for n in range(job.queue.count("/") + 1)}
    of_team = {f"team:{job.team}"} if job.team else set()
    return bool(
        {"*", f"owner:{job.owner}", *of_team, *queues, *(f"queue:{path}" for path in queues)} & set(names)
    )


def _policies(problem: Problem, job: JobView, at: PoolView | OfferView) -> Iterator[str]:
    filters = [rule for rule in problem.snapshot.rules if isinstance(rule, Filter)]
    about = [rule for rule in filters if _in_scope(rule.scope, job) and _selected(rule.pools, at)]
    if any(rule.effect is Effect.DENY for rule in about):
        yield "denied"
    for name, asks in job.licenses.items():
        rows = [r for r in problem.snapshot.rules if isinstance(r, CapRow) and r.license == name]
        limits = [row.limit for row in rows if _selected(row.pools, at)]
        if not limits or asks > min(limits):
            yield "licenses"
    if isinstance(at, OfferView):
        if problem.snapshot.burst_paused or not any(rule.effect is Effect.ALLOW for rule in about):
            yield "not permitted"
        if not job.may_rent:
            yield "no right to rent"
        if job.max_duration_s is None:
            yield "endless rental"
        elif job.max_cost_usd is not None and job.spent_usd + worst_usd(job, at) > job.max_cost_usd + CENT:
            yield "max_cost"


def _in_scope(scope: Scope, job: JobView) -> bool:
    below = not scope.queues or any(job.queue == q or job.queue.startswith(q + "/") for q in scope.queues)
    return below and (not scope.owners or job.owner in scope.owners)


def _selected(pools: PoolSelector, at: PoolView | OfferView) -> bool:
    model = at.offer.model if isinstance(at, OfferView) else at.model
    market = at.offer.market if isinstance(at, OfferView) else at.market
    return (
        (not pools.sites or at.site in pools.sites)
        and (not pools.models or model in pools.models)
        and (not pools.markets or market in pools.markets)
    )


# -- sums ---------------------------------------------------------------------------------------------------------------


def _gpus(of: JobView | BusyView) -> Fraction:
    """GPUs of all its ranks, exactly."""
    return Fraction(of.nodes * of.gpus, 1000 if of.shared else 1)


def _used(
    problem: Problem, scope: Scope, pools: PoolSelector, *, owned: bool = False
) -> tuple[Fraction, int]:
    """GPUs and jobs of the scope that run there."""
    gpus, jobs = Fraction(), 0
    for pool in problem.snapshot.pools:
        if not _selected(pools, pool) or (owned and pool.market is not Market.OWNED):
            continue
        for work in pool.busy:
            below = not scope.queues or any(
                work.queue == q or work.queue.startswith(q + "/") for q in scope.queues
            )
            if work.job and below and (not scope.owners or work.owner in scope.owners):
                gpus += _gpus(work)
                jobs += work.leads
    return gpus, jobs


def _cap(problem: Problem, row: CapRow, starts: list[Start]) -> Iterator[str]:
    about = [(job, at) for job, at in starts if _in_scope(row.scope, job) and _selected(row.pools, at)]
    rentals = [(job, at) for job, at in about if isinstance(at, OfferView)]
    gpus, jobs = _used(problem, row.scope, row.pools)
    gang = sum(_gpus(job) for job, _ in about)
    if row.unit is CapUnit.GPUS and gang and gpus + gang > row.limit:
        yield "cap on gpus"
    if row.unit is CapUnit.JOBS and about and jobs + len(about) > row.limit:
        yield "cap on jobs"
    held = sum(job.licenses.get(row.license, 0) for job, _ in about)
    runs = (work for pool in problem.snapshot.pools if _selected(row.pools, pool) for work in pool.busy)
    used = sum(work.licenses.get(row.license, 0) for work in runs if work.leads)
    if row.unit is CapUnit.LICENSES and held and used + held > row.limit:
        yield "cap on licences"
    if row.unit is CapUnit.INSTANCES and len(rentals) > row.limit:
        yield "cap on instances"
    rate = sum(at.offer.price_usd_h for _, at in rentals)
    if row.unit is CapUnit.USD_PER_H and rate > row.limit + CENT:
        yield "cap on usd per h"
    bounded = [(job, at) for job, at in rentals if job.max_duration_s is not None]
    if row.unit is CapUnit.USD and bounded:
        taken = sum(s.spent_usd + s.committed_usd for s in problem.snapshot.spend if s.policy == row.policy)
        if taken + sum(worst_usd(job, at) for job, at in bounded) > row.limit + CENT:
            yield "cap on usd"


def _borrowing(problem: Problem, row: GuaranteeRow, starts: list[Start]) -> Iterator[str]:
    scope, models = Scope(queues=(row.queue,)), PoolSelector(models=(row.model,) if row.model else ())
    gang = sum(
        _gpus(job)
        for job, at in starts
        if isinstance(at, PoolView) and _in_scope(scope, job) and _selected(models, at)
    )
    used, _ = _used(problem, scope, models, owned=True)
    if gang and used + gang > row.gpus + (row.borrowing_limit or 0):
        yield "borrowing"


# -- hosts --------------------------------------------------------------------------------------------------------------


def _hosts(problem: Problem, plan: Plan) -> Iterator[str]:
    """Whether all ranks of all actions have room at once, host by host."""
    jobs = {job.id: job for job in problem.snapshot.jobs}
    ranks: dict[tuple[str, str, str], list[Host]] = {}
    for action in plan.actions:
        if isinstance(action, Place):
            job = jobs[action.job].as_form(action.form)
            size = job.gpus, job.cpus_milli, job.memory_mib, (job.id,) * (job.together == "spread")
            for member in action.members:
                ranks.setdefault((action.site, member, action.pool), []).append(size)
    for pool in problem.snapshot.pools:
        wanted = ranks.get((pool.site, pool.member, pool.pool), [])
        free: list[Host] = [
            (s.gpus, s.cpus_milli, s.memory_mib, ()) for s in pool.free for _ in range(s.count)
        ]
        if not _lie(free, sorted(wanted, reverse=True)):
            yield "capacity"


def _instances(problem: Problem, plan: Plan) -> Iterator[str]:
    """Whether each offer has as many instances, each big enough, and what several draw on is enough for all."""
    jobs = {job.id: job for job in problem.snapshot.jobs}
    taken: Counter[tuple[str, str, str]] = Counter()
    for action in plan.actions:
        if not isinstance(action, Rent) or (view := _offer(problem, action)) is None:
            continue
        job, offer = jobs[action.job].as_form(action.form), view.offer
        size = job.gpus, job.cpus_milli, job.memory_mib, (job.id,) * (job.together == "spread")
        if not _lie([(offer.gpus, offer.cpus_milli, offer.memory_mib, ())], [size] * job.nodes):
            yield "instance too small"
        own = offer.provider, "offer", offer.as_offered().name
        taken[own] += 1
        if taken[own] > offer.available:
            yield "no more instances"
        if offer.stock:
            shared = offer.provider, "stock", offer.stock.name
            taken[shared] += offer.stock.each
            if taken[shared] > offer.stock.limit - offer.stock.used:
                yield "stock used up"


def _lie(hosts: list[Host], ranks: list[Host]) -> bool:
    """Whether there is any way to lay the ranks on the hosts; a name is of a gang whose ranks are apart."""
    if not ranks:
        return True
    first, rest = ranks[0], ranks[1:]
    for host in set(hosts):
        if all(has >= want for has, want in zip(host[:3], first[:3], strict=True)) and not (
            set(host[3]) & set(first[3])
        ):
            others = list(hosts)
            others.remove(host)
            left = host[0] - first[0], host[1] - first[1], host[2] - first[2], host[3] + first[3]
            if _lie([*others, left], rest):
                return True
    return False
