"""What a simulation is told of a running dispatcher: the load that it has had, and the world that it has.

Commands, images, environments and secrets never enter it: only what planning and people's lists see anyway. New fields have
defaults. Times are seconds since the epoch, UTC.
"""

import msgspec

from federator.kernel.errors import Invalid
from federator.model.capacity import Offer
from federator.model.jobs import Input
from federator.model.sites import SiteKind


class RecordedJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as it was asked for, and how long it really ran."""

    id: str
    name: str
    queue: str
    owner: str
    ready_at: float
    """When it could have started first: submitted, and everything that it had to follow was done."""
    run_s: float
    """Its run time at speed 1: measured, or what is expected of it."""
    ended: bool = False
    """Whether `run_s` was measured to the end; else it is what its user or the past says of it."""
    ran_before_s: float = 0.0
    """So much of `run_s` was done before the time that was asked for began."""
    estimate_s: float | None = None
    deadline_at: float | None = None
    value_usd: float | None = None
    must: bool = False
    max_cost_usd: float | None = None
    max_duration_s: float | None = None
    priority: int = 50
    nodes: int = 1
    gpus: int = 0
    """Per node, as the next two are."""
    cpus_milli: int = 0
    memory_mib: int = 0
    gpu_memory_mib: int = 0
    models: tuple[str, ...] = ()
    speed: dict[str, float] = {}
    spot_policy: str = "auto"
    kinds: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    not_sites: tuple[str, ...] = ()
    site_labels: dict[str, str] = {}
    labels: dict[str, str] = {}
    licenses: dict[str, int] = {}
    inputs: tuple[Input, ...] = ()


class RecordedJobs(msgspec.Struct, frozen=True, kw_only=True):
    """A page, newest first. Records are read in portions: a page may have no jobs and yet not be the last."""

    jobs: tuple[RecordedJob, ...] = ()
    left_out: int = 0
    """Jobs of the time that never ran and never will, such as cancelled ones, and those that asked for part of a GPU: simulations know whole GPUs only."""
    next_after: str | None = None


class RecordedPool(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts of one make, as far as their site lends them."""

    name: str
    model: str = ""
    gpu_memory_mib: int = 0
    nodes: int = 1
    gpus_per_node: int = 0
    cpus_milli_per_node: int = 0
    memory_mib_per_node: int = 0


class RecordedSite(msgspec.Struct, frozen=True, kw_only=True):
    """A site with all its pools; none where its agents have said nothing yet. Machines that are rented now are not among them."""

    name: str
    kind: SiteKind
    region: str = ""
    labels: dict[str, str] = {}
    price_usd_gpu_h: float = 0.0
    draining: bool = False
    pools: tuple[RecordedPool, ...] = ()


class RecordedOffer(msgspec.Struct, frozen=True):
    """What could be rented, and the cloud site that it would join."""

    offer: Offer
    site: str


class RecordedWorld(msgspec.Struct, frozen=True, kw_only=True):
    """Sites and offers as they are now: the past of either is not kept."""

    taken_at: float
    sites: tuple[RecordedSite, ...] = ()
    offers: tuple[RecordedOffer, ...] = ()

    def usable(self) -> tuple[RecordedSite, ...]:
        """The sites that have reported what they have and are not draining. Raises `Invalid` if there are none."""
        sites = tuple(site for site in self.sites if site.pools and not site.draining)
        if not sites:
            raise Invalid(
                "the dispatcher has no site that has reported what it has",
                remedy="see 'federator sites', or give --world",
            )
        return sites
