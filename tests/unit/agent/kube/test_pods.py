"""When a node counts as gone: not while its kubelet may still run what it was given. And whose pods are ours, in a cluster of many tenants."""

import asyncio
from typing import Any

import msgspec
import pytest

from federator.kernel.errors import NotFound
from federator.kube.objects import Node, Pod
from federator_agent.kube import pods
from federator_agent.kube.capacity import PLACEMENT_LABEL, SITE_LABEL, NodesAndPods
from federator_agent.kube.pods import Pods
from federator_agent.kube.settings import KubeSettings

SETTINGS = KubeSettings(image="i")


class Api:
    """One that knows no node."""

    async def ask(self, method: str, path: str, **_: Any) -> bytes:
        raise NotFound(f"{method} {path}")


def _pods() -> Pods:
    return Pods(Api(), SETTINGS, "here", NodesAndPods(SETTINGS, "here"), "me")  # type: ignore[arg-type]


def _put(known: Pods, *, ready: str) -> None:
    status = {"conditions": [{"type": "Ready", "status": ready}]}
    node = msgspec.convert({"metadata": {"name": "n1"}, "status": status}, Node)
    known.nodes.put("n1", known.node_seen(node)[1])


async def test_a_node_that_was_well_is_gone_only_once_its_kubelet_has_had_the_time_to_end_its_pods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = _pods()
    _put(known, ready="True")
    assert not await known.node_gone("n1")
    known.nodes.put("n1", None)
    assert not await known.node_gone("n1"), "its pods run until somebody tells their kubelet"
    later_s = asyncio.get_running_loop().time() + pods.HEALTHY_S + 1.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: later_s)
    assert await known.node_gone("n1")


@pytest.mark.parametrize("last", ["Unknown", "False"])
async def test_a_node_that_was_silent_is_gone_at_once(last: str) -> None:
    known = _pods()
    _put(known, ready="True")
    _put(known, ready=last)
    known.nodes.put("n1", None)
    assert await known.node_gone("n1")


async def test_one_that_nobody_has_seen_is_gone_and_one_that_is_back_is_not() -> None:
    known = _pods()
    assert await known.node_gone("n1")
    _put(known, ready="True")
    known.nodes.put("n1", None)
    _put(known, ready="Unknown")
    assert not await known.node_gone("n1")


class Tenants:
    """An API server of a cluster of three namespaces, each with a pod of the same name and labels. Ours are two of them."""

    def __init__(self) -> None:
        settings = KubeSettings(image="i", namespace="plain", namespaces={"team:vision": "vision"})
        self.settings = settings
        self.pods = [_pod("vision", 1), _pod("plain", 2), _pod("theirs", 0)]

    async def ask(self, method: str, path: str, **_more: Any) -> bytes:
        assert method == "GET"
        if path == "/api/v1/pods":
            return msgspec.json.encode({"items": self.pods})
        home, _, name = path.removeprefix("/api/v1/namespaces/").partition("/pods")
        within = [each for each in self.pods if each["metadata"]["namespace"] == home]
        if not name:
            return msgspec.json.encode({"items": within})
        if not within:
            raise NotFound(path)
        return msgspec.json.encode(within[0])

    def known(self) -> Pods:
        cluster = NodesAndPods(self.settings, "here", "me")
        return Pods(self, self.settings, "here", cluster, "me")  # type: ignore[arg-type]


def _pod(namespace: str, second: int) -> dict[str, Any]:
    labels = {SITE_LABEL: "here", PLACEMENT_LABEL: "p1"}
    meta: dict[str, Any] = {"name": "p1-0", "namespace": namespace, "uid": namespace, "labels": labels}
    return {"metadata": {**meta, "creationTimestamp": f"2026-01-01T00:00:0{second}Z"}}


async def test_pods_of_a_namespace_that_is_not_ours_are_not_seen() -> None:
    known = Tenants().known()
    await known.mirror.relist()
    assert sorted(known.mirror.items) == ["plain/p1-0", "vision/p1-0"]
    assert {pod.metadata.namespace for pod in await known.of("p1")} == {"plain", "vision"}


async def test_of_two_pods_of_one_name_the_first_is_the_placements() -> None:
    known = Tenants().known()
    await known.mirror.relist()
    for found in (known.get("p1-0"), await known.look("p1-0"), await known.look("p1-0", "vision")):
        assert found is not None
        assert found.metadata.namespace == "vision"
    assert await known.look("p1-0", "theirs") is None


async def test_who_waits_for_a_placement_is_told_of_a_pod_in_any_namespace() -> None:
    known = Tenants().known()
    waiting = asyncio.create_task(known.wait("p1", 60.0))
    await asyncio.sleep(0)
    pod = msgspec.convert(_pod("vision", 1), Pod)
    known.mirror.put(pod.metadata.key, pod)
    await asyncio.wait_for(waiting, 5.0)
