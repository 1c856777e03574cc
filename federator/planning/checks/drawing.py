"""What rented machines are taken from, as the checks count it: their offer, and the stock that it draws on with others."""

from typing import NamedTuple

from federator.model.capacity import IN_PARTS, Offer


class Drawn(NamedTuple):
    """What rented machines are taken from."""

    of: tuple[str, str, bool]
    """The provider, and the name of the offer, or of the stock (then true)."""
    each: int
    """What one machine takes."""
    left: int
    text: str


def draws(offer: Offer) -> list[Drawn]:
    """An offer draws on itself, under the name that its provider knows it by, and on its stock."""
    name = offer.name.removesuffix(IN_PARTS) if offer.shared else offer.name
    found = [Drawn((offer.provider, name, False), 1, offer.available, f"{offer.available} instances left")]
    stock = offer.stock
    if stock:
        left = max(0, stock.limit - stock.used)
        text = f"{left} {stock.unit} left of {stock.name}, of which each takes {stock.each}"
        found.append(Drawn((offer.provider, stock.name, True), stock.each, left, text))
    return found
