"""What machines that are rented are taken from: what is left of their offer, with its GPU shared or not, and of the stock that it draws on with others.

A machine needs all of it. Places are by index, as `World` numbers them; what exists already draws on nothing.
"""

from collections.abc import Iterator, Sequence
from copy import copy
from typing import NamedTuple

from federator.model.capacity import Offer, Stock
from federator.planning.places.candidates import Candidate


class Draw(NamedTuple):
    """What one machine takes of the source with that number."""

    source: int
    each: int


class Source(NamedTuple):
    """One thing that machines are taken from."""

    row: str
    """What tells it from others: the name of the model's row of what is left of it."""
    first: int
    """The first place that draws on it."""
    stock: Stock | None
    """What it is, where that is no offer."""


class Stocks:
    """All sources of one world; a copy goes down as machines are rented."""

    def __init__(self, places: Sequence[Candidate]) -> None:
        """As things stand."""
        self.sources: list[Source] = []
        self.left: list[int] = []
        """Of each source: machines of an offer, or units of a stock."""
        self.draws: list[tuple[Draw, ...]] = []
        """By place."""
        numbers: dict[str, int] = {}
        for place, at in enumerate(places):
            draws = []
            for row, each, left, stock in _sources(at.offer.offer) if at.offer is not None else ():
                source = numbers.setdefault(row, len(numbers))
                if source == len(self.left):
                    self.sources.append(Source(row, place, stock))
                    self.left.append(left)
                self.left[source] = min(self.left[source], left)
                draws.append(Draw(source, each))
            self.draws.append(tuple(draws))

    def copy(self) -> "Stocks":
        """To take from."""
        other = copy(self)
        other.left = list(self.left)
        return other

    def room(self, place: int) -> int:
        """How many machines of the offer there could still be had."""
        return max(0, min((self.left[source] // each for source, each in self.draws[place]), default=0))

    def take(self, place: int, machines: int) -> None:
        """So many are rented."""
        for source, each in self.draws[place]:
            self.left[source] -= each * machines

    def take_some(self, place: int, machines: int) -> bool:
        """So many are rented if they are to be had; whether they are."""
        enough = machines <= self.room(place)
        if enough:
            self.take(place, machines)
        return enough

    def short(self, place: int, machines: int) -> tuple[Stock, int, int] | None:
        """The named stock that has too little for so many: itself, what is taken of it, and what they need; None where another thing is the matter."""
        for source, each in self.draws[place]:
            stock, left = self.sources[source].stock, max(0, self.left[source])
            if left < each * machines:
                return None if stock is None else (stock, stock.limit - left, each * machines)
        return None


def _sources(offer: Offer) -> Iterator[tuple[str, int, int, Stock | None]]:
    """Of an offer: the row of each source, what one machine takes of it, what is left, and the stock where it is one."""
    yield f"available/{offer.provider}/{offer.as_offered().name}", 1, offer.available, None
    if offer.stock:
        row = f"stock/{offer.provider}/{offer.stock.name}"
        yield row, offer.stock.each, offer.stock.left, offer.stock
