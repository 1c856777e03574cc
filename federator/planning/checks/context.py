"""What the checks stand on: the snapshot by name, and a tally of what it already uses plus what accepted actions add.

Owned pools, leased pools and offers are reduced to one `Target`, so that a constraint, a filter or a cap is written once and holds for all
three.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from federator.model.capacity import IN_PARTS, Market, Offer
from federator.model.datasets import concerns_data
from federator.model.jobs import in_gpus
from federator.model.plans import Action, Place, Plan, Preempt, Rent
from federator.model.rules import (
    CapRow,
    CapUnit,
    Effect,
    Filter,
    GuaranteeRow,
    Opening,
    PreemptRule,
    Scope,
    Window,
    admits_queue,
    in_scope,
    selects,
)
from federator.model.snapshot import BusyView, JobView, OfferView, PoolView, Snapshot
from federator.planning.checks.data_moves import Moved, Moving
from federator.planning.checks.packing import Hosts, rank_of
from federator.planning.checks.shares import asked, due, plus, used

PERMISSION = 0
"""The promise number of findings about what users, sites and policies forbid."""
TOLERANCE = 1e-6
"""Sums of money, GPUs and times may differ from another program's by this much of rounding."""


ALIKE = (
    *("site", "pool", "market", "kind", "region", "provider", "lends_to", "abilities", "self_fencing"),
    *("trusts", "price_usd_gpu_h", "ready_at", "model", "gpu_memory_mib", "gpus_per_node", "shared"),
    *("cpus_milli_per_node", "memory_mib_per_node"),
)
"""What pools of several members must have in common to be one place, beside their labels."""


class Fault(NamedTuple):
    """What a check holds against one action. Every fault is fatal for it; remarks are made about whole plans."""

    promise: int
    text: str


class Changes(NamedTuple):
    """What elastic jobs that go on in another form add to caps and, of owned GPUs, to guaranteed queues, each by its index; less than nothing, where they give some back."""

    caps: dict[int, float]
    guarantees: dict[int, float]

    def plus(self, other: "Changes") -> "Changes":
        """Both together."""
        return Changes(_sums(self.caps, other.caps), _sums(self.guarantees, other.guarantees))


def _sums(these: dict[int, float], those: dict[int, float]) -> dict[int, float]:
    return these | {index: these.get(index, 0.0) + more for index, more in those.items()}


NO_CHANGES = Changes({}, {})


class Target(NamedTuple):
    """A place where a job could run: an owned pool, a leased pool, or an offer that is not rented yet."""

    key: str
    site: str
    kind: str
    provider: str | None
    region: str
    market: Market
    model: str
    gpu_memory_mib: int
    labels: dict[str, str]
    lends_to: tuple[str, ...]
    price_usd_h: float
    """Rent of all of it; 0 for owned capacity."""
    pool: PoolView | None
    offer: OfferView | None
    moving: Moving | None = None

    def moved(self, job: JobView) -> Moved:
        """What bringing the job's data there takes."""
        return Moved() if self.moving is None else self.moving.moved(job, self.site, self.region)

    @property
    def owned(self) -> bool:
        """Whether it costs nothing extra to use."""
        return self.market is Market.OWNED


def target_of_pool(pool: PoolView, moving: Moving | None = None) -> Target:
    """A pool as a place to run."""
    return Target(
        key=pool.key,
        site=pool.site,
        kind=pool.kind,
        provider=pool.provider,
        region=pool.region,
        market=pool.market,
        model=pool.model,
        gpu_memory_mib=pool.gpu_memory_mib,
        labels=pool.labels,
        lends_to=pool.lends_to,
        price_usd_h=_rent_usd_h(pool),
        pool=pool,
        offer=None,
        moving=moving,
    )


def terms(pool: PoolView) -> tuple[object, ...]:
    """What pools have in common over which one gang may lie: owned hosts of one make, called the same at one site, on the same terms.

    What is rented has nothing in common with anything.
    """
    if pool.market is not Market.OWNED or pool.lease is not None:
        return (pool.key,)
    return (tuple(sorted(pool.labels.items())), *(getattr(pool, name) for name in ALIKE))


def _rent_usd_h(pool: PoolView) -> float:
    """A host without GPUs is priced as if it had one."""
    if pool.market is Market.OWNED:
        return 0.0
    return pool.price_usd_gpu_h * max(1, in_gpus(pool.gpus_per_node * pool.nodes, shared=pool.shared))


