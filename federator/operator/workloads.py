"""Workloads of a MultiKueue's manager, planned as jobs: what Kueue asks a dispatcher of its own for, by the same plan and the same quotas as all other work.

A job stands for one turn of a Workload: from when the manager holds quota for it until it is over, or evicted and queued again. Its site is an agent that nominates a cluster
(`federator_agent.multikueue`). Nothing is kept here: what should be there follows from the Workloads, what is there from the list of jobs, and the difference is made.
"""

import asyncio
import logging
import math
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from federator.client import AsyncClient
from federator.client.jobs import JobFilter
from federator.kernel.errors import FederatorError, Permanent
from federator.kube.api import Api
from federator.kube.objects import Meta as PodMeta
from federator.kube.objects import Pod, PodSpec, Struct, quantity
from federator.model.jobs import TERMINAL, WHOLE_MILLI, JobStatus
from federator.operator.claims import Claims
from federator.operator.events import About, Events
from federator.operator.settings import MultiKueue, OperatorFile
from federator.operator.submissions import Submissions
from federator.retry import Backoff
from federator.wire.http import JobRow
from federator.wire.mig import mig
from federator_agent.gpus import Gpu
from federator_agent.kube.capacity import Size, request_of
from federator_agent.kube.informer import Informer
from federator_agent.kube.settings import GPU_RESOURCE, PRODUCT_LABEL, class_of
from federator_agent.multikueue.workloads import (
    GROUP,
    NAME_LABEL,
    NAMESPACE_LABEL,
    RETRY,
    TURN_LABEL,
    UID_LABEL,
    Status,
    Workload,
    base,
)

AGAIN_S, REFUSED_AGAIN_S = 5.0, 60.0
ENDED_AGAIN = Backoff(60.0, 3600.0, spread=0.0)
"""How long a Workload waits for its next job when one has ended before it, by a cancellation for instance."""
LIVE = ",".join(each for each in JobStatus if each not in TERMINAL)
NOT_HERE = "echo 'this job stands for a Workload of Kueue; the site file lacks multikueue' >&2; exit 1"
"""What it runs at a site that is none of a MultiKueue."""
log = logging.getLogger("federator.operator")


class _PodSpec(PodSpec, frozen=True):
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)


class _Template(Struct, frozen=True):
    spec: _PodSpec = _PodSpec()


class PodSet(Struct, frozen=True):
    """Pods of one shape."""

    name: str = ""
    count: int = 1
    template: _Template = _Template()


class _Spec(Struct, frozen=True):
    pod_sets: tuple[PodSet, ...] = ()
    priority: int | None = None
    maximum_execution_time_seconds: int | None = None


class _Assignment(Struct, frozen=True):
    name: str = ""
    count: int = 1
    resource_usage: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    """Of all its pods, as Kueue counts them: what they ask for by claims, too."""


class _Admission(Struct, frozen=True):
    pod_set_assignments: tuple[_Assignment, ...] = ()


class _Status(Status, frozen=True):
    admission: _Admission | None = None


class Queued(Workload, frozen=True):
    """A Workload with what it asks for, and what the manager holds for it."""

    spec: _Spec = _Spec()
    status: _Status = _Status()

    def held(self, pod_set: str) -> dict[str, int]:
        """Units of each resource that are held for each pod of a set."""
        given = self.status.admission.pod_set_assignments if self.status.admission else ()
        return {
            resource: math.ceil(quantity(text) / max(1, each.count))
            for each in given
            if each.name == pod_set
            for resource, text in each.resource_usage.items()
        }


class Planned(msgspec.Struct, frozen=True):
    """What is held in memory of a Workload. `document`: the job that should stand for it; None: none should."""

    name: str
    uid: str
    over: bool
    document: dict[str, Any] | None

    @property
    def client_id(self) -> str:
        """Of its job."""
        return str(self.document["client_id"]) if self.document else ""


def planned(workload: Queued, settings: MultiKueue, queue: str | None) -> Planned:
    """Whether a job should stand for it now, and which."""
    state = workload.check(settings.check)
    wanted = workload.turn and workload.ended is None and state and state not in (RETRY, "Rejected")
    document = document_of(workload, settings, queue) if wanted else None
    over = workload.ended is not None and not workload.given_up
    return Planned(workload.metadata.name, workload.metadata.uid, over, document)


