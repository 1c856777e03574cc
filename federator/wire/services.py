"""What people and gateways ask of services over HTTP, and what they are answered."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from federator.model.services import Scale

MOST_REPLICAS = 200


class ReplicaRow(msgspec.Struct, frozen=True, kw_only=True):
    """A replica, as it is shown."""

    job: str
    name: str
    revision: int
    status: str
    """Of its job,"""
    health: str
    """and what it is good for: `waiting`, `starting`, `ready`, `failing`."""
    draining: bool = False
    site: str = ""
    price_usd_h: float = 0.0


class ServiceRow(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `federator service list`."""

    name: str
    owner: str
    queue: str
    revision: int
    canary: int = 0
    least: int
    most: int
    wanted: int
    ready: int
    rate: float | None = None
    """Requests answered per second; None: no gateway has told lately."""
    p95_s: float | None = None
    gpu_use_percent: float | None = None
    """How busy the GPUs of its ready replicas are, on average; None: their sites do not say."""
    attained: float | None = None
    """The part of all requests since the dispatcher started that were answered without an error of the server, and within the target's `p95_latency`; None: there was none."""
    price_usd_h: float = 0.0
    """What its replicas cost by the hour, at present."""
    because: str = ""


class ServiceDetail(msgspec.Struct, frozen=True, kw_only=True):
    """GET /v1/services/{name}: a service with its replicas."""

    service: ServiceRow
    scale: Scale
    port: int
    """0: each replica has one of its own."""
    ready_path: str = ""
    former: int | None = None
    """The revision to which a rollback returns."""
    fault: str = ""
    """For what its last canary was rolled back without anybody's word; empty: it was not."""
    replicas: tuple[ReplicaRow, ...] = ()
    created_at: float = 0.0
    changed_at: float = 0.0
    file: dict[str, Any] | None = None
    """The job file of a replica; None for those who may not read what it runs."""


Count = Annotated[int, Meta(ge=0, le=1_000_000_000)]


class SeenReplica(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a gateway has seen of a replica."""

    job: Annotated[str, Meta(max_length=100)]
    ready: bool
    at_once: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    """Requests that it works on."""
    answered: Count = 0
    """Since the gateway last told,"""
    errors: Count = 0
    """and of those, with an error of the server, or with none."""


class SeenLoad(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a gateway has seen of a service since it last told."""

    service: Annotated[str, Meta(max_length=63)]
    at_once: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    """Requests at a time, on average, those that waited among them."""
    over_s: Annotated[float, Meta(ge=0.001, le=86_400)] = 1.0
    """So long it is since it last told."""
    answered: Count = 0
    met: Count = 0
    """Of those: without an error of the server, and within the target's latency."""
    slow: Count = 0
    """Of those: later than the target's latency, with or without an error."""
    p95_s: Annotated[float, Meta(ge=0, le=1e6)] | None = None
    replicas: Annotated[tuple[SeenReplica, ...], Meta(max_length=2 * MOST_REPLICAS)] = ()


class GatewayReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /v1/gateway: what a gateway has seen of the caller's services; the answer says where to send requests from now on."""

    loads: Annotated[tuple[SeenLoad, ...], Meta(max_length=1000)] = ()
    gateway: Annotated[str, Meta(max_length=64)] = ""
    """Which gateway it is, where its owner has several: their loads are added up."""


class RoutedReplica(msgspec.Struct, frozen=True):
    """A replica whose job runs. `weight` is 0 where nothing new is to be sent to it."""

    job: str
    port: int
    weight: int


class RoutedService(msgspec.Struct, frozen=True, kw_only=True):
    """A service, as a gateway needs it."""

    name: str
    ready_path: str = ""
    resend: bool = False
    most: int
    """So many replicas may be there at once, those that are drained among them."""
    at_once_each: int
    """So many requests a replica is sent at a time."""
    p95_latency_s: float | None = None
    replicas: tuple[RoutedReplica, ...] = ()


class Routed(msgspec.Struct, frozen=True):
    """The answer to a gateway."""

    services: tuple[RoutedService, ...] = ()
