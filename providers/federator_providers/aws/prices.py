"""What machines cost now: on demand as AWS's price list says, on the spot market as EC2 says for each zone.

Until there is an answer, and where there is none, the settings' or the catalogue's price holds. A price that the settings give on demand
is the owner's own, a discount perhaps: it is never replaced.
"""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from federator.kernel.clock import Clock
from federator.kernel.errors import FederatorError, Transient
from federator.model.capacity import Market, Offer
from federator.wire.jsontext import read
from federator_providers.aws.calls import Api
from federator_providers.aws.catalogue import AS_OF
from federator_providers.aws.settings import AwsConfiguration

log = logging.getLogger(__name__)

LISTED_S = 24 * 3600.0
"""How long a price of the price list is good for: AWS changes them a few times a year."""
_LINUX = {
    "operatingSystem": "Linux",
    "preInstalledSw": "NA",
    "tenancy": "Shared",
    "capacitystatus": "Used",
}


class _Dimension(msgspec.Struct, frozen=True):
    """One rate. The price list writes numbers as texts."""

    unit: str
    usd: dict[str, str] = msgspec.field(name="pricePerUnit")


class _Term(msgspec.Struct, frozen=True):
    dimensions: dict[str, _Dimension] = msgspec.field(name="priceDimensions")


class _Terms(msgspec.Struct, frozen=True):
    on_demand: dict[str, _Term] = msgspec.field(name="OnDemand", default={})


class _Product(msgspec.Struct, frozen=True):
    """What we read of an entry of the price list."""

    terms: _Terms


class Prices:
    """The newest price of every offer."""

    def __init__(self, provider: str, configuration: AwsConfiguration, api: Api, clock: Clock) -> None:
        self._provider = provider
        self._configuration = configuration
        self._region = configuration.given.region
        self._zones = configuration.given.zones
        self._api = api
        self._clock = clock
        self._listed_usd_h: dict[str, float] = {}
        """On demand, by instance type."""
        self._listed_on = ""
        self._ask_list_at_s = float("-inf")
        self._spot_usd_h: dict[tuple[str, str], float] = {}
        """By instance type and zone."""
        self._ask_spot_at_s = float("-inf")

    def priced(self, offer: Offer) -> Offer:
        """The offer at its price of now, with where that is from."""
        if offer.market is Market.SPOT:
            known = [usd_h for zone in self._zones if (usd_h := self.in_zone(offer, zone)) is not None]
            if not known:
                return offer
            # The dearest zone's: the launch may have to go there, and what is committed must pay for it.
            return msgspec.structs.replace(offer, price_usd_h=max(known), price_source="spot market")
        usd_h = self._listed_usd_h.get(offer.instance_type)
        if usd_h is None or offer.name not in self._configuration.catalogued:
            return offer
        return msgspec.structs.replace(
            offer, price_usd_h=usd_h, price_source=f"AWS price list, {self._listed_on}"
        )

    def in_zone(self, offer: Offer, zone: str) -> float | None:
        """What such a spot machine costs in that zone; None: EC2 has not said."""
        return self._spot_usd_h.get((offer.instance_type, zone))

    async def refresh(self) -> None:
        """Ask again for what is due. Without an answer everything stays as it is."""
        now_s, offers = self._clock.boot(), self._configuration.offers.values()
        spot = sorted({offer.instance_type for offer in offers if offer.market is Market.SPOT})
        if spot and now_s >= self._ask_spot_at_s:
            await self._ask_spot_market(spot, now_s)
        listed = sorted(
            {self._configuration.offers[name].instance_type for name in self._configuration.catalogued}
        )
        if listed and now_s >= self._ask_list_at_s:
            await self._ask_price_list(listed, now_s)

    async def _ask_spot_market(self, types: Sequence[str], now_s: float) -> None:
        try:
            history = await self._api.pages(
                "describe_spot_price_history",
                "SpotPriceHistory",
                InstanceTypes=types,
                ProductDescriptions=["Linux/UNIX"],
                StartTime=datetime.now(UTC),
            )
        except Transient as error:
            log.warning("provider %s: spot prices stay as they were: %s", self._provider, error)
            return
        self._ask_spot_at_s = now_s + self._configuration.given.refresh_prices_every_s
        for each in sorted(history, key=lambda entry: entry["Timestamp"]):
            if each["AvailabilityZone"] in self._zones:
                self._spot_usd_h[each["InstanceType"], each["AvailabilityZone"]] = float(each["SpotPrice"])

    async def _ask_price_list(self, types: Sequence[str], now_s: float) -> None:
        """A right that is missing costs fresh prices and nothing else."""
        self._ask_list_at_s = now_s + self._configuration.given.refresh_prices_every_s
        found = {}
        try:
            for name in types:
                wanted = _LINUX | {"instanceType": name, "regionCode": self._region}
                entries = await self._api.pages(
                    "get_products",
                    "PriceList",
                    service="pricing",
                    ServiceCode="AmazonEC2",
                    Filters=[
                        {"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in wanted.items()
                    ],
                )
                found[name] = _usd_h(entries)
        except FederatorError as error:
            log.warning("provider %s: prices on demand stay as they were: %s", self._provider, error)
            return
        if unlisted := [name for name, usd_h in found.items() if usd_h is None]:
            log.warning(
                "provider %s: the price list has no %s in %s: its price stays that of %s",
                self._provider, ", ".join(unlisted), self._region, AS_OF,
            )  # fmt: skip
        self._ask_list_at_s = now_s + LISTED_S
        self._listed_usd_h = {name: usd_h for name, usd_h in found.items() if usd_h is not None}
        self._listed_on = f"{datetime.fromtimestamp(self._clock.now(), UTC):%Y-%m-%d}"


def _usd_h(entries: Sequence[str]) -> float | None:
    """The price of an hour in the price list's entries for one type of machine; of several the dearest, None of none."""
    prices = []
    for entry in entries:
        try:
            product = read(entry, _Product)
            prices += [
                float(dimension.usd["USD"])
                for term in product.terms.on_demand.values()
                for dimension in term.dimensions.values()
                if dimension.unit == "Hrs" and "USD" in dimension.usd
            ]
        except (msgspec.MsgspecError, ValueError) as error:
            log.warning("an entry of the price list cannot be read: %s", error)
    return max((usd_h for usd_h in prices if 0 < usd_h < float("inf")), default=None)