def document_of(workload: Queued, settings: MultiKueue, queue: str | None) -> dict[str, Any]:
    """The job file. Where some of its pods have GPUs or parts of such, those count, and each of them as the largest."""
    meta, spec = workload.metadata, workload.spec
    sizes = [_sized(workload, each, settings.devices) for each in spec.pod_sets]
    counted = [each for each in sizes if each.gpus_milli] or sizes
    gpus_milli = max((each.gpus_milli for each in counted), default=0)
    models = {each.model for each in counted}
    model = models.pop() if len(models) == 1 else ""
    resources: dict[str, Any] = {"cpus": max((each.size.cpus_milli for each in counted), default=0) / 1000}
    if gpus_milli:
        whole = math.ceil(gpus_milli / WHOLE_MILLI)
        gpus = whole if gpus_milli >= WHOLE_MILLI else gpus_milli / WHOLE_MILLI
        resources["gpus"] = f"{model}:{gpus}" if model else gpus
    if memory_mib := max((each.size.memory_mib for each in counted), default=0):
        resources["memory"] = f"{memory_mib}MiB"
    document: dict[str, Any] = {
        "name": meta.name[:63].rstrip("-."),
        "run": NOT_HERE,
        "nodes": max(1, sum(each.pods for each in counted)),
        "resources": resources,
        "placement": {"sites": list(settings.sites)},
        "retry": {"on": [], "max": 0},
        "labels": {
            NAMESPACE_LABEL: meta.namespace,
            NAME_LABEL: meta.name,
            UID_LABEL: meta.uid,
            TURN_LABEL: workload.turn,
        },
        "client_id": f"{meta.uid}.{workload.turn}",
    }
    if queue is not None:
        document["queue"] = queue
    if spec.priority is not None and 0 < spec.priority <= 100:
        document["priority"] = spec.priority
    if spec.maximum_execution_time_seconds:
        document["max_duration"] = f"{math.ceil(spec.maximum_execution_time_seconds)}s"
    return document


class _Sized(NamedTuple):
    """Pods of one shape: how many, and what each asks for."""

    pods: int
    size: Size
    gpus_milli: int
    model: str
    """Of its GPUs; empty: any."""


def _sized(workload: Queued, pods: PodSet, devices: Mapping[str, int]) -> _Sized:
    """`devices`: thousandths of a GPU, by the name of the resource."""
    inner = pods.template.spec
    classes = {name for each in inner.containers for name in each.resources.requests if class_of(name)}
    size = request_of(Pod(metadata=PodMeta(), spec=inner), classes | devices.keys())
    product = inner.node_selector.get(PRODUCT_LABEL, "")
    model = Gpu(0, product).model.upper() if product else ""
    held = {name: count for name, count in workload.held(pods.name).items() if name in devices}
    gpus_milli = sum(
        count * _milli_of(name, model, devices) for name, count in (held | size.devices).items() if count
    )
    return _Sized(pods.count, size, gpus_milli, model)


def _milli_of(resource: str, model: str, devices: Mapping[str, int]) -> int:
    """Thousandths of a GPU that a unit of a resource is; 0: it is none."""
    if resource in devices:
        return devices[resource]
    if resource == GPU_RESOURCE or class_of(resource):
        return WHOLE_MILLI
    part = mig(resource, model)
    return min(WHOLE_MILLI, part.milli) if part else 0


class _Asked(msgspec.Struct, frozen=True):
    """Of a turn of a Workload: how many jobs for it have ended without it, and until when on the monotonic clock none is submitted. While there is one: for ever."""

    ended: int = 0
    until: float = math.inf

    def again(self, now: float) -> "_Asked":
        """Once its job has ended."""
        ended = self.ended + 1
        return _Asked(ended, now + ENDED_AGAIN.pause_s(ended))


