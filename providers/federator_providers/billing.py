"""What a rented machine has cost so far."""

import math

from federator.model.capacity import Offer


def bill_usd(offer: Offer, launched_at: float, until_at: float) -> float:
    """The bill of one instance from `launched_at` to `until_at`: by the begun second, the minimum at least."""
    return metered_usd(offer.price_usd_h, offer.minimum_billing_s, launched_at, until_at)


def metered_usd(price_usd_h: float, minimum_s: float, launched_at: float, until_at: float) -> float:
    """The same where price and minimum are known, and the offer may be gone."""
    return price_usd_h * max(minimum_s, math.ceil(max(0.0, until_at - launched_at))) / 3600.0
