"""Machines that are pods of a real cluster, from submission to bill: with the rights that the manifest gives, on a node that is there when the test says so. The node is this machine."""

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from federator.cli.demo.federation import DemoFederation
from federator.cli.demo.world import PROVIDER, Document
from federator.model.jobs import JobStatus
from federator.wire.http import LeaseRow
from tests.support.waiting import PATIENCE_S, until, wait_until
from tests.testbeds.kubernetes import shared
from tests.testbeds.kubernetes.node import NODE
from tests.testbeds.kubernetes.shared import Bed
from tests.testbeds.required import need

MANIFEST = Path(__file__).parents[3] / "deploy" / "kubernetes" / "federator-node-pools.yaml"
MACHINES = "federator-machines"
PODS = f"/api/v1/namespaces/{MACHINES}/pods"
POOL = "federator.test/pool"
POLICIES = """
apiVersion: federator/v1
kind: Queue
metadata: {name: default}
spec: {max_duration: 5m, met_deadline_usd_per_gpu_hour: 1000}
---
apiVersion: federator/v1
kind: BurstPolicy
metadata: {name: always}
spec: {who: {queues: [default]}, when: {mode: always}, limits: {usd: {total: 1000}}}
"""
JOB: Document = {
    "run": "echo on $FEDERATOR_INSTANCE with $CUDA_VISIBLE_DEVICES",
    "resources": {"gpus": "A100:1"},
    "estimate": "5s",
    "max_duration": "2m",
    "finish_within": "8h",
    "placement": {"kinds": ["cloud"]},
}
BOX: Document = {
    "instance_type": "box",
    "node_selector": {POOL: "burst"},
    "model": "A100",
    "gpu_memory": "40GiB",
    "gpus": 2,
    "cpus": 1,
    "memory": "512MiB",
    "price_usd_h": 3.6,
    "max_instances": 1,
}


class PoolFederation(DemoFederation):
    """Its provider is the cluster; time runs as it does."""

    def __init__(self, folder: Path, bed: Bed, kubeconfig: Path) -> None:
        super().__init__(folder, 1.0)
        self._bed, self._kubeconfig = bed, kubeconfig
        self.boot_delay = "60s"

    def _settings(self) -> Document:
        settings = super()._settings()
        folders = [volume.host_path for volume in shared.data(self._bed).volumes]
        variables = {
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PATH": os.environ["PATH"],
            "FEDERATOR_NO_GPU_WATCH": "1",
        }
        settings["providers"][PROVIDER] |= {
            "type": "kubernetes",
            "settings": {
                "kubeconfig": str(self._kubeconfig),
                "image": self._bed.image,
                "command": [sys.executable, "-m", "federator_agent", "serve"],
                "scale_down": "0s",
                "offers": [BOX | {"boot_delay": self.boot_delay}],
                "pod": {
                    "hostNetwork": True,  # the dispatcher is at this machine's loopback
                    "securityContext": None,
                    "volumes": [
                        {"name": f"host-{index}", "hostPath": {"path": each}}
                        for index, each in enumerate(folders)
                    ],
                },
                "container": {
                    "env": [{"name": name, "value": value} for name, value in variables.items()],
                    "volumeMounts": [
                        {"name": f"host-{index}", "mountPath": each} for index, each in enumerate(folders)
                    ],
                },
            },
        }
        return settings


@pytest.fixture
def kubeconfig(testbed: Bed, tmp_path: Path) -> Path:
    """Of an account with the rights that the manifest gives, and no others."""
    need("" if testbed.node else "the node must be this machine")
    for document in yaml.safe_load_all(MANIFEST.read_text()):
        testbed.admin.apply(document)
    accounts = f"/api/v1/namespaces/{MACHINES}/serviceaccounts"
    wait_until(lambda: testbed.admin.find(f"{accounts}/default"), "the account of pods")
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3600},
    }
    token = testbed.admin.ask("POST", f"{accounts}/federator-renting/token", request)["status"]["token"]
    return testbed.admin.kubeconfig(tmp_path / "renting.kubeconfig", token)


@pytest.fixture
async def federation(testbed: Bed, kubeconfig: Path, tmp_path: Path) -> AsyncIterator[PoolFederation]:
    (tmp_path / "world").mkdir()
    made = PoolFederation(tmp_path / "world", testbed, kubeconfig)
    try:
        yield made
    finally:
        await made.end()
        _label(testbed, None)
        for pod in _pods(testbed):
            testbed.admin.remove(f"{PODS}/{pod['metadata']['name']}")


def _label(bed: Bed, pool: str | None) -> None:
    bed.admin.patch(f"/api/v1/nodes/{NODE}", {"metadata": {"labels": {POOL: pool}}})


def _pods(bed: Bed) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = bed.admin.ask("GET", PODS)["items"]
    return found


async def _gone(bed: Bed) -> bool:
    return _pods(bed) == []


def _ended(federation: DemoFederation) -> Callable[[], Awaitable[LeaseRow | None]]:
    async def look() -> LeaseRow | None:
        leases = await federation.admin.leases()
        return next((lease for lease in leases if lease.status == "GONE"), None)

    return look


@pytest.mark.system
@pytest.mark.timeout(600)
async def test_a_job_runs_on_a_node_that_comes_when_its_pod_waits_for_it(
    federation: PoolFederation, testbed: Bed
) -> None:
    await federation.start_dispatcher()
    await federation.apply_policies(POLICIES)
    (job,) = (await federation.admin.submit(JOB)).jobs

    async def waits() -> bool:
        conditions = [each for pod in _pods(testbed) for each in pod["status"].get("conditions", ())]
        return any(each.get("reason") == "Unschedulable" for each in conditions)

    await until(waits, "a pod without a node")
    _label(testbed, "burst")
    assert (await federation.admin.wait(job)).job.status is JobStatus.SUCCEEDED
    lease = await until(_ended(federation), "the end of the lease")
    assert lease is not None
    assert lease.failure is None
    assert lease.billed_usd >= 3.6 * 60 / 3600, "the minimum at least"
    await until(lambda: _gone(testbed), "the end of the pod, which is listed for a while", 2 * PATIENCE_S)


@pytest.mark.system
@pytest.mark.timeout(600)
async def test_a_pod_that_gets_no_node_is_given_up_with_the_schedulers_reason(
    federation: PoolFederation, testbed: Bed
) -> None:
    federation.boot_delay = "3s"
    await federation.start_dispatcher()
    await federation.apply_policies(POLICIES)
    await federation.admin.submit(JOB)
    lease = await until(_ended(federation), "the end of the lease")
    assert lease is not None
    assert lease.failure is not None
    assert lease.failure.startswith("no capacity: no node came within")
    assert "node(s) didn't match" in lease.failure
    assert lease.billed_usd == 0
    assert _pods(testbed) == []