def target_of_offer(view: OfferView, moving: Moving | None = None) -> Target:
    """An offer as a place to run: one instance that joins a site of kind `cloud`."""
    offer = view.offer
    return Target(
        key=view.key,
        site=view.site,
        kind="cloud",
        provider=offer.provider,
        region=offer.region,
        market=offer.market,
        model=offer.model,
        gpu_memory_mib=offer.gpu_memory_mib,
        labels=view.labels,
        lends_to=(),
        price_usd_h=offer.price_usd_h,
        pool=None,
        offer=view,
        moving=moving,
    )


def concerns(scope: Scope, who: JobView | BusyView) -> bool:
    """Whether a rule's scope is about this job, waiting or running."""
    return in_scope(scope, queue=who.queue, owner=who.owner, labels=who.labels)


def forms_of(job: JobView) -> list[JobView]:
    """The job in each of its forms."""
    return [job.as_form(form) for form in range(1 + len(job.forms))]


def window_holds(window: Window | None, at: float) -> bool:
    """Whether a rule with this window holds at `at`. A window whose end is before its start runs past midnight."""
    if window is None:
        return True
    if at < (window.first_at or 0.0) or (window.until_at is not None and at >= window.until_at):
        return False
    days, second = divmod(at, 86400.0)
    day = (int(days) + 3) % 7  # the epoch began on a Thursday
    minute = second / 60.0
    if window.from_minute <= window.to_minute:
        return day in window.days and window.from_minute <= minute < window.to_minute
    yesterday = (day - 1) % 7
    return (day in window.days and minute >= window.from_minute) or (
        yesterday in window.days and minute < window.to_minute
    )


