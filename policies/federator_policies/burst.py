"""The kind `BurstPolicy`: who may rent capacity, when, where, and within which limits.

A policy decides what *may* burst; whether it pays is the optimizer's to find. Without any policy nothing is ever rented.
"""

import re
from collections.abc import Callable
from typing import Annotated, Literal

import msgspec

from federator.kernel.errors import Invalid, NotSupported
from federator.model.capacity import Market
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
    Window,
)
from federator.wire.fields import duration_s, money_usd, queue
from federator.wire.records import decode

RENTED = (Market.ON_DEMAND, Market.SPOT)
Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: tuple[Day, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
Money = float | str
_MINUTE = re.compile(r"([01][0-9]|2[0-4]):([0-5][0-9])")
_DAY_MINUTES = 24 * 60


class Who(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose jobs; what is not said admits all."""

    queues: tuple[str, ...] = ()
    """These queues and all below them."""
    owners: tuple[str, ...] = ()
    """The people behind the jobs."""
    labels: dict[str, str] = {}
    """All of them must match."""


class Hours(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"from_": "from"}):
    """Hours of the week, UTC. When `to` is not after `from`, the window runs into the next day."""

    days: tuple[Day, ...] = DAYS
    """The days on which it begins."""
    from_: str = "00:00"
    """When it begins, such as `18:30`."""
    to: str = "24:00"
    """When it ends."""


class When(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"for_": "for"}):
    """What justifies renting."""

    mode: Literal["economic", "threshold", "always", "off"] = "economic"
    """`economic`: what is gained is worth more than the rent; `threshold`: after a wait; `always`: at once. These two do not weigh
    the price, so give them limits. `off`: never, whatever other policies permit."""
    for_: tuple[Literal["deadline", "waiting"], ...] = ("deadline",)
    """What counts as gained in `economic` mode: a met deadline, and saved waiting too where it is said."""
    after_wait: str | None = None
    """How long a job must have waited, in `threshold` mode."""
    window: Hours | None = None
    """The policy holds only then."""


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
    """Hard caps on spent and committed USD: rent; egress has no price yet."""

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


class BurstKind:
    """Checks and compiles `BurstPolicy` documents; see `federator.ports.PolicyKind`."""

    kind = "BurstPolicy"

    def compile(self, name: str, spec: object) -> tuple[Rule, ...]:
        """Filters that open (or close) rented capacity, and a cap for every limit."""
        if isinstance(spec, dict) and "data_may_leave" in spec:
            raise NotSupported("not supported yet", field="$.spec.data_may_leave", remedy="leave it out")
        given = decode(spec, BurstSpec, "$.spec")
        policy = f"{self.kind}/{name}"
        for index, path in enumerate(given.who.queues):
            queue(path, f"$.spec.who.queues[{index}]")
        _check_mode(given)
        return (*_filters(policy, given), *_caps(policy, given))

    def schema(self) -> dict[str, object]:
        """JSON Schema of `spec`."""
        return msgspec.json.schema(BurstSpec)


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
            "a deadline always counts",
            field="$.spec.when.for",
            remedy="write [deadline] or [deadline, waiting]",
        )
    if mode == "off" and given.limits != Limits():
        raise Invalid("has no effect in mode off", field="$.spec.limits", remedy="leave it out")
    if mode == "off" and given.where.max_price_per_hour is not None:
        raise Invalid(
            "has no effect in mode off", field="$.spec.where.max_price_per_hour", remedy="leave it out"
        )


def _filters(policy: str, given: BurstSpec) -> list[Rule]:
    when, mode = given.when, BurstMode(given.when.mode)
    off = mode == BurstMode.OFF
    rule = Filter(
        policy=policy,
        effect=Effect.DENY if off else Effect.ALLOW,
        scope=_scope(given.who),
        pools=_pools(given.where),
        mode=mode,
        for_waiting="waiting" in when.for_,
        after_wait_s=_optional(duration_s, when.after_wait, "$.spec.when.after_wait"),
        max_price_usd_h=_optional(
            money_usd, given.where.max_price_per_hour, "$.spec.where.max_price_per_hour"
        ),
        reason="renting is switched off" if off else "",
    )
    if when.window is None:
        return [rule]
    return [msgspec.structs.replace(rule, window=window) for window in _windows(when.window)]


def _caps(policy: str, given: BurstSpec) -> list[Rule]:
    limits = given.limits
    wanted = (
        (CapUnit.USD_PER_H, Period.NOW, limits.usd_per_hour, "usd_per_hour"),
        (CapUnit.USD, Period.DAY, limits.usd.per_day, "usd.per_day"),
        (CapUnit.USD, Period.WEEK, limits.usd.per_week, "usd.per_week"),
        (CapUnit.USD, Period.MONTH, limits.usd.per_month, "usd.per_month"),
        (CapUnit.USD, Period.TOTAL, limits.usd.total, "usd.total"),
        (CapUnit.INSTANCES, Period.NOW, limits.instances, "instances"),
    )
    return [
        CapRow(
            policy=policy,
            unit=unit,
            limit=money_usd(most, f"$.spec.limits.{field}"),
            scope=_scope(given.who),
            pools=_pools(given.where),
            period=period,
        )
        for unit, period, most, field in wanted
        if most is not None
    ]


def _scope(who: Who) -> Scope:
    return Scope(queues=who.queues, owners=who.owners, labels=who.labels)


def _pools(where: Where) -> PoolSelector:
    """Rented capacity only: owned GPUs are nothing that this kind opens, closes or counts."""
    return PoolSelector(
        providers=where.providers,
        regions=where.regions,
        markets=tuple(Market(market) for market in where.markets) or RENTED,
        models=tuple(model.upper() for model in where.models),
    )


def _windows(hours: Hours) -> list[Window]:
    """As windows that end on the day on which they begin: at most two."""
    path = "$.spec.when.window"
    begin, end = _minute(hours.from_, f"{path}.from"), _minute(hours.to, f"{path}.to")
    days = tuple(sorted({DAYS.index(day) for day in hours.days}))
    if not days:
        raise Invalid("is empty", field=f"{path}.days", remedy=f"write some of {', '.join(DAYS)}")
    if begin == _DAY_MINUTES:
        raise Invalid("no day begins at 24:00", field=f"{path}.from", remedy="write 00:00 of the next day")
    if begin < end:
        return [Window(days, begin, end)]
    next_days = tuple(sorted((day + 1) % 7 for day in days))
    late = Window(days, begin, _DAY_MINUTES)
    return [late, Window(next_days, 0, end)] if end else [late]


def _minute(text: str, path: str) -> int:
    match = _MINUTE.fullmatch(text)
    minute = int(match[1]) * 60 + int(match[2]) if match else _DAY_MINUTES + 1
    if minute > _DAY_MINUTES:
        raise Invalid(
            f"{text!r} is not a time of day", field=path, remedy="write for example '18:30', in UTC"
        )
    return minute


def _optional(read: Callable[[object, str], float], value: object, path: str) -> float | None:
    return None if value is None else read(value, path)
