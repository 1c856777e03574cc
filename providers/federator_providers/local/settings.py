"""Settings of the `local` provider, and the offers that they make."""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, field

from federator.kernel.errors import Invalid
from federator.model.capacity import Market, Offer, Stock
from federator.wire import fields
from federator.wire.decoding import decode
from federator_providers.local.catalogue import BOOT_DELAY_S, CATALOGUE
from federator_providers.offers import (
    MAX_GPU_MEMORY_MIB,
    MAX_MEMORY_MIB,
    Many,
    Markets,
    Span,
    Usd,
    offers_by_name,
)


class LocalOfferSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of machine. What is not said comes from the catalogue, if it knows the `instance_type`."""

    instance_type: fields.Text
    """Name of the machine type, such as `a2-highgpu-1g`; one offer per type and market."""
    market: Markets = ("on-demand",)
    """Where it is sold: each market is an offer of its own."""
    model: str | None = None
    """GPU model as users write it; empty for a machine without GPUs."""
    gpu_memory_mib: Annotated[int, fields.size("40GiB", high_mib=MAX_GPU_MEMORY_MIB)] | None = field(
        name="gpu_memory", default=None
    )
    """Memory of one GPU."""
    gpus: Many | None = None
    """GPUs of one machine."""
    cpus: Annotated[float, Meta(ge=0, le=100_000)] | None = None
    """CPU cores of one machine."""
    memory_mib: Annotated[int, fields.size("85GiB", high_mib=MAX_MEMORY_MIB)] | None = field(
        name="memory", default=None
    )
    """Memory of one machine."""
    price_usd_h: Usd | None = None
    """Price of one machine in USD per hour, on demand."""
    spot_price_usd_h: Usd | None = None
    """Price of one machine in USD per hour, on the spot market."""
    boot_delay_s: Span = field(name="boot_delay", default=BOOT_DELAY_S)
    """From launch to running, on the federation's clock. Left out: `3m`."""
    minimum_billing_s: Span = field(name="minimum_billing", default=60.0)
    """What is billed at least. Left out: `60s`."""
    teardown_s: Span = field(name="teardown", default=10.0)
    """Expected from `terminate` to ended. Left out: `10s`."""
    max_instances: Many = 4
    """How many there may be at once, in each market; more is sold out."""


class SpotSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the spot market behaves. What is left to chance is the same again for the same seed and order of launches."""

    notice_s: Span = field(name="notice", default=120.0)
    """From the notice of an interruption until the machine dies, on the federation's clock; for whatever interrupts it. Left out: `2m`."""
    interruptions_per_hour: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    """How often the market takes one spot machine back, on average; 0: never by itself."""
    no_capacity_share: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Share of spot launches that find nothing left although it is offered."""
    seed: int = 0
    """Another seed, other machines."""


class LocalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that the provider needs to know."""

    state_dir: fields.FilePath
    """Where instances live, one folder each. Must outlive the dispatcher, and belong to one provider alone."""
    command: Annotated[tuple[str, ...], Meta(min_length=1)]
    """What a machine runs when it has booted; when it ends, the machine is off. `{name}`, `{home}` (the machine's own folder, where the
    command starts) and `{user_data_file}` are filled in."""
    env: dict[str, str] = {}
    """Added to the environment of the command."""
    region: str = "local"
    """The region that the offers are in."""
    offers: tuple[LocalOfferSettings, ...] | None = None
    """What can be rented. Left out: the whole catalogue."""
    gpu_quotas: dict[str, Many] = {}
    """GPUs that there may be at once by model, over all offers and both markets; a model that is not named has no such limit."""
    spot: SpotSettings = SpotSettings()
    """How the spot market behaves."""
    egress_usd_per_gib: Usd = 0.0
    """Price of a GiB that leaves a machine."""
    keep_ended_s: Annotated[float, fields.duration("7d", low_s=3600.0)] = field(
        name="keep_ended", default=7 * 86400.0
    )
    """How long ended machines are remembered, on the federation's clock; at least an hour. Their names are free again after that. Left out: `7d`."""


