"""The job file: what users write, into the records that the dispatcher keeps.

Pure: the same text and the same `now` give the same request. The whole documented file is read here; fields that this
version does not act on are refused with "not supported yet" rather than ignored, because a deadline or a residency rule that
is silently dropped is worse than an error. `docs/reference/job-file.md` describes the file for users.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Annotated, ClassVar, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType, field
from msgspec.structs import asdict, replace

from federator.kernel.errors import FederatorError, Invalid, NotSupported
from federator.kernel.ids import content_hash
from federator.kernel.quantities import format_duration
from federator.model.arrays import Indices
from federator.model.jobs import APART, FIRST, Checkpoint, Follows, JobSpec, Notify, Retry
from federator.model.series import Overlap
from federator.wire import fields
from federator.wire.accelerators import Model
from federator.wire.after import After, Jobs, followed
from federator.wire.commands import Command, Run, check_one, default_name
from federator.wire.decoding import decode
from federator.wire.every import Every, Repeated, repeated
from federator.wire.faults import with_line
from federator.wire.fields import (
    AMOUNT,
    MONEY,
    PAIRS,
    Array,
    Deadline,
    Duration,
    Money,
    Name,
    Patience,
    QueuePath,
    Text,
    alone,
    duration,
    written,
)
from federator.wire.forms import Nodes, RequestedResources, Scaling, asked_of
from federator.wire.groups import ALL, Groups, gathered
from federator.wire.inputs import Inputs, Place, inputs_from, inputs_of
from federator.wire.launchers import FrameworkFile, framework_of, launch_of, success_of
from federator.wire.launchers import Name as FrameworkName
from federator.wire.needs import Image, Secrets
from federator.wire.sizes import Sizes
from federator.wire.whereabouts import Labels, Placement, placement_of
from federator.wire.yamltext import Document

LEAST_BEYOND_GRACE_S = 30.0
"""So much longer than its grace must a job's stop_within be, so that a late answer or two does not stop it."""
BLOB_PREFIX = "sha256:"
MAX_ANY_FOLDERS = 2
MAX_SPEC_BYTES = 2**18
"""Of what is on record of a job file, as JSON: dispatchers have that of every open job in memory."""
MAX_ARGUMENT_BYTES = 2**17 - 1
"""Of one argument or variable of a program on Linux, with a byte for its end."""
MAX_LICENSES = 16
_BLOB = re.compile(r"sha256:[0-9a-f]{64}")
SIGNALS = ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
T = TypeVar("T")
_encoder = msgspec.json.Encoder(order="deterministic")


def _no_steps(value: object, path: str) -> dict[str, object]:
    """A pipeline is read by `federator.wire.steps`, where one is taken."""
    del value
    raise Invalid(
        "makes this a pipeline, and one job is wanted",
        field=path,
        remedy="use federator submit, or POST /v1/jobs, for the whole file",
    )


def _env(value: object, path: str) -> dict[str, str]:
    env = fields.pairs(value, path, limit=1000)
    for key in env:
        if not _ENV_NAME.fullmatch(key):
            raise Invalid(
                f"{key[:80]!r} is not the name of a variable",
                field=path,
                remedy="use letters, digits and '_'",
            )
        if key.startswith("FEDERATOR_") or key == "CUDA_VISIBLE_DEVICES":
            raise Invalid(
                "is set by the site", field=f"{path}.{key}", remedy="leave it out, or choose another name"
            )
    return env


def _glob(value: object, path: str) -> str:
    pattern = fields.text(value, path, limit=1000)
    if pattern.startswith(("/", "~")) or ".." in pattern.split("/"):
        remedy = "name files below the working directory, for example results/**"
        raise Invalid(f"{pattern[:80]!r} leaves the working directory", field=path, remedy=remedy)
    if pattern.split("/").count("**") > MAX_ANY_FOLDERS:
        # Each more goes through the whole work directory again, at every place that the one before it has found.
        remedy = "one ** stands for folders of any depth"
        raise Invalid(f"has more than {MAX_ANY_FOLDERS} steps of **", field=path, remedy=remedy)
    return pattern


