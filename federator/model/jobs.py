"""Jobs: what a user asks for (`JobSpec`, immutable, shared by hash) and what has become of it (`Job`).

The two are apart on purpose. Thousands of jobs of an array share one spec; planning reads a job's few numbers and never its
command, environment or secrets; and what may be changed while a job lives (`federator update`) is in the record, not the spec.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec

from federator.model.reasons import Reason


class JobStatus(StrEnum):
    """Where a job is in its life; edges are in `federator.model.lifecycle`."""

    PENDING = "PENDING"
    PLACED = "PLACED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    HELD = "HELD"
    SUSPENDING = "SUSPENDING"
    CANCELLING = "CANCELLING"
    RECOVERING = "RECOVERING"


TERMINAL = frozenset({JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED})


class TerminalReason(StrEnum):
    """Why a job ended: a closed list, so that programs can act on it."""

    DONE = "done"
    EXIT_CODE = "exit-code"
    SETUP_FAILED = "setup-failed"
    STAGING_FAILED = "staging-failed"
    IMAGE_PULL_FAILED = "image-pull-failed"
    MAX_DURATION = "max-duration"
    OUT_OF_MEMORY = "out-of-memory"
    DEPENDENCY_FAILED = "dependency-failed"
    RETRIES_SPENT = "retries-spent"
    CANCELLED = "cancelled"


WHOLE_MILLI = 1000
"""A GPU that is shared is counted in thousandths."""


class Accelerators(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """GPUs per node. `models` empty: any model. `memory_mib` is per GPU, 0: any. `count` 0: none."""

    count: int = 0
    models: tuple[str, ...] = ()
    memory_mib: int = 0
    share_milli: int | msgspec.UnsetType = msgspec.UNSET
    """Of one GPU that others use too, so many thousandths; `count` is 1 then. Unset (so that specs from before keep their hash): whole GPUs."""

    @property
    def each(self) -> int:
        """Per node, as planning counts: GPUs, or thousandths of a shared one."""
        return self.share_milli or self.count

    @property
    def total(self) -> float:
        """GPUs per node, parts of one as parts."""
        return in_gpus(self.each, shared=bool(self.share_milli))


def longest_s(max_duration_s: float | None, throughput: float) -> float | None:
    """The limit of a run at that throughput: never less than what is said."""
    return None if max_duration_s is None else max_duration_s / min(1.0, throughput)


def in_gpus(count: int, *, shared: bool) -> float:
    """So many GPUs; or thousandths, where they are shared, as parts of GPUs."""
    return tidy(count / WHOLE_MILLI) if shared else count


def cuts_of(share_milli: int, cut_milli: int) -> int:
    """How many parts of that size are what is asked for, to a twentieth of one; 0: it is not a whole number of them."""
    cuts = (share_milli + cut_milli // 2) // cut_milli
    return cuts if 20 * abs(cuts * cut_milli - share_milli) <= cut_milli else 0


def tidy(gpus: float) -> float:
    """A sum of GPUs and of parts, to the thousandth; a whole number as such, for people and programs that expect one."""
    return int(gpus) if gpus == int(gpus) else round(gpus, 3)


class Resources(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one node of the job needs."""

    gpus: Accelerators = Accelerators()
    cpus_milli: int = 1000
    memory_mib: int = 0
    shm_mib: int = 0


