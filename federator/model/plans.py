"""Plans: per-job actions with the reason that the user will be shown, and a reason for every job that stays.

"Not placed" is a value, not a gap. An action names the job revision and the site session it saw; the committer tests both
against the present, so that an event voids one action and never a plan.
"""

from enum import StrEnum

import msgspec

from federator.model.capacity import BurstEvidence, Market
from federator.model.changes import Change, Remedy
from federator.model.datasets import Moves
from federator.model.reasons import Reason


class Severity(StrEnum):
    """What a finding does: a fatal one keeps the plan or action from being committed."""

    FATAL = "fatal"
    REMARK = "remark"


class Finding(msgspec.Struct, frozen=True):
    """A check's remark about a plan. `promise` is the number in domain.md that would be broken."""

    severity: Severity
    promise: int
    subject: str
    text: str


class SiteReason(msgspec.Struct, frozen=True):
    """Why a job does not run at a site: the first filter that fails, in the published order; or, where all pass, its extra cost.

    `change` is the smallest change that would lift it, in words; empty where none is known. `text` and `change` are those of `reason`, once it is told.
    """

    site: str
    pool: str
    filter: str
    """Name of the filter; empty when the pool passes all."""
    text: str = ""
    extra_cost_usd: float | None = None
    start_at: float | None = None
    finish_at: float | None = None
    change: str = ""
    remedy: tuple[Change, ...] = ()
    """The same as records that can be tried: applied to the problem, they make the filters pass."""
    direct_usd: float | None = None
    """What running there costs by itself: the run or rent, moved data, the wait and the chance of a missed deadline."""
    congestion: dict[str, float] = {}
    """What it takes from others there, in USD by what is scarce; empty without prices, or where nothing is."""
    tie: bool = False
    """It costs the same as the best."""
    reason: Reason | None = None
    """Why, as a value."""


class Place(msgspec.Struct, frozen=True, kw_only=True, tag="place"):
    """Start this job there now. `members` and `sessions` have one entry per rank: where it runs, and the agent's connection that was seen."""

    job: str
    revision: int
    site: str
    pool: str
    members: tuple[str, ...]
    sessions: tuple[str, ...] = ()
    market: Market
    price_usd_gpu_h: float
    expected_start_at: float
    expected_end_at: float
    because: str = ""
    """In words: of plans of older versions, and once it is told."""
    reason: Reason | None = None
    lease: str | None = None
    moves: Moves | None = None
    """What bringing its data there takes; None: it has all of it there."""
    form: int = 0
    """Which of the job's forms it runs in."""


class Rent(msgspec.Struct, frozen=True, kw_only=True, tag="rent"):
    """Rent `machines` instances of this offer, all or none, and start the job on them as soon as all have booted.

    `committed_usd` is the worst case that they add to budgets together.
    """

    job: str
    revision: int
    provider: str
    offer: str
    site: str
    expected_start_at: float
    expected_end_at: float
    committed_usd: float
    evidence: BurstEvidence
    because: str = ""
    """In words: of plans of older versions, and once it is told."""
    reason: Reason | None = None
    moves: Moves | None = None
    """What bringing its data there takes, beside the rent."""
    form: int = 0
    """Which of the job's forms it runs in."""
    machines: int = 1
    """A gang lies over several where one does not hold it."""


class Preempt(msgspec.Struct, frozen=True, kw_only=True, tag="preempt"):
    """Stop this placement (after a checkpoint) because `beneficiary` is owed its place."""

    job: str
    revision: int
    placement: str
    beneficiary: str
    because: str = ""
    """In words: of plans of older versions, and once it is told."""
    reason: Reason | None = None
    form: int | None = None
    """An elastic job is to go on in this form, which is what it is stopped for; it may be the beneficiary itself. None: it makes room, whatever comes of it."""


Action = Place | Rent | Preempt


class ReservedFor(StrEnum):
    """Why free owned GPUs may idle beside a job that fits them."""

    CHEAPER = "cheaper"
    """Another owned place costs less, the wait for it included."""
    DEADLINE = "deadline"
    """Where it fits it would miss its deadline, and there it meets it."""
    RENTAL = "rental"
    """The same of what is to be rented."""
    GANG = "gang"
    """They are held for another job."""


