"""Settings of the `aws` provider, and the offers that they make. Credentials are none of them: boto3 finds those by itself."""

from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, field
from msgspec.structs import replace

from federator.kernel.errors import Invalid
from federator.model.capacity import Market, Offer, Stock
from federator.wire.decoding import decode
from federator.wire.fields import Text, duration
from federator_providers.aws.catalogue import CATALOGUE, SPOT_AS_OF
from federator_providers.boot import BOOT
from federator_providers.offers import MachineType, Many, Markets, Span, Usd, offers_by_name

Texts = Annotated[tuple[Text, ...], Meta(min_length=1)]


class AwsOfferSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One type of machine that may be rented."""

    instance_type: Annotated[str, Meta(examples=["g5.xlarge"])]
    """A type of the catalogue."""
    market: Markets = ("on-demand",)
    """Where it is rented: each market is an offer of its own."""
    price_usd_h: Usd | None = None
    """On demand, in USD per hour: what you pay, whatever the price list says; by default the catalogue's in its region, until the price list has answered."""
    spot_price_usd_h: Usd | None = None
    """What is assumed on the spot market, in USD per hour, until the API has answered; the catalogue's in its region."""
    boot_delay_s: Span = field(name="boot_delay", default=180.0)
    """From launch until the agent has joined. Left out: `3m`."""
    max_instances: Many = 4
    """How many there may be at once, in each market; more is sold out. `quotas` limit a family as a whole."""


class QuotaSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the account may have at once of some families of machines in one market, whatever their types: a quota of EC2's, in vCPUs."""

    families: Texts
    """How the names of their types begin: `[g, vt]`, `[p]`, or `[p5]` where that has a quota of its own."""
    vcpus: Many
    """Of all machines that run in this region, of whoever shares the account, too."""
    market: Literal["on-demand", "spot"] = "on-demand"
    """Each market has quotas of its own."""

    @property
    def name(self) -> str:
        """As explanations call it."""
        return f"{'+'.join(self.families)} {self.market}"

    def counts(self, instance_type: str, market: str) -> bool:
        """Whether it counts such a machine."""
        return market == self.market and instance_type.startswith(self.families)


class AwsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything that the provider needs to know."""

    region: Annotated[Text, Meta(examples=["us-east-1"])]
    """Region of EC2."""
    zones: Texts
    """Availability zones, tried in this order on demand, on the spot market by price and by how often machines are taken back there."""
    image: Text
    """Id of the machine image: with the GPU's driver, Federator's agent and cloud-init."""
    offers: Annotated[tuple[AwsOfferSettings, ...], Meta(min_length=1)]
    """What may be rented."""
    quotas: tuple[QuotaSettings, ...] = ()
    """What the account's quotas allow of whole families. A machine counts towards the first that is about it."""
    subnets: dict[str, str] = {}
    """A subnet's id per zone; zones without one use the default network's."""
    security_groups: tuple[str, ...] = ()
    """Ids; the default group where there are none. The agent dials out: nothing needs to come in."""
    instance_profile: str = ""
    """Name of the IAM instance profile that the machines get; empty: none."""
    profile: str = ""
    """Profile of the AWS configuration whose credentials are used; empty: boto3's own search."""
    endpoint_url: str = ""
    """Another address of EC2's API, such as that of a VPC endpoint."""
    pricing_endpoint_url: str = ""
    """Another address of the Price List API."""
    boot: str = BOOT
    """What root's shell runs at first boot, with `FEDERATOR_USER_DATA_FILE`, `FEDERATOR_AGENT_STATE_DIR` and `FEDERATOR_NOTICES` set."""
    egress_usd_per_gib: Usd = 0.09
    """Price of a GiB that leaves a machine for the internet."""
    refresh_prices_every_s: Annotated[float, duration("10m", low_s=60.0)] = field(
        name="refresh_prices_every", default=600.0
    )
    """How often EC2 is asked what spot machines cost, and, until it has answered, the price list what others do; that is good for a day. Left out: `10m`."""
    calls_at_once: Annotated[int, Meta(ge=1, le=64)] = 4
    """Threads, and so requests to the API, at the same time."""


class AwsConfiguration(msgspec.Struct, frozen=True):
    """The settings, checked and with units resolved."""

    given: AwsSettings
    offers: dict[str, Offer]

    @property
    def catalogued(self) -> list[str]:
        """Names of the offers on demand whose price is the catalogue's, for want of a newer one."""
        return [
            offer.name
            for offer in self.offers.values()
            if offer.market is Market.ON_DEMAND and offer.price_source == CATALOGUE.source
        ]


def read_settings(provider: str, settings: object) -> AwsConfiguration:
    """Check `settings` of the provider of that name. Raises `Invalid` whose field starts at `$.providers.NAME.settings`."""
    path = f"$.providers.{provider}.settings"
    given = decode(settings, AwsSettings, path)
    _check(given, path)

    def make(entry: AwsOfferSettings, at: str) -> list[Offer]:
        row = CATALOGUE.row(entry.instance_type, at)
        return [_offer(provider, given, entry, row, Market(market), at) for market in entry.market]

    return AwsConfiguration(given, offers_by_name(given.offers, make, f"{path}.offers"))


def quota_of(quotas: Iterable[QuotaSettings], instance_type: str, market: str) -> QuotaSettings | None:
    """The quota that a machine counts towards, if one is known."""
    return next((quota for quota in quotas if quota.counts(instance_type, market)), None)


def _check(given: AwsSettings, path: str) -> None:
    for zone in given.zones:
        if not zone.startswith(given.region):
            raise Invalid(
                f"{zone!r} is not in {given.region}", field=f"{path}.zones", remedy=f"such as {given.region}a"
            )
    for zone in given.subnets:
        if zone not in given.zones:
            raise Invalid(f"{zone!r} is not in zones", field=f"{path}.subnets", remedy="add it to zones")
    names = [quota.name for quota in given.quotas]
    if twice := [name for name in names if names.count(name) > 1]:
        remedy = "keep one of them"
        raise Invalid(f"{twice[0]} is listed twice", field=f"{path}.quotas", remedy=remedy)


def _offer(
    provider: str, settings: AwsSettings, given: AwsOfferSettings, row: MachineType, market: Market, path: str
) -> Offer:
    spot = market is Market.SPOT
    quota = quota_of(settings.quotas, row.name, market)
    offer = CATALOGUE.offer(
        row,
        market,
        given.spot_price_usd_h if spot else given.price_usd_h,
        path,
        region=settings.region,
        provider=provider,
        delay_s=given.boot_delay_s,
        available=given.max_instances,
        stock=Stock(quota.name, quota.vcpus, each=row.vcpus, unit="vCPUs") if quota else msgspec.UNSET,
        egress_usd_per_gib=settings.egress_usd_per_gib,
    )
    return replace(offer, price_source=f"estimate of {SPOT_AS_OF}") if spot and offer.price_source else offer