class Form(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One way to run a job: so many nodes of this size, with a throughput relative to the job's first form."""

    nodes: int
    resources: Resources
    throughput: float = 1.0
    option: int = 0
    """Which entry of `any_of` or `ordered` it is a width of."""


class Checkpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the job is asked to save itself: a signal, then `grace_s` until it is killed; `every_s` how often it saves by itself."""

    signal: str = "TERM"
    grace_s: float = 30.0
    every_s: float | None = None
    uri: str | msgspec.UnsetType = msgspec.UNSET
    """Where what it saves is kept for its next attempt, at whatever site. Unset (so that specs from before keep their hash): at its site alone."""


class Retry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which endings start the job again, how often, and after how long. Infrastructure failures always do and are not counted."""

    on: tuple[str, ...] = ("preemption",)
    max: int = 3
    backoff_s: float = 30.0


ON_ONE_HOST, APART = "host", "spread"


class PlacementConstraints(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the user lets the job run; empty: anywhere. All that are given must hold."""

    kinds: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    not_sites: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    together: str | msgspec.UnsetType = msgspec.UNSET
    """How its nodes lie: all on one host (`ON_ONE_HOST`), each on a host of its own (`APART`), or else on hosts with one value of the label of
    that name. Unset (so that specs from before keep their hash): as it comes."""


class Input(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Data that is at the job's site before it starts. `size_bytes` None: as the policies' register of datasets has it, or not known."""

    uri: str
    size_bytes: int | None = None


class InputFrom(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Collected outputs of another job, which are at the job's site before it starts. Of an array: of all its tasks, each below its index."""

    job: str
    """The id of that job or array; in a request what its file says, a name or an id."""
    name: str
    """What it is called where the job looks for its inputs."""
    output: str = ""
    """A file or folder of these outputs; empty: all of them."""
    each: bool = False
    """Of that array: of the task with the reader's index alone."""


class Framework(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose launcher starts a job's command. 0 processes: one for each GPU of a rank, and one without any."""

    name: str
    processes: int = 0
    restarts: int = 0


FIRST = "first"
"""Of a job's `success`: the end of rank 0 is that of the job."""


class JobSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The immutable part of a job: what to run, and what it needs. Parsed from a job file by `federator.wire.jobfile`.

    Exactly one of `run` (for /bin/sh) and `command` (argument vector) is set. `workdir` and `setup_hash` name blobs.
    """

    name: str
    run: str | None = None
    command: tuple[str, ...] | None = None
    setup: str | None = None
    workdir: str | None = None
    env: dict[str, str] = {}
    outputs: tuple[str, ...] = ()
    nodes: int = 1
    resources: Resources = Resources()
    estimate_s: float | None = None
    speed: dict[str, float] = {}
    spot_policy: str = "auto"
    checkpoint: Checkpoint | None = None
    retry: Retry = Retry()
    placement: PlacementConstraints = PlacementConstraints()
    labels: dict[str, str] = {}
    stop_within_s: float | msgspec.UnsetType = msgspec.UNSET
    """Its work must be gone so long after its site has lost the dispatcher. Unset (and then not written at all, so that agents
    and hashes from before it are as they were): the work is kept."""
    inputs: tuple[Input, ...] | msgspec.UnsetType = msgspec.UNSET
    """What it reads. Unset (for the same reason) where it reads nothing that it says."""
    inputs_from: tuple[InputFrom, ...] | msgspec.UnsetType = msgspec.UNSET
    """What it reads of the outputs of jobs that it follows."""
    image: str | msgspec.UnsetType = msgspec.UNSET
    """The container image that it runs in. Unset: its site's."""
    secrets: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    """Names of what its site adds to its environment."""
    forms: tuple[Form, ...] | msgspec.UnsetType = msgspec.UNSET
    """The other ways in which it may run, numbered from 1. Form 0 is `nodes` and `resources`, with throughput 1; `estimate_s` is of that one."""
    elastic: bool | msgspec.UnsetType = msgspec.UNSET
    """It may change its form while it runs, after a checkpoint. Unset: it keeps the form that it started in."""
    ordered: bool | msgspec.UnsetType = msgspec.UNSET
    """An entry of the list that stands earlier is taken where both could start now. Unset: the cheapest is."""
    patience_s: float | msgspec.UnsetType = msgspec.UNSET
    """It may let GPUs that are free and fit it go by, for a cheaper or better place that is free so long after it was submitted. Unset: as its queue says."""

    licenses: dict[str, int] | msgspec.UnsetType = msgspec.UNSET
    """Licences that it holds while it runs, and how many of each, whatever its size. Unset: none."""
    framework: Framework | msgspec.UnsetType = msgspec.UNSET
    """Its launcher starts the command, in all ranks."""
    launch: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    """What each rank then runs, as an argument vector: the launcher with `run` or `command` inside. Unset: that itself."""
    success: str | msgspec.UnsetType = msgspec.UNSET
    """`FIRST`, if the end of rank 0 is the job's, and the others are stopped at it. Unset: the job succeeds when all its ranks have."""

    def as_form(self, form: int) -> "JobSpec":
        """The spec as it runs in this form: its nodes and resources, and no other forms. 0: itself. Raises `IndexError`."""
        if form == 0:
            return self
        chosen = (self.forms or ())[form - 1]
        return msgspec.structs.replace(
            self,
            nodes=chosen.nodes,
            resources=chosen.resources,
            forms=msgspec.UNSET,
            elastic=msgspec.UNSET,
            ordered=msgspec.UNSET,
        )

    def throughput(self, form: int) -> float:
        """How much work that form does, against form 0."""
        return (self.forms or ())[form - 1].throughput if form else 1.0

    def pace(self, form: int, model: str) -> float:
        """Seconds of its work, as form 0 does it at speed 1, that one second in this form on that model does."""
        return self.throughput(form) * self.speed.get(model, 1.0)

    def limit_s(self, max_duration_s: float | None, form: int) -> float | None:
        """What its longest run comes to in that form: `max_duration` is about form 0, and one that does less has longer."""
        return longest_s(max_duration_s, self.throughput(form))

    @property
    def gpus_total(self) -> float:
        """GPUs over all nodes; a whole number unless it asks for parts."""
        return in_gpus(self.nodes * self.resources.gpus.each, shared=bool(self.resources.gpus.share_milli))

    @property
    def asked(self) -> tuple[str, ...]:
        """The command that its file asks for, as an argument vector."""
        return self.command or ("/bin/sh", "-c", self.run or "")

    @property
    def grace_s(self) -> float:
        """How long it may go on after it is asked to end."""
        return (self.checkpoint or Checkpoint()).grace_s


class Follows(StrEnum):
    """What a job that must be followed has to come to."""

    OK = "ok"
    """It succeeds; of an array, all its tasks."""
    FAILED = "failed"
    """It ends, and not in success; of an array, all tasks end, and one at least not in success."""
    ANY = "any"
    """It ends, however."""
    EACH = "each"
    """Of two arrays: the task with the same index succeeds."""

    def met(self, statuses: Iterable[JobStatus]) -> bool | None:
        """Whether jobs in these have come to it; None while they still may."""
        there = set(statuses)
        failed = bool(there & TERMINAL - {JobStatus.SUCCEEDED})
        ended = there <= TERMINAL
        if self in (Follows.OK, Follows.EACH):
            return False if failed else True if ended else None
        if not ended:
            return None
        return self is Follows.ANY or failed


class Outcome(msgspec.Struct, frozen=True):
    """How a job ended. `missed_deadline` is beside the outcome: late is not failed."""

    reason: TerminalReason
    detail: str = ""
    exit_code: int | None = None
    missed_deadline: bool | None = None


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """A member at which the job's gang came to nothing before it began: it refused its ranks, or did not answer. Without a member: its site has evicted it."""

    member: str
    site: str
    at: float
    """The last time."""
    times: int = 1
    until_at: float = 0.0
    """The site is left alone until then: after the first time only the member is avoided, where there is another."""


class Notify(StrEnum):
    """Of what a job's owner is told."""

    START = "start"
    """It runs for the first time."""
    END = "end"
    """It is over, however."""
    FAIL = "fail"
    """It has failed."""
    AT_RISK = "deadline-at-risk"
    """It is expected to miss its deadline."""
    IDLE = "idle-gpus"
    """It runs, and its GPUs do nothing."""


class FirstForecast(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What was expected of a job when anything was for the first time. 90 of 100 such jobs start and are done by the `high` moments."""

    at: float
    start_at: float
    start_high_at: float
    finish_at: float
    finish_high_at: float
    spent_usd: float | None = None
    """Rent and data; None: it was not known where it would run."""

    def start_kept(self, started_at: float) -> bool:
        """Whether it started by when it was to: what starts within a few seconds counts as at once."""
        return started_at <= self.start_high_at + FORECAST_SLACK_S

    def finish_kept(self, finished_at: float) -> bool:
        """The same of its end."""
        return finished_at <= self.finish_high_at + FORECAST_SLACK_S

    def cost_kept(self, spent_usd: float) -> bool | None:
        """Whether it cost no more than it was to, but for a cent; None: what it was to cost was not known."""
        return None if self.spent_usd is None else spent_usd <= self.spent_usd + FORECAST_SLACK_USD


FORECAST_SLACK_S = 10.0
"""What nobody would call late,"""
FORECAST_SLACK_USD = 0.01
"""and dearer."""


class Job(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job's record. `placement` is the attempt that counts now; `epoch` counts attempts. Times are seconds since the epoch."""

    id: str
    name: str
    owner: str
    queue: str
    status: JobStatus
    spec_hash: str
    submitted_at: float
    team: str = ""
    """The team under which it was admitted; empty: under none."""
    may_rent: bool = True
    """Whether capacity may be rented for it: the right by which it was admitted says so."""
    priority: int = 50
    deadline_at: float | None = None
    value_usd: float | None = None
    """What meeting the deadline is worth; None: by the queue's price."""
    must: bool = False
    """The deadline must be met at any permitted price (`value: must`)."""
    max_cost_usd: float | None = None
    max_duration_s: float | None = None
    array: str | None = None
    array_index: int | None = None
    series: str | None = None
    """The series of its owner's that it is a run of."""
    due_at: float | None = None
    """When that run was due."""
    pipeline: str | None = None
    """The id of the pipeline that it is a step of; its name is before the last dot of that of the job's."""
    at_once: int | None = None
    """So many tasks of its array may run at once."""
    after: tuple[str, ...] = ()
    """Ids of the jobs and arrays that it must follow."""
    after_how: tuple[Follows, ...] = ()
    """What each of those must come to; empty: all of them to success."""
    client_id: str | None = None
    placement: str | None = None
    epoch: int = 0
    errors: int = 0
    """Own failures that `retry.max` counts."""
    losses: tuple[str, ...] = ()
    """Distinct nodes that were lost under it; three make it HELD."""
    not_before_at: float | None = None
    refusals: tuple[Refusal, ...] = ()
    """Where its gang was refused lately, one of each member, the newest last."""
    resume_site: str | None = None
    """The site that has its checkpoint: it resumes there."""
    resume_members: tuple[str, ...] = ()
    """The members where it saved itself, in order of ranks; what a rank saved is at its own host."""
    pause_for: str | None = None
    """While SUSPENDING: `hold`, `preemption`, `interruption` or `resize`, what it is stopped for."""
    displaced_at: float | None = None
    """When it had to make room for another job last."""
    saved_s: float = 0.0
    """What its checkpoint holds, in seconds of form 0 at speed 1: so much less is left of its run."""
    form: int | None = None
    """The form in which it goes on: one that is not elastic keeps the one that it saved itself in, an elastic one may be stopped for another. None: any."""
    approved_usd: float = 0.0
    """A person has approved one rental for it that costs up to so much in the worst case; 0 again once it is rented."""
    proposed: str = ""
    """What was last proposed to people for it: the sort of proposal, and the policy."""
    proposed_usd: float = 0.0
    """What that could cost in the worst case, as people were told: approving it without an amount approves so much."""
    because: str = "submitted; the next turn will look at it"
    """Why it is as it is, in words; empty where `reason` says it."""
    reason: Reason | None = None
    started_at: float | None = None
    finished_at: float | None = None
    notify: tuple[Notify, ...] = ()
    """Of what its owner is to be told,"""
    notified: tuple[Notify, ...] = ()
    """and was."""
    first_forecast: FirstForecast | None = None
    """What people were told first; None where nothing was, or by a version that did not keep it."""
    spent_usd: float = 0.0
    gpu_s: float = 0.0
    energy_kwh: float = 0.0
    """Of its GPUs, in attempts that are over; 0: their power is not known."""
    outcome: Outcome | None = None

    @property
    def label(self) -> str:
        """What people are told of it by: a task of an array with its index."""
        return label_of(self.name, self.array_index)

    def follows(self) -> Iterator[tuple[str, Follows]]:
        """What it must follow, and what that must come to."""
        yield from zip(self.after, self.after_how or (Follows.OK,) * len(self.after), strict=True)

    @property
    def kin(self) -> str:
        """The name that work alike to it has: runs of a series have one in common."""
        return self.series or self.name

    @property
    def terminal(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.status in TERMINAL


def label_of(name: str, array_index: int | None) -> str:
    """A job's name as people read it."""
    return name if array_index is None else f"{name}[{array_index}]"