class LocalConfiguration(msgspec.Struct, frozen=True):
    """The settings, checked and with units resolved."""

    state_dir: Path
    command: tuple[str, ...]
    env: dict[str, str]
    offers: tuple[Offer, ...]
    keep_ended_s: float
    notice_s: float = 120.0
    interruptions_per_h: float = 0.0
    no_capacity_share: float = 0.0
    seed: int = 0


def read_settings(provider: str, settings: object) -> LocalConfiguration:
    """Check `settings` of the provider of that name. Raises `Invalid` whose field starts at `$.providers.NAME.settings`."""
    path = f"$.providers.{provider}.settings"
    given = decode(settings, LocalSettings, path)
    entries = tuple(LocalOfferSettings(name) for name in CATALOGUE) if given.offers is None else given.offers
    offers = offers_by_name(entries, lambda each, at: _offers(provider, given, each, at), f"{path}.offers")
    return LocalConfiguration(
        state_dir=given.state_dir.expanduser().absolute(),
        command=given.command,
        env={"FEDERATOR_NO_GPU_WATCH": "1"} | given.env,  # its GPUs are made up
        offers=tuple(offers.values()),
        keep_ended_s=given.keep_ended_s,
        notice_s=given.spot.notice_s,
        interruptions_per_h=given.spot.interruptions_per_hour,
        no_capacity_share=given.spot.no_capacity_share,
        seed=given.spot.seed,
    )


def _offers(provider: str, settings: LocalSettings, given: LocalOfferSettings, path: str) -> list[Offer]:
    """One offer for each market in which the type is sold."""
    given = _completed(given, path)
    made = []
    for market in map(Market, given.market):
        price_usd_h = given.spot_price_usd_h if market is Market.SPOT else given.price_usd_h
        assert price_usd_h is not None
        made.append(_offer(provider, settings, given, market, price_usd_h))
    return made


def _offer(
    provider: str, settings: LocalSettings, given: LocalOfferSettings, market: Market, price_usd_h: float
) -> Offer:
    assert given.model is not None
    assert given.gpus is not None
    assert given.cpus is not None
    assert given.memory_mib is not None
    quota = settings.gpu_quotas.get(given.model)
    return Offer(
        name=f"{settings.region}/{given.instance_type}/{market}",
        provider=provider,
        region=settings.region,
        instance_type=given.instance_type,
        market=market,
        model=given.model,
        gpu_memory_mib=given.gpu_memory_mib or 0,
        gpus=given.gpus,
        cpus_milli=int(given.cpus * 1000),
        memory_mib=given.memory_mib,
        price_usd_h=price_usd_h,
        delay_s=given.boot_delay_s,
        teardown_s=given.teardown_s,
        minimum_billing_s=given.minimum_billing_s,
        available=given.max_instances,
        stock=Stock(f"{given.model} GPUs", quota, each=given.gpus, unit="GPUs")
        if given.gpus and quota is not None
        else msgspec.UNSET,
        egress_usd_per_gib=settings.egress_usd_per_gib,
    )


def _completed(given: LocalOfferSettings, path: str) -> LocalOfferSettings:
    """With what the catalogue says of the type; what neither says is an error."""
    row = CATALOGUE.get(given.instance_type)
    listed: dict[str, object] = {}
    if row is not None:
        listed = {
            "model": row.model,
            "gpu_memory_mib": row.gpu_memory_gib * 1024,
            "gpus": row.gpus,
            "cpus": float(row.vcpus),
            "memory_mib": int(row.memory_gib * 1024),
            "price_usd_h": row.on_demand_usd_h,
            "spot_price_usd_h": row.spot_usd_h,
        }
    elif given.gpus == 0:
        listed = {"model": "", "gpu_memory_mib": 0}
    prices = {"on-demand": "price_usd_h", "spot": "spot_price_usd_h"}
    for key in (
        "model",
        "gpu_memory_mib",
        "gpus",
        "cpus",
        "memory_mib",
        *(prices[market] for market in given.market),
    ):
        if getattr(given, key) is None and key not in listed:
            raise Invalid(
                f"is missing, and the catalogue does not know {given.instance_type!r}",
                field=f"{path}.{key.removesuffix('_mib')}",
                remedy=f"write it, or take one of {', '.join(CATALOGUE)}",
            )
    missing = {key: value for key, value in listed.items() if getattr(given, key) is None}
    return msgspec.structs.replace(given, **missing)
