"""What is left of a catalogue: of each offer itself, and of what its machines are taken from together with those of other offers."""

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec import UNSET
from msgspec.structs import replace

from federator.kernel.errors import NoCapacity
from federator.model.capacity import Offer

SOLD_OUT_S = 60.0


def as_left(
    catalogue: Iterable[Offer], live: Mapping[str, int], others: Mapping[str, int] | None = None
) -> list[Offer]:
    """The offers beside so many live machines of each, by its name; `others`: what machines that are none of them take, by stock."""
    catalogue = tuple(catalogue)
    used = Counter(others or {})
    for offer in catalogue:
        if offer.stock:
            used[offer.stock.name] += offer.stock.each * live.get(offer.name, 0)
    return [
        replace(
            offer,
            available=max(0, offer.available - live.get(offer.name, 0)),
            stock=replace(offer.stock, used=offer.stock.used + used[offer.stock.name])
            if offer.stock
            else UNSET,
        )
        for offer in catalogue
    ]


def take_one(left: Offer) -> None:
    """Raise `NoCapacity` unless there is one more of an offer of which this is left."""
    stock = left.stock
    if stock and stock.left < stock.each:
        raise NoCapacity(
            f"{stock.name} has {stock.left} of {stock.limit} {stock.unit} left, and {left.name} takes {stock.each}",
            retry_after_s=SOLD_OUT_S,
            stock=stock.name,
            each=stock.each,
            used=stock.used,
        )
    if left.available < 1:
        raise NoCapacity(
            f"all machines of {left.name} that there may be are rented", retry_after_s=SOLD_OUT_S
        )
