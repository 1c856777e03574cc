"""The kind `Queue`: a node of the quota tree, with what it is owed, what it may take, and what its work is worth."""

from typing import Annotated

import msgspec

from federator.kernel.errors import Invalid, NotSupported
from federator.model.rules import CapRow, CapUnit, GuaranteeRow, PriceKind, PriceTerm, QueueTerms, Rule, Scope
from federator.wire.fields import duration_s, money_usd, queue
from federator.wire.records import decode

LENDING_LIMITS = ("lending_limit", "lendingLimit", "lending")
Count = Annotated[int, msgspec.Meta(ge=0, le=10_000_000)]
Usd = Annotated[float, msgspec.Meta(ge=0, le=1_000_000)]


class Guaranteed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the queue gets whenever it wants it."""

    gpus: Count
    """GPUs, owned and rented."""


class Limit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the queue, with all below it, never exceeds."""

    gpus: Count | None = None
    """GPUs in use at once, owned and rented."""
    jobs: Count | None = None
    """Jobs placed at once."""


class QueueSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`spec` of a `Queue`. What a queue does not say of budgets and caps for its jobs, it takes from the queue above it."""

    path: str | None = None
    """Place in the tree, such as `research/vision`; the document's name when it is not said."""
    guaranteed: Guaranteed | None = None
    """Given back within `reclaim_within` when others use it."""
    limit: Limit | None = None
    """Nothing when it is not said: the limits of the queues above hold."""
    weight: Annotated[float, msgspec.Meta(gt=0, le=1_000_000)] | None = None
    """Share of what nobody is guaranteed, against the queue's neighbours; 1 when it is not said."""
    borrowing: Count | None = None
    """GPUs above the guarantee that it may use while their owners do not; without limit when it is not said."""
    reclaim_within: str | None = None
    """Within what time a guarantee is back, such as `5m`; at least the grace of those who must leave."""
    max_priority: Annotated[int, msgspec.Meta(ge=0, le=100)] = 100
    """Highest priority that a job may claim here."""
    max_value: float | str | None = None
    """Highest `value` that a job may claim here, in USD."""
    interactive: bool = False
    """Whether its work takes the fast path. Not passed on to the queues below."""
    deadline_budget: str | None = None
    """A job without a deadline should be finished this long after it was submitted."""
    max_duration: str | None = None
    """A job that does not say is ended after this."""
    met_deadline_usd_per_gpu_hour: Usd | None = None
    """What a met deadline is worth, per GPU-hour of the job."""
    waiting_usd_per_gpu_hour: Usd | None = None
    """What waiting costs, per GPU asked for and hour waited."""
    allow_must: bool = False
    """Whether jobs may say `value: must`. Not passed on to the queues below."""


class QueueKind:
    """Checks and compiles `Queue` documents; see `federator.ports.PolicyKind`."""

    kind = "Queue"

    def compile(self, name: str, spec: object) -> tuple[Rule, ...]:
        """The queue's terms, its guarantee, its caps and its two prices."""
        _refuse_lending_limits(spec)
        given = decode(spec, QueueSpec, "$.spec")
        path = queue(name if given.path is None else given.path, "$.spec.path")
        policy = f"{self.kind}/{name}"
        return (
            _terms(policy, path, given),
            *_guarantee(policy, path, given),
            *_caps(policy, path, given),
            *_prices(policy, path, given),
        )

    def schema(self) -> dict[str, object]:
        """JSON Schema of `spec`."""
        return msgspec.json.schema(QueueSpec)


kind = QueueKind()


def _refuse_lending_limits(spec: object) -> None:
    """Named for those who know them from elsewhere: nothing acts on them."""
    for name in LENDING_LIMITS:
        if isinstance(spec, dict) and name in spec:
            raise NotSupported(
                "lending limits are not supported yet",
                field=f"$.spec.{name}",
                remedy="leave it out: all that is guaranteed is lent while its queue does not use it, and is back within reclaim_within",
            )


def _terms(policy: str, path: str, given: QueueSpec) -> QueueTerms:
    return QueueTerms(
        policy=policy,
        queue=path,
        interactive=given.interactive,
        deadline_budget_s=_optional_s(given.deadline_budget, "deadline_budget"),
        max_duration_s=_optional_s(given.max_duration, "max_duration"),
        max_priority=given.max_priority,
        max_value_usd=None if given.max_value is None else money_usd(given.max_value, "$.spec.max_value"),
        allow_must=given.allow_must,
    )


def _guarantee(policy: str, path: str, given: QueueSpec) -> list[Rule]:
    """One row, if anything of it is said; a queue with a weight or a borrowing limit alone is guaranteed nothing."""
    gpus = given.guaranteed.gpus if given.guaranteed else 0
    reclaim_s = _optional_s(given.reclaim_within, "reclaim_within")
    if reclaim_s is not None and not gpus:
        raise Invalid(
            "there is nothing to reclaim",
            field="$.spec.reclaim_within",
            remedy="write guaranteed: {gpus: N} beside it, or leave it out",
        )
    if given.limit is not None and given.limit.gpus is not None and given.limit.gpus < gpus:
        raise Invalid(
            f"the limit of {given.limit.gpus} GPUs is below the {gpus} that are guaranteed",
            field="$.spec.limit.gpus",
            remedy=f"write at least {gpus}, or guarantee less",
        )
    if given.guaranteed is None and given.weight is None and given.borrowing is None:
        return []
    row = GuaranteeRow(policy=policy, queue=path, gpus=gpus, borrowing_limit=given.borrowing)
    if given.weight is not None:
        row = msgspec.structs.replace(row, weight=given.weight)
    if reclaim_s is not None:
        row = msgspec.structs.replace(row, reclaim_s=reclaim_s)
    return [row]


def _caps(policy: str, path: str, given: QueueSpec) -> list[Rule]:
    limit = given.limit or Limit()
    caps = ((CapUnit.GPUS, limit.gpus), (CapUnit.JOBS, limit.jobs))
    return [
        CapRow(policy=policy, unit=unit, limit=float(most), scope=Scope(queues=(path,)))
        for unit, most in caps
        if most is not None
    ]


def _prices(policy: str, path: str, given: QueueSpec) -> list[Rule]:
    prices = (
        (PriceKind.MISS, given.met_deadline_usd_per_gpu_hour),
        (PriceKind.WAIT, given.waiting_usd_per_gpu_hour),
    )
    return [
        PriceTerm(policy=policy, kind=what, usd=usd, scope=Scope(queues=(path,)))
        for what, usd in prices
        if usd is not None
    ]


def _optional_s(value: str | None, field: str) -> float | None:
    return None if value is None else duration_s(value, f"$.spec.{field}")
