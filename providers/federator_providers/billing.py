"""What a rented machine has cost so far."""

import math

from federator.model.capacity import Offer


def bill_usd(offer: Offer, launched_at: float, until_at: float) -> float:
    """The bill of one instance from `launched_at` to `until_at`: by the begun second, the minimum at least."""
    seconds = max(offer.minimum_billing_s, math.ceil(max(0.0, until_at - launched_at)))
    return offer.price_usd_h * seconds / 3600.0
