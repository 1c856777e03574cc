"""The job file: what users write, into the records that the dispatcher keeps.

Pure: the same text and the same `now` give the same request. The whole documented file is read here; fields that this
version does not act on are refused with "not supported yet" rather than ignored, because a deadline or a residency rule that
is silently dropped is worse than an error. `docs/reference/job-file.md` describes the file for users.
"""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

import msgspec

from federator.kernel.errors import FederatorError, Invalid, NotSupported
from federator.kernel.ids import content_hash
from federator.kernel.quantities import format_duration
from federator.model.jobs import APART, Checkpoint, Follows, JobSpec, PlacementConstraints, Retry
from federator.wire import fields
from federator.wire.accelerators import read_model
from federator.wire.after import read_after
from federator.wire.every import Repeated, read_every
from federator.wire.faults import with_line
from federator.wire.forms import Asked, read_asked
from federator.wire.inputs import read_inputs, read_place
from federator.wire.needs import read_image, read_secrets
from federator.wire.whereabouts import read_labels, read_placement
from federator.wire.yamltext import Document, read_document

MAX_RETRIES = 1000
MAX_GRACE_S = 3600.0
LEAST_BEYOND_GRACE_S = 30.0
"""So much longer than its grace must a job's stop_within be, so that a late answer or two does not stop it."""
BLOB_PREFIX = "sha256:"
SIGNALS = ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2")
RETRY_ON = ("preemption", "error")
SPOT_POLICIES = ("auto", "spot", "on-demand")

KNOWN = (
    "name", "queue", "priority", "workdir", "setup", "run", "command", "env", "outputs", "nodes", "resources", "max_duration",
    "estimate", "speed", "deadline", "finish_within", "value", "max_cost", "spot_policy", "checkpoint", "retry", "on_disconnect",
    "placement", "inputs", "after", "array", "labels", "client_id", "image", "secrets", "min_nodes", "max_nodes", "scaling",
    "every", "overlap", "team", "patience",
)  # fmt: skip
ELSEWHERE = {
    "num_nodes": "nodes", "project": "queue", "account": "queue", "partition": "queue", "time": "max_duration",
    "time_limit": "max_duration", "max_price": "max_cost", "budget": "max_cost", "use_spot": "spot_policy",
    "job_recovery": "retry", "commands": "run", "cmd": "run", "script": "run", "depends_on": "after", "dependency": "after",
    "any_of": "resources.any_of", "ordered": "resources.ordered", "gpus": "resources.gpus", "gpu": "resources.gpus", "accelerators": "resources.gpus", "cpus": "resources.cpus",
    "memory": "resources.memory", "shm": "resources.shm", "sites": "placement.sites", "kinds": "placement.kinds",
    "schedule": "every", "cron": "every", "periodic": "every", "concurrency": "overlap", "concurrencyPolicy": "overlap", "environment": "env", "envs": "env", "grace": "checkpoint.grace", "working_dir": "workdir",
}  # fmt: skip
MAX_ANY_FOLDERS = 2
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_BLOB = re.compile(r"sha256:[0-9a-f]{64}")
_LAUNCHERS = {
    "python",
    "python3",
    "bash",
    "sh",
    "env",
    "exec",
    "time",
    "nice",
    "torchrun",
    "accelerate",
    "srun",
    "mpirun",
    "uv",
}
_encoder = msgspec.json.Encoder(order="deterministic")


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
    array: tuple[int, ...] = ()
    """Indices in growing order; empty: not an array."""
    at_once: int | None = None
    """So many tasks of the array may run at once."""
    client_id: str | None = None
    repeated: Repeated | None = None
    """It is submitted again and again: this is what its first run asks for."""
    notes: tuple[str, ...] = ()
    """What whoever wrote it may not expect, though nothing is wrong with it."""


def read_job_text(text: str, *, now: float) -> JobRequest:
    """A job file's YAML into a request. Raises `Invalid`, `NotSupported` or `TooLarge`, with the line where one is known."""
    return read_job_document(read_document(text), now=now)


def read_job_document(document: Document, *, now: float) -> JobRequest:
    """As `read_job`, with the line of the fault in its message."""
    try:
        return read_job(document.value, now=now)
    except FederatorError as error:
        raise with_line(document, error) from None


