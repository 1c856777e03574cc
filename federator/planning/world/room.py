"""What the room that a job takes at home is worth to others: the linear model's price of a place's GPU-hours, bucket by bucket.

The prices are those that the problem brings along, of the model of the turn before. Where there are none, nothing is said.
"""

from bisect import bisect_right
from collections.abc import Mapping

from federator.planning.world.buckets import BUCKETS_H

GPU_HOURS = "hours"
"""Rows of GPU-hours are named `hours/PLACE/LOWh`."""


class Room:
    """The prices of one problem, by place."""

    def __init__(self, prices: Mapping[str, float]) -> None:
        """Take from prices by row those of GPU-hours. Duals have either sign, as who wrote them counts."""
        self._of: dict[str, list[tuple[float, float, float]]] = {}
        for name, usd in prices.items():
            kind, _, rest = name.partition("/")
            if kind != GPU_HOURS or not usd:
                continue
            place, _, low = rest.rpartition("/")
            low_h = float(low.removesuffix("h"))
            high_h = BUCKETS_H[min(bisect_right(BUCKETS_H, low_h), len(BUCKETS_H) - 1)]
            self._of.setdefault(place, []).append((low_h, high_h, abs(usd)))

    def usd(self, place: str, begin_h: float, end_h: float) -> float:
        """Of one GPU there from then to then, in hours from now."""
        return sum(
            usd * max(0.0, min(high_h, end_h) - max(low_h, begin_h))
            for low_h, high_h, usd in self._of.get(place, ())
        )
