"""Work and rentals on record as the selectors of rules see them."""

from typing import NamedTuple

from federator.control.record.records import Records
from federator.model.capacity import Lease, Market
from federator.model.placements import Placement
from federator.model.sites import SiteKind


class Taken(NamedTuple):
    """Capacity that is taken; see `federator.model.rules.Selectable`."""

    site: str
    kind: str
    provider: str | None
    region: str
    market: Market
    model: str


def taken_by(records: Records, placement: Placement) -> Taken:
    """What a placement has taken. A site that is not on record any more was rented."""
    at = records.sites.get(placement.site)
    kind, provider, region = (at.kind, at.provider, at.region) if at else (SiteKind.CLOUD, None, "")
    return Taken(placement.site, kind, provider, region, placement.market, placement.model)


def rented_by(lease: Lease) -> Taken:
    """What a lease has taken."""
    offer = lease.offer
    return Taken(lease.site, SiteKind.CLOUD, lease.provider, offer.region, offer.market, offer.model)
