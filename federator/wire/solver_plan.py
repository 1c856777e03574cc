"""The plan file: what was decided, job by job, and what it is worth, as `federator solver run` writes it and `solver check` judges it.

Any program may write one. Units are those of the problem file. A checker needs nothing but `format`, `objective`, `assignments` and
`stops`; the rest is for people.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from federator.model.capacity import Market

FORMAT: Final = "federator-plan/1"


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What all parts of the file have in common: unknown fields are refused, and what has its default is not written."""


class Range(_Part, frozen=True, kw_only=True):
    """An expected moment. 80 of 100 are meant to come between `low_at` and `high_at`."""

    low_at: float
    """Ten of 100 come sooner."""
    middle_at: float
    """What the plan counts on."""
    high_at: float
    """Ten of 100 come later."""


class Rental(_Part, frozen=True, kw_only=True):
    """What is rented for a job, and why that is allowed and pays."""

    provider: str
    """Who rents it out."""
    offer: str
    """The offer's name there."""
    machines: Annotated[int, Meta(ge=1)] = 1
    """How many of it: all or none. The nodes of a gang lie over them, each as full as it goes."""
    committed_usd: Annotated[float, Meta(ge=0)]
    """What they may cost in the worst case, all together."""
    policy: str
    """The burst policy that permits it."""
    mode: str
    """The mode of that policy: `economic`, `threshold` or `always`."""
    home_finish_at: float | None = None
    """When the job would be done with nothing rented; left out: never."""
    burst_finish_at: float
    """When it is expected to be done on the rented machine."""
    fallback_finish_at: float | None = None
    """On spot: when, were it taken back at the very end."""
    cost_usd: float = 0.0
    """What it is expected to cost."""
    value_usd: float = 0.0
    """What meeting the deadline is worth."""
    home_risk: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Of a job that is planned in time at home: the chance that it is not, which is worth the cost."""


class DataMoved(_Part, frozen=True, kw_only=True):
    """Data that is brought to where a job starts, before it starts."""

    moved_bytes: Annotated[int, Meta(ge=0)]
    """How much."""
    seconds: Annotated[float, Meta(ge=0)] = 0.0
    """How long that is expected to take."""
    usd: Annotated[float, Meta(ge=0)] = 0.0
    """What it costs."""
    source: str = ""
    """From where, for people."""


class Reserved(_Part, frozen=True, kw_only=True):
    """What free owned GPUs idle for beside a job that fits them. The checker looks into each."""

    why: Literal["cheaper", "deadline", "rental", "gang"]
    """Another owned place costs less, the wait included; or meets the deadline that is missed where it fits; so does something that is to be rented; or another job is to have them."""
    place: str
    """What it waits for, or what is held: `site/member/pool` (of several members the first one's), or `provider/offer`."""
    until_at: float
    """By then at the latest it starts there, something is rented, or the other job starts. Seconds since the epoch, UTC."""
    saves_usd: Annotated[float, Meta(ge=0)] = 0.0
    """What a cheaper place saves, all told, in USD."""
    for_job: str = ""
    """Of GPUs that are held: for whom, by id."""


class Assignment(_Part, frozen=True, kw_only=True):
    """What becomes of one job."""

    job: str
    """Its id in the problem."""
    does: Literal["start", "rent", "wait"]
    """It starts now on capacity that is there; something is rented for it now; or it waits."""
    site: str = ""
    """Where it starts, or is expected to."""
    pool: str = ""
    """The pool there; for a rental the offer's name."""
    market: Market | None = None
    """How that capacity is paid for."""
    members: tuple[str, ...] = ()
    """For a start: the member of each rank."""
    nodes: int = 1
    """Ranks."""
    form: int = 0
    """Which of the job's forms it runs in, or is expected to; 0: as the job itself says."""
    start_bucket: int | None = None
    """Index into the plan's `buckets_h`: 0 is now. Left out: not within sight."""
    start: Range | None = None
    """When it is expected to start."""
    finish: Range | None = None
    """When it is expected to be done."""
    home_finish_at: float | None = None
    """When it would be done on owned capacity alone."""
    reason: str = ""
    """Why there, or why it waits, for people."""
    reason_kind: str = ""
    """Of one that waits: `capacity`, `quota`, `budget`, `filter`, `time` or `later`."""
    change: str = ""
    """Of one that waits: the smallest change that would help."""
    reserved: Reserved | None = None
    """Of one that waits beside free owned GPUs that it fits: what they idle for."""
    rental: Rental | None = None
    """For a rental: what and why."""
    moves: DataMoved | None = None
    """For a start or a rental: what of its data is moved. Left out: as the problem's rules have it."""


class Stop(_Part, frozen=True, kw_only=True):
    """Running work that has to make room."""

    job: str
    """Whose it is."""
    placement: str
    """Which attempt of it."""
    for_job: str
    """Who is owed its place; the job itself, where it goes on wider."""
    form: int | None = None
    """Elastic work goes on in this form of its job. Left out: it makes room, whatever comes of it."""
    reason: str = ""
    """Why."""


class Objective(_Part, frozen=True, kw_only=True):
    """What the plan costs, in USD, by the evaluator: the starts are carried out, the rest is scheduled after them in the published order."""

    total_usd: float
    """The sum of the terms."""
    miss_usd: float = 0.0
    """Values of the deadlines that will be missed."""
    rent_usd: float = 0.0
    """Bills for rented capacity."""
    run_usd: float = 0.0
    """Owned GPU-hours at their marginal price."""
    egress_usd: float = 0.0
    """Data that is moved to where jobs run."""
    wait_usd: float = 0.0
    """Hours of waiting at their queues' prices."""
    shortfall_usd: float = 0.0
    """What guarantees are short of."""
    policy_usd: float = 0.0
    """What a policy required to be rented and is not."""
    displaced_usd: float = 0.0
    """What it takes from jobs that the problem leaves out, at `outside`'s prices."""


class Certificate(_Part, frozen=True, kw_only=True):
    """How far the decisions of now are from the best there could be, by the linear model of the whole problem."""

    bound_usd: float
    """No plan costs less: every job alone, where it costs least."""
    model_usd: float = 0.0
    """No plan of the linear model costs less: proven by dual prices, with plain arithmetic. The model expects later starts within a range of time, so a plan may be cheaper than that."""
    completed_usd: float | None = None
    """The decisions of this plan, completed as well as a fluid future allows; left out: the model does not hold them all."""
    gap: float | None = None
    """`completed_usd` over `model_usd`, less one: the decision gap."""
    columns: int = 0
    """Of the model."""
    rows: int = 0
    """Of the model."""
    wall_s: float = 0.0
    """How long it took."""


class StageRun(_Part, frozen=True, kw_only=True):
    """One stage of deciding."""

    stage: str
    """`greedy`, `lead`, `lp` or `local-search`; in files of older versions also `exchange` or `cpsat`."""
    completed: bool
    """A stage that is not contributes nothing."""
    objective_usd: float | None = None
    """Of its plan, by the evaluator."""
    bound_usd: float | None = None
    """Of its own model."""
    work: int = 0
    """Looks, dives or branches."""
    note: str = ""
    """For people."""
    columns: int = 0
    """Of its linear program."""
    rows: int = 0
    """Of the same."""
    wall_s: float = 0.0
    """How long it took. The one thing here that differs from run to run."""


class PlanFile(_Part, frozen=True, kw_only=True):
    """One plan for one problem."""

    format: Literal["federator-plan/1"]
    """The version of this format."""
    decision: str = ""
    """The problem's."""
    taken_at: float
    """The problem's moment."""
    seed: int = 0
    """That it was decided with."""
    winner: str = ""
    """The stage, or the program, whose plan it is."""
    winner_reason: str = ""
    """What it has over the others."""
    objective: Objective
    """What it costs."""
    certificate: Certificate | None = None
    """Where it was asked for."""
    stages: tuple[StageRun, ...] = ()
    """What ran, in order."""
    buckets_h: tuple[float, ...] = ()
    """Edges of the time buckets, in hours from `taken_at`."""
    assignments: tuple[Assignment, ...] = ()
    """One for every job of the problem."""
    stops: tuple[Stop, ...] = ()
    """Running work that has to make room."""
    order: tuple[str, ...] = ()
    """Jobs that wait, in the order in which the plan means them to go on: what the objective counts on. Left out: the published order."""
    prices: dict[str, float] = {}
    """Of the model's rows, in USD: what one more of each would save."""
    wake_at: float | None = None
    """When to decide again even if nothing happens."""