class Reservation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What free owned GPUs idle for beside a job that fits them, as it was weighed."""

    why: ReservedFor
    place: str
    """The pool (of several members, the first one's) or the offer, by its key: that is waited for, or that is held."""
    until_at: float
    """By then at the latest the job starts there, with all that wait for that place before it; is the offer rented; or does the gang start."""
    saves_usd: float = 0.0
    """What a cheaper place saves, all told."""
    for_job: str = ""
    """Whom they are held for."""


class Waiting(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job that is not started by this plan, why, and what is expected of it.

    `home_start_at`, `home_finish_at` and `home_usd` are the forecast on owned capacity, and what the run costs there, with what the room is worth to others. `kind` is stable: `capacity`, `quota`, `budget`, `filter`, `time`, `later`, `set-aside`.
    """

    job: str
    kind: str
    because: str = ""
    """In words, as is `change`: of plans of older versions, and once it is told."""
    expected_start_at: float | None = None
    expected_finish_at: float | None = None
    home_start_at: float | None = None
    home_finish_at: float | None = None
    home_usd: float = 0.0
    change: str = ""
    why: Reason | None = None
    """The reason itself."""
    reason: str = ""
    """The name of the filter or situation that keeps it; of a job that will miss its deadline, what keeps anything from being rented for it."""
    reserved: Reservation | None = None
    """Why it does not start on free owned GPUs that it fits; None: there are none."""


class ProposalKind(StrEnum):
    """What a proposal is made for."""

    ADVICE = "advice"
    """A policy only advises: nothing comes of it."""
    APPROVAL = "approval"
    """It waits for a person."""


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A rental that would have been made for the job now, were it not for a policy that only advises, or wants a person to approve it."""

    job: str
    kind: ProposalKind
    policy: str
    provider: str
    offer: str
    cost_usd: float
    """What it is expected to cost."""
    committed_usd: float
    """What it may cost in the worst case."""
    finish_at: float
    because: str = ""
    """In words: of plans of older versions, and once it is told."""
    reason: Reason | None = None


REMOVED_STAGES = ("cpsat",)
"""Stages of older versions: recorded decisions may name them."""


class StageReport(msgspec.Struct, frozen=True):
    """One stage of deciding: whether it completed, the objective it reached, and its work (iterations, nodes)."""

    stage: str
    completed: bool
    objective_usd: float | None = None
    bound_usd: float | None = None
    work: int = 0
    note: str = ""
    columns: int = 0
    """Of its model, if it has one,"""
    rows: int = 0
    """and its rows."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What one turn decided. `objective_usd` is by the common evaluator; `terms` splits it; `winner` names the stage whose plan it is."""

    decision: str
    taken_at: float
    seed: int
    winner: str
    objective_usd: float
    winner_because: str = ""
    """In words: of plans of older versions, and once it is told."""
    winner_reason: Reason | None = None
    terms: dict[str, float] = {}
    stages: tuple[StageReport, ...] = ()
    actions: tuple[Action, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    findings: tuple[Finding, ...] = ()
    prices: dict[str, float] = {}
    wake_at: float | None = None
    """When to plan again even if nothing happens: the latest safe start of a rental, the end of a backoff or a window."""
    proposals: tuple[Proposal, ...] = ()
    """Rentals that policies do not leave to a plan."""


class PricePoint(msgspec.Struct, frozen=True, kw_only=True):
    """One way to have a job done: there, by then, for so much. Of those on owned capacity that wait for their turn, the place may be open: empty.

    `finish_at` is as plans reckon; 80 of 100 runs end between `finish_low_at` and `finish_high_at`.
    """

    site: str
    pool: str
    market: Market
    start_at: float
    finish_low_at: float
    finish_at: float
    finish_high_at: float
    cost_usd: float
    """Rent, moved data, and owned GPUs at their marginal price."""
    at_most_usd: float = 0.0
    """What of that `max_cost` limits, rent and moved data, in the worst case."""
    in_time: bool | None = None
    """Whether it meets the deadline; None: there is none."""


class ArrayPreview(msgspec.Struct, frozen=True, kw_only=True):
    """All tasks of an array that is not submitted yet, as one plan has them."""

    tasks: int
    planned: int = 0
    """So many of them were planned; fewer than all where there are too many, or only some may run at once. What is said of the rest, which is taken to follow in their places, is an estimate."""
    finish_at: float | None
    """When the last of them is done; None: that is not known of each."""
    in_time: int | None
    """How many meet their deadline; None: they have none."""
    rented: int
    """For so many of them something would be rented, now or later."""
    cost_usd: float
    """What they cost together: rent, moved data, and owned GPUs at their marginal price."""


class Ahead(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job before one that waits. `job` and `owner` are empty where they may not be seen."""

    job: str
    name: str
    owner: str
    gpus: float
    site: str = ""
    until_at: float | None = None
    """Of one that runs: when it is expected to end."""
    waits: bool = False
    """It does not run yet, and is planned to start earlier."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to "why is my job waiting, and why not there?", or "why did it run there?"."""

    job: str
    name: str = ""
    """What people call it."""
    tasks: dict[str, int] = {}
    """Where an array was named: how many of its tasks are in each status. What is said is of the first that waits, or of one in the status of the array."""
    status: str
    because: str
    reason: Reason | None = None
    """The same as a value, where it is known as one."""
    decision: str = ""
    winner: str = ""
    sites: tuple[SiteReason, ...] = ()
    changes: tuple[str, ...] = ()
    expected_start_at: float | None = None
    expected_finish_at: float | None = None
    home_finish_at: float | None = None
    deadline_at: float | None = None
    burst: BurstEvidence | None = None
    policies: tuple[str, ...] = ()
    start_low_at: float | None = None
    start_high_at: float | None = None
    finish_low_at: float | None = None
    """80 of 100 such jobs are done between these two, as 80 of 100 start between the two above."""
    finish_high_at: float | None = None
    curve: tuple[PricePoint, ...] = ()
    """What each sooner finish costs, the soonest first; of a job that has not started."""
    series: str = ""
    """Of a run of a series: when the next is due, and what stands in its way."""
    deadline_usd: float | None = None
    """What meeting its deadline costs at least; None: nothing that could begin now meets it, or it has none."""
    remedies: tuple[Remedy, ...] = ()
    """What would help, as records that can be tried; the first is the smallest."""
    run_time: str = ""
    """How long it is planned to run, and how that is known; empty once it has ended."""
    ahead: tuple[Ahead, ...] = ()
    """Some of the jobs before one that waits: first those that run where it is to start, then those that are planned before it."""
