"""Settings of the `gce` provider, and the offers that they make. Credentials are none of them: google-auth finds those by itself."""

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, field

from federator.kernel.errors import Invalid
from federator.model.capacity import Market, Offer
from federator.wire import fields
from federator.wire.decoding import decode
from federator.wire.fields import Text
from federator_providers.boot import BOOT
from federator_providers.gce.catalogue import ACCELERATORS, CATALOGUE, with_attached
from federator_providers.offers import MachineType, Many, Markets, Span, Usd, offers_by_name

MAX_ZONES = 20
SMALLEST_DISK_MIB, LARGEST_DISK_MIB = 10 * 1024, 64 * 2**20
GPUS_OF_N1 = (1, 2, 4, 8)
_PROJECT = re.compile(r"([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")
_ZONE = re.compile(r"[a-z]")
_TAG = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")


class GceOfferSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One type of machine that may be rented."""

    instance_type: Annotated[str, Meta(examples=["g2-standard-4"])]
    """A machine type of the catalogue, which has its GPUs; or one of `n1-standard` and `n1-highmem`, with an `accelerator`."""
    accelerator: Annotated[str, Meta(examples=["nvidia-tesla-t4"])] = ""
    """The GPU that is attached to a machine of type n1."""
    gpus: int = 1
    """How many of them: 1, 2, 4 or 8."""
    market: Markets = ("on-demand",)
    """Where it is rented: each market is an offer of its own."""
    price_usd_h: Usd | None = None
    """On demand, in USD per hour, GPUs included; by default the catalogue's in its region."""
    spot_price_usd_h: Usd | None = None
    """Of a spot machine, in USD per hour, GPUs included; by default the catalogue's in its region."""
    boot_delay_s: Span = field(name="boot_delay", default=180.0)
    """From launch until the agent has joined. Left out: `3m`."""
    max_instances: Many = 4
    """How many there may be at once, in each market; more is sold out. The project's quotas limit a GPU model as a whole."""


class GceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything that the provider needs to know."""

    project: Annotated[Text, Meta(examples=["my-project"])]
    """Id of the project that machines are rented in."""
    region: Annotated[Text, Meta(examples=["us-central1"])]
    """Region of Compute Engine."""
    zones: Annotated[tuple[Text, ...], Meta(min_length=1, max_length=MAX_ZONES)]
    """Zones, tried in this order, on spot those first where machines are taken back least often; those that were sold out a minute ago come last."""
    image: Annotated[Text, Meta(examples=["projects/my-project/global/images/family/federator"])]
    """The machine image, or its family: with the GPU's driver, Federator's agent and Google's guest agent."""
    offers: Annotated[tuple[GceOfferSettings, ...], Meta(min_length=1)]
    """What may be rented."""
    network: Text = "global/networks/default"
    """The network that machines are in, unless there is a `subnetwork`."""
    subnetwork: str = ""
    """A subnetwork of the region, such as `projects/my-project/regions/us-central1/subnetworks/burst`."""
    public_ip: bool = False
    """Whether machines get a public address. Without, the agents dial out through Cloud NAT."""
    network_tags: Annotated[tuple[str, ...], Meta(max_length=64)] = ()
    """Network tags, for rules of the firewall. Nothing needs to come in."""
    service_account: str = ""
    """E-mail address of the service account that machines act as; empty: none. Jobs on them can use it."""
    disk_mib: Annotated[int, fields.size("100GiB", high_mib=LARGEST_DISK_MIB)] = field(
        name="disk", default=100 * 1024
    )
    """Size of the boot disk, at least `10GiB`. Left out: `100GiB`."""
    disk_type: Literal["pd-balanced", "pd-ssd", "pd-standard", "hyperdisk-balanced"] = "pd-balanced"
    """Type of the boot disk. Some machine types take only some of them."""
    endpoint_url: str = "https://compute.googleapis.com"
    """Address of the API, such as that of an endpoint of Private Service Connect."""
    boot: str = BOOT
    """What root's shell runs at boot, with `FEDERATOR_USER_DATA_FILE`, `FEDERATOR_AGENT_STATE_DIR` and `FEDERATOR_NOTICES` set."""
    egress_usd_per_gib: Usd = 0.12
    """Price of a GiB that leaves a machine for the internet."""