def read_job(document: object, *, now: float) -> JobRequest:
    """A decoded job file into a request; `now` resolves `finish_within`. Raises `Invalid` or `NotSupported` naming the field."""
    given = fields.mapping(document, "$")
    fields.known_only(given, "$", KNOWN, ELSEWHERE)
    asked = read_asked(given)
    spec = _spec(given, asked)
    every = (spec.resources, *(form.resources for form in spec.forms or ()))
    if spec.placement.together == APART and any(each.gpus.share_milli for each in every):
        raise NotSupported(
            "nodes apart, each with a part of a GPU, are not supported yet",
            field="$.placement.together",
            remedy="ask for whole GPUs, or leave it out",
        )
    max_duration_s = _optional_duration_s(given, "max_duration")
    if spec.estimate_s and max_duration_s and spec.estimate_s > max_duration_s:
        raise Invalid(
            "is longer than max_duration: the job would be killed first",
            field="$.estimate",
            remedy="raise max_duration",
        )
    must = given.get("value") == "must"
    after, after_how = read_after(given.get("after", ()), "$.after")
    array, at_once = fields.array(given["array"], "$.array") if "array" in given else ((), None)
    return JobRequest(
        spec=spec,
        queue=fields.queue(given["queue"], "$.queue") if "queue" in given else None,
        team=fields.name(given["team"], "$.team") if "team" in given else "",
        priority=fields.whole(given["priority"], "$.priority", low=0, high=100)
        if "priority" in given
        else None,
        deadline_at=_deadline_at(given, now),
        value_usd=fields.money_usd(given["value"], "$.value") if "value" in given and not must else None,
        must=must,
        max_cost_usd=fields.money_usd(given["max_cost"], "$.max_cost") if "max_cost" in given else None,
        max_duration_s=max_duration_s,
        after=after,
        after_how=after_how,
        array=array,
        at_once=at_once,
        client_id=fields.text(given["client_id"], "$.client_id", limit=200) if "client_id" in given else None,
        repeated=read_every(given, now=now),
        notes=(asked.left_out,) if asked.left_out else (),
    )


def encode_spec(spec: JobSpec) -> bytes:
    """A spec as canonical JSON: equal specs give equal bytes, whatever the order of their mappings."""
    return _encoder.encode(spec)


def spec_hash(spec: JobSpec) -> str:
    """The name under which a spec is stored and fetched."""
    return content_hash(encode_spec(spec))


def _spec(given: Mapping[str, object], asked: Asked) -> JobSpec:
    run, command = _what_to_run(given)
    checkpoint = _checkpoint(given["checkpoint"], "$.checkpoint") if "checkpoint" in given else None
    return JobSpec(
        name=fields.name(given["name"], "$.name") if "name" in given else default_name(run, command),
        run=run,
        command=command,
        setup=fields.text(given["setup"], "$.setup") if "setup" in given else None,
        workdir=_workdir(given["workdir"]) if "workdir" in given else None,
        env=_env(given["env"]) if "env" in given else {},
        outputs=fields.words(given.get("outputs", ()), "$.outputs", _glob),
        nodes=asked.nodes,
        resources=asked.resources,
        estimate_s=_optional_duration_s(given, "estimate"),
        speed=_speed(given["speed"]) if "speed" in given else {},
        spot_policy=fields.one_of(given.get("spot_policy", "auto"), "$.spot_policy", SPOT_POLICIES),
        checkpoint=checkpoint,
        retry=_retry(given["retry"], "$.retry") if "retry" in given else Retry(),
        placement=read_placement(given["placement"], "$.placement")
        if "placement" in given
        else PlacementConstraints(),
        labels=read_labels(given["labels"], "$.labels") if "labels" in given else {},
        stop_within_s=_stop_within_s(
            given.get("on_disconnect", "keep"), "$.on_disconnect", checkpoint or Checkpoint()
        ),
        inputs=read_inputs(given.get("inputs", ()), "$.inputs") or msgspec.UNSET,
        image=read_image(given["image"], "$.image") if "image" in given else msgspec.UNSET,
        secrets=read_secrets(given.get("secrets", ()), "$.secrets") or msgspec.UNSET,
        forms=asked.forms,
        elastic=asked.elastic,
        ordered=asked.ordered,
        patience_s=fields.read_patience_s(given["patience"], "$.patience")
        if "patience" in given
        else msgspec.UNSET,
    )


def _what_to_run(given: Mapping[str, object]) -> tuple[str | None, tuple[str, ...] | None]:
    if ("run" in given) == ("command" in given):
        wrong = "both run and command are given" if "run" in given else "nothing to run"
        raise Invalid(
            wrong,
            field="$.run",
            remedy="write exactly one of 'run: python train.py' and 'command: [python, train.py]'",
        )
    if "run" in given:
        if isinstance(given["run"], list):
            remedy = "write one line of shell, as in 'run: python train.py', or 'command: [python, train.py]'"
            raise Invalid("is a list, and runs in a shell", field="$.run", remedy=remedy)
        return fields.text(given["run"], "$.run"), None
    command = fields.words(given["command"], "$.command", _argument)
    if isinstance(given["command"], str):
        raise Invalid(
            "is one text", field="$.command", remedy="write a list, or use run: for a line of shell"
        )
    if not command or not command[0]:
        raise Invalid("names no program", field="$.command", remedy="write at least one word")
    return None, command


