"""Capacity: what a site has, what a provider offers, and what is rented.

Free capacity is a *shape*, not a total: sixteen free GPUs on sixteen hosts do not hold a gang of two nodes with eight each. A
`Shape` is one bar of the histogram of hosts by what is free on them.
"""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

import msgspec

from federator.model.jobs import WHOLE_MILLI
from federator.model.queues import DEFAULT_QUEUE
from federator.model.reasons import Reason

RENTED_POOL, RENTED_PARTS = "gpu", "gpu-shared"
"""What the pool of a rented machine is called; with its GPU shared, as an agent names that."""
MOST_DOUBLINGS = 64
IN_PARTS = "/shared"
"""Ends the name of an offer whose GPU is to be shared."""


class Market(StrEnum):
    """How capacity is paid for."""

    OWNED = "owned"
    ON_DEMAND = "on-demand"
    SPOT = "spot"


class Shape(msgspec.Struct, frozen=True, order=True, gc=False, forbid_unknown_fields=True):
    """`count` hosts that each have this much free."""

    gpus: int
    cpus_milli: int
    memory_mib: int
    count: int = 1

    def holds(self, gpus: int, cpus_milli: int, memory_mib: int) -> int:
        """How many ranks of that size one such host can take; at most a million for an empty request."""
        fits = [1_000_000]
        if gpus:
            fits.append(self.gpus // gpus)
        if cpus_milli:
            fits.append(self.cpus_milli // cpus_milli)
        if memory_mib:
            fits.append(self.memory_mib // memory_mib)
        return min(fits)


def largest_gang(shapes: Iterable[Shape], gpus: int, cpus_milli: int = 0, memory_mib: int = 0) -> int:
    """How many ranks of that size fit at once on hosts of these shapes."""
    return sum(shape.count * shape.holds(gpus, cpus_milli, memory_mib) for shape in shapes)


def coarser(shapes: tuple[Shape, ...], most: int) -> tuple[Shape, ...]:
    """At most so many shapes, or one: where there are more, hosts count as having somewhat less free than they have, so that many are alike.

    A thousand hosts with a thousand amounts of free memory would each be asked about by itself. The largest shape stays as it is: whole hosts.
    """
    for doubling in range(MOST_DOUBLINGS if len(shapes) > max(1, most) else 0):
        units = 2 ** max(0, doubling - 12), 1000 * 2**doubling, 1024 * 2**doubling
        counts: Counter[tuple[int, int, int]] = Counter()
        largest = max(shapes)
        for shape in shapes:
            gpus, cpus_milli, memory_mib = shape.gpus, shape.cpus_milli, shape.memory_mib
            if shape is not largest:
                gpus -= gpus % units[0]
                cpus_milli -= cpus_milli % units[1]
                memory_mib -= memory_mib % units[2]
            counts[gpus, cpus_milli, memory_mib] += shape.count
        if len(counts) <= max(2, most):
            return tuple(Shape(*sizes, count) for sizes, count in sorted(counts.items()))
    return shapes


class Pool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Hosts of one make at one member, as its agent reports them.

    `free` is what the site lends and nobody uses: local work and what the site keeps for itself are already taken off, as is
    every placement that the report lists as counted.
    """

    name: str
    model: str = ""
    """GPU model as users write it (`A100`); empty for hosts without GPUs."""
    gpu_memory_mib: int = 0
    nodes: int = 1
    gpus_per_node: int = 0
    cpus_milli_per_node: int = 0
    memory_mib_per_node: int = 0
    free: tuple[Shape, ...] = ()
    lent_gpus: int = 0
    """GPUs that the site lends at this hour, busy or free."""
    shared: bool | msgspec.UnsetType = msgspec.UNSET
    """Its GPUs are shared: each is a host of its own, and all counts of GPUs here and in `free` are thousandths of one. Unset, so that dispatchers from before read it: they are not."""
    cut_milli: int | msgspec.UnsetType = msgspec.UNSET
    """Its shared GPUs are cut into parts of so many thousandths, and a job gets whole ones of these. Unset: any part."""
    longest_s: float | msgspec.UnsetType = msgspec.UNSET
    """What runs there is ended after this by the site's own scheduler. Unset: it is not."""
    labels: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    """What all its hosts have in common beyond the site's labels, such as `{rack: r7}`. Unset: nothing that is said."""


class Stock(msgspec.Struct, frozen=True):
    """What machines of several offers are taken from, such as the vCPUs that an account may have of one family, or the GPUs of one model."""

    name: str
    """Unique within its provider; offers that say the same name draw on it together."""
    limit: int
    """How much there is in all."""
    each: int = 1
    """What one machine of the offer takes."""
    used: int = 0
    """What machines have taken of it, as the provider's last listing shows; whoever rented them."""
    unit: str = "machines"
    """In what it is counted, for people: `vCPUs`, `GPUs`."""

    @property
    def left(self) -> int:
        """What could still be taken."""
        return max(0, self.limit - self.used)


class Offer(msgspec.Struct, frozen=True):
    """Capacity that a provider would rent: one kind of instance in one region and market."""

    name: str
    """Unique within its provider, for example `us-east-1/p4d.24xlarge/spot`."""
    provider: str
    region: str
    instance_type: str
    market: Market
    model: str
    gpu_memory_mib: int
    gpus: int
    cpus_milli: int
    memory_mib: int
    price_usd_h: float
    """Of one whole instance. For spot, what is paid now."""
    delay_s: float
    """From launch to ready to run."""
    teardown_s: float = 60.0
    minimum_billing_s: float = 60.0
    available: int = 1
    """How many more of this offer could be had, as far as the provider says; a stock may hold fewer."""
    egress_usd_per_gib: float = 0.0
    price_source: str = ""
    """Where the price is from, for people; empty: from the settings."""
    shared: bool | msgspec.UnsetType = msgspec.UNSET
    """Its one GPU is to be shared: jobs get parts of it. Made of an offer that providers name, for jobs that ask for parts. Unset: it is not."""
    stock: Stock | msgspec.UnsetType = msgspec.UNSET
    """What its machines are taken from together with those of other offers. Unset: nothing but its own."""

    @property
    def to_be_had(self) -> int:
        """How many machines of it could be rented if none of another offer were."""
        return min(self.available, self.stock.left // self.stock.each) if self.stock else self.available

    @property
    def gpus_to_plan(self) -> int:
        """As planning counts: GPUs, or thousandths of the one that is shared."""
        return self.gpus * WHOLE_MILLI if self.shared else self.gpus

    @property
    def pool(self) -> str:
        """What the pool of a machine of it is called."""
        return RENTED_PARTS if self.shared else RENTED_POOL

    def as_shared(self) -> "Offer":
        """The same machine, with its one GPU shared."""
        return msgspec.structs.replace(self, name=self.name + IN_PARTS, shared=True)

    def as_offered(self) -> "Offer":
        """As its provider knows it."""
        if not self.shared:
            return self
        return msgspec.structs.replace(self, name=self.name.removesuffix(IN_PARTS), shared=msgspec.UNSET)


class LeaseStatus(StrEnum):
    """Where a lease is in its life."""

    REQUESTED = "REQUESTED"
    LAUNCHING = "LAUNCHING"
    BOOTING = "BOOTING"
    READY = "READY"
    DRAINING = "DRAINING"
    TERMINATING = "TERMINATING"
    GONE = "GONE"
    INTERRUPTED = "INTERRUPTED"
    FAILED = "FAILED"


LEASE_ENDED = frozenset({LeaseStatus.GONE, LeaseStatus.FAILED})


class BurstEvidence(msgspec.Struct, frozen=True):
    """Why a lease was rented, as it was known at the decision: kept for ever, shown by `explain`.

    `home_finish_at` is the quantile forecast of the job's finish without any offer (the counterfactual);
    `burst_finish_at` with this one.
    """

    job: str
    policy: str
    mode: str
    home_finish_at: float | None
    burst_finish_at: float
    deadline_at: float | None
    cost_usd: float
    value_usd: float
    decision: str
    fallback_finish_at: float | None = None
    """Of a spot machine for a job that did not ask for spot: the finish if it were taken back at the very end, and all done again."""
    home_risk: float = 0.0
    """The chance that the deadline is missed at home, of a job that is planned in time there: worth the rent."""


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Capacity that is rented. The record is written before the provider is asked, under the name the provider will know it by."""

    id: str
    provider: str
    site: str
    offer: Offer
    status: LeaseStatus
    requested_at: float
    because: str = ""
    """Why it was rented, in words; empty where `reason` says it."""
    reason: Reason | None = None
    evidence: BurstEvidence | None = None
    queue: str = DEFAULT_QUEUE
    owner: str = ""
    """Whose job it was rented for."""
    policy: str = ""
    committed_usd: float = 0.0
    """The most that it may cost in all, `billed_usd` included; what is outstanding is the difference."""
    egress_usd: float = 0.0
    """What data costs that was, or is to be, moved to it: not part of its bill, but of the budgets that count it."""
    billed_usd: float = 0.0
    billed_until_at: float | None = None
    pace_usd_h: float = 0.0
    """How fast its bill grew last: more than the offer's price where that has risen; 0: not known yet."""
    launched_at: float | None = None
    zone: str = ""
    """In which its machine is, as its provider says; empty: nothing is said."""
    ready_at: float | None = None
    idle_since_at: float | None = None
    kept_because: str = ""
    """While it idles: what speaks for keeping it."""
    draining_since_at: float | None = None
    ended_at: float | None = None
    failure: str | None = None
    stock_limit: int | None = None
    """The most that there can be of its offer's stock, as its provider's refusal tells; None: it was not refused for that."""
    reclaim_at: float | None = None
    """When the provider takes its machine back, as its notice says; None: it has given none."""
    payer: str = ""
    """The job that its bill went to last; it pays for the time until another runs there."""

    @property
    def member(self) -> str:
        """The member that its instance joins as. One instance per lease, so ordinal 0: a gang over several has several leases."""
        return f"{self.id}-0"


class LaunchRequest(msgspec.Struct, frozen=True):
    """What a provider needs to start an instance. `user_data` is a secret: it holds a one-time join token."""

    name: str
    offer: Offer
    federation: str
    tags: dict[str, str]
    user_data: str
    interruptions_h: dict[str, float] = {}
    """How often an hour such a machine is expected to be taken back, by the zone that it is in; under the empty name in any other. Empty: it is not."""

    def interruptions_in(self, zone: str) -> float:
        """How often an hour that is in this zone."""
        return self.interruptions_h.get(zone, self.interruptions_h.get("", 0.0))


class InstanceStatus(StrEnum):
    """A provider's word on a machine."""

    BOOTING = "BOOTING"
    RUNNING = "RUNNING"
    INTERRUPTING = "INTERRUPTING"
    ENDED = "ENDED"


class Instance(msgspec.Struct, frozen=True):
    """A machine as the provider's listing shows it. `billed_usd` is the provider's own reckoning up to now."""

    name: str
    offer: str
    status: InstanceStatus
    launched_at: float
    ended_at: float | None
    tags: dict[str, str]
    billed_usd: float
    reclaim_at: float | None = None
    """When the provider takes it back, or took it, as its notice says; None: it has given none."""
    no_capacity: str = ""
    """Why there was nothing to run it on, of one that was launched and ended without having been; empty: there was."""
    over_quota: bool = False
    """Whether that was a quota: then there is no more of the offer's stock."""
    zone: str = ""
    """In which it is; empty: the provider has no zones, or does not say."""
