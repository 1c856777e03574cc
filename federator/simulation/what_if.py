"""What if: changes to a world that a person asks for in a few letters – hosts bought, a site drained, another price.

Each change knows how it is told, for the head of a report; and what is wrong with it is answered with what could be written instead.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from federator.kernel.errors import Invalid
from federator.kernel.quantities import parse_usd
from federator.simulation.world import WorldSite, WorldSpec
from federator.simulation.world_files import GPU_MEMORY_MIB, host_pool

POOL_GRAMMAR = "SITE=GPUSxMODELxNODES, such as lab=8xH100x4: four hosts with eight H100 each"
PRICE_GRAMMAR = "SITE=USD per GPU-hour, or OFFER=USD per machine and hour, such as lab=0.30"
_POOL = re.compile(r"([0-9]{1,4})x([A-Za-z0-9._-]{1,40})x([0-9]{1,6})")
_SITE = re.compile(r"[a-z0-9]([a-z0-9.-]{0,60}[a-z0-9])?")


class Changed(NamedTuple):
    """A world with the changes, and how each is told."""

    world: WorldSpec
    changes: tuple[str, ...]


def changed(
    world: WorldSpec, *, add_pool: Sequence[str] = (), drain: Sequence[str] = (), price: Sequence[str] = ()
) -> Changed:
    """The world as it would be. Pools are added first, so that a price may be said of a new site. Raises `Invalid`."""
    told = []
    for text in add_pool:
        world, change = _with_pool(world, text)
        told.append(change)
    for text in price:
        world, change = _with_price(world, text)
        told.append(change)
    for name in drain:
        world, change = _without(world, name)
        told.append(change)
    return Changed(world, tuple(told))


def _with_pool(world: WorldSpec, text: str) -> tuple[WorldSpec, str]:
    name, _, made = text.partition("=")
    found = _POOL.fullmatch(made)
    if not _SITE.fullmatch(name) or found is None or not int(found[1]) or not int(found[3]):
        raise Invalid(f"{text!r} is not a pool", field="--add-pool", remedy=f"write {POOL_GRAMMAR}")
    gpus, model, nodes = int(found[1]), _model(world, found[2]), int(found[3])
    hosts = f"{nodes} {'host' if nodes == 1 else 'hosts'} of {gpus} {model}"
    site = next((site for site in world.sites if site.name == name), None)
    if site is None:
        new = WorldSite(name=name, pools=(host_pool("main", model, nodes, gpus),))
        return replace(world, sites=(*world.sites, new)), f"a new site {name} with {hosts}"
    names = {pool.name for pool in site.pools}
    pool_name = next(n for n in (f"new-{number}" for number in range(1, len(names) + 2)) if n not in names)
    grown = replace(site, pools=(*site.pools, host_pool(pool_name, model, nodes, gpus)))
    return _in_place(world, grown), f"{hosts} more at {name}"


def _model(world: WorldSpec, given: str) -> str:
    """As the world writes it, or everybody does: `h100` is H100."""
    models = [pool.model for site in world.sites for pool in site.pools]
    models += [*(offer.model for offer in world.offers), *GPU_MEMORY_MIB]
    return next((model for model in models if model.lower() == given.lower()), given)


def _without(world: WorldSpec, name: str) -> tuple[WorldSpec, str]:
    sites = tuple(site for site in world.sites if site.name != name)
    clouds = {provider for provider, site in world.cloud_sites.items() if name in (provider, site)}
    if len(sites) == len(world.sites) and not clouds:
        raise _unknown(name, "--drain", (*_sites(world), *sorted(set(world.cloud_sites.values()))))
    if not sites:
        raise Invalid(f"{name} is the only site", field="--drain", remedy="add another one with --add-pool")
    if clouds:
        offers = tuple(offer for offer in world.offers if offer.provider not in clouds)
        kept = {provider: site for provider, site in world.cloud_sites.items() if provider not in clouds}
        return replace(world, sites=sites, offers=offers, cloud_sites=kept), f"nothing is rented from {name}"
    return replace(world, sites=sites), f"nothing starts at {name}"


def _with_price(world: WorldSpec, text: str) -> tuple[WorldSpec, str]:
    name, mark, amount = text.rpartition("=")
    try:
        usd = parse_usd(amount)
    except ValueError:
        usd = -1.0
    if not mark or not name or usd < 0:
        raise Invalid(f"{text!r} is not a price", field="--price", remedy=f"write {PRICE_GRAMMAR}")
    site = next((site for site in world.sites if site.name == name), None)
    if site is not None:
        was = site.price_usd_gpu_h
        return _in_place(
            world, replace(site, price_usd_gpu_h=usd)
        ), f"{name} costs {usd:g} USD per GPU-hour (was {was:g})"
    offer = next((o for o in world.offers if name in (o.name, f"{o.provider}/{o.name}")), None)
    if offer is None:
        raise _unknown(name, "--price", (*_sites(world), *(offer.name for offer in world.offers)))
    offers = tuple(replace(each, price_usd_h=usd) if each is offer else each for each in world.offers)
    return replace(world, offers=offers), f"{name} costs {usd:g} USD an hour (was {offer.price_usd_h:g})"


def _in_place(world: WorldSpec, site: WorldSite) -> WorldSpec:
    return replace(world, sites=tuple(site if each.name == site.name else each for each in world.sites))


def _sites(world: WorldSpec) -> list[str]:
    return [site.name for site in world.sites]


def _unknown(name: str, field: str, known: Sequence[str]) -> Invalid:
    shown = ", ".join(known[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
    return Invalid(f"there is no {name!r} in this world", field=field, remedy=f"there are {shown}")