def _argument(value: object, path: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(fields.number(value, path))
    if isinstance(value, str):
        return fields.plain(value, path)
    raise Invalid("is not a text", field=path, remedy="quote it, so that it is passed on as it is written")


def default_name(run: str | None, command: tuple[str, ...] | None) -> str:
    """A name for a job that has none: that of its program or script, as `train` for `python train.py --lr 0.1`."""
    words = (run or " ".join(command or ())).split()[:20]
    program = next((word for word in words if _names_program(word)), "")
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", PurePosixPath(program).stem)[:40].strip("._-")
    return stem or "job"


def _names_program(word: str) -> bool:
    return (
        PurePosixPath(word).name not in _LAUNCHERS
        and not word.startswith("-")
        and "=" not in word
        and word[:1] not in "'\"$({#;"
    )


def _workdir(value: object) -> str:
    word = fields.text(value, "$.workdir")
    if not _BLOB.fullmatch(word):
        remedy = "submit with `federator submit` or federator.client, which upload the folder"
        raise Invalid("is not the hash of an uploaded folder (sha256:…)", field="$.workdir", remedy=remedy)
    return word.removeprefix(BLOB_PREFIX)


def _env(value: object) -> dict[str, str]:
    env = fields.pairs(value, "$.env", limit=1000)
    for key in env:
        if not _ENV_NAME.fullmatch(key):
            raise Invalid(
                f"{key[:80]!r} is not the name of a variable",
                field="$.env",
                remedy="use letters, digits and '_'",
            )
        if key.startswith("FEDERATOR_") or key == "CUDA_VISIBLE_DEVICES":
            raise Invalid(
                "is set by the site", field=f"$.env.{key}", remedy="leave it out, or choose another name"
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


def _speed(value: object) -> dict[str, float]:
    given = fields.mapping(value, "$.speed")
    return {
        read_model(model, "$.speed"): float(fields.number(factor, f"$.speed.{model}", low=0.001, high=1000))
        for model, factor in given.items()
    }


def _checkpoint(value: object, path: str) -> Checkpoint:
    given = fields.mapping(value, path)
    fields.known_only(given, path, ("signal", "grace", "every", "uri"))
    signal = given.get("signal", Checkpoint().signal)
    grace_s = fields.duration_s(given["grace"], f"{path}.grace") if "grace" in given else Checkpoint().grace_s
    if grace_s > MAX_GRACE_S:
        raise Invalid("is too long", field=f"{path}.grace", remedy=f"write at most {MAX_GRACE_S / 3600:g}h")
    return Checkpoint(
        signal=fields.one_of(
            signal.removeprefix("SIG") if isinstance(signal, str) else signal, f"{path}.signal", SIGNALS
        ),
        grace_s=grace_s,
        every_s=fields.duration_s(given["every"], f"{path}.every", low_s=1) if "every" in given else None,
        uri=read_place(given["uri"], f"{path}.uri") if "uri" in given else msgspec.UNSET,
    )


def _retry(value: object, path: str) -> Retry:
    given = fields.mapping(value, path)
    fields.known_only(
        given, path, ("on", "max", "backoff"), elsewhere={"on_events": "on", "max_restarts_on_errors": "max"}
    )
    default = Retry()
    return Retry(
        on=fields.words(
            given.get("on", default.on), f"{path}.on", lambda word, at: fields.one_of(word, at, RETRY_ON)
        ),
        max=fields.whole(given.get("max", default.max), f"{path}.max", low=0, high=MAX_RETRIES),
        backoff_s=fields.duration_s(given["backoff"], f"{path}.backoff", low_s=0)
        if "backoff" in given
        else default.backoff_s,
    )


def _stop_within_s(value: object, path: str, checkpoint: Checkpoint) -> float | msgspec.UnsetType:
    """Time for the whole grace must be left once it is known that no answer comes any more."""
    if value == "keep":
        return msgspec.UNSET
    if not isinstance(value, dict):
        remedy = "write keep, or 'stop_within: 1h' below it"
        raise Invalid("is not known here", field=path, remedy=remedy)
    given = fields.mapping(value, path)
    fields.known_only(given, path, ("stop_within",))
    path = f"{path}.stop_within"
    if "stop_within" not in given:
        raise Invalid("is missing", field=path, remedy="say how soon the work must be gone, for example 1h")
    stop_within_s = fields.duration_s(given["stop_within"], path)
    least_s = checkpoint.grace_s + LEAST_BEYOND_GRACE_S
    if stop_within_s < least_s:
        raise Invalid(
            f"is too short for a grace of {format_duration(checkpoint.grace_s)}",
            field=path,
            remedy=f"write at least {format_duration(least_s)}, or shorten checkpoint.grace",
        )
    return stop_within_s


def _optional_duration_s(given: Mapping[str, object], key: str) -> float | None:
    return fields.duration_s(given[key], f"$.{key}") if key in given else None


def _deadline_at(given: Mapping[str, object], now: float) -> float | None:
    if "deadline" in given and "finish_within" in given:
        raise Invalid(
            "cannot be combined with deadline", field="$.finish_within", remedy="write one of the two"
        )
    if "deadline" in given:
        return fields.instant_at(given["deadline"], "$.deadline", now=now)
    if "finish_within" in given:
        return now + fields.duration_s(given["finish_within"], "$.finish_within")
    return None