def _signal(value: object, path: str) -> str:
    return fields.one_of(value.removeprefix("SIG") if isinstance(value, str) else value, path, SIGNALS)


def _worth(value: object, path: str) -> float | str:
    return "must" if value == "must" else fields.money_usd(value, path)


class CheckpointFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the job saves itself."""

    signal: Annotated[str, written(_signal, "TERM", "USR1", pattern=f"^(SIG)?({'|'.join(SIGNALS)})$")] = (
        "TERM"
    )
    """What the job is sent when it has to leave. Left out: `TERM`."""
    grace_s: Annotated[float, duration("60s", high_s=3600)] = field(
        name="grace", default=Checkpoint().grace_s
    )
    """How long it then has until it is killed, at most 1h. Left out: 30s."""
    every_s: Annotated[float, duration("10m", low_s=1)] | None = field(name="every", default=None)
    """How often it saves by itself: at most this much work is lost."""
    uri: Place | UnsetType = UNSET
    """Where its site keeps what it saves, whenever that stands still and when the job leaves; its next attempt, at any site, begins with the latest. Below it each job has a directory by its id, which stays when the job is over. Left out: its site's own disk."""


class RetryFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which endings start it again."""

    elsewhere: ClassVar = {"on_events": "on", "max_restarts_on_errors": "max"}

    on: Annotated[tuple[Literal["preemption", "error"], ...], alone()] = ("preemption",)
    """`error` is a failure of the job's own. Failures of the infrastructure always start it again."""
    max: Annotated[int, Meta(ge=0, le=1000)] = Retry().max
    """Most retries; failures of the infrastructure do not count."""
    backoff_s: Annotated[float, duration("30s", low_s=0)] = field(name="backoff", default=Retry().backoff_s)
    """Time between an ending and the next attempt. Left out: 30s."""


