"""A simulated cloud: the provider of the tests, whose machines boot, join as members, and may be taken back or not be had.

Chance is drawn per machine and per call from the seed and the names involved, so that what happens to one lease does not change with what
happens to another.
"""

import asyncio
import random
from collections.abc import Callable, Sequence

import msgspec

from federator.kernel.clock import Clock
from federator.kernel.errors import NoCapacity
from federator.model.capacity import Instance, LaunchRequest, Market, Offer
from federator.simulation.spot_events import SpotHistory
from federator.simulation.virtual_time import ORIGIN_AT
from federator_providers.fake import FakeProvider

REMEMBERED_S = 7200.0
"""Ended machines stay in listings for so long."""


class OfferRisk(msgspec.Struct, frozen=True):
    """What can go wrong with an offer: how often its machines are taken back (per machine-hour), and what share of launches finds none.

    `history`: both as they were in a real market.
    """

    interruptions_h: float = 0.0
    sold_out: float = 0.0
    history: SpotHistory | None = None


class SimulatedCloud(FakeProvider):
    """Rents machines whose agents join after the offer's delay. `booted` is told a machine's start-up text; `gone` that it is no more."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        catalogue: Sequence[Offer],
        *,
        risks: dict[str, OfferRisk],
        seed: int,
        booted: Callable[[LaunchRequest], None],
        gone: Callable[[str], None],
    ) -> None:
        super().__init__(name, clock, catalogue, slow_to_end=True)
        self._risks = risks
        self._seed = seed
        self._booted = booted
        self._gone = gone
        self._asked: dict[str, int] = {}
        self._timers: dict[str, list[asyncio.TimerHandle]] = {}
        self._last: dict[str, Instance] = {}

    async def launch(self, request: LaunchRequest) -> Instance:
        """As every provider; a new machine boots, and its fate is drawn."""
        if request.name in self.machines:
            return await super().launch(request)
        risk = self._risks.get(request.offer.name, OfferRisk())
        calls = self._asked[request.offer.name] = self._asked.get(request.offer.name, 0) + 1
        if self._is_sold_out(risk, f"launch/{request.offer.name}/{calls}"):
            raise NoCapacity(f"{request.offer.name} is sold out", retry_after_s=60.0)
        instance = await super().launch(request)
        loop = asyncio.get_running_loop()
        timers = [loop.call_later(request.offer.delay_s, self._booted, request)]
        lives_s = self._lives_s(risk, f"life/{request.name}") if request.offer.market is Market.SPOT else None
        if lives_s is not None:
            timers.append(loop.call_later(lives_s, self._take_back, request.name))
        self._timers[request.name] = timers
        return instance

    def _is_sold_out(self, risk: OfferRisk, what: str) -> bool:
        if risk.history is not None and risk.history.sold_out(self.clock.now() - ORIGIN_AT):
            return True
        return bool(risk.sold_out) and self._chance(what).random() < risk.sold_out

    def _lives_s(self, risk: OfferRisk, what: str) -> float | None:
        """Until it is taken back; None: it is not."""
        chance = self._chance(what)
        ends_s = [chance.expovariate(risk.interruptions_h) * 3600.0] if risk.interruptions_h else []
        if risk.history is not None:
            lives_s = risk.history.lives_s(self.clock.now() - ORIGIN_AT, chance)
            ends_s += [] if lives_s is None else [lives_s]
        return min(ends_s, default=None)

    async def terminate(self, name: str) -> None:
        """As every provider; whatever still ran there is gone."""
        await super().terminate(name)
        self._end(name)

    async def instances(self, federation: str) -> Sequence[Instance]:
        """As every provider; those that ended long ago are forgotten."""
        listed = await super().instances(federation)
        self._last.update((instance.name, instance) for instance in listed)
        for instance in listed:
            if instance.ended_at is not None and instance.ended_at < self.clock.now() - REMEMBERED_S:
                del self.machines[instance.name]
        return listed

    def final(self) -> dict[str, Instance]:
        """Every machine there ever was, as it was last: what the bills are checked against."""
        for name, machine in self.machines.items():
            self._last[name] = self._instance(machine)
        return self._last

    def _take_back(self, name: str) -> None:
        self.interrupt(name)
        loop = asyncio.get_running_loop()
        self._timers[name].append(loop.call_later(self.notice_s, self._end, name))

    def _end(self, name: str) -> None:
        for timer in self._timers.pop(name, ()):
            timer.cancel()
        self._gone(name)

    def _chance(self, what: str) -> random.Random:
        return random.Random(f"{self._seed}/{self.name}/{what}")