class CheckContext:
    """One snapshot, indexed, with the tally that grows as actions are accepted."""

    narrowed: tuple[list[Preempt], Changes] | None = None
    """What `resizes` has found to narrow, once it was asked for."""

    def __init__(self, snapshot: Snapshot, plan: Plan) -> None:
        self.snapshot = snapshot
        self.plan = plan
        self.now = snapshot.taken_at
        self.jobs = {job.id: job for job in snapshot.jobs}
        self.pools = {pool.key: pool for pool in snapshot.pools}
        self.offers = {offer.key: offer for offer in snapshot.offers}
        alike: dict[tuple[object, ...], list[PoolView]] = {}
        for pool in snapshot.pools:
            alike.setdefault(terms(pool), []).append(pool)
        self.alike = {pool.key: pools for pools in alike.values() for pool in pools}
        """For each pool, by its key, those over which a gang may lie; itself among them."""
        self.moving = Moving(snapshot)
        self.targets = tuple(target_of_pool(pool, self.moving) for pool in snapshot.pools)
        self.filters = tuple(rule for rule in snapshot.rules if isinstance(rule, Filter))
        self.caps = tuple(
            rule for rule in snapshot.rules if isinstance(rule, CapRow) and rule.hard and not rule.each
        )
        self.openings = tuple(
            rule for rule in snapshot.rules if isinstance(rule, Opening) and not rule.is_over(self.now)
        )
        self.guarantees = tuple(rule for rule in snapshot.rules if isinstance(rule, GuaranteeRow))
        self.preempt_rules = tuple(rule for rule in snapshot.rules if isinstance(rule, PreemptRule))
        self.running_jobs = frozenset(
            busy.job
            for pool in snapshot.pools
            for busy in pool.busy
            if busy.placement is not None and busy.job is not None
        )
        self.hosts = {pool.key: Hosts(pool.free) for pool in snapshot.pools}
        self.cap_use = [self._use_now(cap) for cap in self.caps]
        self.drawn: dict[tuple[str, str, bool], int] = {}
        """What accepted actions take of each offer's machines, and of stocks."""
        self.acted: set[str] = set()
        self.stopped: set[str] = set()
        self.changes = NO_CHANGES
        """As far as they were accepted."""
        self._count_shares()
        self.accepted: list[Action] = []

    def _count_shares(self) -> None:
        owned = [target.pool for target in self.targets if target.owned and target.pool is not None]
        self.dues = [due(row, owned) for row in self.guarantees]
        """What each guaranteed queue is due of GPUs, cores and memory,"""
        running = [(target.model, busy) for target, busy in self.parts if target.owned]
        self.share_use = [used(row, running) for row in self.guarantees]
        """and has of them."""
        self.guarantee_use = [has[0] for has in self.share_use]
        self.given_up = [[0.0] * 3 for _ in self.guarantees]
        """The same of what preempted work gives up: it counts against taking more, never for starting."""

    @cached_property
    def running(self) -> dict[str, list[tuple[Target, BusyView]]]:
        """By placement: a part at each member that has ranks of it."""
        found: dict[str, list[tuple[Target, BusyView]]] = {}
        for target in self.targets:
            for busy in target.pool.busy if target.pool is not None else ():
                if busy.placement is not None:
                    found.setdefault(busy.placement, []).append((target, busy))
        return found

    @cached_property
    def starts(self) -> Mapping[str, Sequence[tuple[float, int]]]:
        """By pool, what accepted actions start there, once all are judged: when it is to end, and its GPUs."""
        found: dict[str, list[tuple[float, int]]] = {}
        for action in (each for each in self.accepted if isinstance(each, Place)):
            gpus = self.jobs[action.job].as_form(action.form).gpus
            for member in action.members:
                key = f"{action.site}/{member}/{action.pool}"
                found.setdefault(key, []).append((action.expected_end_at, gpus))
        return found

    @cached_property
    def parts(self) -> list[tuple[Target, BusyView]]:
        """Those parts."""
        return [part for parts in self.running.values() for part in parts]

    def filters_on(self, effect: Effect, job: JobView, target: Target) -> tuple[Filter, ...]:
        """The filters with that effect that are about this job at this target, whatever the hour."""
        return tuple(
            rule
            for rule in self.filters
            if rule.effect is effect
            and concerns(rule.scope, job)
            and selects(rule.pools, target) is not rule.beyond
            and concerns_data(rule.data, self.moving.datasets, job.inputs, every=rule.effect is Effect.ALLOW)
        )

    def caps_on(self, job: JobView, target: Target) -> list[int]:
        """Which caps (by index) count this job at this target."""
        return [
            index
            for index, cap in enumerate(self.caps)
            if concerns(cap.scope, job) and selects(cap.pools, target)
        ]

    def guarantees_on(self, who: JobView | BusyView, target: Target) -> list[int]:
        """Which guarantees (by index) the GPUs of this job count towards there. Rented GPUs are nobody's share."""
        return [
            index
            for index, row in enumerate(self.guarantees)
            if target.owned and concerns(Scope(queues=(row.queue,)), who) and row.model in ("", target.model)
        ]

    def apply(self, job: JobView, target: Target, action: Place | Rent) -> None:
        """Count an accepted action; its hosts are taken already."""
        for index in self.caps_on(job, target):
            self.cap_use[index] += amount(self.caps[index], job, target, action, self.now)
        for index in self.guarantees_on(job, target):
            self.guarantee_use[index] += job.gpus_total
            self.share_use[index] = plus(self.share_use[index], asked(job))
        if isinstance(action, Rent) and target.offer is not None:
            for drawn in draws(target.offer.offer):
                self.drawn[drawn.of] = self.drawn.get(drawn.of, 0) + action.machines * drawn.each

    def takes_work(self, pool: PoolView) -> bool:
        """Whether it is open, and there."""
        return pool.open and (pool.ready_at or 0.0) <= self.now

    def room(self, job: JobView, pools: Iterable[PoolView]) -> int:
        """For how many of the job's ranks there is room on these, as things lie."""
        rank = rank_of(job)
        return sum(self.hosts[pool.key].more(rank, job.nodes, apart=job.apart) for pool in pools)

    def elastic_part(self, placement: str) -> BusyView:
        """The part of a running placement that says how its job would wait: the others of a gang do not."""
        parts = [busy for _, busy in self.running[placement]]
        return next((busy for busy in parts if busy.waits_as is not None), parts[0])

    def _use_now(self, cap: CapRow) -> float:
        if cap.unit is CapUnit.USD:
            return self._spent_now(cap)
        if cap.unit in (CapUnit.USD_PER_H, CapUnit.INSTANCES):
            return self._rented_now(cap)
        ours = [
            busy for target, busy in self.parts if concerns(cap.scope, busy) and selects(cap.pools, target)
        ]
        if cap.unit is not CapUnit.GPUS:
            held = {busy.placement: busy.licenses.get(cap.license, 0) for busy in ours}
            return len(held) if cap.unit is CapUnit.JOBS else sum(held.values())
        return sum(busy.gpus_total for busy in ours)

    def _spent_now(self, cap: CapRow) -> float:
        return sum(
            view.spent_usd + view.committed_usd
            for view in self.snapshot.spend
            if view.policy == cap.policy and view.period == cap.period.value and view.share == cap.share
        )

    def _rented_now(self, cap: CapRow) -> float:
        """Rent per hour, or instances, of leases that this cap counts, booting ones included."""
        counted = {
            target.pool.lease: target
            for target in self.targets
            if target.pool is not None
            and target.pool.lease is not None
            and selects(cap.pools, target)
            and (not target.pool.rented_queue or admits_queue(cap.scope.queues, target.pool.rented_queue))
        }
        if cap.unit is CapUnit.INSTANCES:
            return len(counted)
        return sum(target.price_usd_h for target in counted.values())