class Disconnect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How soon its work is gone once its site has lost the dispatcher."""

    stop_within: Annotated[float, duration("1h")]
    """At least `checkpoint.grace` and 30 s, and only for sites whose agent enforces it."""


class JobFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job, as its file says."""

    elsewhere: ClassVar = {
        "num_nodes": "nodes", "project": "queue", "account": "queue", "partition": "queue", "time": "max_duration",
        "time_limit": "max_duration", "max_price": "max_cost", "budget": "max_cost", "use_spot": "spot_policy",
        "job_recovery": "retry", "commands": "run", "cmd": "run", "script": "run", "depends_on": "after", "dependency": "after",
        "any_of": "resources.any_of", "ordered": "resources.ordered", "gpus": "resources.gpus", "gpu": "resources.gpus", "accelerators": "resources.gpus", "cpus": "resources.cpus",
        "memory": "resources.memory", "shm": "resources.shm", "sites": "placement.sites", "kinds": "placement.kinds",
        "launcher": "framework", "success_policy": "success", "successPolicy": "success",
        "schedule": "every", "cron": "every", "periodic": "every", "concurrency": "overlap", "concurrencyPolicy": "overlap", "environment": "env", "envs": "env", "grace": "checkpoint.grace", "mail_type": "notify", "notifications": "notify", "email": "notify", "working_dir": "workdir",
    }  # fmt: skip
    """What other systems call the same things."""

    run: Run | None = None
    """A line or script for `/bin/sh`, run once per node. Exactly one of `run` and `command` is needed; nothing else is."""
    command: Command | None = None
    """A program and its arguments, such as `[python, train.py]`, without a shell."""
    framework: FrameworkName | FrameworkFile | None = None
    """What the command is written for: its launcher starts the command in the gang. `torchrun`, `deepspeed`, `mpi` and `tensorflow` run it once per process; `ray`, `dask` and `spark` once, on rank 0, beside their cluster."""
    groups: Groups = ()
    """In place of `run`, `nodes` and `resources`: groups of unlike ranks, such as a learner beside workers with GPUs, that start and end as one gang, side by side on its nodes ([how](../howto/frameworks.md#groups-of-unlike-ranks))."""
    success: Name | None = None
    """Whose end is the job's: that of `all` ranks, or of the `first`, rank 0, or of rank 0 of the group named, at which the others are stopped. A rank that fails ends the job with each. Left out: as the framework has it, else `all`."""
    name: Name | None = None
    """What people call the job. Need not be unique. Left out: the program's name."""
    queue: QueuePath | None = None
    """Place in the tree of queues, such as `research/vision`. Left out: `default`."""
    team: Name = ""
    """Under which of your teams, where several of them may submit to the queue. Left out: the first that has the right."""
    priority: Annotated[int, Meta(ge=0, le=100)] | None = None
    """Higher goes first where the plan must choose. A queue caps what may be claimed. Left out: 50, or the queue's cap."""
    workdir: Text | None = None
    """A folder, such as `.`: uploaded once by its content, unpacked where the job runs, which is its working directory. `.gitignore` and `.federatorignore` are respected."""
    setup: Annotated[Text, Meta(examples=["pip install -r requirements.txt"])] | None = None
    """Runs before the job, once per site for the same text, `workdir` and `env`."""
    env: Annotated[
        dict[str, str],
        written(
            _env,
            "{NCCL_DEBUG: INFO}",
            **PAIRS,
            propertyNames={"pattern": f"^(?!FEDERATOR_|CUDA_VISIBLE_DEVICES$){_ENV_NAME.pattern}$"},
        ),
    ] = {}
    """Variables for the job. Names that begin with `FEDERATOR_` are the site's."""
    outputs: Annotated[tuple[Annotated[str, written(_glob, "results/**")], ...], alone()] = ()
    """Files below the working directory to collect at the end, for `federator download`."""
    nodes: Nodes | None = None
    """A gang: all nodes start together on one site, or none does. Left out: 1."""
    min_nodes: Nodes | None = None
    """It may run on fewer nodes than `nodes`. With a `checkpoint` it may also be told to change their number while it runs."""
    max_nodes: Nodes | None = None
    """It may run on more. Of more than sixteen sizes the ends, `nodes` and the powers of two are planned, which a note says; `scaling` chooses others."""
    scaling: Scaling | None = None
    """Throughput by nodes, or by GPUs per node where those are a range. Only the sizes that it names are planned, two or more; `nodes`, or the low end of the range of GPUs, is among them. Left out: each doubling 1.9 times."""
    resources: Sizes = Sizes()
    """What each node needs. Left out: one CPU."""
    max_duration: Duration | None = None
    """The job is ended after this time, in which its set-up counts too. Without any, capacity cannot be rented for it. Left out: the queue's."""
    estimate: Duration | None = None
    """Expected run time on the first GPU model named. Left out: learned from the history of the same name and queue."""
    speed: dict[Model, Annotated[float, Meta(ge=0.001, le=1000)]] = {}
    """Relative throughput by GPU model, such as `{A100: 1.0, H100: 1.9}`; corrected by how long jobs of its name took on several models. Left out: equal."""
    deadline: Deadline | None = None
    """When it should be finished. Missing it is recorded, not punished: the job goes on. Left out: the queue's budget."""
    finish_within: Annotated[float, duration("12h")] | None = None
    """The same, counted from submission. One of the two."""
    value: (
        Annotated[float | str, written(_worth, "200 USD", "must", **AMOUNT, pattern=f"^(must|{MONEY})$")]
        | None
    ) = None
    """What meeting the deadline is worth; `must`, where the queue allows it: any permitted price. Left out: the queue's price."""
    max_cost: Money | None = None
    """Hard cap on what this job may cost."""
    spot_policy: Literal["auto", "spot", "on-demand"] = "auto"
    """Which rented capacity it may use. `auto`: spot while the deadline survives an interruption at the very end, else on-demand; `spot` takes the risk."""
    patience: Patience | UnsetType = UNSET
    """For how long after its submission it may wait for a cheaper or better place while GPUs that fit it are free. Left out: the queue's, else `0s`."""
    checkpoint: CheckpointFile | None = None
    """How it saves itself. Without it, a preempted job starts over."""
    retry: RetryFile = RetryFile()
    on_disconnect: Literal["keep"] | Disconnect = "keep"
    """What happens when its site loses the dispatcher. `keep`: the work goes on, and is never started elsewhere by the clock. `{stop_within: 1h}`: it is gone so long after the last answer, and starts elsewhere a little later."""
    placement: Placement = Placement()
    image: Image | UnsetType = UNSET
    """The container image that it runs in, at sites that run containers (Kubernetes). It has `/bin/sh`. Left out: its site's."""
    secrets: Secrets = ()
    """Names of secrets that its site adds to its environment. What they are is with the site alone."""
    licenses: Annotated[
        dict[Name, Annotated[int, Meta(ge=1, le=1_000_000)]], Meta(max_length=MAX_LICENSES)
    ] = {}
    """Floating licences that it holds while it runs, and how many of each, such as `{matlab: 2}`: so many for the job, whatever its size. A policy of kind `License` says how many there are."""
    inputs: Inputs = ()
    """Data that it reads. What it takes to bring it to a site counts where the job is planned."""
    after: Jobs | After = ()
    """Jobs that it must follow, by name or id: a list of those that must have succeeded first, or a mapping by what each must come to, such as `{any: preprocess, each: sweep}`."""
    array: Array = ((), None)
    """One job per index, each seeing its own in `FEDERATOR_ARRAY_INDEX`; after `%` how many run at once."""
    every: Annotated[Text, Meta(examples=["6h", '"0 3 * * *"'])] | Every | None = None
    """Submit it again and again: it becomes a series, known by its `name`, and each run is a job of its own, `NAME-1`, `NAME-2` and so on. Every so long, from now on; or as cron writes times, in UTC."""
    overlap: Overlap | None = None
    """What becomes of a run that is due while the last one is not over: it does not come; it waits for the end of that one, at most one at a time, the newest; or that one is cancelled, and once it is gone the new one comes. Left out: `skip`."""
    labels: Labels = {}
    """Free words that policies and lists can select by."""
    notify: Annotated[tuple[Notify, ...], alone()] = ()
    """Of what you are told by mail or webhook, where your dispatcher knows how to reach you: `[end, fail, deadline-at-risk, idle-gpus, start]`. What happens close together comes in one message."""
    client_id: Annotated[str, fields.short(200)] | None = None
    """Sent again, it gives the first answer instead of a second job."""
    steps: (
        Annotated[dict[str, object], written(_no_steps, "{prepare: {run: …}, train: {…}}", type="object")]
        | None
    ) = None
    """Makes the file a [pipeline](../howto/pipelines.md): job files by name, at most 32, that follow each other and read each other's outputs by these names, submitted together or not at all. What stands beside `steps` holds for all that do not say otherwise; a step's job is called `NAME.STEP`."""


class JobRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A submission as it was asked for, before queue and owner are known. None: the queue's default, or no limit."""

    spec: JobSpec
    queue: str | None = None
    team: str = ""
    """Under which of the submitter's teams; empty: the first that has the right."""
    priority: int | None = None
    deadline_at: float | None = None
    value_usd: float | None = None
    must: bool = False
    max_cost_usd: float | None = None
    max_duration_s: float | None = None
    after: tuple[str, ...] = ()
    after_how: tuple[Follows, ...] = ()
    """What each of those must come to; empty: all of them to success."""
    array: Indices = Indices(())
    """Indices in growing order; empty: not an array."""
    at_once: int | None = None
    """So many tasks of the array may run at once."""
    notify: tuple[Notify, ...] = ()
    client_id: str | None = None
    repeated: Repeated | None = None
    """It is submitted again and again: this is what its first run asks for."""
    notes: tuple[str, ...] = ()
    """What whoever wrote it may not expect, though nothing is wrong with it."""


def read_job_document(document: Document, *, now: float) -> JobRequest:
    """As `read_job`, with the line of the fault in its message."""
    return read_in_lines(document, partial(read_job, now=now))


def read_in_lines(document: Document, read: Callable[[object], T]) -> T:
    """What `read` makes of a document, with the line of the fault in its message."""
    try:
        return read(document.value)
    except FederatorError as error:
        raise with_line(document, error) from None


