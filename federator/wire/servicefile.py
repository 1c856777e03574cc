"""The file of a service, `kind: service`: the job file of one replica, and beside it how many there may be, where they answer, and what says how many are wanted."""

import re
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta, field

from federator.kernel.errors import Invalid
from federator.model.services import Revision, Scale
from federator.wire import fields
from federator.wire.decoding import decode
from federator.wire.jobfile import JobFile, JobRequest, read_job
from federator.wire.services import MOST_REPLICAS

LONGEST_NAME = 52
"""Of a service: the number of a replica stands behind it, and a name has at most 63 letters."""
LABEL = "service"
"""Under which replicas have the name of their service, for lists and reports of usage."""
NOT_FOR_REPLICAS = {
    "every": "a service runs all the time: leave it out",
    "overlap": "a service runs all the time: leave it out",
    "array": "write how many there may be in replicas",
    "after": "leave it out: a replica has to start at any time",
    "deadline": "write finish_within, which counts from when a replica is submitted",
    "client_id": "leave it out: a service is known by its name",
    "success": "leave it out: a replica does not end",
}
_PATH = re.compile(r"/[A-Za-z0-9._~!&()*+,;=:@%/?-]*")
"""What stands as it is in the configuration of a proxy: no quotes, spaces, variables or comments."""


def _path(value: object, path: str) -> str:
    found = fields.text(value, path, limit=500)
    if not _PATH.fullmatch(found):
        raise Invalid("is not the path of an address", field=path, remedy="write for example /health")
    return found


Port = Annotated[int, Meta(ge=1, le=65535)]


