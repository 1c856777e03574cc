"""The closed vocabulary that policies compile into.

Policy plugins run when a policy set is validated and applied, never while deciding: a decision sees only these records,
stored with the set and put beside the snapshot into the problem. A closed vocabulary is what makes decisions replayable and
checkable by something that does not know any plugin.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Literal, Protocol

import msgspec

from federator.model.allotments import AllotmentRule
from federator.model.capacity import Market
from federator.model.datasets import DataSelector, DatasetRule, LinkRule
from federator.model.queues import under
from federator.model.rights import AccessRule, TeamRule


class Scope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs a rule is about; an empty field admits all. A queue admits itself and all below it."""

    queues: tuple[str, ...] = ()
    """Jobs of these queues, or below them."""
    owners: tuple[str, ...] = ()
    """Jobs of these users."""
    labels: dict[str, str] = {}
    """Jobs that have all of these labels."""
    not_queues: tuple[str, ...] = ()
    """Not the jobs of these queues, or below them."""


class PoolSelector(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which capacity a rule is about; an empty field admits all."""

    sites: tuple[str, ...] = ()
    """Of these sites, by name."""
    kinds: tuple[str, ...] = ()
    """Of sites of these kinds: `onprem`, `cloud`, `edge`."""
    providers: tuple[str, ...] = ()
    """Rented from these providers."""
    regions: tuple[str, ...] = ()
    """In these regions."""
    markets: tuple[Market, ...] = ()
    """Of these markets: `owned`, `on-demand`, `spot`."""
    models: tuple[str, ...] = ()
    """With GPUs of these models."""


class Window(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Hours of the week, UTC, in which a rule holds: days 0 (Monday) to 6, minutes of the day, end exclusive."""

    days: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6)
    """Days of the week: 0 (Monday) to 6."""
    from_minute: int = 0
    """Minute of the day from which on it holds, 0 to 1,439, UTC."""
    to_minute: int = 1440
    """Minute of the day up to which it holds, that one not included; 1,440 is midnight."""
    first_at: float | None = None
    """Not before that moment, seconds since the epoch."""
    until_at: float | None = None
    """And no longer than until then."""


class Effect(StrEnum):
    """What a filter does with what it matches."""

    ALLOW = "allow"
    DENY = "deny"


class BurstMode(StrEnum):
    """When a permitted rental may happen."""

    ECONOMIC = "economic"
    THRESHOLD = "threshold"
    ALWAYS = "always"
    OFF = "off"


class Filter(msgspec.Struct, frozen=True, tag="filter", forbid_unknown_fields=True):
    """Jobs in `scope` may (or may not) use what `pools` matches.

    Owned capacity is open unless denied. Rented capacity is closed unless allowed, and an allowing filter says how: `mode`;
    in `economic` mode a forecast miss of the deadline justifies renting, and waiting too where `for_waiting`; in `threshold`
    mode `after_wait_s` of waiting does.
    """

    policy: str
    """Name of the policy that it is from."""
    effect: Effect
    """`allow` or `deny`."""
    scope: Scope = Scope()
    """Which jobs it is about."""
    pools: PoolSelector = PoolSelector()
    """Which capacity it is about."""
    window: Window | None = None
    """When it holds; left out: always."""
    mode: BurstMode | None = None
    """Where it allows what is rented: when. In `economic` mode for what renting gains, in `threshold` mode after a wait, `always`, or not now (`off`)."""
    for_waiting: bool = False
    """In economic mode, whether a wait that is saved justifies renting as a deadline does."""
    after_wait_s: float | None = None
    """In threshold mode, seconds of waiting after which it lets rent."""
    max_price_usd_h: float | None = None
    """Dearest instance, per hour, that it admits."""
    reason: str = ""
    """Why, in the policy's own words; people are told."""
    data: DataSelector | None = None
    """It is about jobs with such inputs only: where it denies, those that read any of it; where it allows, those that read nothing else."""
    beyond: bool = False
    """It denies what `pools` does not match, instead of what it does."""
    advisory: bool = False
    """It permits nothing: what it would have rented is only reported."""
    approval_above_usd: float | None = None
    """A rental that may cost more than this in the worst case waits until a person has approved it."""