def read_job(document: object, *, now: float) -> JobRequest:
    """A decoded job file into a request; `now` resolves `finish_within`. Raises `Invalid` or `NotSupported` naming the field."""
    if isinstance(document, dict) and document.get("kind") == "service":
        raise Invalid(
            "makes this a service, and a job is wanted",
            field="$.kind",
            remedy="use federator service apply, or POST /v1/services",
        )
    file = decode(document, JobFile, "$")
    assert isinstance(document, dict)
    given = {key: value for key, value in document.items() if value is not None}
    notes: tuple[str, ...] = ()
    if file.groups:
        signal = file.checkpoint.signal if file.checkpoint else None
        groups = gathered(file.groups, given, file.success, signal)
        asked, notes = groups.asked, groups.notes
        spec = _spec(replace(file, name=file.name or groups.name, run=groups.run), asked)
        spec = replace(spec, launch=groups.launch, success=groups.success)
    else:
        _check_success(file.success)
        nodes = (file.nodes, file.min_nodes, file.max_nodes)
        asked = asked_of(file.resources, nodes, file.scaling, elastic=file.checkpoint is not None)
        spec = _spec(file, asked)
    every = (spec.resources, *(form.resources for form in spec.forms or ()))
    if spec.placement.together == APART and any(each.gpus.share_milli for each in every):
        raise NotSupported(
            "nodes apart, each with a part of a GPU, are not supported yet",
            field="$.placement.together",
            remedy="ask for whole GPUs, or leave it out",
        )
    if file.estimate and file.max_duration and file.estimate > file.max_duration:
        raise Invalid(
            "is longer than max_duration: the job would be killed first",
            field="$.estimate",
            remedy="raise max_duration",
        )
    after, after_how = followed(file.after)
    sources = inputs_from(file.inputs, set(zip(after, after_how, strict=False)), "$.inputs")
    implied = tuple(dict.fromkeys(each.job for each in sources if each.job not in after))
    spec = replace(spec, inputs_from=sources or UNSET)
    _check_length(spec)
    return JobRequest(
        spec=spec,
        queue=file.queue,
        team=file.team,
        priority=file.priority,
        deadline_at=_deadline_at(file, now),
        value_usd=file.value if isinstance(file.value, float) else None,
        must=file.value == "must",
        max_cost_usd=file.max_cost,
        max_duration_s=file.max_duration,
        after=after + implied,
        after_how=after_how + (Follows.OK,) * len(implied) if after_how else (),
        array=Indices.of(file.array[0]),
        at_once=file.array[1],
        notify=tuple(dict.fromkeys(file.notify)),
        client_id=file.client_id,
        repeated=repeated(file.every, file.overlap, given, now=now),
        notes=(asked.left_out, *notes) if asked.left_out else notes,
    )


def _check_length(spec: JobSpec) -> None:
    """Of its record, and of each text that a program is given. Raises `Invalid`."""
    if (size := len(encode_spec(spec))) > MAX_SPEC_BYTES:
        raise Invalid(
            f"the job has {size} bytes on record; at most {MAX_SPEC_BYTES} are taken",
            field="$",
            remedy="put long scripts and values in files of the work directory, or among the inputs",
        )
    variables = (f"{name}={value}" for name, value in spec.env.items())
    longest = max(len(text.encode()) for text in (*(spec.launch or spec.asked), spec.setup or "", *variables))
    if longest > MAX_ARGUMENT_BYTES:
        raise Invalid(
            f"a program would be given a text of {longest} bytes; Linux takes at most {MAX_ARGUMENT_BYTES} in one",
            field="$",
            remedy="put long scripts and values in files of the work directory, or among the inputs",
        )


