"""Dynamic resource allocation as far as a real API server can show it that has no such scheduler: slices and claims are counted, templates come and go."""

from pathlib import Path
from typing import Any

import pytest

from federator.model.jobs import Accelerators, Resources
from federator.model.placements import PlacementStatus
from federator_agent.kube.settings import PRODUCT_LABEL
from tests.integration.agent.conftest import entry
from tests.integration.agent.fake_dispatcher import FakeDispatcher
from tests.integration.kube.conftest import KubeAgent
from tests.support.waiting import until
from tests.testbeds.kubernetes.cluster import NAMESPACE, Admin, ApiError
from tests.testbeds.kubernetes.node import NODE
from tests.testbeds.kubernetes.shared import Bed

GROUP, VERSION, DRIVER = "resource.k8s.io", "v1", "gpu.nvidia.com"
BASE = f"/apis/{GROUP}/{VERSION}"
TEMPLATES = f"{BASE}/namespaces/{NAMESPACE}/resourceclaimtemplates"
KINDS = (
    ("ResourceSlice", "Cluster"),
    ("ResourceClaim", "Namespaced"),
    ("ResourceClaimTemplate", "Namespaced"),
)


def _kind(kind: str, scope: str) -> dict[str, Any]:
    """Stands for the API's own type, which this server does not have."""
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": VERSION, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{GROUP}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in for tests"},
        },
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {"kind": kind, "plural": plural},
            "versions": [version],
        },
    }


def _publish(admin: Admin, *devices: str) -> None:
    body = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "ResourceSlice",
        "metadata": {"name": "node-gpus"},
        "spec": {
            "driver": DRIVER,
            "nodeName": NODE,
            "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": name, "attributes": {"type": {"string": "gpu"}}} for name in devices],
        },
    }
    path = f"{BASE}/resourceslices/node-gpus"
    if admin.find(path) is not None:
        admin.patch(path, {"spec": body["spec"]})
    else:
        admin.ask("POST", f"{BASE}/resourceslices", body)


@pytest.fixture
def admin(testbed: Bed) -> Admin:
    if testbed.node is None:
        pytest.skip("this would give a cluster that is not the test's own types that it may have")
    for kind, scope in KINDS:
        testbed.admin.apply(_kind(kind, scope))
    return testbed.admin


async def test_devices_of_drivers_are_lent_and_asked_for_by_claims(
    dispatcher: FakeDispatcher, tmp_path: Path, testbed: Bed, admin: Admin, no_pods_left: None
) -> None:
    def served() -> bool:
        try:
            _publish(admin, "gpu-0", "gpu-1")
        except ApiError:
            return False
        return True

    await until(served, "the types to be served")
    pool = {"name": "claimed", "selector": {PRODUCT_LABEL: "A100"}, "device_class": DRIVER}
    cut = pool | {"name": "cut", "device_class": "mig.nvidia.com", "profile": "1g.10gb"}
    agent = KubeAgent(tmp_path, dispatcher.url, testbed, pools=[pool, cut])
    await agent.join(dispatcher.url)
    await agent.start()

    def free(gpus: int) -> bool:
        pools = dispatcher.reports[-1].pools if dispatcher.reports else ()
        shapes = [shape for each in pools if each.name == "claimed" for shape in each.free]
        return bool(pools) and max((shape.gpus for shape in shapes), default=0) == gpus

    try:
        await dispatcher.until(lambda: free(2))
        assert "pool cut has no GPUs: no node publishes MIG instances" in dispatcher.reports[-1].health
        _publish(admin, "gpu-0", "gpu-1", "gpu-2")
        await dispatcher.until(lambda: free(3))
        held = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "ResourceClaim",
            "metadata": {"name": "theirs", "namespace": NAMESPACE},
            "status": {
                "allocation": {"devices": {"results": [{"driver": DRIVER, "pool": NODE, "device": "gpu-1"}]}}
            },
        }
        admin.ask("POST", f"{BASE}/namespaces/{NAMESPACE}/resourceclaims", held)
        await dispatcher.until(lambda: free(2))
        spec = dispatcher.spec(run="sleep 1", resources=Resources(gpus=Accelerators(count=2), cpus_milli=10))
        await dispatcher.want(entry("p1", spec, pool="claimed"))
        template = await until(lambda: admin.find(f"{TEMPLATES}/p1"), "the template")
        (request,) = template["spec"]["spec"]["devices"]["requests"]
        assert request["exactly"] == {"deviceClassName": DRIVER, "count": 2}
        await dispatcher.until(lambda: free(0))
        assert (await dispatcher.ended("p1")).status is PlacementStatus.SUCCEEDED
        await until(lambda: admin.find(f"{TEMPLATES}/p1") is None, "the template to go")
        await dispatcher.until(lambda: free(2))
    finally:
        await agent.die()
        admin.remove(f"{BASE}/namespaces/{NAMESPACE}/resourceclaims/theirs")
        admin.remove(f"{BASE}/resourceslices/node-gpus")