class Opening(msgspec.Struct, frozen=True, tag="opening", omit_defaults=True, forbid_unknown_fields=True):
    """What `pools` matches takes work only while one of `windows` holds (none: always), and none of `closed`.

    With `stops`, what still runs there when it closes is told in time to save itself, and a job that cannot save itself is started only
    where it is planned to be done by then.
    """

    policy: str
    """Name of the policy that it is from."""
    pools: PoolSelector
    """Which capacity it is about."""
    windows: tuple[Window, ...] = ()
    """When it takes work; none: always."""
    closed: tuple[Window, ...] = ()
    """When it does not, whatever `windows` say."""
    stops: bool = False
    """Whether what runs there is stopped when it closes."""
    but_for: Scope | None = None
    """Whose jobs it is not about: what is closed to others is reserved for them; None: it is about all."""

    def concerns(self, *, queue: str, owner: str, labels: dict[str, str]) -> bool:
        """Whether it is about such a job."""
        kept = self.but_for
        return kept is None or not in_scope(kept, queue=queue, owner=owner, labels=labels)

    def is_over(self, at: float) -> bool:
        """Whether it closes nothing any more, from that moment (seconds since the epoch) on."""
        return not self.windows and all(
            each.until_at is not None and each.until_at <= at for each in self.closed
        )


class CapUnit(StrEnum):
    """What a cap counts."""

    GPUS = "gpus"
    JOBS = "jobs"
    USD_PER_H = "usd-per-h"
    USD = "usd"
    INSTANCES = "instances"
    LICENSES = "licenses"


class Period(StrEnum):
    """Over what a money cap sums; `NOW` for what is in use at once."""

    NOW = "now"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    TOTAL = "total"


class Each(StrEnum):
    """Whether a cap is for its jobs together, or for each owner or each job by itself."""

    TOGETHER = ""
    OWNER = "owner"
    JOB = "job"


SPREAD = "spread over sites"
"""`CapRow.share` of what keeps a service's replicas from being at one site."""


class CapRow(msgspec.Struct, frozen=True, tag="cap", forbid_unknown_fields=True):
    """What jobs in `scope` use of `pools` together never exceeds `limit`.

    With `each`, every owner (or job) has the limit to itself. A decision sees one row per owner, with that owner in its scope; the cap on a
    job is in what the job itself may cost.
    """

    policy: str
    """Name of the policy that it is from."""
    unit: CapUnit
    """What it counts: `gpus`, `jobs` or `licenses` in use, `usd-per-h` of rent, `usd` of rent over its period, rented `instances`."""
    limit: float
    """How much at most, in `unit`."""
    scope: Scope = Scope()
    """Which jobs it is about."""
    pools: PoolSelector = PoolSelector()
    """Which capacity it is about."""
    period: Period = Period.NOW
    """Over what USD are summed: calendar `day`, `week` or `month`, UTC; `total`; `now` is what is in use at once."""
    each: Each = Each.TOGETHER
    """Whom it is for: all together (empty), each `owner`, or each `job`."""
    share: str = ""
    """Which of the policy's several caps of one period it is: the queue or owner that it is for."""
    hard: bool = True
    """Whether it stops anything; else it only warns."""
    alerts: tuple[float, ...] = ()
    """Parts of the limit at whose crossing people are told."""
    license: str = ""
    """Of a cap on licences: of which."""

    def counts(self, gpus: float, licenses: Mapping[str, int], jobs: float = 1.0) -> float:
        """What jobs with so many GPUs in all count for a cap on what is in use; each of them has these licences."""
        if self.unit is CapUnit.GPUS:
            return gpus
        return jobs * licenses.get(self.license, 0) if self.unit is CapUnit.LICENSES else jobs


