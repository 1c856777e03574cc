"""What a provider's last listing cannot show of its stocks yet: machines that have been asked for since."""

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from federator.model.capacity import LEASE_ENDED, Lease, Offer


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
