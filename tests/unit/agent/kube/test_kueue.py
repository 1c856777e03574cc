"""Beside Kueue: its quota comes back whatever becomes of a job, waiting for it is no fault of the scheduler, and what it says is what people read.

The fake does what was seen of the real one: it holds each pod of a group by a finalizer of its own, until the group is over; which, as long as a failed pod might be
made again, it never is.
"""

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from federator.kernel.errors import FederatorError, Forbidden, Invalid, NotFound
from federator.kube.objects import Pod
from federator.model.jobs import JobSpec
from federator_agent.core.lent_capacity import Slot
from federator_agent.core.state import Phase, PlacementRecord
from federator_agent.kube import manifests
from federator_agent.kube.capacity import NodesAndPods, PoolPlace
from federator_agent.kube.manifests import FINALIZER
from federator_agent.kube.pods import Pods
from federator_agent.kube.preparation import Preparation
from federator_agent.kube.settings import KubeSettings
from federator_agent.staging_errors import StagingRefused
from tests.unit.agent.worlds import entry

THEIRS = "kueue.x-k8s.io/managed"
AT = "2026-01-01T00:00:00Z"
WORKLOAD = "/apis/kueue.x-k8s.io/v1beta1/namespaces/federator/workloads/p1"


def _manifest(rank: int, ranks: int, settings: KubeSettings) -> dict[str, Any]:
    spec = JobSpec(name="job", run="x", nodes=ranks)
    slots = tuple(Slot(each, "main", "n", (), 1000, 0) for each in range(ranks))
    record = PlacementRecord(entry=entry("p1", spec, pool="main"), phase=Phase.STAGING, slots=slots)
    return manifests.pod(record, spec, rank, PoolPlace({}), settings, "here")


class Api:
    """An API server with Kueue on it."""

    def __init__(self, settings: KubeSettings) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.others: dict[str, Any] = {}
        self.refused: set[str] = set()
        self.meddles = 0
        """So many times somebody adds a finalizer just before a patch is taken."""
        self.settings = settings

    def add(self, ranks: int, phase: str, *, gated: bool = False) -> None:
        for rank in range(ranks):
            pod = _manifest(rank, ranks, self.settings)
            pod["metadata"] |= {"uid": f"u{rank}", "namespace": "federator", "creationTimestamp": AT}
            pod["metadata"]["finalizers"] = [THEIRS, FINALIZER]
            pod["status"] = {"phase": phase}
            pod["spec"] |= {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}] if gated else []}
            pod["spec"] |= {} if gated else {"nodeName": "n"}
            self.pods[pod["metadata"]["name"]] = pod

    async def ask(self, method: str, path: str, body: Any = None, **_: Any) -> bytes:
        await asyncio.sleep(0)
        if path in self.refused:
            raise Forbidden(path)
        name = path.rpartition("/")[2]
        if path.endswith("/pods") and method == "GET":
            return msgspec.json.encode({"items": list(self.pods.values())})
        if path.startswith("/api/v1/namespaces/federator/pods/") and name in self.pods:
            if method == "DELETE":
                self.pods[name]["metadata"].setdefault("deletionTimestamp", AT)
                self._kueue()
            elif method == "PATCH":
                self._patch(self.pods[name]["metadata"], body)
            return msgspec.json.encode(self.pods.get(name, {"metadata": {}}))
        if method == "GET" and path in self.others:
            return msgspec.json.encode(self.others[path])
        raise NotFound(path)

    def _patch(self, meta: dict[str, Any], patch: list[dict[str, str]]) -> None:
        if self.meddles:
            self.meddles -= 1
            meta["finalizers"].insert(0, f"other/{self.meddles}")
        for step in patch:
            where: Any = meta
            *folders, last = step["path"].removeprefix("/metadata/").split("/")
            for folder in folders:
                where = where[folder]
            key: Any = int(last) if isinstance(where, list) else last
            there = isinstance(where, dict) or int(last) < len(where)
            if not there or (step["op"] == "test" and where[key] != step["value"]):
                raise Invalid("the patch does not fit")
            if step["op"] == "remove":
                del where[key]

    def _kueue(self) -> None:
        """Its share: a group is over when all of its pods are, and none of them is to be made again."""
        metas = [pod["metadata"] for pod in self.pods.values()]
        final = all(meta["annotations"]["kueue.x-k8s.io/retriable-in-group"] == "false" for meta in metas)
        if final and all("deletionTimestamp" in meta for meta in metas):
            for meta in metas:
                meta["finalizers"] = [each for each in meta["finalizers"] if each != THEIRS]
        for name in [name for name, pod in self.pods.items() if _gone(pod["metadata"])]:
            del self.pods[name]


def _gone(meta: dict[str, Any]) -> bool:
    return "deletionTimestamp" in meta and not meta["finalizers"]


