"""Somewhere a job might run: a pool that exists, or an offer that could be rented, in one common view.

Filters, forecasts and columns ask the same questions of both, so both answer in the same words.
"""

from dataclasses import dataclass
from functools import cached_property

from federator.model.capacity import Market
from federator.model.rules import PoolSelector, selects
from federator.model.snapshot import JobView, OfferView, PoolView

CPU_ONLY_SIZE = 0.1
"""A node without GPUs counts as this much of a GPU wherever money is per GPU-hour: small, so that it never starves GPU work."""
SPOT_REWORK = 1.1
"""Run time on spot capacity, over the run time elsewhere: the work that interruptions are expected to repeat."""


@dataclass(frozen=True)
class Candidate:
    """One pool or offer. `nodes` and the figures per node are what it has in all, not what is free."""

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

    @property
    def shown(self) -> str:
        """Its name for people: as the key, without a member that is called as its site."""
        pool = self.standing
        return f"{pool.site}/{pool.pool}" if pool is not None and pool.member == pool.site else self.key

    @property
    def offer(self) -> OfferView | None:
        """The offer, when this is capacity that nobody rents yet."""
        return self.source if isinstance(self.source, OfferView) else None

    @property
    def standing(self) -> PoolView | None:
        """The pool, when this is capacity that exists or boots."""
        return self.source if isinstance(self.source, PoolView) else None

    @property
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
        return self.price_usd_gpu_h * max(1, self.gpus * self.nodes) if self.rented else 0.0

    def selected_by(self, pools: PoolSelector) -> bool:
        """Whether a rule's selector means it."""
        return selects(
            pools,
            site=self.site,
            kind=self.kind,
            provider=self.provider,
            region=self.region,
            market=self.market,
            model=self.model,
        )

    def run_s(self, job: JobView) -> float:
        """How long the job is planned to run here: its quantile over its speed on this model; more on spot, for work repeated."""
        speed = job.speed.get(self.model, 1.0) if self.model else 1.0
        return job.run_s / max(speed, 1e-6) * (SPOT_REWORK if self.market is Market.SPOT else 1.0)


def size(job: JobView) -> float:
    """The job in GPUs, for prices per GPU-hour."""
    return float(job.gpus_total) or CPU_ONLY_SIZE * job.nodes


def of_pool(view: PoolView) -> Candidate:
    """A pool that exists."""
    return Candidate(
        key=view.key,
        site=view.site,
        kind=view.kind,
        pool=view.pool,
        provider=view.provider,
        region=view.region,
        market=view.market,
        model=view.model,
        gpu_memory_mib=view.gpu_memory_mib,
        nodes=view.nodes,
        gpus=view.gpus_per_node,
        cpus_milli=view.cpus_milli_per_node,
        memory_mib=view.memory_mib_per_node,
        labels=view.labels,
        price_usd_gpu_h=view.price_usd_gpu_h,
        source=view,
    )


def of_offer(view: OfferView) -> Candidate:
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
        gpus=offer.gpus,
        cpus_milli=offer.cpus_milli,
        memory_mib=offer.memory_mib,
        labels=view.labels,
        price_usd_gpu_h=offer.price_usd_h / max(1, offer.gpus),
        source=view,
    )
