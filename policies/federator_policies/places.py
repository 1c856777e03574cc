"""Which capacity a policy is about, said the same way in every kind that is about some."""

from typing import Literal

import msgspec

from federator.kernel.errors import Invalid
from federator.model.capacity import Market
from federator.model.rules import PoolSelector


class Places(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which capacity; all that is said must match."""

    sites: tuple[str, ...] = ()
    """Sites by name."""
    kinds: tuple[Literal["onprem", "cloud", "edge"], ...] = ()
    """Kinds of sites."""
    regions: tuple[str, ...] = ()
    """Regions."""
    markets: tuple[Literal["owned", "on-demand", "spot"], ...] = ()
    """How it is paid for."""
    models: tuple[str, ...] = ()
    """GPU models."""


def pools_of(where: Places) -> PoolSelector:
    """As a rule has it. Raises `Invalid` where nothing is said."""
    pools = PoolSelector(
        sites=where.sites,
        kinds=where.kinds,
        regions=where.regions,
        markets=tuple(Market(market) for market in where.markets),
        models=tuple(model.upper() for model in where.models),
    )
    if pools == PoolSelector():
        raise Invalid(
            "is empty", field="$.spec.where", remedy="name sites, kinds, regions, markets or models"
        )
    return pools
