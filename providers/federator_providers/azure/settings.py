"""Settings of the `azure` provider, and the offers that they make. Credentials are none of them: they are in the environment, or the machine's own."""

import re
from collections import Counter
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, field
from msgspec.structs import replace

from federator.kernel.errors import Invalid
from federator.model.capacity import Market, Offer, Stock
from federator.wire import fields
from federator.wire.decoding import decode
from federator.wire.fields import Text
from federator_providers.azure.catalogue import CATALOGUE
from federator_providers.boot import BOOT
from federator_providers.offers import MachineType, Many, Markets, Span, Usd, offers_by_name

LARGEST_DISK_MIB = 32 * 2**20
_SUBSCRIPTION = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_GROUP = re.compile(r"[A-Za-z0-9_.()-]{0,89}[A-Za-z0-9_()-]")
_REGION = re.compile(r"[a-z0-9]{1,50}")


class AzureOfferSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One size of machine that may be rented."""

    instance_type: Annotated[str, Meta(examples=["Standard_NC4as_T4_v3"])]
    """A size of the catalogue."""
    market: Markets = ("on-demand",)
    """Where it is rented: each market is an offer of its own."""
    price_usd_h: Usd | None = None
    """On demand, in USD per hour; by default the catalogue's in its region."""
    spot_price_usd_h: Usd | None = None
    """The most that a spot machine may cost, in USD per hour: it is reckoned at that, and Azure takes it back when its price is more."""
    boot_delay_s: Span = field(name="boot_delay", default=240.0)
    """From launch until the agent has joined. Left out: `4m`."""
    max_instances: Many = 4
    """How many there may be at once, in each market; more is sold out. Quotas of the subscription limit a family of sizes as a whole."""


class AzureSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything that the provider needs to know."""

    subscription: Annotated[Text, Meta(examples=["00000000-0000-0000-0000-000000000000"])]
    """Id of the subscription that machines are rented in."""
    resource_group: Annotated[Text, Meta(examples=["federator"])]
    """The resource group that machines are made in, best one of their own."""
    region: Annotated[Text, Meta(examples=["eastus"])]
    """Region, by its short name."""
    zones: Annotated[tuple[Literal["1", "2", "3"], ...], Meta(max_length=3)] = ()
    """Availability zones, tried in this order, on spot those first where machines are taken back least often; those that had none a minute ago come last. Empty: Azure chooses."""
    image: Annotated[Text, Meta(min_length=1)]
    """Resource id of the image, or of its version in a gallery: with the GPU's driver, Federator's agent and cloud-init."""
    subnet: Annotated[Text, Meta(min_length=1)]
    """Resource id of the subnet that machines are in. Agents dial out through its NAT gateway."""
    ssh_public_key: Annotated[Text, Meta(examples=["ssh-ed25519 AAAA…"])]
    """Key of the machines' administrator: Azure makes none without. Nothing logs in by it."""
    offers: Annotated[tuple[AzureOfferSettings, ...], Meta(min_length=1)]
    """What may be rented."""
    disk_mib: Annotated[int, fields.size("128GiB", high_mib=LARGEST_DISK_MIB)] = field(
        name="disk", default=128 * 1024
    )
    """Size of the boot disk. Left out: `128GiB`."""
    disk_type: Literal["StandardSSD_LRS", "Premium_LRS", "Standard_LRS"] = "StandardSSD_LRS"
    """Type of the boot disk."""
    endpoint_url: str = "https://management.azure.com"
    """Address of the API: another cloud of Azure, or a private link."""
    boot: str = BOOT
    """What root's shell runs at boot, with `FEDERATOR_USER_DATA_FILE`, `FEDERATOR_AGENT_STATE_DIR` and `FEDERATOR_NOTICES` set."""
    egress_usd_per_gib: Usd = 0.087
    """Price of a GiB that leaves a machine for the internet."""


class AzureConfiguration(msgspec.Struct, frozen=True):
    """The settings, checked and with units resolved."""

    given: AzureSettings
    offers: dict[str, Offer]


def read_settings(provider: str, settings: object) -> AzureConfiguration:
    """Check `settings` of the provider of that name. Raises `Invalid` whose field starts at `$.providers.NAME.settings`."""
    path = f"$.providers.{provider}.settings"
    given = decode(settings, AzureSettings, path)
    _check(given, path)

    def make(entry: AzureOfferSettings, at: str) -> list[Offer]:
        row = CATALOGUE.row(entry.instance_type, at)
        return [_offer(provider, given, entry, row, Market(market), at) for market in entry.market]

    return AzureConfiguration(given, _with_stocks(offers_by_name(given.offers, make, f"{path}.offers")))


def _with_stocks(offers: dict[str, Offer]) -> dict[str, Offer]:
    """The offers, each with the quota that its vCPUs count towards. Quotas are not read: what the settings allow of all its offers is its limit until Azure refuses more."""
    limits = Counter[str]()
    for offer in offers.values():
        limits[_quota(offer)] += offer.available * offer.cpus_milli // 1000
    return {
        name: replace(
            offer,
            stock=Stock(_quota(offer), limits[_quota(offer)], each=offer.cpus_milli // 1000, unit="vCPUs"),
        )
        for name, offer in offers.items()
    }


def _quota(offer: Offer) -> str:
    """One for all spot machines of the region; on demand one for each family, which is the size's name without its vCPUs and the `i` of isolated ones."""
    if offer.market is Market.SPOT:
        return "all spot"
    _, size, *rest = offer.instance_type.split("_")
    return f"{'_'.join([re.sub('[0-9i]', '', size), *rest])} on-demand"


def _check(given: AzureSettings, path: str) -> None:
    wrong = {
        "subscription": (_SUBSCRIPTION, "write the subscription's id, not its name"),
        "resource_group": (_GROUP, "write its name, up to 90 letters, digits, '_', '-', '.' and brackets"),
        "region": (_REGION, "write its short name, such as eastus"),
    }
    for name, (pattern, remedy) in wrong.items():
        if not pattern.fullmatch(getattr(given, name)):
            raise Invalid(f"{getattr(given, name)!r} cannot be one", field=f"{path}.{name}", remedy=remedy)
    if len(set(given.zones)) < len(given.zones):
        raise Invalid("a zone is listed twice", field=f"{path}.zones", remedy="keep one of them")
    for name in ("image", "subnet"):
        if not getattr(given, name).startswith("/subscriptions/"):
            remedy = "begin it with /subscriptions/"
            raise Invalid("is not a resource id", field=f"{path}.{name}", remedy=remedy)
    if not given.endpoint_url.startswith(("https://", "http://")):
        raise Invalid("is not a URL", field=f"{path}.endpoint_url", remedy="begin it with https://")


def _offer(
    provider: str,
    settings: AzureSettings,
    given: AzureOfferSettings,
    row: MachineType,
    market: Market,
    path: str,
) -> Offer:
    return CATALOGUE.offer(
        row,
        market,
        given.spot_price_usd_h if market is Market.SPOT else given.price_usd_h,
        path,
        region=settings.region,
        provider=provider,
        delay_s=given.boot_delay_s,
        available=given.max_instances,
        egress_usd_per_gib=settings.egress_usd_per_gib,
    )