def amount(cap: CapRow, job: JobView, target: Target, action: Place | Rent, now: float) -> float:
    """How much an action adds to a cap. A lease's rate and instance were counted when it was rented."""
    unit = cap.unit
    if unit is CapUnit.LICENSES:
        return job.licenses.get(cap.license, 0)
    if unit is CapUnit.GPUS:
        return job.gpus_total
    if unit is CapUnit.JOBS:
        return 1
    if unit is CapUnit.USD:
        rent = (
            extension_usd(job, target, now)
            if isinstance(action, Place)
            else max(action.committed_usd, action.machines * worst_case_usd(job, target))
        )
        return rent + target.moved(job).usd
    if isinstance(action, Place):
        return 0
    return action.machines * (1 if unit is CapUnit.INSTANCES else target.price_usd_h)


def worst_case_usd(job: JobView, target: Target) -> float:
    """The most that the rent of one instance for this job can be: from launch until its enforced stop, the time for it and what may be late.

    Infinite for a job without `max_duration`: nothing would ever stop it.
    """
    if target.offer is None:
        return 0.0
    if job.max_duration_s is None:
        return math.inf
    offer = target.offer.offer
    stopped_s = offer.delay_s + target.moved(job).seconds + job.max_duration_s + job.grace_s
    billed_s = max(offer.minimum_billing_s, stopped_s + target.offer.slack_s + offer.teardown_s)
    return offer.price_usd_h * billed_s / 3600.0


def extension_usd(job: JobView, target: Target, now: float) -> float:
    """The most that a job adds to what is committed for the lease it would use: its rent beyond `paid_until_at`.

    Nothing where the snapshot does not say until when that is: the committer, which has the lease, counts then.
    """
    pool = target.pool
    if pool is None or target.owned or pool.paid_until_at is None:
        return 0.0
    if job.max_duration_s is None:
        return math.inf
    begins_at = now if pool.ready_at is None else max(now, pool.ready_at)
    ends_at = begins_at + target.moved(job).seconds + job.max_duration_s + job.grace_s
    beyond_s = ends_at - pool.paid_until_at
    return target.price_usd_h * max(0.0, beyond_s) / 3600.0


def lease_share_usd(job: JobView, target: Target) -> float:
    """The most of a lease's rent that the job itself may have to pay: all of it while it runs, and until the machine is gone."""
    pool = target.pool
    if pool is None or target.owned:
        return 0.0
    if job.max_duration_s is None:
        return math.inf
    paid_s = target.moved(job).seconds + job.max_duration_s + job.grace_s + pool.tail_s
    return target.price_usd_h * paid_s / 3600.0


def expected_run_s(job: JobView, target: Target) -> float:
    """How long the job is planned to keep it: until its data is there, then its quantile, by its speed on that model, cut at its limit."""
    run_s = job.run_s / max(job.speed.get(target.model, 1.0), TOLERANCE)
    run_s = run_s if job.max_duration_s is None else min(run_s, job.max_duration_s)
    return target.moved(job).seconds + run_s


class Drawn(NamedTuple):
    """What rented machines are taken from."""

    of: tuple[str, str, bool]
    """The provider, and the name of the offer, or of the stock (then true)."""
    each: int
    """What one machine takes."""
    left: int
    text: str


def draws(offer: Offer) -> list[Drawn]:
    """An offer draws on itself, under the name that its provider knows it by, and on its stock."""
    name = offer.name.removesuffix(IN_PARTS) if offer.shared else offer.name
    found = [Drawn((offer.provider, name, False), 1, offer.available, f"{offer.available} instances left")]
    stock = offer.stock
    if stock:
        left = max(0, stock.limit - stock.used)
        text = f"{left} {stock.unit} left of {stock.name}, of which each takes {stock.each}"
        found.append(Drawn((offer.provider, stock.name, True), stock.each, left, text))
    return found
