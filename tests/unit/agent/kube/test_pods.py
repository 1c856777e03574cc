"""When a node counts as gone: not while its kubelet may still run what it was given."""

import asyncio
from typing import Any

import msgspec
import pytest

from federator.kernel.errors import NotFound
from federator_agent.kube import pods
from federator_agent.kube.capacity import Cluster
from federator_agent.kube.objects import Node
from federator_agent.kube.pods import Pods
from federator_agent.kube.settings import KubeSettings

SETTINGS = KubeSettings(image="i")


class Api:
    """One that knows no node."""

    async def ask(self, method: str, path: str, **_: Any) -> bytes:
        raise NotFound(f"{method} {path}")


def _pods() -> Pods:
    return Pods(Api(), SETTINGS, "here", Cluster(SETTINGS, "here"), "me")  # type: ignore[arg-type]


def _put(known: Pods, *, ready: str) -> None:
    status = {"conditions": [{"type": "Ready", "status": ready}]}
    node = msgspec.convert({"metadata": {"name": "n1"}, "status": status}, Node)
    known.nodes.put("n1", known._node(node)[1])


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
