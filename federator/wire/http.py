"""Bodies of the HTTP API: what users and programs send and get. Versioned by the `/v1` of the path.

Records of the model are answered as they are wherever that says what a user needs; the types here are those that differ:
requests, and views that join several records.
"""

from typing import Annotated, Any, Literal

import msgspec

from federator.kernel.versions import Compared
from federator.model.capacity import BurstEvidence, Pool, Shape
from federator.model.identity import Scope
from federator.model.jobs import Job, JobSpec, label_of
from federator.model.placements import Part, Used
from federator.model.plans import ArrayPreview, Explanation, Waiting
from federator.model.reasons import Reason
from federator.model.series import Recurrence, SeriesNote
from federator.model.sites import AilingGpu, LinkState, LocalWork
from federator.wire.accelerators import MAX_GPUS_PER_NODE
from federator.wire.forms import Nodes
from federator.wire.rights import QueueRights
from federator.wire.sizes import MAX_CPUS

MAX_SITES_LENGTH = 10_000
"""Of a text that names sites, in characters."""


class Problem(msgspec.Struct, frozen=True):
    """An error as RFC 9457 has it. `field` is a path into the body; `remedy` says what would be right."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    field: str | None = None
    remedy: str | None = None
    retry_after_s: float | None = None


class Submitted(msgspec.Struct, frozen=True):
    """Answer to a submission, durable by then. `jobs` has one id per array task, of the first 10,000. `repeated`: the client id was known."""

    jobs: tuple[str, ...]
    name: str
    repeated: bool = False
    array: str = ""
    """The id of the array, and how many tasks it has; of a single job empty and 0."""
    tasks: int = 0
    pipeline: str = ""
    """Of a file with `steps`: the id of the pipeline; then `jobs` has the id of each step's job or array, each behind those that it follows."""
    series: str = ""
    """Of a file with `every`: the series that it began, or that it is the file of now. Its jobs come when they are due."""
    next_at: float | None = None
    paused: str = ""
    """When the next run of that series is due; none while it is paused: by whom, and why."""


class SubmitResult(msgspec.Struct, frozen=True):
    """One line of the answer to NDJSON: the same order as the request's lines."""

    line: int
    submitted: Submitted | None = None
    problem: Problem | None = None


class JobPatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """PATCH /v1/jobs/{id}: what may be changed while a job lives. Texts as in a job file; `none` removes a limit or deadline."""

    priority: int | None = None
    deadline: str | None = None
    queue: str | None = None
    max_cost: str | None = None
    max_duration: str | None = None
    value: str | None = None
    models: Annotated[str, msgspec.Meta(max_length=500)] | None = None
    """The GPU models that will do, as `A100|H100`; `none`: any. This and what stands below is of a job that waits, and all but sites of one that may run in one form only."""
    nodes: Nodes | None = None
    gpus: Annotated[int, msgspec.Meta(ge=1, le=MAX_GPUS_PER_NODE)] | None = None
    """Whole GPUs per node, of a job that asks for such."""
    gpu_memory: Annotated[str, msgspec.Meta(max_length=50)] | None = None
    """What each GPU has at least; `none`: any."""
    cpus: Annotated[float, msgspec.Meta(ge=0.001, le=MAX_CPUS)] | None = None
    """Cores per node."""
    memory: Annotated[str, msgspec.Meta(max_length=50)] | None = None
    """Memory per node; `none`: any."""
    sites: Annotated[str, msgspec.Meta(max_length=MAX_SITES_LENGTH)] | None = None
    """Only these sites, as `north|south`; `none`: any."""
    not_sites: Annotated[str, msgspec.Meta(max_length=MAX_SITES_LENGTH)] | None = None
    """Any site but these; `none`: any."""


Verb = Literal["cancel", "hold", "release", "requeue", "update"]


class JobAction(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """POST /v1/jobs/actions: one verb for many jobs. Each entry is the id or name of a job, that of an array for all its tasks, or some of them as in `sweep[3-7]`."""

    verb: Verb
    jobs: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=1000)]
    patch: JobPatch | None = None
    """Of `update`: what to change."""


