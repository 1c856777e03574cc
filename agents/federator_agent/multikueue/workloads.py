"""Workloads of Kueue as far as they are read here: whether the manager holds quota for one, which cluster has it, and how it ended."""

from typing import NamedTuple

import msgspec

from federator.kernel.errors import NotFound
from federator.kube.api import Api, decoded
from federator.kube.objects import Condition, Struct
from federator.model.jobs import JobSpec

GROUP = "kueue.x-k8s.io"
NAMESPACE_LABEL, NAME_LABEL, UID_LABEL, TURN_LABEL = (
    f"federator.dev/workload-{each}" for each in ("namespace", "name", "uid", "turn")
)
"""Of a job: which Workload it stands for, and since when the manager holds quota for it."""
PENDING, RETRY = "Pending", "Retry"
"""States of an admission check: it has not been answered; the Workload is to be evicted and queued again."""
GIVEN_UP = ("OwnerNotFound", "OutOfSync")
"""Why Kueue says of a Workload that it is finished, though nothing has ended by itself: its Job has been deleted, or is not what it was."""


class Meta(Struct, frozen=True):
    """Who it is."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None


class Check(Struct, frozen=True):
    """An admission check of a Workload."""

    name: str = ""
    state: str = ""


class Status(Struct, frozen=True):
    """What Kueue says."""

    conditions: tuple[Condition, ...] = ()
    admission_checks: tuple[Check, ...] = ()
    nominated_cluster_names: tuple[str, ...] | None = None
    cluster_name: str | None = None


class Workload(Struct, frozen=True):
    """What is held in memory of each."""

    metadata: Meta
    status: Status = Status()

    @property
    def key(self) -> str:
        """Its name among all of the manager."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    def says(self, kind: str) -> Condition | None:
        """The condition of that type, where it is true."""
        found = (each for each in self.status.conditions if each.type == kind and each.status == "True")
        return next(found, None)

    @property
    def reserved(self) -> bool:
        """Whether the manager holds quota for it, so that it may be given to a cluster."""
        evicted = self.says("Evicted")
        return (
            self.says("QuotaReserved") is not None
            and evicted is None
            and not self.metadata.deletion_timestamp
        )

    @property
    def turn(self) -> str:
        """Since when the manager holds quota for it: another time after each eviction. Empty: it holds none."""
        held = self.says("QuotaReserved")
        return (held.last_transition_time or "") if held is not None and self.reserved else ""

    @property
    def ended(self) -> tuple[int, str] | None:
        """The exit code that its end comes to, and Kueue's words; None: it is not over."""
        said = self.says("Finished")
        return None if said is None else (int(said.reason == "Failed"), said.message)

    @property
    def given_up(self) -> bool:
        """Whether Kueue has no Job for it any more: as good as deleted, which it soon is."""
        said = self.says("Finished")
        return said is not None and said.reason in GIVEN_UP

    def check(self, name: str) -> str:
        """The state of that admission check; empty: it has none of that name."""
        return next((each.state for each in self.status.admission_checks if each.name == name), "")


def kept(workload: Workload) -> tuple[str, Workload | None]:
    """What is held of it under its name; None: nothing."""
    return workload.key, None if workload.given_up else workload


class _Version(msgspec.Struct):
    version: str = ""


class _Group(msgspec.Struct, rename="camel"):
    preferred_version: _Version = msgspec.field(default_factory=_Version)


async def base(api: Api) -> str:
    """The path of Kueue's API in the version that the manager prefers. Raises `FederatorError`."""
    version = decoded(await api.ask("GET", f"/apis/{GROUP}"), _Group).preferred_version.version
    if not version:
        raise NotFound("the manager has no Kueue")
    return f"/apis/{GROUP}/{version}"


class Named(NamedTuple):
    """What a job stands for: one turn of one Workload."""

    key: str
    uid: str
    turn: str

    @property
    def namespace(self) -> str:
        """Where it is."""
        return self.key.partition("/")[0]

    def of(self, workload: Workload | None) -> bool:
        """Whether this is that Workload, be it over by now."""
        if workload is None or workload.metadata.uid != self.uid:
            return False
        return workload.ended is not None or workload.turn == self.turn


def named_by(spec: JobSpec) -> Named | None:
    """None: it stands for none."""
    labels = (NAMESPACE_LABEL, NAME_LABEL, UID_LABEL, TURN_LABEL)
    namespace, name, uid, turn = (spec.labels.get(label, "") for label in labels)
    return Named(f"{namespace}/{name}", uid, turn) if namespace and name and uid and turn else None
