"""What settings of providers have in common: a list of types of machines, each offered in one or two markets, every name once."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from federator.kernel.errors import Invalid
from federator.model.capacity import Offer


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


def check_offer(entry: Given, not_below_zero: Iterable[str], path: str) -> None:
    """Raise `Invalid` for an entry without a market, or with a figure below zero."""
    if not entry.market:
        raise Invalid("is empty", field=f"{path}.market", remedy="write [on-demand], [spot] or both")
    for key in not_below_zero:
        if (getattr(entry, key) or 0) < 0:
            raise Invalid("is below zero", field=f"{path}.{key}")