class Rerun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /v1/jobs/rerun: submit again what has ended, as it was: a job, an array, or some of its tasks as in `sweep[3-7]`."""

    job: str
    failed: bool = False
    """Only those that failed."""


class ActedOn(msgspec.Struct, frozen=True):
    """What became of the jobs that one entry of a `JobAction` meant."""

    name: str
    """As it was asked for."""
    label: str
    """What it is called: a job's name, or an array's with the indices of the tasks."""
    changed: int
    left: int
    """So many were left as they are: the verb does not suit them."""
    status: dict[str, int]
    """How many are in each status now."""
    because: str = ""
    """Why, of the first that was changed; of the first of all where none was."""
    left_because: str = ""
    """Why the first of those was left, and what would be right."""


class AttemptRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt of a job. `attempt` counts from 1; `cause`, `exit_code` and `detail` say how it ended."""

    attempt: int
    placement: str
    site: str
    status: str
    market: str = ""
    model: str = ""
    pool: str = ""
    members: tuple[str, ...] = ()
    """The host or member under each rank, in rank order."""
    gpus: float = 0.0
    """Over all ranks."""
    lease: str = ""
    """The rented machine that it was on, or the first of them."""
    assigned_at: float | None = None
    """When it got its place; until it started, data was brought, a machine booted, or its hosts gathered."""
    started_at: float | None = None
    ended_at: float | None = None
    usd: float | None = None
    """What its GPUs' time came to so far, at their price; a rental's bill has its boot and idle time, too. None: nobody declared a price."""
    cause: str = ""
    exit_code: int | None = None
    detail: str = ""
    last_lines: str = ""
    """Of the last attempt that failed: how the log of a rank ends, for those who may read it."""
    last_lines_of: int = 0
    """That rank: the one that failed."""


class JobDetail(msgspec.Struct, frozen=True):
    """GET /v1/jobs/{id}: the record, the spec, where it is, and what the last plan expects of it."""

    job: Job
    spec: JobSpec
    site: str = ""
    pool: str = ""
    market: str = ""
    members: tuple[str, ...] = ()
    """The site's host under each rank, in rank order."""
    parts: tuple[Part, ...] = ()
    """Of a gang over several hosts, how far each of them is."""
    waiting: Waiting | None = None
    reason: Reason | None = None
    """Why it waits, or is as it is, as a value, where it is known as one."""
    decision: str = ""
    winner: str = ""
    winner_because: str = ""
    winner_reason: Reason | None = None
    outputs: bool = False
    attempts: tuple[AttemptRow, ...] = ()
    """Its newest attempts, oldest first; only where one job is asked for (GET)."""
    series: str = ""
    """Of a run of a series: when the next is due, and what stands in its way."""
    used: Used | None = None
    """What its last attempt really uses, or has used; None where its site does not say."""
    form: int | None = None
    """Of one that has a place: in which of its spec's forms it runs there."""
    expected_start_at: float | None = None
    expected_finish_at: float | None = None
    start_low_at: float | None = None
    """Of a job that waits: 80 of 100 such jobs start between this and the next. What is not known is null."""
    start_high_at: float | None = None
    finish_low_at: float | None = None
    """Of a job that waits or runs: 80 of 100 such jobs are done between this and the next."""
    finish_high_at: float | None = None
    before: int | None = None
    """Of a job that waits: so many that wait, too, are to start before it."""
    planned_at: float | None = None
    """Of a job that waits: when the plan was made that this is of, and that its explanation is of."""
    may: tuple[Scope, ...] = ()
    """What who asks may do with it: `read` what it keeps to itself and wrote, `change` it, run commands inside (`exec`). Only where one job is asked for (GET)."""


class OutputFile(msgspec.Struct, frozen=True):
    """A file that was collected of a job."""

    path: str
    size: int
    """In bytes."""


