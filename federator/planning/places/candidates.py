"""Somewhere a job might run: a pool that exists, or an offer that could be rented, in one common view.

Filters, forecasts and columns ask the same questions of both, so both answer in the same words. Members of a site whose pools are
alike in everything that planning reads are one place: a gang may lie over them, and ten machines with an agent each are asked about once.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter

from federator.model.capacity import Market
from federator.model.jobs import in_gpus
from federator.model.rules import PoolSelector, selects
from federator.model.snapshot import JobView, OfferView, PoolView
from federator.planning.places.data import NOTHING, DataBook, Transfer
from federator.planning.places.interruption_rate import rework
from federator.planning.places.staleness import mean_doubt

CPU_ONLY_SIZE = 0.1
"""A node without GPUs counts as this much of a GPU wherever money is per GPU-hour: small, so that it never starves GPU work."""
LEAST_RUN_S = 1.0
"""No run is planned to be shorter: what takes no time would be room for another job at the same moment."""


@dataclass(frozen=True)
class Candidate:
    """One place. `nodes` and the figures per node are what it has in all, not what is free.

    `views` are its pools at the members that are open (at all of them, when none is), in the order of their names; `shut` the others.
    """

    key: str
    site: str
    kind: str
    pool: str
    provider: str | None
    region: str
    market: Market
    model: str
    gpu_memory_mib: int
    nodes: int
    gpus: int
    cpus_milli: int
    memory_mib: int
    labels: dict[str, str]
    price_usd_gpu_h: float
    source: PoolView | OfferView
    views: tuple[PoolView, ...] = ()
    shut: tuple[PoolView, ...] = ()
    data: DataBook | None = None
    """What is known of data and links; None: nothing."""
    shared: bool = False
    """Its GPUs are shared: each is a host of its own, and is counted in thousandths."""
    cut_milli: int = 0
    """They are cut into parts of so many thousandths, and a job gets whole ones of these. 0: any part."""
    longest_s: float | None = None
    """What runs there is ended after this by the site's own scheduler. None: it is not."""
    interruptions_h: float = 0.0
    """How often an hour one of its machines is taken back; 0: never."""

    @property
    def shown(self) -> str:
        """Its name for people: as the key, without a member that is called as its site."""
        pool = self.standing
        single = pool is not None and len(self.views) + len(self.shut) == 1
        return f"{self.site}/{self.pool}" if single and pool and pool.member == pool.site else self.key

    @property
    def names(self) -> tuple[str, ...]:
        """The keys that the snapshot has for it: of its pools, or of the offer."""
        return tuple(view.key for view in (*self.views, *self.shut)) or (self.key,)

    def members_of(self, nodes: Collection[str]) -> frozenset[int]:
        """Which of its members (by index) these nodes, written `member/node`, are at."""
        named = {node.partition("/")[0] for node in nodes}
        return frozenset(n for n, view in enumerate(self.views) if view.member in named)

    @cached_property
    def offer(self) -> OfferView | None:
        """The offer, when this is capacity that nobody rents yet."""
        return self.source if isinstance(self.source, OfferView) else None

    @cached_property
    def standing(self) -> PoolView | None:
        """The pool, when this is capacity that exists or boots; of several members, the first one's."""
        return self.source if isinstance(self.source, PoolView) else None

    @cached_property
    def rented(self) -> bool:
        """Whether money is paid for it by the hour: an offer, or the pool of a lease."""
        return self.market is not Market.OWNED

    @cached_property
    def ready_at(self) -> float | None:
        """When a booting lease is expected; None for what is there."""
        return self.source.ready_at if isinstance(self.source, PoolView) else None

    @cached_property
    def instance_usd_h(self) -> float:
        """Rent of all of it, per hour; 0 for owned capacity."""
        if isinstance(self.source, OfferView):
            return self.source.offer.price_usd_h
        return self.price_usd_gpu_h * max(1, self.gpus_in_all) if self.rented else 0.0

    @property
    def billed_usd_gpu_h(self) -> float:
        """The price of a GPU-hour that people are told; 0 where nobody declared one."""
        return self.price_usd_gpu_h if self.standing is None else self.standing.billed_usd_gpu_h

    @property
    def gpus_in_all(self) -> float:
        """GPUs of all its hosts, parts of one as parts."""
        return in_gpus(self.gpus * self.nodes, shared=self.shared)

    @cached_property
    def doubt(self) -> float:
        """How likely a start here is refused because what is known of it is old; 0 for what is fresh, and for offers."""
        return mean_doubt(self.views)

    def selected_by(self, pools: PoolSelector) -> bool:
        """Whether a rule's selector means it."""
        return selects(pools, self)

    def transfer(self, job: JobView) -> Transfer:
        """What bringing the job's inputs here takes, before it starts."""
        return NOTHING if self.data is None else self.data.transfer(job, self.site, self.region)

    def run_s(self, job: JobView) -> float:
        """How long the job is planned to keep its hosts here: until its inputs are here, and then its quantile over its speed on this model; longer where machines are taken back, by the work that is repeated."""
        run_s = self._undisturbed_s(job)
        if self.interruptions_h:
            run_s *= self.rework(job)
        run_s = max(LEAST_RUN_S, run_s)
        return self.transfer(job).seconds + run_s if job.inputs else run_s

    def rework(self, job: JobView) -> float:
        """How much longer the job runs here than where nothing is taken back. A gang begins anew with any of its machines."""
        alone_s = self._undisturbed_s(job)
        between_s = alone_s if job.repeats_s is None else min(alone_s, job.repeats_s)
        return rework(self.interruptions_h * machines(job, self) * between_s / 3600.0)

    def _undisturbed_s(self, job: JobView) -> float:
        return job.run_s / max(job.speed.get(self.model, 1.0) if self.model else 1.0, 1e-6)