def encode_spec(spec: JobSpec) -> bytes:
    """A spec as canonical JSON: equal specs give equal bytes, whatever the order of their mappings."""
    return _encoder.encode(spec)


def spec_hash(spec: JobSpec) -> str:
    """The name under which a spec is stored and fetched."""
    return content_hash(encode_spec(spec))


def _spec(file: JobFile, asked: RequestedResources) -> JobSpec:
    check_one(file.run, file.command, "$")
    spec = JobSpec(
        name=file.name or default_name(file.run, file.command),
        run=file.run,
        command=file.command,
        setup=file.setup,
        workdir=_workdir(file.workdir),
        env=file.env,
        outputs=file.outputs,
        nodes=asked.nodes,
        resources=asked.resources,
        estimate_s=file.estimate,
        speed=file.speed,
        spot_policy=file.spot_policy,
        checkpoint=None if file.checkpoint is None else Checkpoint(**asdict(file.checkpoint)),
        retry=Retry(**asdict(file.retry)),
        placement=placement_of(file.placement),
        labels=file.labels,
        stop_within_s=_stop_within_s(file),
        inputs=inputs_of(file.inputs, "$.inputs") or UNSET,
        image=file.image,
        secrets=tuple(dict.fromkeys(file.secrets)) or UNSET,
        licenses=file.licenses or UNSET,
        forms=asked.forms,
        elastic=asked.elastic,
        ordered=asked.ordered,
        patience_s=file.patience,
        success=FIRST if file.success == FIRST else UNSET,
    )
    return spec if file.framework is None else _launched(spec, file)


def _check_success(success: str | None) -> None:
    if success not in (None, ALL, FIRST):
        raise Invalid(
            f"{success} is no group of this job: it has none", field="$.success", remedy="write all or first"
        )


def _launched(spec: JobSpec, file: JobFile) -> JobSpec:
    """With the launcher of its framework round its command."""
    assert file.framework is not None
    framework = framework_of(file.framework, "$.framework")
    success = success_of(framework)
    if success and file.success not in (None, success):
        raise Invalid(
            f"{framework.name} ends with its {success} rank: the others serve until they are stopped",
            field="$.success",
            remedy=f"write {success}, or leave it out",
        )
    launch = launch_of(framework, spec.asked)
    return replace(spec, framework=framework, launch=launch, success=success or spec.success or UNSET)


def _workdir(word: str | None) -> str | None:
    if word is None:
        return None
    if not _BLOB.fullmatch(word):
        remedy = "submit with `federator submit` or federator.client, which upload the folder"
        raise Invalid("is not the hash of an uploaded folder (sha256:…)", field="$.workdir", remedy=remedy)
    return word.removeprefix(BLOB_PREFIX)


def _stop_within_s(file: JobFile) -> float | UnsetType:
    """Time for the whole grace must be left once it is known that no answer comes any more."""
    if not isinstance(file.on_disconnect, Disconnect):
        return UNSET
    grace_s = (file.checkpoint or CheckpointFile()).grace_s
    least_s = grace_s + LEAST_BEYOND_GRACE_S
    if file.on_disconnect.stop_within < least_s:
        raise Invalid(
            f"is too short for a grace of {format_duration(grace_s)}",
            field="$.on_disconnect.stop_within",
            remedy=f"write at least {format_duration(least_s)}, or shorten checkpoint.grace",
        )
    return file.on_disconnect.stop_within


def _deadline_at(file: JobFile, now: float) -> float | None:
    if file.deadline is not None and file.finish_within is not None:
        raise Invalid(
            "cannot be combined with deadline", field="$.finish_within", remedy="write one of the two"
        )
    if file.deadline is not None and file.deadline <= now:
        remedy = "write a time in the future, or finish_within: 12h"
        raise Invalid("is in the past", field="$.deadline", remedy=remedy)
    return file.deadline if file.finish_within is None else now + file.finish_within
