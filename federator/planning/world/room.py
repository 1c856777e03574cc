"""What the room that a job takes at home is worth to others: the linear model's price of a place's GPU-hours, bucket by bucket.

The prices are those that the problem brings along, of the model of the turn before. Where there are none, nothing is said.
"""

from collections.abc import Mapping
from itertools import pairwise

from federator.planning.world.buckets import BUCKETS_H, hours_row


class Room:
    """The prices of one problem, by place."""

    def __init__(self, prices: Mapping[str, float]) -> None:
        """`prices`: by the names of rows. Duals have either sign, as who wrote them counts."""
        self._prices = prices
        self._of: dict[str, list[tuple[float, float, float]]] = {}

    def usd(self, place: str, begin_h: float, end_h: float) -> float:
        """Of one GPU there from then to then, in hours from now."""
        if place not in self._of:
            self._of[place] = [
                (low_h, high_h, abs(usd))
                for bucket, (low_h, high_h) in enumerate(pairwise(BUCKETS_H))
                if (usd := self._prices.get(hours_row(place, bucket)))
            ]
        return sum(
            usd * max(0.0, min(high_h, end_h) - max(low_h, begin_h)) for low_h, high_h, usd in self._of[place]
        )
