"""The kind `Queue`: a node of the quota tree, with what it is owed, what it may take, and what its work is worth."""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from federator.kernel.errors import Invalid
from federator.model.rights import AccessRule, Grant, Members
from federator.model.rules import (
    CapRow,
    CapUnit,
    Each,
    GuaranteeRow,
    IdleVerb,
    PolicyRule,
    PoolSelector,
    PriceKind,
    PriceTerm,
    QueueTerms,
    Rule,
    Scope,
)
from federator.wire.decoding import decode
from federator.wire.fields import Duration, Money, Patience, QueuePath, queue, size
from federator_policies.whose import read_groups, read_users

Count = Annotated[int, msgspec.Meta(ge=0, le=10_000_000)]
MAX_MEMORY_MIB = 2**40
Usd = Annotated[float, msgspec.Meta(ge=0, le=1_000_000)]


class Guaranteed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the queue gets whenever it wants it."""

    gpus: Count | None = None
    """Owned GPUs, of whatever model."""
    models: dict[str, Count] = {}
    """Owned GPUs of a model, such as `{H100: 8}`; these are not beside `gpus`, but of them."""
    cpus: Annotated[float, msgspec.Meta(ge=0, le=10_000_000)] | None = None
    """Owned cores; when it is not said, as large a part of them as `gpus` are of all owned GPUs."""
    memory: Annotated[int, size("2TiB", high_mib=MAX_MEMORY_MIB)] | None = None
    """Owned memory, such as `2TiB`; when it is not said, as large a part of it."""


class Limit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the queue, with all below it, never exceeds."""

    gpus: Count | None = None
    """GPUs in use at once, owned and rented."""
    jobs: Count | None = None
    """Jobs placed at once."""
    models: dict[str, Count] = {}
    """GPUs of a model in use at once, owned and rented, such as `{H100: 8}`."""