class GuaranteeRow(msgspec.Struct, frozen=True, tag="guarantee", forbid_unknown_fields=True):
    """The queue gets `gpus` back within `reclaim_s` whenever it wants them; each GPU short costs `shortfall_usd_gpu_h`.

    So it does with cores and memory: its share of them is that of the GPUs, unless it is said. It has its guarantee when it has all it is due of
    the one of the three of which it has, and wants, the largest part.
    """

    policy: str
    """Name of the policy that it is from."""
    queue: str
    """Whose guarantee it is."""
    gpus: int
    """GPUs that it has by right."""
    model: str = ""
    """Of this model; empty: of any."""
    weight: float = 1.0
    """Its share of what nobody is guaranteed, against its neighbours'."""
    borrowing_limit: int | None = None
    """GPUs above the guarantee that it may use while their owners do not; left out: any number."""
    lending_limit: int | None = None
    """GPUs of the guarantee that others may use while it does not; left out: all."""
    reclaim_s: float = 300.0
    """Seconds within which what was lent is given back."""
    shortfall_usd_gpu_h: float = 20.0
    """USD that an hour of each GPU it is short of counts as a cost."""
    cpus_milli: int = 0
    """0: as large a part of the cores as the GPUs are of all owned GPUs (of its model)."""
    memory_mib: int = 0
    """The same of memory."""


class PriceKind(StrEnum):
    """What a price is of."""

    MISS = "miss-usd-per-gpu-h"
    """Value of a met deadline, per GPU-hour of the job's expected run."""
    WAIT = "wait-usd-per-gpu-h"
    """Price of waiting, per GPU asked for and hour waited."""
    WAIT_JOB = "wait-usd-per-h"
    """Price of waiting, per hour waited, however much is asked for: of who waits, not of what would be used. It comes on top."""
    POOL = "pool-usd-per-gpu-h"
    """Added to the price of the capacity that `pools` matches."""


class PriceTerm(msgspec.Struct, frozen=True, tag="price", forbid_unknown_fields=True):
    """A price that steers the optimizer. The most specific queue's term wins."""

    policy: str
    """Name of the policy that it is from."""
    kind: PriceKind
    """What it is the price of, with its unit: `miss-usd-per-gpu-h`, a met deadline per GPU-hour of the expected run; `wait-usd-per-gpu-h`, an hour of waiting per GPU asked for; `wait-usd-per-h`, an hour of waiting, on top; `pool-usd-per-gpu-h`, a GPU-hour of what `pools` matches, on top."""
    usd: float
    """USD, by the unit that `kind` names."""
    scope: Scope = Scope()
    """Which jobs it is about."""
    pools: PoolSelector = PoolSelector()
    """Which capacity it is about."""
    window: Window | None = None
    """When it holds; left out: always."""


class PreemptRule(msgspec.Struct, frozen=True, tag="preempt", forbid_unknown_fields=True):
    """Jobs in `who` may displace jobs in `victims` that have run at least `minimum_run_s`."""

    policy: str
    """Name of the policy that it is from."""
    who: Scope
    """Jobs that may displace others."""
    victims: Scope
    """Jobs that may be displaced."""
    minimum_run_s: float = 0.0
    """Who has run for less, in seconds, is left alone."""
    minimum_priority_gap: int = 1
    """By so much the priority of who is displaced must be lower at least."""
    patience_s: float = 60.0
    """A job displaces others only when it would otherwise start later than this."""
    cool_down_s: float = 0.0
    """Who was displaced is left alone for so long."""


IdleVerb = Literal["cancel", "requeue", "hold", "shrink"]
"""What is done with a job whose GPUs do nothing."""


