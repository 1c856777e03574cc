"""What settings of providers have in common: a list of types of machines, each offered in one or two markets, every name once."""

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Literal, Protocol, TypeVar

from msgspec import Meta

from federator.kernel.errors import Invalid
from federator.model.capacity import Offer
from federator.wire.fields import duration

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

    @property
    def market(self) -> Sequence[str]:
        """Where it may be had."""


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
