"""What a federation consists of before anything happens: sites with their pools and links, offers of clouds, and policies.

`world_files` reads it from what people write.
"""

import msgspec

from federator.model.capacity import Offer
from federator.model.sites import SiteKind
from federator.simulation.clouds import OfferRisk
from federator.simulation.sites import Conditions
from federator_agent.core.lent_capacity import HostPool


class WorldSite(msgspec.Struct, frozen=True, kw_only=True):
    """One site: one member with all its pools. `price_usd_gpu_h` is the marginal price of an owned GPU-hour; 0: none is declared."""

    name: str
    kind: SiteKind = SiteKind.ONPREM
    region: str = ""
    labels: dict[str, str] = {}
    price_usd_gpu_h: float = 0.0
    pools: tuple[HostPool, ...]
    conditions: Conditions = Conditions()


class WorldSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything but the jobs and the scheduler. `speeds` are relative to the GPU model in which the trace gives run times."""

    name: str
    sites: tuple[WorldSite, ...]
    offers: tuple[Offer, ...] = ()
    risks: dict[str, OfferRisk] = {}
    cloud_sites: dict[str, str] = {}
    """Of each provider, the site that its machines join."""
    speeds: dict[str, float] = {}
    policies: str = ""
    """YAML documents, as `federator policy apply` takes them."""
    data: tuple[str, ...] = ()
    """More of them, of links and datasets: they are the world's, whatever policies are tried in it."""

    @property
    def gpus(self) -> int:
        """Owned GPUs."""
        return sum(pool.nodes * pool.gpus_per_node for site in self.sites for pool in site.pools)


def scaled(world: WorldSpec, factor: float) -> WorldSpec:
    """The same world with so many times the nodes, rounded, but no pool with none."""
    if factor == 1.0:
        return world
    sites = []
    for site in world.sites:
        pools = [
            msgspec.structs.replace(pool, nodes=max(1, round(pool.nodes * factor))) for pool in site.pools
        ]
        sites.append(msgspec.structs.replace(site, pools=tuple(pools)))
    return msgspec.structs.replace(world, sites=tuple(sites))