class QueueTerms(msgspec.Struct, frozen=True, tag="queue", forbid_unknown_fields=True):
    """That a queue exists, and what intake gives a job that does not say: no decision row, but stored with the same set."""

    policy: str
    """Name of the policy that it is from."""
    queue: str
    """The queue's path."""
    interactive: bool = False
    """Whether its jobs take the fast path."""
    deadline_budget_s: float | None = None
    """A job without a deadline should be finished so many seconds after it was submitted."""
    max_wait_s: float | None = None
    """Its jobs are to start within so many seconds of their submission; None: as in the queue above."""
    max_idle_s: float | None = None
    """Its jobs end, as `idle_verb` says, once their GPUs have done nothing for so many seconds; None: as in the queue above."""
    idle_verb: IdleVerb | None = None
    """What is done with them then; None: what is done where `max_idle_s` is said, or else they are cancelled."""
    max_duration_s: float | None = None
    """A job that does not say is ended after so many seconds."""
    max_priority: int = 100
    """Highest priority that a job may claim."""
    max_value_usd: float | None = None
    """Highest value of a deadline that a job may claim, in USD; left out: any."""
    allow_must: bool = False
    """Whether jobs may say that their deadline must be met."""
    patience_s: float | None = None
    """A job that does not say may let GPUs that are free and fit it go by, for a cheaper or better place that is free so long after it was submitted; None: as in the queue above."""
    usage_half_life_s: float | None = None
    """In its turn by weight, past use counts half after so long; None: only what is in use now counts."""
    usage_weights: dict[str, float] = {}
    """Past use of a GPU of such a model counts so many times; 1 of one that is not named."""


Rule = (
    Filter | CapRow | GuaranteeRow | PriceTerm | PreemptRule | QueueTerms | Opening | DatasetRule | LinkRule
)
"""What a decision may see."""
UnplannedRule = TeamRule | AccessRule | AllotmentRule
"""Who may do what, and what a site may do by itself: that is decided before there is anything to plan."""
PolicyRule = Rule | UnplannedRule
"""What a policy compiles to."""


class PolicyDocument(msgspec.Struct, frozen=True):
    """One YAML document as it was applied: kept verbatim, so that history and diff show what people wrote."""

    kind: str
    name: str
    text: str


class PolicySet(msgspec.Struct, frozen=True, kw_only=True):
    """All policies in force, as one version with an author and a reason."""

    version: int
    author: str
    reason: str
    applied_at: float
    documents: tuple[PolicyDocument, ...] = ()
    rules: tuple[PolicyRule, ...] = ()


def planned(rules: Iterable[PolicyRule]) -> tuple[Rule, ...]:
    """Those that a decision may see."""
    return tuple(rule for rule in rules if not isinstance(rule, UnplannedRule))


def admits_queue(paths: tuple[str, ...], queue: str) -> bool:
    """Whether one of `paths` is the queue or stands above it; no paths admit all."""
    return not paths or any(under(queue, path) for path in paths)


def in_scope(scope: Scope, *, queue: str, owner: str, labels: dict[str, str]) -> bool:
    """Whether a job is one that the rule is about."""
    return (
        admits_queue(scope.queues, queue)
        and not (scope.not_queues and admits_queue(scope.not_queues, queue))
        and (not scope.owners or owner in scope.owners)
        and all(labels.get(key) == value for key, value in scope.labels.items())
    )


class Selectable(Protocol):
    """Capacity, as selectors see it."""

    @property
    def site(self) -> str:
        """Its site."""

    @property
    def kind(self) -> str:
        """The site's."""

    @property
    def provider(self) -> str | None:
        """Of whom it is or would be rented."""

    @property
    def region(self) -> str:
        """Where it is."""

    @property
    def market(self) -> Market:
        """On demand, spot, or owned."""

    @property
    def model(self) -> str:
        """Of its GPUs."""


def selects(pools: PoolSelector, at: Selectable) -> bool:
    """Whether some capacity is what the rule is about."""
    return (
        (not pools.sites or at.site in pools.sites)
        and (not pools.kinds or at.kind in pools.kinds)
        and (not pools.providers or (at.provider or "") in pools.providers)
        and (not pools.regions or at.region in pools.regions)
        and (not pools.markets or at.market in pools.markets)
        and (not pools.models or at.model in pools.models)
    )
