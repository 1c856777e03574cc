"""What settings of providers have in common: a list of types of machines, each offered in one or two markets, every name once."""

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import Meta, field

from federator.kernel.errors import Invalid
from federator.model.capacity import Market, Offer
from federator.wire import fields
from federator.wire.fields import duration

MAX_GPU_MEMORY_MIB = 2**20
MAX_MEMORY_MIB = 2**26

Usd = Annotated[float, Meta(ge=0, le=1_000_000_000)]
Many = Annotated[int, Meta(ge=0, le=10_000_000)]
Markets = Annotated[tuple[Literal["on-demand", "spot"], ...], Meta(min_length=1)]
Span = Annotated[float, duration("3m", low_s=0.0)]
"""Seconds, written with a unit; none at all is one, too."""


class Given(Protocol):
    """One entry of `offers:` in a provider's settings."""

    @property
    def instance_type(self) -> str:
        """The type of machine."""


class Described(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Machines that are alike and stand in no catalogue."""

    instance_type: fields.Name
    """What they are called together, such as `lab-a100`."""
    model: str = ""
    """GPU model as users write it. Left out: they have no GPUs."""
    gpu_memory_mib: Annotated[int, fields.size("80GiB", high_mib=MAX_GPU_MEMORY_MIB)] = field(
        name="gpu_memory", default=0
    )
    """Memory of one GPU."""
    gpus: Many = 0
    """GPUs of one machine."""
    cpus: Annotated[float, Meta(gt=0, le=100_000)]
    """CPU cores of one machine."""
    memory_mib: Annotated[int, fields.size("512GiB", high_mib=MAX_MEMORY_MIB)] = field(name="memory")
    """Memory of one machine."""
    price_usd_h: Usd
    """What an hour of one machine costs, in USD; 0 where it is paid for already."""
    minimum_billing_s: Span = field(name="minimum_billing", default=60.0)
    """What is billed at least. Left out: `60s`."""


class MachineType(NamedTuple):
    """One row of a cloud's catalogue. Memory in GiB; `gpu_memory_gib` of one GPU. Prices in USD per hour."""

    name: str
    model: str
    gpu_memory_gib: int
    gpus: int
    vcpus: int
    memory_gib: float
    on_demand_usd_h: float | None = None
    spot_usd_h: float | None = None
    quota: str = ""
    """What counts such GPUs of a region, where the cloud has quotas by GPU model."""


class Catalogue:
    """Types of machines, and what they cost in one region."""

    def __init__(self, rows: Iterable[MachineType], *, region: str, source: str, lacks: str) -> None:
        """`source`: where its prices are from; `lacks`: which it does not have, in words."""
        self.rows = {row.name: row for row in rows}
        self.region = region
        self.source = source
        self._lacks = lacks

    def row(self, instance_type: str, path: str, more: str = "") -> MachineType:
        """The type of that name. Raises `Invalid`; `more`: what else would do."""
        if instance_type not in self.rows:
            raise Invalid(
                f"the catalogue does not know {instance_type!r}",
                field=f"{path}.instance_type",
                remedy=f"take one of {', '.join(self.rows)}{more}",
            )
        return self.rows[instance_type]

    def offer(
        self, row: MachineType, market: Market, usd_h: float | None, path: str, *, region: str, **terms: Any
    ) -> Offer:
        """The offer of a type in one market, at that price or else the catalogue's; `terms`: its other fields. Raises `Invalid` where neither is known."""
        spot, source = market is Market.SPOT, ""
        if usd_h is None:
            usd_h, source = (row.spot_usd_h if spot else row.on_demand_usd_h), self.source
            if usd_h is None or region != self.region:
                known = f"no {self._lacks}" if usd_h is None else f"prices of {self.region} only"
                raise Invalid(
                    f"is missing: the catalogue has {known}",
                    field=f"{path}.{'spot_price_usd_h' if spot else 'price_usd_h'}",
                    remedy="write the price in USD per hour",
                )
        return Offer(
            name=f"{region}/{row.name}/{market}",
            region=region,
            instance_type=row.name,
            market=market,
            model=row.model,
            gpu_memory_mib=row.gpu_memory_gib * 1024,
            gpus=row.gpus,
            cpus_milli=row.vcpus * 1000,
            memory_mib=int(row.memory_gib * 1024),
            price_usd_h=usd_h,
            price_source=source,
            **terms,
        )


T = TypeVar("T", bound=Given)


def offers_by_name(
    entries: Iterable[T], make: Callable[[T, str], list[Offer]], path: str
) -> dict[str, Offer]:
    """All offers that `make` makes of the entries, given the path of each. Raises `Invalid` for a name that comes twice."""
    offers: dict[str, Offer] = {}
    for index, entry in enumerate(entries):
        for offer in make(entry, f"{path}[{index}]"):
            if offer.name in offers:
                raise Invalid(
                    f"{entry.instance_type!r} is listed twice",
                    field=f"{path}[{index}].instance_type",
                    remedy="keep one of them",
                )
            offers[offer.name] = offer
    return offers


def described(given: Described, path: str, *, region: str, market: Market, **terms: Any) -> Offer:
    """The offer of machines that are so described; `terms`: its other fields. Raises `Invalid` for GPUs by half."""
    if bool(given.model) != bool(given.gpus):
        missing = "gpus" if given.model else "model"
        raise Invalid("is missing", field=f"{path}.{missing}", remedy="write model and gpus, or neither")
    return Offer(
        name=f"{region}/{given.instance_type}/{market}",
        region=region,
        instance_type=given.instance_type,
        market=market,
        model=given.model,
        gpu_memory_mib=given.gpu_memory_mib,
        gpus=given.gpus,
        cpus_milli=int(given.cpus * 1000),
        memory_mib=given.memory_mib,
        price_usd_h=given.price_usd_h,
        minimum_billing_s=given.minimum_billing_s,
        **terms,
    )