class PerUser(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What each of its users, in it and all below it, never exceeds."""

    gpus: Count | None = None
    """GPUs in use at once, owned and rented."""
    jobs: Count | None = None
    """Jobs placed at once."""


class Allowed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Some people who may submit to the queue, and within which limits. Where several entries name somebody, the first whose limits admit the job counts."""

    teams: tuple[str, ...] = ()
    """Everybody in these teams (`Team` documents)."""
    users: tuple[str, ...] = ()
    """People and service accounts, by name; `*`: everybody who is signed in."""
    groups: tuple[str, ...] = ()
    """Groups of the sign-in provider."""
    max_priority: Annotated[int, msgspec.Meta(ge=0, le=100)] = 100
    """Highest priority that their jobs may claim; the queue's own limit holds as well."""
    max_value: Money | None = None
    """Highest `value` that their jobs may claim, in USD; the queue's own limit holds as well."""
    must: bool = True
    """Whether their jobs may say `value: must`, where `allow_must` of the queue lets anybody."""
    rent: bool = True
    """Whether capacity may be rented for their jobs, where a `BurstPolicy` permits it."""


class Admins(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who administers the queue and all below it."""

    teams: tuple[str, ...] = ()
    """Everybody in these teams."""
    users: tuple[str, ...] = ()
    """People and service accounts, by name."""
    groups: tuple[str, ...] = ()
    """Groups of the sign-in provider."""


class Idle(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For how long a job may do nothing, and what becomes of it then."""

    after: Duration
    """Once its GPUs have done nothing for this long, such as `2h`."""
    then: IdleVerb = "cancel"
    """What `federator cancel`, `requeue` and `hold` do; `shrink`: it goes on in its smallest form, and one that has no smaller one is left as it is. It is told to stop,
    and has its `checkpoint.grace` to save itself before."""


class QueueSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`spec` of a `Queue`. What a queue does not say of budgets and caps for its jobs, it takes from the queue above it."""

    path: QueuePath | None = None
    """Place in the tree, such as `research/vision`; the document's name when it is not said."""
    guaranteed: Guaranteed | None = None
    """Given back within `reclaim_within` when others use it."""
    limit: Limit | None = None
    """Nothing when it is not said: the limits of the queues above hold."""
    per_user: PerUser | None = None
    """Nothing when it is not said."""
    weight: Annotated[float, msgspec.Meta(gt=0, le=1_000_000)] | None = None
    """Share of what nobody is guaranteed, against the queue's neighbours; 1 when it is not said."""
    borrowing: Count | None = None
    """GPUs above the guarantee that it may use while their owners do not; without limit when it is not said."""
    lending: Count | None = None
    """So many of the guaranteed GPUs others may use while it does not; the rest is kept free for it. All are lent when it is not said."""
    usage_half_life: Duration | None = None
    """In its turn by weight, GPU time that it has had counts half after so long, such as `7d`. Without it, here and above, only what is in use now counts."""
    usage_weights: dict[str, Annotated[float, msgspec.Meta(ge=0, le=1000)]] = {}
    """An hour on a GPU of such a model counts so many times there, such as `{H100: 2, T4: 0.2}`; once on others. By the model that the work really ran on."""
    reclaim_within: Duration | None = None
    """Within what time a guarantee is back, such as `5m`, counted from when a job of the queue began to wait; at least the grace of those who must leave."""
    max_priority: Annotated[int, msgspec.Meta(ge=0, le=100)] = 100
    """Highest priority that a job may claim here."""
    max_value: Money | None = None
    """Highest `value` that a job may claim here, in USD."""
    interactive: bool = False
    """Whether its work takes the fast path. Not passed on to the queues below."""
    deadline_budget: Duration | None = None
    """A job without a deadline should be finished this long after it was submitted."""
    max_wait: Duration | None = None
    """How long its jobs may wait at most before they start, such as `10m`. Plans treat that as a deadline, worth what a met deadline is worth in the queue; each further such time is another."""
    max_duration: Duration | None = None
    """A job that does not say is ended after this."""
    max_idle: Duration | Idle | None = None
    """A job is cancelled once its GPUs have done nothing for this long, such as `2h`, where its site measures them; `{after: 2h, then: requeue}` has it wait again, `then: hold` until somebody releases it. Left out, here and above: it is only told of."""
    patience: Patience | None = None
    """For how long after it was submitted a job that does not say may wait for a cheaper or better place while GPUs that fit it are free, such as `30m`. As in the queue above when it is not said; where nobody says it, not at all."""
    met_deadline_usd_per_gpu_hour: Usd | None = None
    """What a met deadline is worth, per GPU-hour of the job."""
    waiting_usd_per_gpu_hour: Usd | None = None
    """What waiting costs, per GPU asked for and hour waited."""
    waiting_usd_per_hour: Usd | None = None
    """What an hour of a job's waiting costs besides, however many GPUs it asks for: what the time of somebody who sits before it is worth, who is one person whatever is to start."""
    allow_must: bool = False
    """Whether jobs may say `value: must`. Not passed on to the queues below."""
    allow: tuple[Allowed, ...] | None = None
    """Who may submit; `[]` is nobody. When it is not said, as the queue above it says. Where nobody says anything: everybody in a set that has neither an `allow` nor a `Team`, and in any other only the roles platform and admin."""
    admins: Admins | None = None
    """Who may submit here and move, hold, release, requeue, cancel and re-prioritise all jobs, in it and all below it."""


class QueueKind:
    """Checks and compiles `Queue` documents; see `federator.ports.PolicyKind`."""

    kind = "Queue"
    spec = QueueSpec

    def compile(self, name: str, spec: object) -> tuple[PolicyRule, ...]:
        """The queue's terms, its guarantee, its caps, its prices, and who may use it."""
        given = decode(spec, QueueSpec, "$.spec")
        path = given.path or queue(name, "$.spec.path")
        policy = f"{self.kind}/{name}"
        return (
            _terms(policy, path, given),
            *_guarantee(policy, path, given),
            *_caps(policy, path, given),
            *_prices(policy, path, given),
            *_access(policy, path, given),
        )


kind = QueueKind()


def _terms(policy: str, path: str, given: QueueSpec) -> QueueTerms:
    idle = Idle(given.max_idle) if isinstance(given.max_idle, float) else given.max_idle
    return QueueTerms(
        policy=policy,
        queue=path,
        interactive=given.interactive,
        deadline_budget_s=given.deadline_budget,
        max_duration_s=given.max_duration,
        patience_s=given.patience,
        max_wait_s=given.max_wait,
        max_idle_s=None if idle is None else idle.after,
        idle_verb=None if idle is None else idle.then,
        max_priority=given.max_priority,
        max_value_usd=given.max_value,
        allow_must=given.allow_must,
        usage_half_life_s=given.usage_half_life,
        usage_weights={model.upper(): weight for model, weight in sorted(given.usage_weights.items())},
    )


def _access(policy: str, path: str, given: QueueSpec) -> list[AccessRule]:
    if given.allow is None and given.admins is None:
        return []
    allow = None if given.allow is None else tuple(_grants(given.allow))
    admins = Members() if given.admins is None else _members(given.admins, "$.spec.admins")
    return [AccessRule(policy=policy, queue=path, allow=allow, admins=admins)]


def _grants(allow: tuple[Allowed, ...]) -> Iterator[Grant]:
    for number, each in enumerate(allow):
        path = f"$.spec.allow[{number}]"
        yield Grant(
            who=_members(each, path, everybody=True),
            max_priority=each.max_priority,
            max_value_usd=each.max_value,
            must=each.must,
            rent=each.rent,
        )


def _members(given: Allowed | Admins, path: str, *, everybody: bool = False) -> Members:
    found = Members(
        given.teams,
        read_users(given.users, f"{path}.users", everybody=everybody),
        read_groups(given.groups, f"{path}.groups"),
    )
    if not found:
        raise Invalid("is empty", field=path, remedy="name teams, users or groups, or leave it out")
    return found


def _guarantee(policy: str, path: str, given: QueueSpec) -> list[Rule]:
    """A row for all models, if anything is said of it, and one per model; a queue with a weight or a limit on borrowing alone is guaranteed nothing."""
    guaranteed = given.guaranteed or Guaranteed()
    models = {model.upper(): gpus for model, gpus in guaranteed.models.items()}
    gpus = guaranteed.gpus or 0
    total = max(gpus, sum(models.values()))
    _check_guarantee(given, gpus, total)
    if given.guaranteed is None and given.weight is None and given.borrowing is None:
        return []
    row = GuaranteeRow(
        policy=policy,
        queue=path,
        gpus=gpus,
        lending_limit=given.lending,
        cpus_milli=round(1000 * (guaranteed.cpus or 0)),
        memory_mib=guaranteed.memory or 0,
    )
    if (
        given.borrowing is not None
    ):  # on top of all that is guaranteed, also where that is said by models alone
        row = msgspec.structs.replace(row, borrowing_limit=given.borrowing + total - gpus)
    if given.weight is not None:
        row = msgspec.structs.replace(row, weight=given.weight)
    if given.reclaim_within is not None:
        row = msgspec.structs.replace(row, reclaim_s=given.reclaim_within)
    per_model = [
        GuaranteeRow(
            policy=policy, queue=path, gpus=count, model=model, weight=row.weight, reclaim_s=row.reclaim_s
        )
        for model, count in sorted(models.items())
    ]
    return [row, *per_model]


def _check_guarantee(given: QueueSpec, gpus: int, total: int) -> None:
    """Refuse what says nothing, or cannot be."""
    limit = (given.limit or Limit()).gpus
    if given.guaranteed is not None and given.guaranteed == Guaranteed():
        raise Invalid("is missing", field="$.spec.guaranteed.gpus", remedy="write gpus, or models: {H100: 8}")
    beside = given.guaranteed and (given.guaranteed.cpus or given.guaranteed.memory)
    if given.reclaim_within is not None and not (total or beside):
        raise Invalid(
            "has no effect without guaranteed",
            field="$.spec.reclaim_within",
            remedy="write guaranteed: {gpus: N} beside it, or leave it out",
        )
    if given.lending is not None and given.lending > gpus:
        raise Invalid(
            f"only the {gpus} GPUs of guaranteed.gpus can be lent",
            field="$.spec.lending",
            remedy=f"write at most {gpus}, or guarantee more",
        )
    if limit is not None and limit < total:
        raise Invalid(
            f"the limit of {limit} GPUs is below the {total} that are guaranteed",
            field="$.spec.limit.gpus",
            remedy=f"write at least {total}, or guarantee less",
        )


def _caps(policy: str, path: str, given: QueueSpec) -> list[Rule]:
    limit, user, scope = given.limit or Limit(), given.per_user or PerUser(), Scope(queues=(path,))
    caps = (
        (CapUnit.GPUS, limit.gpus, Each.TOGETHER),
        (CapUnit.JOBS, limit.jobs, Each.TOGETHER),
        (CapUnit.GPUS, user.gpus, Each.OWNER),
        (CapUnit.JOBS, user.jobs, Each.OWNER),
    )
    rows = [
        CapRow(policy=policy, unit=unit, limit=float(most), scope=scope, each=each)
        for unit, most, each in caps
        if most is not None
    ]
    of_models = [
        CapRow(
            policy=policy,
            unit=CapUnit.GPUS,
            limit=float(most),
            scope=scope,
            pools=PoolSelector(models=(model.upper(),)),
        )
        for model, most in sorted(limit.models.items())
    ]
    return [*rows, *of_models]


def _prices(policy: str, path: str, given: QueueSpec) -> list[Rule]:
    prices = (
        (PriceKind.MISS, given.met_deadline_usd_per_gpu_hour),
        (PriceKind.WAIT, given.waiting_usd_per_gpu_hour),
        (PriceKind.WAIT_JOB, given.waiting_usd_per_hour),
    )
    return [
        PriceTerm(policy=policy, kind=what, usd=usd, scope=Scope(queues=(path,)))
        for what, usd in prices
        if usd is not None
    ]
