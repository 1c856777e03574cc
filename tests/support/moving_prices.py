"""A provider whose prices move, also for what runs, as spot markets do."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from msgspec.structs import replace

from federator.model.capacity import Instance
from federator_providers.fake import FakeProvider


@dataclass
class MovingPrices(FakeProvider):
    """The provider in memory, with prices that move."""

    moves: list[tuple[str, float, float]] = field(default_factory=list)
    """Offer, when, and what it has cost by the hour since."""

    def reprice(self, offer: str, price_usd_h: float) -> None:
        """From now on the offer, and what runs of it, costs so much by the hour."""
        self.catalogue = [
            replace(each, price_usd_h=price_usd_h) if each.name == offer else each for each in self.catalogue
        ]
        self.moves.append((offer, self.clock.now(), price_usd_h))

    async def instances(self, federation: str) -> Sequence[Instance]:
        """With bills at the prices that there were."""
        found = await super().instances(federation)
        return [replace(each, billed_usd=each.billed_usd + self._dearer_usd(each)) for each in found]

    def _dearer_usd(self, machine: Instance) -> float:
        """What the price's moves since its launch have added."""
        begun_usd_h = self.machines[machine.name].request.offer.price_usd_h
        moves = [
            (at, usd_h)
            for offer, at, usd_h in self.moves
            if offer == machine.offer and at >= machine.launched_at
        ]
        until_at = self.clock.now() if machine.ended_at is None else machine.ended_at
        return sum(
            (usd_h - begun_usd_h) * max(0.0, min(end_at, until_at) - at) / 3600.0
            for (at, usd_h), (end_at, _) in pairwise([*moves, (until_at, 0.0)])
        )