def ranks_on_one(job: JobView, at: Candidate) -> int:
    """How many of the job's ranks an empty host there holds."""
    holds = job.nodes
    for wanted, has in (
        (job.gpus, at.gpus),
        (job.cpus_milli, at.cpus_milli),
        (job.memory_mib, at.memory_mib),
    ):
        if wanted:
            holds = min(holds, has // wanted)
    return min(holds, 1) if job.apart else holds


def machines(job: JobView, at: Candidate) -> int:
    """How many instances of an offer hold the job's gang; 1 of what exists, and where one instance holds no rank at all."""
    holds = ranks_on_one(job, at) if at.offer is not None else 0
    return -(-job.nodes // holds) if holds else 1


def size(job: JobView) -> float:
    """The job in GPUs, for prices per GPU-hour."""
    return float(job.gpus_total) or CPU_ONLY_SIZE * job.nodes


def typical_share(job: JobView) -> float:
    """The run that is as likely to be too long as too short, over the planned one, which has a margin; 1 where there is no range."""
    whole = job.of or job
    low_s, high_s = whole.run_low_s, whole.run_high_s
    return math.sqrt(low_s * high_s) / whole.run_s if 0.0 < low_s < high_s else 1.0


_MAKE = attrgetter(
    *("site", "pool", "kind", "region", "provider", "model", "gpu_memory_mib", "gpus_per_node", "shared"),
    *("cut_milli", "longest_s", "cpus_milli_per_node", "memory_mib_per_node", "price_usd_gpu_h"),
    *("lends_to", "abilities", "self_fencing", "trusts"),
)


def make(view: PoolView) -> tuple[object, ...]:
    """What two members' pools must have in common to be one place. What is rented is a place of its own."""
    if view.market is not Market.OWNED or view.lease is not None or view.ready_at is not None:
        return (view.key,)
    return (*_MAKE(view), tuple(sorted(view.labels.items())))


def of_pools(pools: Iterable[PoolView], data: DataBook | None = None) -> list[Candidate]:
    """The places that these pools come to."""
    groups: dict[tuple[object, ...], list[PoolView]] = {}
    for view in sorted(pools, key=lambda view: (view.site, view.pool, view.member)):
        groups.setdefault(make(view), []).append(view)
    wide = Counter((views[0].site, views[0].pool) for views in groups.values() if len(views) > 1)
    return [_place(_key(views, wide), views, data) for views in groups.values()]


def _key(views: Sequence[PoolView], wide: Counter[tuple[str, str]]) -> str:
    """`site/pool` for several members, unless others there are called the same; `site/member/pool` for one."""
    first = views[0]
    if len(views) == 1:
        return first.key
    if wide[first.site, first.pool] == 1:
        return f"{first.site}/{first.pool}"
    return f"{first.site}/{first.member}+{len(views) - 1}/{first.pool}"


def of_pool(view: PoolView, data: DataBook | None = None) -> Candidate:
    """One member's pool by itself."""
    return _place(view.key, [view], data)


def made_of(at: Candidate, views: Sequence[PoolView]) -> Candidate:
    """The same place with these pools instead of its own."""
    return _place(at.key, views, at.data)


def _place(key: str, views: Sequence[PoolView], data: DataBook | None) -> Candidate:
    usable = tuple(view for view in views if view.open) or tuple(views)
    view = usable[0]
    return Candidate(
        key=key,
        site=view.site,
        kind=view.kind,
        pool=view.pool,
        provider=view.provider,
        region=view.region,
        market=view.market,
        model=view.model,
        gpu_memory_mib=view.gpu_memory_mib,
        nodes=sum(each.nodes for each in usable),
        gpus=view.gpus_per_node,
        cpus_milli=view.cpus_milli_per_node,
        memory_mib=view.memory_mib_per_node,
        labels=view.labels,
        price_usd_gpu_h=view.price_usd_gpu_h,
        source=view,
        views=usable,
        shut=tuple(each for each in views if not each.open) if usable[0].open else (),
        data=data,
        shared=view.shared,
        cut_milli=view.cut_milli,
        longest_s=view.longest_s,
        interruptions_h=view.interruptions_h,
    )


def of_offer(view: OfferView, data: DataBook | None = None) -> Candidate:
    """An offer, as the pool of one host that it would become at its cloud site."""
    offer = view.offer
    return Candidate(
        key=view.key,
        site=view.site,
        kind="cloud",
        pool=offer.name,
        provider=offer.provider,
        region=offer.region,
        market=offer.market,
        model=offer.model,
        gpu_memory_mib=offer.gpu_memory_mib,
        nodes=1,
        gpus=offer.gpus_to_plan,
        cpus_milli=offer.cpus_milli,
        memory_mib=offer.memory_mib,
        labels=view.labels,
        price_usd_gpu_h=offer.price_usd_h / max(1, offer.gpus),
        source=view,
        data=data,
        shared=bool(offer.shared),
        interruptions_h=view.interruptions_h,
    )