class Workloads:
    """Keeps jobs for the Workloads of the mapped namespaces."""

    def __init__(
        self,
        file: OperatorFile,
        settings: MultiKueue,
        api: Api,
        clients: Mapping[str, AsyncClient],
        submissions: Mapping[str, Submissions],
        events: Events,
        claims: Claims,
    ) -> None:
        self._file, self._settings, self._api, self._events = file, settings, api, events
        self._clients, self._submissions, self._claims = clients, submissions, claims
        self._waits: set[str] = set()
        """Namespaces with Workloads that are too many: said once, not every few seconds."""
        self._base = ""
        self._asked: dict[str, dict[str, _Asked]] = {name: {} for name in clients}
        """By namespace and client id, of those that are still wanted."""
        self.items: dict[str, Planned] = {}

    async def run(self) -> None:
        """Keep them, for ever."""
        while not self._base:
            try:
                self._base = await base(self._api)
            except FederatorError as error:
                log.warning("Kueue cannot be reached yet: %s", error)
                await asyncio.sleep(AGAIN_S)
        seen: Informer[Queued, Planned] = Informer(
            self._api, f"{self._base}/workloads", Queued, self._kept, lambda _name, _kept: None, skips=True
        )
        self.items = seen.items
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(seen.run())
            await seen.synced.wait()
            for namespace in self._clients:
                tasks.create_task(self._keep(namespace))

    def _kept(self, workload: Queued) -> tuple[str, Planned | None]:
        tenant = self._file.namespaces.get(workload.metadata.namespace)
        if tenant is None:
            return workload.key, None
        return workload.key, planned(workload, self._settings, tenant.queue)

    async def _keep(self, namespace: str) -> None:
        while True:
            try:
                await self.look(namespace)
            except FederatorError as error:
                log.warning("the Workloads of namespace %s cannot be planned now: %s", namespace, error)
            except Exception:
                log.exception("the Workloads of namespace %s: this is a fault of the operator's", namespace)
            await asyncio.sleep(self._file.mirror_every)

    async def look(self, namespace: str) -> None:
        """Submit jobs that should be there, and cancel those that should not. Raises `FederatorError`."""
        mine = [each for key, each in self.items.items() if key.startswith(f"{namespace}/")]
        wanted = {each.client_id: each for each in mine if each.document}
        which = JobFilter(mine=True, label=f"{NAMESPACE_LABEL}={namespace}", status=LIVE)
        live = {
            f"{row.labels.get(UID_LABEL, '')}.{row.labels.get(TURN_LABEL, '')}": row
            async for row in self._clients[namespace].all_jobs(which)
        }
        now, before = time.monotonic(), self._asked[namespace]
        asked = {name: _Asked(before[name].ended if name in before else 0) for name in wanted if name in live}
        for name in wanted.keys() & before.keys() - live.keys():
            each = before[name]
            asked[name] = each.again(now) if each.until == math.inf else each
        self._asked[namespace] = asked
        standing = {name for name, each in asked.items() if each.until == math.inf}
        self._claims.workloads[namespace] = standing
        over = {each.uid for each in mine if each.over}
        if left := [
            row.id for name, row in live.items() if name not in wanted and not _ends_by_itself(row, over)
        ]:
            await self._clients[namespace].act("cancel", left[:1000])
        new = [
            each
            for name, each in wanted.items()
            if name not in live and (name not in asked or asked[name].until <= now)
        ]
        await asyncio.gather(*(self._submit(namespace, each) for each in self._within(namespace, new)))

    def _within(self, namespace: str, new: list[Planned]) -> list[Planned]:
        """Those for which there is room; the others wait for a later look."""
        taken = list[Planned]()
        for each in new:
            if self._claims.full(namespace):
                break
            self._claims.workloads[namespace].add(each.client_id)
            taken.append(each)
        waits = len(new) - len(taken)
        if waits and namespace not in self._waits:
            log.warning(
                "%d Workloads of namespace %s wait: as many as may be are looked after", waits, namespace
            )
        (self._waits.add if waits else self._waits.discard)(namespace)
        return taken

    async def _submit(self, namespace: str, workload: Planned) -> None:
        assert workload.document is not None, "only what is wanted is submitted"
        about = About(
            f"{GROUP}/{self._base.rpartition('/')[2]}", "Workload", namespace, workload.name, workload.uid
        )
        asked = self._asked[namespace]
        ended = asked.get(workload.client_id, _Asked()).ended
        document = workload.document | ({"client_id": f"{workload.client_id}.{ended}"} if ended else {})
        try:
            done = await self._submissions[namespace].submit(document)
        except Permanent as error:
            self._events.tell_of(about, "NotPlanned", str(error))
            asked[workload.client_id] = _Asked(ended, time.monotonic() + REFUSED_AGAIN_S)
            return
        if done.repeated:
            # Of before this operator began; as it is not among those that live, the next one is asked for at the next look.
            asked[workload.client_id] = _Asked(ended + 1, time.monotonic())
            return
        self._events.tell_of(about, "Planned", f"job {done.jobs[0]} stands for it at the dispatcher")
        asked[workload.client_id] = _Asked(ended)


def _ends_by_itself(row: JobRow, over: set[str]) -> bool:
    """Whether the agent of its site tells how it ended: of a Workload that is over, and whose job had begun."""
    return row.labels.get(UID_LABEL) in over and row.status != JobStatus.PENDING