class OutputList(msgspec.Struct, frozen=True):
    """GET /v1/jobs/{id}/outputs/files: what the archive of its outputs has."""

    files: tuple[OutputFile, ...] = ()
    complete: bool = True
    """Whether these are all: of very many, or very large ones, only the first are looked at."""


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a list."""

    id: str
    name: str
    owner: str
    queue: str
    status: str
    priority: int
    nodes: int
    gpus: int | float
    """Per node; a part of one for a job that asks for a part."""
    models: str
    site: str = ""
    market: str = ""
    submitted_at: float = 0.0
    started_at: float | None = None
    finished_at: float | None = None
    deadline_at: float | None = None
    home_finish_at: float | None = None
    expected_start_at: float | None = None
    expected_finish_at: float | None = None
    """Of a job that is not over: when it should be."""
    start_low_at: float | None = None
    """Of a job that waits: 80 of 100 such jobs start between this and the next."""
    start_high_at: float | None = None
    finish_low_at: float | None = None
    """Of a job that waits or runs: 80 of 100 such jobs are done between this and the next."""
    finish_high_at: float | None = None
    spent_usd: float = 0.0
    because: str = ""
    array: str | None = None
    array_index: int | None = None
    tasks: dict[str, int] = {}
    """Of an array as one line: how many of its tasks are in each status. `id` is that of the array then."""
    indices: str = ""
    """Its first and last index, as in `0-99`."""
    reason: Reason | None = None
    """The same as a value, where it is known as one."""
    missed_deadline: bool | None = None
    labels: dict[str, str] = {}
    used: Used | None = None
    """What its last attempt really uses, or has used; None where its site does not say."""
    series: str | None = None
    """The series that it is a run of."""
    width: str = ""
    """Of a job of several forms, how wide it runs or may run: `2 of 1-8 nodes`. `nodes` and `gpus` are what it has, or asks for first."""
    team: str = ""
    """The team that it runs under."""
    may_change: bool = False
    """Whether who asks for the list may hold, release, requeue, cancel or change it."""

    @property
    def label(self) -> str:
        """What people are told of it by: a task of an array with its index."""
        return f"{self.name}[{self.indices}]" if self.indices else label_of(self.name, self.array_index)


class SeriesRow(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `federator series`."""

    name: str
    owner: str
    queue: str
    every: str
    overlap: str
    status: str
    next_at: float | None = None
    runs: int = 0
    """How many runs there have been: the number of the newest."""
    last: str = ""
    """The newest run, while it is on record."""
    last_status: str = ""
    because: str = ""


class SeriesDetail(msgspec.Struct, frozen=True, kw_only=True):
    """GET /v1/series/{name}: when its runs are due, what became of the newest, and why some did not come."""

    series: SeriesRow
    every: Recurrence
    notes: tuple[SeriesNote, ...] = ()
    """Times at which no run was submitted, or a late one, the newest last."""
    jobs: tuple[str, ...] = ()
    """The ids of the newest jobs of its runs, newest first."""
    created_at: float = 0.0
    changed_at: float = 0.0
    file: dict[str, Any] | None = None
    """The job file of its next run; None for those who may not read what it runs."""


class ArrayDetail(msgspec.Struct, frozen=True, kw_only=True):
    """GET /v1/jobs/{id}/array: the tasks of an array, added up."""

    id: str
    name: str
    indices: str
    """Of the tasks on record, as in `0-99` or `0-9,20`."""
    owner: str
    queue: str
    spec: JobSpec
    tasks: dict[str, int]
    """How many are in each status,"""
    unexpanded: int = 0
    """and how many of those that wait are no jobs yet: they become jobs in the order of their indices as others start."""
    at_once: int | None = None
    """So many may run at once."""
    after: tuple[str, ...] = ()
    submitted_at: float
    started_at: float | None = None
    """When the first did."""
    finished_at: float | None = None
    """When the last did, once all have."""
    deadline_at: float | None = None
    expected_finish_at: float | None = None
    """Of the last that waits."""
    mean_run_s: float | None = None
    """How long those that succeeded ran."""
    spent_usd: float = 0.0
    gpu_s: float = 0.0
    sites: dict[str, int] = {}
    """How many are placed at each."""
    waits: str = ""
    """Why the first that waits does."""
    ended: dict[str, str] = {}
    """Indices of those that did not succeed, by why."""
    outputs: str = ""
    """Indices of those that have collected outputs."""


