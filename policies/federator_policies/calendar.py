"""The kind `Calendar`: hours and days in which places take work, and in which they cost more or less."""

from typing import Annotated, Literal

import msgspec

from federator.kernel.errors import Invalid
from federator.model.rules import Opening, PoolSelector, PriceKind, PriceTerm, Rule, Window
from federator.wire.decoding import decode
from federator_policies.hours import Hours, windows_of
from federator_policies.places import Places, pools_of
from federator_policies.whose import Who, scope_of


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A price that holds in certain hours. It steers where work goes; nobody is billed for it."""

    add_usd_per_gpu_hour: Annotated[float, msgspec.Meta(ge=0, le=1_000_000)]
    """Added to what a GPU-hour there costs otherwise."""
    hours: Hours = Hours()
    """When."""
    who: Who = Who()
    """For whose jobs."""


class CalendarSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`spec` of a `Calendar`."""

    where: Places
    """What it is about."""
    open: tuple[Hours, ...] = ()
    """It takes work only then; left out: always."""
    closed: tuple[Hours, ...] = ()
    """It takes no work then, whatever `open` says."""
    at_close: Literal["finish", "stop"] = "finish"
    """What becomes of work that still runs when it closes. `finish`: it goes on to its end. `stop`: it is told in time to save itself, and goes on
    elsewhere or later; a job without `checkpoint` is started only where it is expected to be done by then."""
    prices: tuple[Price, ...] = ()
    """Prices by the hour."""


class CalendarKind:
    """Checks and compiles `Calendar` documents; see `federator.ports.PolicyKind`."""

    kind = "Calendar"
    spec = CalendarSpec

    def compile(self, name: str, spec: object) -> tuple[Rule, ...]:
        """An opening, if it opens or closes anything, and a term for every price."""
        given = decode(spec, CalendarSpec, "$.spec")
        policy, pools = f"{self.kind}/{name}", pools_of(given.where)
        if not (given.open or given.closed or given.prices):
            raise Invalid("has no effect", field="$.spec", remedy="write open, closed or prices")
        if given.at_close == "stop" and not (given.open or given.closed):
            raise Invalid(
                "has no effect without open or closed",
                field="$.spec.at_close",
                remedy="write open or closed, or leave it out",
            )
        return (*_opening(policy, pools, given), *_prices(policy, pools, given))


kind = CalendarKind()


def _opening(policy: str, pools: PoolSelector, given: CalendarSpec) -> list[Rule]:
    if not (given.open or given.closed):
        return []
    return [
        Opening(
            policy=policy,
            pools=pools,
            windows=_all_windows(given.open, "$.spec.open"),
            closed=_all_windows(given.closed, "$.spec.closed"),
            stops=given.at_close == "stop",
        )
    ]


def _prices(policy: str, pools: PoolSelector, given: CalendarSpec) -> list[Rule]:
    return [
        PriceTerm(
            policy=policy,
            kind=PriceKind.POOL,
            usd=price.add_usd_per_gpu_hour,
            scope=scope_of(price.who),
            pools=pools,
            window=window,
        )
        for index, price in enumerate(given.prices)
        for window in windows_of(price.hours, f"$.spec.prices[{index}].hours")
    ]


def _all_windows(hours: tuple[Hours, ...], path: str) -> tuple[Window, ...]:
    return tuple(
        window for index, each in enumerate(hours) for window in windows_of(each, f"{path}[{index}]")
    )
