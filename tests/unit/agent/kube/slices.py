"""What drivers of dynamic resource allocation publish, and who holds it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from federator.kube.objects import Node
from federator_agent.kube import dra
from federator_agent.kube.dra import Claim, Held, Slice, SliceDevices
from federator_agent.kube.settings import (
    PRODUCT_LABEL,
    KubePool,
    resource_of,
)

DRIVER = "gpu.nvidia.com"
RESOURCE = resource_of(DRIVER)
POOL = KubePool(name="h100", selector={PRODUCT_LABEL: "H100"}, device_class=DRIVER)


def published(
    node: str, *devices: str, generation: int = 1, kind: str = "gpu", profile: str = "", **spec: Any
) -> Slice:
    """As NVIDIA's driver publishes them."""
    of_mig = {"profile": {"string": profile}, "parentUUID": {"string": "GPU-1"}} if profile else {}
    given = [
        {
            "name": name,
            "attributes": {
                "type": {"string": kind},
                "productName": {"string": "NVIDIA H100"},
                "index": {"int": 0},
                **of_mig,
            },
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for name in devices
    ]
    pool = {"name": node, "generation": generation, "resourceSliceCount": 1}
    body = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": given, **spec}
    return msgspec.convert({"metadata": {"name": f"{node}-{generation}"}, "spec": body}, Slice)


def claimed(node: str, *devices: str, pod: str = "theirs") -> Held:
    results = [{"request": "gpu", "driver": DRIVER, "pool": node, "device": name} for name in devices]
    status = {
        "allocation": {"devices": {"results": results}},
        "reservedFor": [{"resource": "pods", "name": pod, "uid": "u"}],
    }
    found = dra.held(
        msgspec.convert({"metadata": {"name": "c", "namespace": "jobs"}, "status": status}, Claim)
    )
    assert found is not None
    return found


def offers(*slices: Slice) -> list[SliceDevices]:
    return [offer for each in slices if (offer := dra.offered(each)) is not None]


def node(name: str = "n1", **has: str) -> Node:
    status = {
        "allocatable": {"cpu": "64", "memory": "64Gi", "pods": "100", **has},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    return msgspec.convert(
        {"metadata": {"name": name, "labels": {PRODUCT_LABEL: "H100"}}, "status": status}, Node
    )


class Publishing:
    """An API server on which drivers have published slices; a watch tells of nothing more."""

    def __init__(self, slices: int) -> None:
        self.slices = [published(f"n{number}", "gpu-0") for number in range(slices)]

    async def ask(self, _method: str, path: str, **_: Any) -> bytes:
        if path == dra.GROUP:
            return b'{"versions": [{"version": "v1"}]}'
        if path.endswith("/resourceslices"):
            return msgspec.json.encode({"items": self.slices})
        return b'{"items": []}'

    @asynccontextmanager
    async def stream(self, *_: Any, **_more: Any) -> AsyncIterator[None]:
        await asyncio.get_running_loop().create_future()
        yield