JobOrder = Literal[
    "deadline", "ends", "finished", "gpus", "name", "owner", "priority", "queue", "reason", "site", "spent", "started", "starts", "status", "submitted",
]  # fmt: skip
"""What jobs can be sorted by."""


class JobPage(msgspec.Struct, frozen=True):
    """A page of jobs, newest first unless asked otherwise. `next_after` goes into `?after=`."""

    jobs: tuple[JobRow, ...]
    next_after: str | None = None
    total: int = 0

    def _repr_html_(self) -> str:
        from federator.wire.html import html_table  # noqa: PLC0415 - only notebooks ask for it

        return html_table(self.jobs)


class PartRow(msgspec.Struct, frozen=True):
    """A rank of a job that has a part of a shared GPU, by the number that its host has for that."""

    gpu: int
    share: float
    job: str
    name: str
    rank: int


class PoolRow(msgspec.Struct, frozen=True):
    """A pool of a site: its report, and the largest gang (nodes × GPUs) that fits now. In `pool` and `free`, shared GPUs are counted in thousandths."""

    pool: Pool
    member: str
    free: tuple[Shape, ...]
    busy_gpus: int | float
    largest_gang: str
    ailing: tuple[AilingGpu, ...] = ()
    """GPUs of it that take no new work, and why; those that are in use count as lent."""
    local_work: tuple[LocalWork, ...] = ()
    """Work of the site's own that is there, or waits for it in the site's own queue."""
    parts: tuple[PartRow, ...] = ()
    """What is on each of its shared GPUs."""


class GpuHolder(msgspec.Struct, frozen=True):
    """A job that has a GPU, or a part of it; without its id where it is not shown to whoever asks."""

    job: str
    name: str


class GpuRow(msgspec.Struct, frozen=True, kw_only=True):
    """How busy a GPU of a site is, as its host has told it last."""

    member: str
    pool: str
    host: str
    gpu: int
    busy_percent: int | None = None
    memory_mib: int = 0
    power_w: int | None = None
    slowed_by: str = ""
    """What keeps its clocks low although it has work: heat, its power brake; empty: nothing."""
    near: str = ""
    """Its groups of GPUs that reach each other best, such as `NVLink 0, NUMA 1`; empty: none that is known."""
    told_at: float
    jobs: tuple[GpuHolder, ...] = ()
    """Ours that hold it, or parts of it."""


class GpuPoint(msgspec.Struct, frozen=True):
    """Use of a GPU from that moment to the next point, on average."""

    at: float
    busy_percent: float
    memory_mib: float
    power_w: float | None = None


class GpuCurve(msgspec.Struct, frozen=True):
    """Use over time of one GPU that a job's newest attempt has, oldest first; in at most 64 points."""

    member: str
    gpu: int
    points: tuple[GpuPoint, ...]


class MemberRow(msgspec.Struct, frozen=True, kw_only=True):
    """A host of a site, and how it is. `age_s` is that of its last report; None: not heard since the dispatcher started."""

    name: str
    status: str
    because: str = ""
    age_s: float | None = None
    lease: str = ""
    joined_at: float = 0.0
    version: str = ""
    """Of its agent; empty: not heard since the dispatcher started."""
    version_is: Compared = ""
    """`older` or `newer` than the dispatcher; empty: the same, or not known."""
    link: LinkState | None = None
    """How its link to the dispatcher is, as its agent has told last."""


