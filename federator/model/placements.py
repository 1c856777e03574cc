"""Placements: one attempt of a job at a site.

A placement's id is random and never reused; its epoch only orders a job's attempts. What a member is told to do is a
projection of placement rows (`DesiredEntry`), never state of its own.
"""

from enum import StrEnum
from typing import Any

import msgspec

from federator.model.capacity import Market
from federator.model.datasets import Moves
from federator.model.jobs import Job, JobSpec, in_gpus
from federator.model.reasons import Reason
from federator.model.whose import Whose


class PlacementStatus(StrEnum):
    """Where an attempt is in its life."""

    ASSIGNED = "ASSIGNED"
    ACCEPTED = "ACCEPTED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"
    LOST = "LOST"
    REFUSED = "REFUSED"
    REVOKED = "REVOKED"


PLACEMENT_ENDED = frozenset(
    {
        PlacementStatus.SUCCEEDED,
        PlacementStatus.FAILED,
        PlacementStatus.STOPPED,
        PlacementStatus.LOST,
        PlacementStatus.REFUSED,
        PlacementStatus.REVOKED,
    }
)


PLACEMENT_BEGUN = frozenset(
    {
        PlacementStatus.STARTING,
        PlacementStatus.RUNNING,
        PlacementStatus.SUCCEEDED,
        PlacementStatus.FAILED,
    }
)
"""Its site has at least begun to bring what it needs."""


class Order(StrEnum):
    """What a member is to do with a placement."""

    RESERVE = "reserve"
    RUN = "run"
    STOP = "stop"


class Cause(StrEnum):
    """Why an attempt ended, as the site found it; mapped to the job's terminal reason or to a retry."""

    EXIT = "exit"
    SETUP = "setup"
    STAGING = "staging"
    IMAGE_PULL = "image-pull"
    MAX_DURATION = "max-duration"
    OUT_OF_MEMORY = "out-of-memory"
    STOPPED = "stopped"
    NODE_LOST = "node-lost"
    CUT_OFF = "cut-off"
    """Its site was not answered for so long that it has ended it by itself (`stop_within`)."""
    INTERRUPTED = "interrupted"
    """The rented machine was taken away, by its provider or by us: not the work's doing."""
    EVICTED = "evicted"
    """The site's own scheduler took it off its nodes, for local work or for their upkeep: not the work's doing, nor the nodes'."""
    CANNOT = "cannot"
    """The site refuses: no such shape, not lent, unknown blob."""