class Replicas(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many there may be."""

    least: Annotated[int, Meta(ge=0, le=MOST_REPLICAS)] = field(name="min", default=1)
    """Always there. 0: none while nobody asks; a request then waits at the gateway for the first."""
    most: Annotated[int, Meta(ge=1, le=MOST_REPLICAS)] | None = field(name="max", default=None)
    """Left out: as many as `min`, and one at least."""


class Ready(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How it is seen that a replica can be sent requests."""

    http: Annotated[str, fields.written(_path, "/health", pattern=f"^{_PATH.pattern}$")]
    """A path that it answers with a status from 200 to 399."""


class Target(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What says how many are wanted."""

    requests_per_replica: Annotated[float, Meta(ge=0.01, le=100_000)] = Scale().requests_per_replica
    """Requests at a time that one replica is meant to work on, those that wait for one among them. It is sent twice as many at most; what is beyond waits at the gateway."""
    p95_latency_s: Annotated[float, fields.duration("500ms", "2s")] | None = field(
        name="p95_latency", default=None
    )
    """Of a hundred requests 95 should be answered within that, counted at the gateway. Where they are not although no replica has too much to do, one more is wanted than are ready."""
    gpu_utilisation_percent: Annotated[float, Meta(ge=1, le=100)] | None = field(
        name="gpu_utilisation", default=None
    )
    """Percent of the time that the GPUs of replicas should be busy, as their sites measure it. The largest number that this, `requests_per_replica` and `p95_latency` ask for is wanted; without a gateway this alone counts."""
    down_after_s: Annotated[float, fields.duration("5m", low_s=1, high_s=86_400)] = field(
        name="down_after", default=Scale().down_after_s
    )
    """Fewer replicas are wanted once fewer would have done for so long. Left out: 5m."""


class ServiceFile(JobFile, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A service, as its file says: what a job file has describes one replica."""

    kind: Literal["service"]
    port: Port | Literal["auto"] | None = None
    """Where a replica takes requests, on 127.0.0.1 or all addresses; in a gang, rank 0. Its environment has it as `PORT`. `auto`: each replica has one of its own, so that several can share a host. It must be written."""
    replicas: Annotated[int, Meta(ge=1, le=MOST_REPLICAS)] | Replicas = Replicas()
    """How many: a number, or `{min: 1, max: 8}`."""
    ready: Literal["tcp"] | Ready = "tcp"
    """When one can be sent requests: `{http: /health}`, or `tcp`: as soon as it takes connections."""
    target: Target = Target()
    surge: Annotated[int, Meta(ge=1, le=MOST_REPLICAS)] = Scale().surge
    """When the file has changed, so many replicas of the new one are started beside those that are wanted."""
    drain_s: Annotated[float, fields.duration("30s", low_s=0, high_s=86_400)] = field(
        name="drain", default=Scale().drain_s
    )
    """So long a replica that is no longer wanted may finish what it works on. Left out: 30s."""
    spread: Literal["sites"] | None = None
    """`sites`: no site has more than half of the replicas, rounded up, so that the loss of one leaves the others. A replica waits for room at another site, unless no other one that is open could take it. Left out: where the plan finds best."""
    resend: Literal["safe", "all"] = "safe"
    """Which requests are sent to another replica when theirs was lost before it answered: those that change nothing (`GET`, `HEAD`, `OPTIONS`), or `all`, where the same request may come twice."""


class ServiceRequest(NamedTuple):
    """A service as it was asked for. `revision` has the number 0."""

    name: str
    scale: Scale
    revision: Revision
    request: JobRequest
    """What its replicas ask for."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What whoever wrote it may not expect."""
        return self.request.notes


def read_service(document: object, *, now: float) -> ServiceRequest:
    """A decoded service file into a request. Raises `Invalid` or `NotSupported` naming the field."""
    if isinstance(document, dict):
        for key, remedy in NOT_FOR_REPLICAS.items():
            if document.get(key) is not None:
                raise Invalid("does not go with a service", field=f"$.{key}", remedy=remedy)
    file = decode(document, ServiceFile, "$")
    assert isinstance(document, dict)
    if file.name is None:
        raise Invalid("is missing", field="$.name", remedy="a service is known by its name: write one")
    if len(file.name) > LONGEST_NAME:
        raise Invalid(
            f"has {len(file.name)} letters; a service may have {LONGEST_NAME}",
            field="$.name",
            remedy="shorten it",
        )
    if file.port is None:
        raise Invalid(
            f"service {file.name} has none",
            field="$.port",
            remedy="write the port on which a replica takes requests, such as port: 8000, or port: auto",
        )
    own = set(_written(ServiceFile)) - set(_written(JobFile))
    job = {key: value for key, value in document.items() if key not in own and value is not None}
    job["labels"] = {**job.get("labels", {}), LABEL: file.name}
    text = msgspec.json.encode(msgspec.to_builtins(job, str_keys=True), order="deterministic").decode()
    revision = Revision(
        number=0,
        file=text,
        port=0 if file.port == "auto" else file.port,
        ready_path="" if isinstance(file.ready, str) else file.ready.http,
        resend=file.resend == "all",
    )
    request = read_job(job, now=now)
    _check_gpus(file, request)
    return ServiceRequest(file.name, _scale(file), revision, request)


def _check_gpus(file: ServiceFile, request: JobRequest) -> None:
    """A target for GPUs needs some: without them nothing is measured, and the number stays as it is."""
    spec = request.spec
    every = (spec.resources, *(form.resources for form in spec.forms or ()))
    if file.target.gpu_utilisation_percent is None or file.groups or any(each.gpus.each for each in every):
        return
    raise Invalid(
        "is a target for GPUs, and a replica has none",
        field="$.target.gpu_utilisation",
        remedy="write resources: {gpus: 1}, or leave it out",
    )


def _scale(file: ServiceFile) -> Scale:
    asked = file.replicas
    if isinstance(asked, int):
        asked = Replicas(asked, asked)
    most = max(1, asked.least) if asked.most is None else asked.most
    if most < asked.least:
        raise Invalid(
            f"is less than min, {asked.least}", field="$.replicas.max", remedy=f"write at least {asked.least}"
        )
    if file.spread and most == 1:
        raise Invalid(
            "one replica cannot be spread over sites",
            field="$.spread",
            remedy="write at least replicas: 2, or leave it out",
        )
    return Scale(
        least=asked.least,
        most=most,
        surge=file.surge,
        drain_s=file.drain_s,
        spread=file.spread is not None,
        **msgspec.structs.asdict(file.target),
    )


def _written(record: Any) -> list[str]:
    return [each.encode_name for each in msgspec.structs.fields(record)]
