"""Settings of the `local` provider, and the offers that they make."""

from pathlib import Path
from typing import Literal

import msgspec

from federator.kernel.errors import Invalid
from federator.model.capacity import Market, Offer, Stock
from federator.wire.fields import duration_s, size_mib
from federator.wire.records import decode
from federator_providers.local.catalogue import BOOT_DELAY_S, CATALOGUE
from federator_providers.offers import check_offer, offers_by_name

MAX_GPU_MEMORY_MIB = 2**20
MAX_MEMORY_MIB = 2**26


class OfferSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of machine. What is not said comes from the catalogue, if it knows the `instance_type`."""

    instance_type: str
    """Name of the machine type, such as `a2-highgpu-1g`; one offer per type and market."""
    market: tuple[Literal["on-demand", "spot"], ...] = ("on-demand",)
    """Where it is sold: each market is an offer of its own."""
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
    """Price of one machine in USD per hour, on demand."""
    spot_price_usd_h: float | None = None
    """Price of one machine in USD per hour, on the spot market."""
    boot_delay: str | None = None
    """From launch to running, such as `3m`, on the federation's clock."""
    minimum_billing: str = "60s"
    """What is billed at least."""
    teardown: str = "10s"
    """Expected from `terminate` to ended."""
    max_instances: int = 4
    """How many there may be at once, in each market; more is sold out."""


class SpotSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the spot market behaves. What is left to chance is the same again for the same seed and order of launches."""

    notice: str = "2m"
    """From the notice of an interruption until the machine dies, on the federation's clock; for whatever interrupts it."""
    interruptions_per_hour: float = 0.0
    """How often the market takes one spot machine back, on average; 0: never by itself."""
    no_capacity_share: float = 0.0
    """Share of spot launches, 0 to 1, that find nothing left although it is offered."""
    seed: int = 0
    """Another seed, other machines."""


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
    gpu_quotas: dict[str, int] = {}
    """GPUs that there may be at once by model, over all offers and both markets; a model that is not named has no such limit."""
    spot: SpotSettings = SpotSettings()
    """How the spot market behaves."""
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
    notice_s: float
    interruptions_per_h: float
    no_capacity_share: float
    seed: int


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
    for model, gpus in given.gpu_quotas.items():
        if gpus < 0:
            raise Invalid("is below zero", field=f"{path}.gpu_quotas.{model}")
    _check_spot(given.spot, f"{path}.spot")
    if given.egress_usd_per_gib < 0:
        raise Invalid("is below zero", field=f"{path}.egress_usd_per_gib")
    offers = offers_by_name(
        given.offers, lambda each, at: _offers(provider, given, each, at), f"{path}.offers"
    )
    return LocalConfiguration(
        state_dir=Path(given.state_dir).expanduser().absolute(),
        command=given.command,
        env=given.env,
        offers=tuple(offers.values()),
        keep_ended_s=duration_s(given.keep_ended, f"{path}.keep_ended", low_s=3600.0),
        notice_s=duration_s(given.spot.notice, f"{path}.spot.notice", low_s=0.0),
        interruptions_per_h=given.spot.interruptions_per_hour,
        no_capacity_share=given.spot.no_capacity_share,
        seed=given.spot.seed,
    )


def _check_spot(spot: SpotSettings, path: str) -> None:
    if spot.interruptions_per_hour < 0:
        raise Invalid("is below zero", field=f"{path}.interruptions_per_hour")
    if not 0 <= spot.no_capacity_share <= 1:
        raise Invalid("is not a share", field=f"{path}.no_capacity_share", remedy="write 0 to 1")


def _offers(provider: str, settings: LocalSettings, given: OfferSettings, path: str) -> list[Offer]:
    """One offer for each market in which the type is sold."""
    given = _completed(given, path)
    check_offer(given, ("gpus", "cpus", "price_usd_h", "spot_price_usd_h", "max_instances"), path)
    made = []
    for market in map(Market, given.market):
        price_usd_h = given.spot_price_usd_h if market is Market.SPOT else given.price_usd_h
        assert price_usd_h is not None
        made.append(_offer(provider, settings, given, path, market, price_usd_h))
    return made


def _offer(
    provider: str,
    settings: LocalSettings,
    given: OfferSettings,
    path: str,
    market: Market,
    price_usd_h: float,
) -> Offer:
    assert given.model is not None
    assert given.gpus is not None
    assert given.cpus is not None
    memory_mib = size_mib(given.memory, f"{path}.memory", high_mib=MAX_MEMORY_MIB)
    gpu_memory_mib = (
        size_mib(given.gpu_memory, f"{path}.gpu_memory", high_mib=MAX_GPU_MEMORY_MIB) if given.gpus else 0
    )
    quota = settings.gpu_quotas.get(given.model)
    return Offer(
        name=f"{settings.region}/{given.instance_type}/{market}",
        provider=provider,
        region=settings.region,
        instance_type=given.instance_type,
        market=market,
        model=given.model,
        gpu_memory_mib=gpu_memory_mib,
        gpus=given.gpus,
        cpus_milli=int(given.cpus * 1000),
        memory_mib=memory_mib,
        price_usd_h=price_usd_h,
        delay_s=BOOT_DELAY_S
        if given.boot_delay is None
        else duration_s(given.boot_delay, f"{path}.boot_delay", low_s=0.0),
        teardown_s=duration_s(given.teardown, f"{path}.teardown", low_s=0.0),
        minimum_billing_s=duration_s(given.minimum_billing, f"{path}.minimum_billing", low_s=0.0),
        available=given.max_instances,
        stock=Stock(f"{given.model} GPUs", quota, each=given.gpus, unit="GPUs")
        if given.gpus and quota is not None
        else msgspec.UNSET,
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
            "spot_price_usd_h": row.spot_usd_h,
        }
    elif given.gpus == 0:
        listed = {"model": "", "gpu_memory": ""}
    prices = {"on-demand": "price_usd_h", "spot": "spot_price_usd_h"}
    for key in (
        "model",
        "gpu_memory",
        "gpus",
        "cpus",
        "memory",
        *(prices[market] for market in given.market),
    ):
        if getattr(given, key) is None and key not in listed:
            raise Invalid(
                f"is missing, and the catalogue does not know {given.instance_type!r}",
                field=f"{path}.{key}",
                remedy=f"write it, or take one of {', '.join(CATALOGUE)}",
            )
    missing = {key: value for key, value in listed.items() if getattr(given, key) is None}
    return msgspec.structs.replace(given, **missing)
