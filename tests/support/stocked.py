"""Offers that draw on one stock, at random."""

from hypothesis import strategies as st
from msgspec.structs import replace

from federator.model.capacity import Stock
from federator.model.snapshot import OfferView


@st.composite
def on_a_stock(draw: st.DrawFn, offers: list[OfferView]) -> list[OfferView]:
    """Now and then all of them draw on so many GPUs in all, some of which are taken."""
    limit = draw(st.sampled_from([None, 4, 8, 9, 16]))
    if limit is None:
        return offers
    stock = Stock("quota", limit, used=draw(st.sampled_from([0, 0, 3])), unit="GPUs")
    return [
        replace(
            view,
            offer=replace(view.offer, stock=replace(stock, each=view.offer.gpus)),
        )
        for view in offers
    ]