class GceConfiguration(msgspec.Struct, frozen=True):
    """The settings, checked and with units resolved."""

    given: GceSettings
    offers: dict[str, Offer]
    quotas: dict[str, str]
    """The metric that counts the GPUs of each offer, by its name."""


def read_settings(provider: str, settings: object) -> GceConfiguration:
    """Check `settings` of the provider of that name. Raises `Invalid` whose field starts at `$.providers.NAME.settings`."""
    path = f"$.providers.{provider}.settings"
    given = decode(settings, GceSettings, path)
    _check(given, path)
    quotas: dict[str, str] = {}

    def make(entry: GceOfferSettings, at: str) -> list[Offer]:
        row = _row(entry, at)
        made = [_offer(provider, given, entry, row, Market(market), at) for market in entry.market]
        quotas.update({offer.name: row.quota for offer in made})
        return made

    return GceConfiguration(given, offers_by_name(given.offers, make, f"{path}.offers"), quotas)


def _check(given: GceSettings, path: str) -> None:
    if not _PROJECT.fullmatch(given.project):
        raise Invalid(
            f"{given.project!r} is not a project's id",
            field=f"{path}.project",
            remedy="write its id, such as my-project, not its name or number",
        )
    for zone in given.zones:
        region, _, letter = zone.rpartition("-")
        if region != given.region or not _ZONE.fullmatch(letter):
            remedy = f"such as {given.region}-a"
            raise Invalid(f"{zone!r} is not in {given.region}", field=f"{path}.zones", remedy=remedy)
    if len(set(given.zones)) < len(given.zones):
        raise Invalid("a zone is listed twice", field=f"{path}.zones", remedy="keep one of them")
    for tag in given.network_tags:
        if not _TAG.fullmatch(tag):
            remedy = "use up to 63 lower-case letters, digits and '-', a letter first"
            raise Invalid(f"{tag!r} is not a network tag", field=f"{path}.network_tags", remedy=remedy)
    if given.disk_mib < SMALLEST_DISK_MIB:
        raise Invalid("is too small", field=f"{path}.disk", remedy="write 10GiB or more")
    if not given.endpoint_url.startswith(("https://", "http://")):
        raise Invalid("is not a URL", field=f"{path}.endpoint_url", remedy="begin it with https://")


def _row(given: GceOfferSettings, path: str) -> MachineType:
    """What is known of such a machine."""
    if not given.accelerator:
        if given.instance_type.startswith("n1-"):
            remedy = f"write one of {', '.join(ACCELERATORS)}"
            raise Invalid("is missing: n1 has no GPU of its own", field=f"{path}.accelerator", remedy=remedy)
        return CATALOGUE.row(given.instance_type, path, ", or n1 with an accelerator")
    accelerator = ACCELERATORS.get(given.accelerator)
    if accelerator is None:
        remedy = f"take one of {', '.join(ACCELERATORS)}"
        raise Invalid(f"{given.accelerator!r} is not known", field=f"{path}.accelerator", remedy=remedy)
    if given.gpus not in GPUS_OF_N1:
        raise Invalid("cannot be attached", field=f"{path}.gpus", remedy="write 1, 2, 4 or 8")
    row = with_attached(given.instance_type, accelerator, given.gpus)
    if row is None:
        raise Invalid(
            f"{given.instance_type!r} takes no accelerator",
            field=f"{path}.instance_type",
            remedy="take an n1-standard or n1-highmem, such as n1-standard-8",
        )
    return row


def _offer(
    provider: str, settings: GceSettings, given: GceOfferSettings, row: MachineType, market: Market, path: str
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