class RankStatus(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One rank as its agent sees it."""

    rank: int
    node: str = ""
    phase: str = ""
    """`staging`, `setup`, `running`, `stopping`, `ended`."""
    exit_code: int | None = None


class PlacementReport(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """An agent's word on one placement. `seq` grows per agent; repeated until acknowledged."""

    placement: str
    epoch: int
    seq: int
    status: PlacementStatus
    at: float
    cause: Cause | None = None
    detail: str = ""
    exit_code: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    ranks: tuple[RankStatus, ...] = ()
    checkpointed: bool = False
    """It was asked to save itself and ended within its grace."""
    unkept: bool = False
    """What it saved is on this site's disk alone: it could not be brought to where the job keeps it."""
    rendezvous: str = ""
    """With ACCEPTED of a reservation: `host:port` at this member where the other ranks would find its rank 0."""
    job: str = ""
    """Whose attempt it is, of which pool and in which form: a dispatcher whose store was restored may not know it."""
    pool: str = ""
    form: int = 0


class Part(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What is known of a gang's ranks at one of its members. Its status is a placement's, of those ranks alone."""

    member: str
    status: PlacementStatus = PlacementStatus.ASSIGNED
    cause: Cause | None = None
    detail: str = ""
    exit_code: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    rank: RankStatus | None = None
    """Its rank that was lost, or the first that its member told of: names the host."""
    checkpointed: bool = False
    unkept: bool = False
    rendezvous: str = ""
    stop_acknowledged: bool = False
    """The member has said itself that it is over, or can never come back with it."""

    @property
    def ended(self) -> bool:
        """Whether nothing of it runs any more."""
        return self.status in PLACEMENT_ENDED


class Used(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What an attempt has really used so far, sampled at its site every some seconds. Times are clock seconds."""

    sampled_s: float = 0.0
    """For so long it was looked at."""
    cpu_s: float = 0.0
    """Processor time, over all ranks."""
    memory_peak_mib: int = 0
    """Most memory that was seen at once, over the ranks of one host."""
    gpus_sampled_s: float = 0.0
    """GPU-seconds that were looked at; 0: nothing is known of its GPUs."""
    gpus_busy_s: float = 0.0
    """and those of them in which the GPU was busy, as the driver says."""
    gpu_memory_peak_mib: int = 0
    """Most memory that was seen in use on one of its GPUs."""
    idle_s: float = 0.0
    """For so long, up to now, none of its GPUs did anything."""
    power_sampled_s: float = 0.0
    """GPU-seconds in which the power of its GPUs was known; 0: nothing is known of their energy."""
    energy_kwh: float = 0.0
    """What its GPUs took in that time,"""
    power_usd: float = 0.0
    """what that cost, as its site says of electricity,"""
    co2_kg: float = 0.0
    """and what it emitted. 0: the site does not say."""

    @property
    def gpus_busy(self) -> float | None:
        """As a share; None: nothing is known of its GPUs."""
        return self.gpus_busy_s / self.gpus_sampled_s if self.gpus_sampled_s > 0 else None

    @property
    def cpus(self) -> float | None:
        """How many processors were busy on average; None: nothing is known."""
        return self.cpu_s / self.sampled_s if self.sampled_s > 0 else None

    def joined(self, other: "Used", *, beside: bool) -> "Used":
        """With that of another time, or, `beside`, of another host at the same time."""
        return Used(
            sampled_s=max(self.sampled_s, other.sampled_s) if beside else self.sampled_s + other.sampled_s,
            cpu_s=self.cpu_s + other.cpu_s,
            memory_peak_mib=max(self.memory_peak_mib, other.memory_peak_mib),
            gpus_sampled_s=self.gpus_sampled_s + other.gpus_sampled_s,
            gpus_busy_s=self.gpus_busy_s + other.gpus_busy_s,
            gpu_memory_peak_mib=max(self.gpu_memory_peak_mib, other.gpu_memory_peak_mib),
            idle_s=min(self.idle_s, other.idle_s) if beside else other.idle_s,
            power_sampled_s=self.power_sampled_s + other.power_sampled_s,
            energy_kwh=self.energy_kwh + other.energy_kwh,
            power_usd=self.power_usd + other.power_usd,
            co2_kg=self.co2_kg + other.co2_kg,
        )


class Placement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One attempt. `members` names the member of each rank, in rank order; `parts` has each of them once, where they are several."""

    id: str
    job: str
    epoch: int
    site: str
    pool: str
    members: tuple[str, ...]
    market: Market
    status: PlacementStatus
    order: Order
    spec_hash: str
    order_reason: str = ""
    """Why it is to stop, in words; empty where `order_why` says it."""
    order_why: Reason | None = None
    lease: str | None = None
    """The rented machine that it is on; of several, the first."""
    leases: tuple[str, ...] = ()
    """All of them, where they are several; in the order of `members`."""
    assembling: bool = False
    """Not all of its machines are there yet: nobody is told of it."""
    model: str = ""
    nodes: int = 1
    gpus_per_node: int = 0
    cpus_milli: int = 0
    memory_mib: int = 0
    price_usd_gpu_h: float = 0.0
    assigned_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    expected_end_at: float | None = None
    max_duration_s: float | None = None
    grace_s: float | None = None
    """Longest grace there is time for, once it is told to stop; None: what its spec asks for."""
    leave_by_at: float | None = None
    """When it has to be gone, because its site evicts it; None: it is not evicted."""
    leave_because: str = ""
    cause: Cause | None = None
    detail: str = ""
    exit_code: int | None = None
    stop_acknowledged: bool = False
    parts: tuple[Part, ...] = ()
    """What each member of a gang over several has said; empty where all ranks are at one member."""
    rendezvous: str = ""
    """Where the ranks of such a gang find each other, `host:port` at the member of rank 0; known once it is told to run."""
    ended_first: str = ""
    """The member whose part ended, and so made the others stop."""
    decision: str = ""
    winner: str = ""
    """The stage whose plan it was, and why that plan was the better one."""
    winner_because: str = ""
    """In words: of older versions."""
    winner_reason: Reason | None = None
    because: str = ""
    """Why it is there, in words; empty where `reason` says it."""
    reason: Reason | None = None
    moves: Moves | None = None
    """Data that is brought to its site before it starts; None where there is none, and where it ended before any was."""
    success: str = ""
    """`FIRST`, if the end of rank 0 is its end (`JobSpec.success`)."""
    form: int = 0
    """Which of its spec's forms it runs in (`JobSpec.as_form`); `nodes`, `gpus_per_node` and the rest are of that form."""
    shared: bool = False
    """Its ranks are on parts of GPUs: `gpus_per_node` are thousandths."""
    used: Used | None = None
    """Of one that is over: what it has really used; None where its site has not said."""

    @property
    def ended(self) -> bool:
        """Whether this attempt is proven over."""
        return self.status in PLACEMENT_ENDED

    def uses(self, lease: str) -> bool:
        """Whether that is (one of) the rented machine(s) it is on."""
        return lease == self.lease or lease in self.leases

    def part(self, member: str) -> Part | None:
        """What that member has said of its part; None where the placement has no parts."""
        return next((part for part in self.parts if part.member == member), None)

    @property
    def gpus(self) -> float:
        """GPUs over all ranks."""
        return in_gpus(self.nodes * self.gpus_per_node, shared=self.shared)


def placement_of(
    job: Job, spec: JobSpec, form: int = 0, *, order: Order = Order.RUN, **where: Any
) -> Placement:
    """An attempt of a job in a form of its spec, which no site has heard of; `where`: its fields that do not follow from these."""
    shape = spec.as_form(form)
    return Placement(
        job=job.id,
        status=PlacementStatus.ASSIGNED,
        order=order,
        spec_hash=job.spec_hash,
        nodes=shape.nodes,
        gpus_per_node=shape.resources.gpus.each,
        shared=bool(shape.resources.gpus.share_milli),
        cpus_milli=shape.resources.cpus_milli,
        memory_mib=shape.resources.memory_mib + shape.resources.shm_mib,
        max_duration_s=spec.limit_s(job.max_duration_s, form),
        success=shape.success or "",
        form=form,
        **where,
    )


class DesiredEntry(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """One line of a member's desired set. `ranks` are those this member hosts. The spec is fetched by its hash."""

    placement: str
    job: str
    job_name: str
    epoch: int
    spec_hash: str
    order: Order
    ranks: tuple[int, ...]
    pool: str
    reason: str = ""
    max_duration_s: float | None = None
    grace_s: float = 30.0
    signal: str = "TERM"
    array_index: int | None = None
    resume: bool = False
    """Each rank has a checkpoint at its host and goes on from it."""
    queue: str = ""
    """The job's queue, so that the site can refuse what it does not lend to; empty: not said, and not refused."""
    rendezvous: str = ""
    """Where all ranks of a gang over several members find each other, `host:port`; empty: at this member."""
    form: int = 0
    """Which of the spec's forms runs. Agents from before it are never told another than the first: they do not claim `needs.FORMS`."""
    owner: str = ""
    """Whose job it is, so that the site can run it as his own user; empty: not said. Agents that do not ask for it (`Hello.knows`) are not told."""
    team: str = ""
    """The team under which the job was admitted; empty: under none, or not said, as with `owner`."""

    traced: bool = False
    """Its job's trace is kept: its processes are told where their own spans belong. Agents that do not ask for it are not told."""

    success: str = ""
    """As of the placement. Agents from before it are not told of such work: they do not claim `needs.LAUNCHERS`."""

    @property
    def whose(self) -> Whose:
        """Whose work it is, as site files name it."""
        return Whose(self.queue, self.owner, self.team)
