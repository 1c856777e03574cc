"""What a provider's last listing cannot show of its stocks: machines that have been asked for since, and how much there is where it refuses more."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from federator.model.capacity import LEASE_ENDED, Lease, Offer

LEARNED_S = 3600.0
"""For how long a limit that a refusal has told is believed: quotas are raised, and others may have held what we lacked. Asking once more costs one refused launch."""

Limits = Mapping[tuple[str, str], int]
"""By provider and stock."""


def unlisted_used(offers: Sequence[Offer], leases: Iterable[Lease], listed_at: float) -> Sequence[Offer]:
    """One provider's offers and leases: the offers, with what is to be launched, or was launched since the listing, taken off their stocks."""
    if not any(offer.stock for offer in offers):
        return offers
    taken: Counter[str] = Counter()
    for lease in leases:
        stock = lease.offer.stock
        unheard = lease.launched_at is None or lease.launched_at >= listed_at
        if stock and unheard and lease.status not in LEASE_ENDED:
            taken[stock.name] += stock.each
    return [
        replace(offer, stock=replace(offer.stock, used=offer.stock.used + taken[offer.stock.name]))
        if offer.stock
        else offer
        for offer in offers
    ]


def learned_limits(leases: Iterable[Lease], now: float) -> Limits:
    """The most that there can be of each stock, as refusals of the last hour tell; one counts no more once a later launch has got more.

    Leases are kept, so a new leader knows it too.
    """
    lately = [lease for lease in leases if lease.offer.stock and now < lease.requested_at + LEARNED_S]
    limits: dict[tuple[str, str], int] = {}
    for lease in sorted(lately, key=lambda lease: lease.requested_at):
        stock = lease.offer.stock
        assert stock
        key = lease.provider, stock.name
        if lease.stock_limit is not None:
            limits[key] = min(lease.stock_limit, limits.get(key, lease.stock_limit))
        elif lease.launched_at is not None and stock.used + stock.each > limits.get(key, stock.limit):
            limits.pop(key, None)
    return limits


def within(offers: Sequence[Offer], limits: Limits) -> Sequence[Offer]:
    """The offers, with no more in their stocks than was learned."""
    return [
        replace(offer, stock=replace(offer.stock, limit=min(offer.stock.limit, limit)))
        if offer.stock and (limit := limits.get((offer.provider, offer.stock.name))) is not None
        else offer
        for offer in offers
    ]
