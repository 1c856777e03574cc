"""Sites and members: who is in the federation, and what an agent last said.

A site is a member cluster; a member is one host of it with an agent of its own. What is durable (`Site`, `Member`) is apart from
what was last heard (`SiteReport`, in memory): a report is telemetry with an age and is never restored as if it were fresh.
"""

from enum import StrEnum

import msgspec

from federator.model.capacity import Market, Pool

REVOKED_KEY = "revoked"
"""In the place of a member's public key: none is accepted."""


class SiteKind(StrEnum):
    """What sort of place it is."""

    ONPREM = "onprem"
    CLOUD = "cloud"
    EDGE = "edge"


class SiteStatus(StrEnum):
    """Health of a site or member as the dispatcher sees it."""

    JOINING = "JOINING"
    READY = "READY"
    DEGRADED = "DEGRADED"
    UNREACHABLE = "UNREACHABLE"
    LOST = "LOST"
    DRAINING = "DRAINING"
    GONE = "GONE"


REGION = "region"
"""The label that tells a site's region."""


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """A member cluster. `price_usd_gpu_h` is the marginal price of an owned GPU-hour; 0: nobody declared one."""

    name: str
    kind: SiteKind
    status: SiteStatus = SiteStatus.JOINING
    """What people have made of it: DRAINING, or JOINING, and then how it is follows from its members."""
    region: str = ""
    """That of the federation's token; where that named none, the label `region` that the site joined with: its own word."""
    provider: str | None = None
    labels: dict[str, str] = {}
    price_usd_gpu_h: float = 0.0
    draining: bool = False
    drain_by_at: float | None = None
    """While it drains: when the last of its work has to be gone; None: what runs goes on to its end."""
    drain_because: str = ""
    created_at: float = 0.0

    def __post_init__(self) -> None:
        """Also for records of older versions, and before any rule reads it."""
        if not self.region and REGION in self.labels:
            msgspec.structs.force_setattr(self, "region", self.labels[REGION])

    def labels_with(self, *reports: "SiteReport") -> dict[str, str]:
        """Its labels and those of its agents' reports, but for the region: no report can say another."""
        said = {key: value for report in reports for key, value in report.labels.items()}
        return {**self.labels, **said, **({REGION: self.region} if self.region else {})}


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """An agent's place in the federation. `generation` is that of its desired set; `public_key` is how it proves itself.

    `status` is what people have made of it: LOST when it was declared dead and has not come back, else how it is follows from what it says.
    """

    id: str
    site: str
    public_key: str
    status: SiteStatus = SiteStatus.JOINING
    generation: int = 0
    boot_id: str = ""
    lease: str | None = None
    market: Market = Market.OWNED
    joined_at: float = 0.0
    host_key: str = ""
    """Public half of a second key, kept apart from the first: it signs for a change of key, and for nothing else. Empty: of an agent that has none."""
    key_changed_at: float | None = None
    """When its key was last rotated; None: never."""
    contested: str = ""
    """Who else has opened a session with its key; nothing new starts there until an admin has looked. Empty: nobody."""
    contested_at: float = 0.0


class LocalWork(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """Work at the site that is not ours: it has taken `gpus_per_node` on `nodes` hosts of a pool, or waits for them."""

    pool: str
    nodes: int
    gpus_per_node: int
    ends_at: float | None = None
    queued: bool = False


class AilingGpu(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A GPU that takes no new work until it is well: number `gpu` on `host`, of that pool, and why."""

    pool: str
    host: str
    gpu: int
    why: str


class GpuUse(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """How busy GPU number `gpu` of `host` is, of that pool. Rounded, so that what is as it was need not be told again."""

    pool: str
    host: str
    gpu: int
    busy_percent: int | None = None
    """None: the driver does not say."""
    memory_mib: int = 0
    """In use, whoever's."""
    power_w: int | None = None
    placements: tuple[str, ...] = ()
    """Ours that hold it, or parts of it."""
    slowed_by: str = ""
    """What keeps its clocks low although it has work, in words; empty: nothing. It takes work all the same."""
    near: str = ""
    """Which groups it is in of GPUs of its host that reach each other best, such as `NVLink 0, NUMA 1`; empty: none that is known."""


LINK_KINDS = ("reports", "logs", "bulk")
"""What goes over an agent's link: messages of the session, pieces of logs, and what is large, whether from the dispatcher or not."""


class LinkTraffic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes of one kind that have gone over an agent's link in the last hour, as `LINK_KINDS` has them."""

    kind: str
    sent: int
    received: int


class LinkState(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How an agent's link to the dispatcher is."""

    hour: tuple[LinkTraffic, ...] = ()
    round_trip_s: float | None = None
    """Of its newest report and the answer."""
    budget: int | None = None
    """Bytes of reports and logs that its site file allows in an hour. None: any."""
    rate: int | None = None
    """Bytes of bulk that it allows in a second. None: any."""
    hours: str = ""
    """When it lets bulk move, such as `01:00-05:00 Europe/Oslo`; empty: always."""


class GpuPart(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A rank of a placement has so many thousandths of the shared GPU of that number, in that pool."""

    pool: str
    gpu: int
    placement: str
    rank: int
    share_milli: int


class SiteReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What an agent saw, at `taken_at` of its own wall clock.

    `counted` names the placements whose use is already taken off `Pool.free`: the dispatcher takes off the others itself.
    """

    taken_at: float
    pools: tuple[Pool, ...]
    counted: tuple[str, ...] = ()
    local_work: tuple[LocalWork, ...] = ()
    labels: dict[str, str] = {}
    lends_to: tuple[str, ...] = ()
    """Whose work the site takes, as `model.whose` reads it, queues without a prefix; empty: everybody's."""
    paused: bool = False
    health: str = "ok"
    """Anything else closes the site to new work."""
    price_usd_gpu_h: float | None = None
    self_fencing: bool = False
    runtime: str = ""
    """What runs the work there, where it is not the agent itself: `kube`, `slurm`."""
    abilities: tuple[str, ...] = ()
    """What jobs may need beside hardware, and find there: `images`, `data`, `secret:NAME`."""
    ailing: tuple[AilingGpu, ...] = ()
    """GPUs that are not in `Pool.free` for their own sake; what runs on them goes on."""
    reclaim_at: float | None = None
    """When the provider takes this machine back, as the machine itself was told; None: it has had no notice."""
    parts: tuple[GpuPart, ...] | msgspec.UnsetType = msgspec.UNSET
    """What is on its shared GPUs."""
    isolation: str = ""
    """How jobs that are processes of its host are kept apart: `users`, `sandbox`, or `shared-trust` for not at all; empty: not said, or others' to say."""
    trusts: tuple[str, ...] = ()
    """With `shared-trust`: whose work it takes, as `model.whose` reads it; empty: its administrators'."""


SHARED_TRUST = "shared-trust"
"""The isolation of a site where nothing stands between jobs."""