class SiteRow(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `federator sites`. `age_s` is that of the last report; None: never reported."""

    name: str
    kind: str
    status: str
    """That of its hosts, the worst; `DRAINING` or `PAUSED` where people or the site have said so, `UNRENTED` of a cloud of which nothing is rented."""
    region: str = ""
    labels: dict[str, str] = {}
    gpus: int | float = 0
    busy: int | float = 0
    running: int = 0
    largest_gang: str = ""
    age_s: float | None = None
    draining: bool = False
    drain_by_at: float | None = None
    """While it drains: when the last of its work has to be gone; None: what runs goes on to its end."""
    drain_because: str = ""
    """By whom it is drained, and why."""
    paused: bool = False
    members: int = 0
    pools: tuple[PoolRow, ...] = ()
    because: str = ""
    runtime: str = ""
    """What runs the work there, where it is not the agents themselves: `kube`, `slurm`."""
    isolation: str = ""
    """How jobs that are processes of its hosts are kept apart, and whose are taken where they are not; empty: not said."""
    lends_to: str = ""
    """Whose work it takes, in words; empty: everybody's."""
    hosts: tuple[MemberRow, ...] = ()
    """Its members one by one; the number `members` leaves out those that were declared dead."""
    gpu_use: tuple[GpuRow, ...] = ()
    """How busy each of its GPUs is, as far as hosts tell; of a site that is asked for alone."""


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `federator queues`: use against guarantee and limit, all below it included."""

    queue: str
    guaranteed_gpus: int = 0
    limit_gpus: int | None = None
    weight: float = 1.0
    gpus: int | float = 0
    running: int = 0
    pending: int = 0
    interactive: bool = False
    deadline_budget_s: float | None = None
    max_duration_s: float | None = None
    spent_usd: float = 0.0
    open_to: str = ""
    """Who may submit, in words."""
    yours: QueueRights = QueueRights()
    """What who asks may do there."""


class StatementRow(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `federator site statement`: what one owner has had at a site, by queue and GPU model. `usd`: what owned GPUs and rent came to."""

    owner: str
    queue: str
    model: str
    attempts: int = 0
    gpu_s: float = 0.0
    usd: float = 0.0


class LeaseRow(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `federator leases`."""

    id: str
    site: str
    offer: str
    market: str
    status: str
    gpus: int
    price_usd_h: float
    billed_usd: float
    committed_usd: float
    requested_at: float
    ready_at: float | None = None
    ended_at: float | None = None
    because: str = ""
    reason: Reason | None = None
    """The same as a value, where it is known as one."""
    failure: str | None = None
    evidence: BurstEvidence | None = None
    kept_because: str = ""
    """Of one that idles: why it is not given back yet."""
    zone: str = ""
    """In which its machine is, as its provider says; empty: nothing is said."""


class OfferRow(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `federator offers`. `stock`: what it draws on with other offers, and how much of that is taken. `price_source`: where the price is from, and of when; empty: from the settings.

    `interruptions_h`: how often an hour one spot machine of it is expected to be taken back, by the `interruptions` in the `watched_h` machine-hours of leases on record and a published rate. `zones_interruptions_h`: the same in each zone where such machines have run.
    """

    provider: str
    name: str
    site: str
    model: str
    gpus: int
    market: str
    price_usd_h: float
    delay_s: float
    available: int
    stock: str = ""
    avoid_until_at: float | None = None
    price_source: str = ""
    interruptions_h: float = 0.0
    interruptions: int = 0
    watched_h: float = 0.0
    zones_interruptions_h: dict[str, float] = {}


class BudgetRow(msgspec.Struct, frozen=True, kw_only=True):
    """Money under one cap, in its present period."""

    policy: str
    period: str
    unit: str
    limit: float
    spent: float
    committed: float
    share: str = ""
    """The queue or owner that has this much to itself."""
    who: str = ""
    """Whom it is about, in words; empty: everybody."""
    hard: bool = True
    """Whether it stops anything; else it only warns."""
    forecast: float | None = None
    """What will have been spent at the end of the period if it goes on as so far; None where there is no end or no pace yet."""
    ends_at: float | None = None
    """When the period ends."""


class SpentPoint(msgspec.Struct, frozen=True):
    """So much was spent by then."""

    at: float
    usd: float


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """What was spent under a cap over its present period, from `since` to now: a line from point to point."""

    cap: BudgetRow
    since: float
    points: tuple[SpentPoint, ...]


class BlobLength(msgspec.Struct, frozen=True):
    """How much of a work directory has come: the offset to go on from. All of it: it is kept. Less than before: what had come was damaged."""

    length: int


class TokenRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /v1/tokens: a person's token (`role`) or an agent's one-time join token (`site` and `kind`)."""

    name: str = ""
    role: str = ""
    site: str = ""
    kind: str = ""
    region: str = ""
    default_queue: str = ""
    expires_in: str = ""
    """Such as 30d; of a person's token also `never`. Empty: `tokens.lifetime_s`, and a day for an agent's."""
    member: str = ""
    """Of a join token: under which name the agent joins; may be that of one whose key was revoked."""
    scopes: tuple[Scope, ...] = ()
    """Of a person's token: what it is limited to; empty: everything that the role may do."""
    most: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0
    """Of a join token whose `site` is a pattern, such as `store-*`: how many new sites it admits an agent of."""


class TokenRotation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /v1/tokens/{name}/rotate: for how long the old token still counts, and, by an admin, for how long the new one does."""

    keep: str = ""
    expires_in: str = ""


class Revoked(msgspec.Struct, frozen=True):
    """How many tokens a revocation has ended."""

    tokens: int


class TokenRow(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `federator token list`: a person's token, or an agent's that was not used yet. Never the secret."""

    name: str
    role: str = ""
    """Empty: it lets one agent join `site`."""
    site: str = ""
    default_queue: str = ""
    created_at: float
    expires_at: float | None = None
    status: str
    """valid, expired or revoked."""
    id: str = ""
    """Names this one among several of a name."""
    scopes: tuple[Scope, ...] = ()
    """What it is limited to; empty: everything that the role may do."""
    last_used_at: float | None = None
    """When it was last used, to the hour; None: not yet."""
    most: int = 0
    """Of a join token for sites of a pattern: how many agents it admits. 0: one."""
    used: int = 0
    """How many it has admitted."""


class TokenAnswer(msgspec.Struct, frozen=True):
    """The secret, shown once."""

    secret: str
    name: str
    role: str = ""
    site: str = ""
    expires_at: float | None = None
    most: int = 0
    """Of a join token for sites of a pattern: how many agents it admits. 0: one."""


class ForecastMove(msgspec.Struct, frozen=True):
    """A line of GET /v1/jobs/{id}/forecasts: when a job was foreseen to start and end from then on, and what had changed."""

    at: float
    decision: str
    """The recorded decision that foresaw it; empty: it is not recorded."""
    start_at: float | None
    """None: it was not known when."""
    finish_at: float | None
    because: tuple[str, ...] = ()
    """What had changed since the line before, the likeliest cause first; empty in the first line."""


class Preview(msgspec.Struct, frozen=True):
    """POST /v1/preview: what would become of this job file, nothing being changed."""

    name: str
    queue: str
    explanation: Explanation
    cost_usd: float | None = None
    notes: tuple[str, ...] = ()
    """What whoever wrote it may not expect, though nothing is wrong with it."""
    launch: tuple[str, ...] = ()
    """Of a job with a framework, what each rank runs: the launcher with the job's command inside."""
    file: dict[str, Any] | None = None
    """The job file as data, where it came as YAML: what forms are filled with."""
    array: ArrayPreview | None = None
    """Of an array of up to 2,000 tasks, all of them together; the rest of the answer is about one task."""


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """GET /v1/overview: what `federator top` and the demonstration draw."""

    now: float
    sites: tuple[SiteRow, ...]
    queues: tuple[QueueRow, ...]
    leases: tuple[LeaseRow, ...]
    jobs: tuple[JobRow, ...]
    spent_usd: float
    committed_usd: float
    caps: tuple[BudgetRow, ...]
    turn: str = ""
    jobs_total: int = 0
    """How many jobs are on record; `jobs` are some of them."""
