"""A launch in the first zone of a region that has a machine: the same for all clouds."""

from collections.abc import Awaitable, Callable, Mapping

from federator.kernel.clock import Clock
from federator.kernel.errors import NoCapacity
from federator.model.capacity import Instance, LaunchRequest, Offer
from federator_providers.stocks import SOLD_OUT_S

LOST_H = 1.0
"""What it costs when a machine is taken back, in hours of it: work that is done again, and another boot."""


class CloudRefusal(Exception):
    """The cloud has answered no, with this code. The provider acts on it; nobody outside sees it."""

    def __init__(self, code: str) -> None:
        self.code = code
        super().__init__(code)


class Zones:
    """In which order zones are asked: first the one that may have the machine already, last those that had none a minute ago; else by price and by how often machines are taken back there."""

    def __init__(self, clock: Clock, quota: frozenset[str]) -> None:
        """`quota`: codes of refusals that hold for the whole region."""
        self._clock = clock
        self._quota = quota
        self.unsure: dict[str, str] = {}
        """The zone in which a launch may have happened, by name."""
        self._sold_out: dict[tuple[str, str], float] = {}
        """Until when on the boot clock a zone is asked last, by offer and zone."""

    async def launch(
        self,
        left: Offer,
        request: LaunchRequest,
        zones_usd_h: Mapping[str, float],
        run: Callable[[str], Awaitable[Instance]],
    ) -> Instance:
        """What the first zone answers that does not refuse. `zones_usd_h`: the price in each. Raises `NoCapacity` with what each has said, and the stock of the offer if its quota is used up."""
        refusals: dict[str, str] = {}
        for zone in self._in_order(left.name, request, zones_usd_h):
            try:
                return await run(zone)
            except CloudRefusal as refusal:
                refusals[zone] = refusal.code
                if refusal.code in self._quota:
                    break
                self.note_sold_out(left.name, zone)
        told = ", ".join(f"{zone}: {code}" for zone, code in refusals.items())
        stock = left.stock if self._quota.intersection(refusals.values()) else None
        raise NoCapacity(
            f"{left.name} is not available: {told}",
            retry_after_s=SOLD_OUT_S,
            stock=stock.name if stock else "",
            each=stock.each if stock else 0,
            used=stock.used if stock else 0,
        )

    def note_sold_out(self, offer: str, zone: str) -> None:
        """Ask it last for a while."""
        self._sold_out[offer, zone] = self._clock.boot() + SOLD_OUT_S

    def _in_order(self, offer: str, request: LaunchRequest, zones_usd_h: Mapping[str, float]) -> list[str]:
        now_s, unsure = self._clock.boot(), self.unsure.get(request.name)

        def key(zone: str) -> tuple[bool, bool, float]:
            lost_usd_h = zones_usd_h[zone] * request.interruptions_in(zone) * LOST_H
            sold_out = self._sold_out.get((offer, zone), now_s) > now_s
            return zone != unsure, sold_out, zones_usd_h[zone] + lost_usd_h

        return sorted(zones_usd_h, key=key)