class World:
    def __init__(self, **settings: Any) -> None:
        self.settings = KubeSettings(image="i", **settings)
        self.api = Api(self.settings)
        cluster = NodesAndPods(self.settings, "here")
        self.pods = Pods(self.api, self.settings, "here", cluster, "me")  # type: ignore[arg-type]
        nothing: Any = SimpleNamespace()
        api: Any = self.api
        self.preparation = Preparation(
            api, self.pods, nothing, nothing, self.settings, cluster, nothing, nothing
        )

    def see(self) -> None:
        for each in self.api.pods.values():
            pod = msgspec.convert(each, Pod)
            self.pods.mirror.put(pod.metadata.key, pod)

    async def scheduled(self, ranks: int) -> None:
        spec = JobSpec(name="job", run="x", nodes=ranks)
        slots = tuple(Slot(each, "main", "n", (), 1000, 0) for each in range(ranks))
        await self.preparation.wait_until_scheduled(
            PlacementRecord(entry=entry("p1", spec), phase=Phase.STAGING, slots=slots)
        )


@pytest.mark.parametrize("queue", ["", "gpus"], ids=["by-default", "by-name"])
def test_every_placement_is_one_group_of_which_no_pod_comes_again(queue: str) -> None:
    meta = _manifest(1, 2, KubeSettings(image="i", kueue_queue=queue))["metadata"]
    assert meta["labels"]["kueue.x-k8s.io/pod-group-name"] == "p1"
    assert meta["labels"].get("kueue.x-k8s.io/queue-name", "") == queue
    assert (
        meta["annotations"].items()
        >= {
            "kueue.x-k8s.io/pod-group-total-count": "2",
            "kueue.x-k8s.io/retriable-in-group": "false",
        }.items()
    )


@pytest.mark.parametrize("phase", ["Pending", "Running", "Succeeded", "Failed"])
async def test_no_quota_is_left_behind(phase: str) -> None:
    world = World()
    world.api.add(3, phase, gated=phase == "Pending")
    if phase == "Running":  # its kubelet ends it
        for pod in world.api.pods.values():
            pod["metadata"] |= {"deletionTimestamp": AT, "deletionGracePeriodSeconds": 0}
    await asyncio.wait_for(world.preparation.take_back("p1"), 5.0)
    assert world.api.pods == {}


async def test_what_others_hold_is_not_waited_for() -> None:
    world = World()
    world.api.add(1, "Failed")
    world.api.pods["p1-0"]["metadata"]["finalizers"].append("somebody/else")
    await asyncio.wait_for(world.preparation.take_back("p1"), 5.0)
    assert world.api.pods["p1-0"]["metadata"]["finalizers"] == ["somebody/else"]


async def test_a_finalizer_that_comes_meanwhile_stays() -> None:
    world = World()
    world.api.add(1, "Failed")
    world.api.meddles = 1
    await world.pods.release(msgspec.convert(world.api.pods["p1-0"], Pod))
    assert world.api.pods["p1-0"]["metadata"]["finalizers"] == ["other/0"]


async def test_one_that_changes_again_and_again_is_left_for_the_next_look() -> None:
    world = World()
    world.api.add(1, "Failed")
    world.api.meddles = 2
    with pytest.raises(FederatorError):
        await world.pods.release(msgspec.convert(world.api.pods["p1-0"], Pod))
    assert FINALIZER in world.api.pods["p1-0"]["metadata"]["finalizers"]


async def test_waiting_for_admission_is_no_waiting_for_a_node() -> None:
    world = World(start_within_s=0.2, admit_within_s=60.0)
    world.api.add(2, "Pending", gated=True)
    world.see()
    waiting = asyncio.create_task(world.scheduled(2))
    await asyncio.sleep(0.5)
    assert not waiting.done(), "the time for a node has not begun"
    for pod in world.api.pods.values():
        pod["spec"]["schedulingGates"] = []
    world.see()
    with pytest.raises(StagingRefused, match=r"2 of 2 pods found no node within 0.2 s"):
        await asyncio.wait_for(waiting, 5.0)


@pytest.mark.parametrize(
    ("forbidden", "conditions", "said"),
    [
        (False, [{"type": "QuotaReserved", "status": "False", "message": "insufficient quota: 2 more needed"}], "insufficient quota: 2 more needed"),
        (False, None, "knows no such group"),
        (True, [], "may not read why"),
    ],
    ids=["says-why", "knows-nothing", "may-not-read"],
)  # fmt: skip
async def test_a_group_that_is_never_admitted_is_refused_in_kueues_words(
    forbidden: bool, conditions: list[dict[str, str]] | None, said: str
) -> None:
    world = World(admit_within_s=0.05)
    world.api.add(2, "Pending", gated=True)
    world.see()
    world.api.others["/apis/kueue.x-k8s.io"] = {"preferredVersion": {"version": "v1beta1"}}
    if conditions is not None:
        world.api.others[WORKLOAD] = {"metadata": {"name": "p1"}, "status": {"conditions": conditions}}
    if forbidden:
        world.api.refused.add(WORKLOAD)
    with pytest.raises(StagingRefused, match=rf"2 of 2 pods were not admitted within 0.05 s: .*{said}"):
        await asyncio.wait_for(world.scheduled(2), 5.0)


async def test_another_controllers_gate_is_named() -> None:
    world = World(admit_within_s=0.05)
    world.api.add(1, "Pending", gated=True)
    world.api.pods["p1-0"]["spec"]["schedulingGates"] = [{"name": "example.org/approval"}]
    world.see()
    with pytest.raises(StagingRefused, match=r"scheduling gates example\.org/approval"):
        await asyncio.wait_for(world.scheduled(1), 5.0)
