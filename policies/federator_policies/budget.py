"""The kind `Budget`: what rent and moving data may cost in a day, a week, a month or in all; who is told on the way there; and that it stops in time.

A cap counts what is spent and what is committed in the worst case. Nothing is rented that could exceed it, and what runs is told to save
itself before it would: a limit that was lowered, or a price that rose, breaks no budget.
"""

from typing import Literal

import msgspec

from federator.kernel.errors import Invalid
from federator.model.rules import CapRow, CapUnit, Each, Period, Rule, Scope
from federator.wire.decoding import decode
from federator.wire.fields import Money
from federator_policies.whose import Who, scope_of

PERIODS = (
    ("per_day", Period.DAY),
    ("per_week", Period.WEEK),
    ("per_month", Period.MONTH),
    ("total", Period.TOTAL),
)


class Usd(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """USD spent and committed in the worst case, for rent and for data that is moved; at least one of these."""

    per_day: Money | None = None
    """Each day, UTC."""
    per_week: Money | None = None
    """Each week from Monday, UTC."""
    per_month: Money | None = None
    """Each calendar month, UTC."""
    total: Money | None = None
    """In all. With `each: job`, what one job may cost."""


class BudgetSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`spec` of a `Budget`."""

    usd: Usd
    """How much."""
    who: Who = Who()
    """Whose jobs; nobody named: the whole organisation's."""
    each: Literal["together", "queue", "owner", "job"] = "together"
    """`together`: all of `who` share it; `queue`, `owner`, `job`: each of those has it to itself. A job's own `max_cost` holds as well."""
    alerts: tuple[int | str, ...] = ("50%", "80%", "100%")
    """At which parts of it people are told: as events, metrics, and by the webhook of the settings."""
    hard_stop: bool = True
    """Whether it stops anything. With `false` it only counts and warns."""


class BudgetKind:
    """Checks and compiles `Budget` documents; see `federator.ports.PolicyKind`."""

    kind = "Budget"
    spec = BudgetSpec

    def compile(self, name: str, spec: object) -> tuple[Rule, ...]:
        """A cap per period, and where it is per queue, per queue."""
        given = decode(spec, BudgetSpec, "$.spec")
        scope = scope_of(given.who)
        limits = _limits(given)
        alerts = _alerts(given)
        return tuple(
            CapRow(
                policy=f"{self.kind}/{name}",
                unit=CapUnit.USD,
                limit=limit,
                scope=part,
                period=period,
                each=Each(given.each) if given.each in ("owner", "job") else Each.TOGETHER,
                share=part.queues[0] if given.each == "queue" else "",
                hard=given.hard_stop,
                alerts=alerts,
            )
            for part in _parts(given, scope)
            for period, limit in limits
        )


kind = BudgetKind()


def _limits(given: BudgetSpec) -> list[tuple[Period, float]]:
    said = [(name, period, getattr(given.usd, name)) for name, period in PERIODS]
    limits = [(period, usd) for _, period, usd in said if usd is not None]
    if not limits:
        raise Invalid("is empty", field="$.spec.usd", remedy="write for example {per_month: 500}")
    for name, _, usd in said[:-1]:
        if given.each == "job" and usd is not None:
            raise Invalid(
                "a job has one budget for all its life",
                field=f"$.spec.usd.{name}",
                remedy="write total, or each: owner",
            )
    if given.each == "job" and not given.hard_stop:
        raise Invalid(
            "has no effect with each: job",
            field="$.spec.hard_stop",
            remedy="leave it out, or write each: owner",
        )
    return limits


def _alerts(given: BudgetSpec) -> tuple[float, ...]:
    found = set()
    for index, level in enumerate(given.alerts):
        digits = str(level).removesuffix("%").strip()
        if not digits.isdecimal() or not 0 < int(digits) <= 100:
            raise Invalid(
                f"{level!r} is not a part of the whole",
                field=f"$.spec.alerts[{index}]",
                remedy="write for example 80%",
            )
        found.add(int(digits) / 100)
    return tuple(sorted(found))


def _parts(given: BudgetSpec, scope: Scope) -> list[Scope]:
    """One scope per cap of a period."""
    if given.each != "queue":
        return [scope]
    if not scope.queues:
        raise Invalid(
            "is missing with each: queue",
            field="$.spec.who.queues",
            remedy="name the queues that each have it",
        )
    return [msgspec.structs.replace(scope, queues=(path,)) for path in scope.queues]
