"""The kind `BurstPolicy`: who may rent capacity, when, where, and within which limits.

A policy decides what *may* burst; whether it pays is the optimizer's to find. Without any policy nothing is ever rented.
"""

from typing import Annotated, Literal

import msgspec

from federator.kernel.errors import Invalid
from federator.model.capacity import Market
from federator.model.datasets import DataSelector
from federator.model.rules import (
    BurstMode,
    CapRow,
    CapUnit,
    Effect,
    Filter,
    Period,
    PoolSelector,
    Rule,
    Scope,
)
from federator.wire.decoding import decode
from federator.wire.fields import Duration, Money
from federator_policies.hours import Hours, windows_of
from federator_policies.residency import Data, selector_of
from federator_policies.whose import Who, scope_of

RENTED = (Market.ON_DEMAND, Market.SPOT)


class When(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"for_": "for"}):
    """What justifies renting."""

    mode: Literal["economic", "threshold", "always", "off"] = "economic"
    """`economic`: what is gained is worth more than the rent; `threshold`: after a wait; `always`: at once. These two do not weigh
    the price, so give them limits. `off`: never, whatever other policies permit."""
    for_: tuple[Literal["deadline", "waiting"], ...] = ("deadline",)
    """What counts as gained in `economic` mode: a met deadline, and saved waiting too where it is said."""
    after_wait: Duration | None = None
    """How long a job must have waited, in `threshold` mode."""
    window: Hours | None = None
    """The policy holds only then."""
    advisory: bool = False
    """Rent nothing: only report what would have been rented, and why (`federator burst`, and the ledger)."""
    approval_above: Money | None = None
    """A rental that may cost more USD than this in the worst case waits for `federator burst approve`."""


class Where(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which capacity; what is not said admits all."""

    providers: tuple[str, ...] = ()
    """Providers by their names in the dispatcher's settings."""
    regions: tuple[str, ...] = ()
    """Regions of those providers."""
    markets: tuple[Literal["on-demand", "spot"], ...] = ()
    """On-demand costs more; spot can be taken back."""
    models: tuple[str, ...] = ()
    """GPU models."""
    max_price_per_hour: Money | None = None
    """USD per hour of the dearest instance that may be rented."""


class UsdLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Hard caps on spent and committed USD: rent, and the data that is moved there."""

    per_day: Money | None = None
    """Each day, UTC."""
    per_week: Money | None = None
    """Each week from Monday, UTC."""
    per_month: Money | None = None
    """Each calendar month, UTC."""
    total: Money | None = None
    """For as long as the policy is in force."""


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What all that the policy permits together never exceeds."""

    usd_per_hour: Money | None = None
    """Sum of the hourly prices of what is rented at once."""
    usd: UsdLimits = UsdLimits()
    instances: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] | None = None
    """Instances rented at once."""


class BurstSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`spec` of a `BurstPolicy`."""

    who: Who = Who()
    when: When = When()
    where: Where = Where()
    limits: Limits = Limits()
    data_may_leave: bool | Data = True
    """Which inputs a job may have to be rented for: any; none (`false`); or only such data."""


class BurstKind:
    """Checks and compiles `BurstPolicy` documents; see `federator.ports.PolicyKind`."""

    kind = "BurstPolicy"
    spec = BurstSpec

    def compile(self, name: str, spec: object) -> tuple[Rule, ...]:
        """Filters that open (or close) rented capacity, and a cap for every limit."""
        given = decode(spec, BurstSpec, "$.spec")
        policy = f"{self.kind}/{name}"
        scope = scope_of(given.who)
        _check_mode(given)
        return (*_filters(policy, given, scope), *_caps(policy, given, scope))


kind = BurstKind()


def _check_mode(given: BurstSpec) -> None:
    """Refuse what would have no effect in the mode that is chosen."""
    mode = given.when.mode
    if mode != "threshold" and given.when.after_wait is not None:
        raise Invalid(
            f"has no effect in mode {mode}",
            field="$.spec.when.after_wait",
            remedy="write mode: threshold, or leave it out",
        )
    if mode == "threshold" and given.when.after_wait is None:
        raise Invalid(
            "is missing in mode threshold", field="$.spec.when.after_wait", remedy="write for example 30m"
        )
    if mode != "economic" and given.when.for_ != ("deadline",):
        raise Invalid(
            f"has no effect in mode {mode}",
            field="$.spec.when.for",
            remedy="write mode: economic, or leave it out",
        )
    if "deadline" not in given.when.for_:
        raise Invalid(
            "must contain deadline",
            field="$.spec.when.for",
            remedy="write [deadline] or [deadline, waiting]",
        )
    if given.when.advisory and given.when.approval_above is not None:
        raise Invalid(
            "an advisory policy rents nothing that could be approved",
            field="$.spec.when.approval_above",
            remedy="leave one of the two out",
        )
    if mode == "off":
        _check_off(given)


def _check_off(given: BurstSpec) -> None:
    """Refuse what only says how to rent."""
    without_effect = (
        ("when.advisory", given.when.advisory),
        ("when.approval_above", given.when.approval_above is not None),
        ("limits", given.limits != Limits()),
        ("where.max_price_per_hour", given.where.max_price_per_hour is not None),
        ("data_may_leave", given.data_may_leave is not True),
    )
    for field, said in without_effect:
        if said:
            raise Invalid("has no effect in mode off", field=f"$.spec.{field}", remedy="leave it out")


def _filters(policy: str, given: BurstSpec, scope: Scope) -> list[Rule]:
    when, mode = given.when, BurstMode(given.when.mode)
    off = mode == BurstMode.OFF
    rule = Filter(
        policy=policy,
        effect=Effect.DENY if off else Effect.ALLOW,
        scope=scope,
        pools=_pools(given.where),
        mode=mode,
        for_waiting="waiting" in when.for_,
        after_wait_s=when.after_wait,
        max_price_usd_h=given.where.max_price_per_hour,
        reason="renting is switched off" if off else "",
        advisory=when.advisory,
        approval_above_usd=when.approval_above,
        data=_data(given),
    )
    if when.window is None:
        return [rule]
    return [
        msgspec.structs.replace(rule, window=window)
        for window in windows_of(when.window, "$.spec.when.window")
    ]


def _caps(policy: str, given: BurstSpec, scope: Scope) -> list[Rule]:
    limits = given.limits
    wanted = (
        (CapUnit.USD_PER_H, Period.NOW, limits.usd_per_hour),
        (CapUnit.USD, Period.DAY, limits.usd.per_day),
        (CapUnit.USD, Period.WEEK, limits.usd.per_week),
        (CapUnit.USD, Period.MONTH, limits.usd.per_month),
        (CapUnit.USD, Period.TOTAL, limits.usd.total),
        (CapUnit.INSTANCES, Period.NOW, limits.instances),
    )
    return [
        CapRow(
            policy=policy,
            unit=unit,
            limit=most,
            scope=scope,
            pools=_pools(given.where),
            period=period,
            hard=not given.when.advisory,
        )
        for unit, period, most in wanted
        if most is not None
    ]


def _data(given: BurstSpec) -> DataSelector | None:
    leaves = given.data_may_leave
    if isinstance(leaves, bool):
        return None if leaves else DataSelector(none=True)
    return selector_of(leaves, "$.spec.data_may_leave")


def _pools(where: Where) -> PoolSelector:
    """Rented capacity only: owned GPUs are nothing that this kind opens, closes or counts."""
    return PoolSelector(
        providers=where.providers,
        regions=where.regions,
        markets=tuple(Market(market) for market in where.markets) or RENTED,
        models=tuple(model.upper() for model in where.models),
    )
