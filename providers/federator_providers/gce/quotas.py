"""What the project may have of GPUs in the region, as Google tells: spot machines have quotas of their own where the project was given some."""

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from federator.kernel.clock import Clock
from federator.kernel.errors import FederatorError
from federator.model.capacity import Market, Offer, Stock
from federator_providers.gce.calls import Api
from federator_providers.gce.settings import GceConfiguration
from federator_providers.stocks import as_left

REFRESH_S = 60.0
log = logging.getLogger(__name__)


class Quotas:
    """The offers, each with the quota that its GPUs count towards. A GPU model of which the region tells no quota has none."""

    def __init__(self, provider: str, configuration: GceConfiguration, api: Api, clock: Clock) -> None:
        self._provider = provider
        self._configuration = configuration
        self._api = api
        self._clock = clock
        self._ask_at_s = float("-inf")
        self._limits: dict[str, int] = {}
        self._others: Counter[str] = Counter()
        """What was taken at the last answer by machines that are none of ours."""

    async def left(self, live: Mapping[str, int]) -> dict[str, Offer]:
        """The offers by name, beside so many live machines of each."""
        await self._refresh(live)
        return {offer.name: offer for offer in as_left(self._offers(), live, self._others)}

    def stock(self, offer: Offer) -> str:
        """The metric that its GPUs count towards; empty where none is told."""
        metric = self._configuration.quotas[offer.name]
        if offer.market is Market.SPOT and self._limits.get(f"PREEMPTIBLE_{metric}"):
            return f"PREEMPTIBLE_{metric}"
        return metric if metric in self._limits else ""

    def _offers(self) -> list[Offer]:
        return [
            replace(offer, stock=Stock(name, self._limits[name], each=offer.gpus, unit="GPUs"))
            if (name := self.stock(offer))
            else offer
            for offer in self._configuration.offers.values()
        ]

    async def _refresh(self, live: Mapping[str, int]) -> None:
        """Ask again when that is due. Without an answer everything stays as it is."""
        if self._clock.boot() < self._ask_at_s:
            return
        self._ask_at_s = self._clock.boot() + REFRESH_S
        try:
            region: Any = await self._api.call("GET", f"regions/{self._configuration.given.region}")
        except FederatorError as error:
            log.warning("provider %s: quotas stay as they were: %s", self._provider, error)
            return
        told = {each["metric"]: each for each in region.get("quotas", ())}
        self._limits = {metric: int(each["limit"]) for metric, each in told.items()}
        ours = Counter[str]()
        for offer in self._configuration.offers.values():
            ours[self.stock(offer)] += offer.gpus * live.get(offer.name, 0)
        self._others = Counter(
            {metric: max(0, int(each["usage"]) - ours[metric]) for metric, each in told.items()}
        )
