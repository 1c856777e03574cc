"""`FederatedJob` as far as the operator reads it, and its status as it is written. The names are those that `kubectl` shows."""

import hashlib
from typing import Any

import msgspec
from msgspec.structs import replace

from federator.wire.jsontext import read

GROUP, VERSION = "federator.dev", "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND, PLURAL, SHORT = "FederatedJob", "federatedjobs", "fj"
LEFT_OUT = ("client_id", "every", "overlap", "steps")
"""Fields of a job file that an object has not. The uid stands for the first. Series and pipelines submit jobs of their own: `federator submit` begins one."""
FINALIZER = f"{GROUP}/cancel"
"""Holds the object until its job is cancelled or over."""
SUBMITTED_NOTE = f"{GROUP}/submitted"
"""Hashes of the spec that is being submitted: written before the dispatcher is asked, so that whoever finds it knows that there may be a job, and of what."""
RESERVED = f"{GROUP}/"
NAMESPACE_LABEL, NAME_LABEL, UID_LABEL = f"{GROUP}/namespace", f"{GROUP}/name", f"{GROUP}/uid"
"""Of the job: whose it is at the cluster."""


class Struct(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """A part of an object, by the names that the API has. What is not named is passed over."""


class Meta(Struct, frozen=True):
    """Who it is."""

    name: str
    namespace: str
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    deletion_timestamp: str = ""


class ClusterMeta(Struct, frozen=True):
    """Who an object is that belongs to the whole cluster."""

    name: str
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    labels: dict[str, str] = {}
    deletion_timestamp: str = ""


class Condition(Struct, frozen=True):
    """One thing that is said of an object, for `kubectl wait`."""

    type: str
    """Of a job `Submitted`, `Complete` or `Failed`, of a site `Ready`, of both `SpecInForce`."""
    status: str
    """`True` or `False`."""
    reason: str
    """One word, for programs."""
    message: str = ""
    """A sentence, for people."""
    last_transition_time: str = ""
    """Since when the status is so."""


class Judged(Struct, frozen=True):
    """A status that says by conditions how its object is, and of which spec."""

    observed_generation: int = 0
    """The generation of the spec that this is about."""
    conditions: tuple[Condition, ...] = ()
    """What `kubectl wait` waits for."""


class Status(Judged, frozen=True):
    """What the dispatcher says of the job."""

    phase: str = ""
    """`Refused` while it cannot be submitted; else the job's status: `Pending`, `Running`, `Succeeded`, `Failed`, `Cancelled` and what is between them."""
    job: str = ""
    """The id of the job, or of the array, at the dispatcher."""
    array: bool = False
    """Whether it is an array."""
    tasks: dict[str, int] = {}
    """Of an array: how many of its tasks are in each status."""
    site: str = ""
    """Where it is, or was last."""
    market: str = ""
    """Of rented capacity: `spot` or `on-demand`."""
    reason: str = ""
    """The kind of the reason why it waits, or is as it is: one of a closed list."""
    message: str = ""
    """The same as a sentence."""
    expected_start: str = ""
    """When it should start, by the last plan."""
    expected_finish: str = ""
    """When it should be done, by the last plan."""
    finish_earliest: str = ""
    """80 of 100 such jobs are done between this and the next."""
    finish_latest: str = ""
    """The later end of that."""
    submitted: str = ""
    """When the dispatcher took it."""
    started: str = ""
    """When it first ran."""
    finished: str = ""
    """When it was over."""
    cost_usd: str = ""
    """What it has cost so far, as `1.25`."""
    applied: dict[str, str] = {}
    """By field, a short hash of what the job was submitted with, or changed to."""

    @property
    def over(self) -> bool:
        """Whether nothing more will happen to the job."""
        return any(each.type in ("Complete", "Failed") and each.status == "True" for each in self.conditions)


class FederatedJob(Struct, frozen=True):
    """A job, as somebody has applied it. `spec` is a job file."""

    metadata: Meta
    spec: dict[str, Any] = {}
    status: Status = Status()
    hashed: dict[str, str] = {}
    """What `fields` answers where the spec itself is not held."""

    @property
    def fields(self) -> dict[str, str]:
        """A short hash of each field of the spec."""
        return self.hashed or hashes(self.spec)

    @property
    def key(self) -> str:
        """Its name among all of the cluster."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def deleted(self) -> bool:
        """Whether somebody wants it gone."""
        return bool(self.metadata.deletion_timestamp)

    @property
    def noted(self) -> dict[str, str]:
        """The hashes of the spec that was about to be submitted last; empty: none was."""
        try:
            return read(self.metadata.annotations.get(SUBMITTED_NOTE, "{}"), dict[str, str])
        except msgspec.MsgspecError:
            return {}  # somebody else has written there

    @property
    def claimed(self) -> bool:
        """Whether its job may have been submitted."""
        return FINALIZER in self.metadata.finalizers


def without_spec(job: FederatedJob) -> FederatedJob:
    """What is held in memory of each object that lives: hashes in place of what somebody has written, which may be a megabyte each."""
    notes = {name: text for name, text in job.metadata.annotations.items() if name == SUBMITTED_NOTE}
    return replace(job, metadata=replace(job.metadata, annotations=notes), spec={}, hashed=job.fields)


def hashes(spec: dict[str, Any]) -> dict[str, str]:
    """A short hash of each field; fields without a value are as if they were not there."""
    return {name: digest(value) for name, value in sorted(spec.items()) if value is not None}


def digest(value: object) -> str:
    """The same for what means the same, whatever the order of its keys."""
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:12]
