"""Settings of the `local` provider, and the offers that they make."""

from pathlib import Path

import msgspec

from federator.kernel.errors import Invalid
from federator.model.capacity import Market, Offer
from federator.wire.fields import duration_s, size_mib
from federator.wire.records import decode
from federator_providers.local.catalogue import BOOT_DELAY_S, CATALOGUE

MAX_GPU_MEMORY_MIB = 2**20
MAX_MEMORY_MIB = 2**26


class OfferSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of machine. What is not said comes from the catalogue, if it knows the `instance_type`."""

    instance_type: str
    """Name of the machine type, such as `a2-highgpu-1g`; one offer per type."""
    model: str | None = None
    """GPU model as users write it; empty for a machine without GPUs."""
    gpu_memory: str | None = None
    """Memory of one GPU, such as `40GiB`."""
    gpus: int | None = None
    """GPUs of one machine."""
    cpus: float | None = None
    """CPU cores of one machine."""
    memory: str | None = None
    """Memory of one machine, such as `85GiB`."""
    price_usd_h: float | None = None
    """Price of one machine in USD per hour."""
    boot_delay: str | None = None
    """From launch to running, such as `3m`, on the federation's clock."""
    minimum_billing: str = "60s"
    """What is billed at least."""
    teardown: str = "10s"
    """Expected from `terminate` to ended."""
    max_instances: int = 4
    """How many there may be at once; more is sold out."""


class LocalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that the provider needs to know."""

    state_dir: str
    """Where instances live, one folder each. Must outlive the dispatcher, and belong to one provider alone."""
    command: tuple[str, ...]
    """What a machine runs when it has booted; when it ends, the machine is off. `{name}`, `{home}` (the machine's own folder, where the
    command starts) and `{user_data_file}` are filled in."""
    env: dict[str, str] = {}
    """Added to the environment of the command."""
    region: str = "local"
    """The region that the offers are in."""
    offers: tuple[OfferSettings, ...] = tuple(OfferSettings(name) for name in CATALOGUE)
    """What can be rented; the whole catalogue when it is not said."""
    egress_usd_per_gib: float = 0.0
    """Price of a GiB that leaves a machine."""
    keep_ended: str = "7d"
    """How long ended machines are remembered, on the federation's clock; at least an hour. Their names are free again after that."""


class LocalConfiguration(msgspec.Struct, frozen=True):
    """The settings, checked and with units resolved."""

    state_dir: Path
    command: tuple[str, ...]
    env: dict[str, str]
    offers: tuple[Offer, ...]
    keep_ended_s: float


def read_settings(provider: str, settings: object) -> LocalConfiguration:
    """Check `settings` of the provider of that name. Raises `Invalid` whose field starts at `$.providers.NAME.settings`."""
    path = f"$.providers.{provider}.settings"
    given = decode(settings, LocalSettings, path)
    if not given.command:
        raise Invalid(
            "is empty", field=f"{path}.command", remedy="write the program and its arguments as a list"
        )
    if not given.state_dir:
        raise Invalid("is empty", field=f"{path}.state_dir", remedy="write the path of a folder")
    if given.egress_usd_per_gib < 0:
        raise Invalid("is below zero", field=f"{path}.egress_usd_per_gib")
    offers: dict[str, Offer] = {}
    for index, each in enumerate(given.offers):
        offer = _offer(provider, given, each, f"{path}.offers[{index}]")
        if offer.name in offers:
            raise Invalid(
                f"{each.instance_type!r} is offered twice",
                field=f"{path}.offers[{index}].instance_type",
                remedy="keep one of them",
            )
        offers[offer.name] = offer
    return LocalConfiguration(
        state_dir=Path(given.state_dir).expanduser().absolute(),
        command=given.command,
        env=given.env,
        offers=tuple(offers.values()),
        keep_ended_s=duration_s(given.keep_ended, f"{path}.keep_ended", low_s=3600.0),
    )


def _offer(provider: str, settings: LocalSettings, given: OfferSettings, path: str) -> Offer:
    given = _completed(given, path)
    for key in ("gpus", "cpus", "price_usd_h", "max_instances"):
        if getattr(given, key) < 0:
            raise Invalid("is below zero", field=f"{path}.{key}")
    assert given.model is not None
    assert given.gpus is not None
    assert given.cpus is not None
    assert given.price_usd_h is not None
    memory_mib = size_mib(given.memory, f"{path}.memory", high_mib=MAX_MEMORY_MIB)
    gpu_memory_mib = (
        size_mib(given.gpu_memory, f"{path}.gpu_memory", high_mib=MAX_GPU_MEMORY_MIB) if given.gpus else 0
    )
    return Offer(
        name=f"{settings.region}/{given.instance_type}/{Market.ON_DEMAND}",
        provider=provider,
        region=settings.region,
        instance_type=given.instance_type,
        market=Market.ON_DEMAND,
        model=given.model,
        gpu_memory_mib=gpu_memory_mib,
        gpus=given.gpus,
        cpus_milli=int(given.cpus * 1000),
        memory_mib=memory_mib,
        price_usd_h=given.price_usd_h,
        delay_s=BOOT_DELAY_S
        if given.boot_delay is None
        else duration_s(given.boot_delay, f"{path}.boot_delay", low_s=0.0),
        teardown_s=duration_s(given.teardown, f"{path}.teardown", low_s=0.0),
        minimum_billing_s=duration_s(given.minimum_billing, f"{path}.minimum_billing", low_s=0.0),
        available=given.max_instances,
        egress_usd_per_gib=settings.egress_usd_per_gib,
    )


def _completed(given: OfferSettings, path: str) -> OfferSettings:
    """With what the catalogue says of the type; what neither says is an error."""
    row = CATALOGUE.get(given.instance_type)
    listed: dict[str, object] = {}
    if row is not None:
        listed = {
            "model": row.model,
            "gpu_memory": f"{row.gpu_memory_gib}GiB",
            "gpus": row.gpus,
            "cpus": float(row.cpus),
            "memory": f"{row.memory_gib}GiB",
            "price_usd_h": row.price_usd_h,
        }
    elif given.gpus == 0:
        listed = {"model": "", "gpu_memory": ""}
    for key in ("model", "gpu_memory", "gpus", "cpus", "memory", "price_usd_h"):
        if getattr(given, key) is None and key not in listed:
            raise Invalid(
                f"is missing, and the catalogue does not know {given.instance_type!r}",
                field=f"{path}.{key}",
                remedy=f"write it, or take one of {', '.join(CATALOGUE)}",
            )
    missing = {key: value for key, value in listed.items() if getattr(given, key) is None}
    return msgspec.structs.replace(given, **missing)
