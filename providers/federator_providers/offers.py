"""What settings of providers have in common: a list of types of machines, each offered in one or two markets, every name once."""

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, Protocol, TypeVar

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
