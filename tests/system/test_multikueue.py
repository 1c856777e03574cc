"""Workloads of a MultiKueue's manager at a real API server, planned by a real dispatcher: nominated for one cluster each, by the same plan, and again after an eviction.

Kueue itself does not run on the testbed's Kubernetes: its part is played by hand, as it was seen on a real one. Its definition is cut down to the fields that matter here.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from federator.cli.demo.federation import DemoFederation
from federator.client import AsyncClient
from federator.client.jobs import JobFilter
from federator.operator.definition import definition
from federator.wire.http import JobRow, TokenRequest
from tests.support.waiting import until
from tests.testbeds.kubernetes.cluster import Admin, KubeCluster, missing
from tests.testbeds.kubernetes.shared import GRANTS, ROOT
from tests.testbeds.required import need

pytestmark = pytest.mark.system

POLICIES = """
apiVersion: federator/v1
kind: Queue
metadata: {name: multikueue}
spec: {}
"""
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
WORKLOADS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "workloads.kueue.x-k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
    },
    "spec": {
        "group": "kueue.x-k8s.io",
        "scope": "Namespaced",
        "names": {"kind": "Workload", "plural": "workloads", "singular": "workload"},
        "versions": [
            {
                "name": "v1beta2",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {"type": "object", "properties": {"spec": OPEN, "status": OPEN}}
                },
            }
        ],
    },
}
PATH = "/apis/kueue.x-k8s.io/v1beta2/namespaces/research/workloads"
CHECK = "multikueue"


class Kueue:
    """What Kueue does at the manager."""

    def __init__(self, admin: Admin) -> None:
        self.admin, self.turns = admin, 0

    def queue(self, name: str, gpus: int, pods: int = 1) -> None:
        """Somebody makes a job, and the manager holds quota for it."""
        container = {"name": "c", "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": str(gpus)}}}
        pod_set = {"name": "main", "count": pods, "template": {"spec": {"containers": [container]}}}
        body = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {"name": name},
            "spec": {"podSets": [pod_set], "queueName": "team"},
        }
        self.admin.ask("POST", PATH, body)
        self.reserve(name)

    def reserve(self, name: str) -> None:
        """It holds quota, and asks for a cluster."""
        self.turns += 1
        since = f"2026-01-01T00:{self.turns // 60:02}:{self.turns % 60:02}Z"
        held = {
            "type": "QuotaReserved",
            "status": "True",
            "reason": "QuotaReserved",
            "lastTransitionTime": since,
        }
        self.say(
            name,
            conditions=[held],
            admissionChecks=[{"name": CHECK, "state": "Pending"}],
            nominatedClusterNames=None,
            clusterName=None,
        )

    def say(self, name: str, **status: Any) -> None:
        self.admin.patch(f"{PATH}/{name}/status", {"status": status})

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.admin.ask("GET", f"{PATH}/{name}").get("status", {})
        return found

    def nominated(self, name: str) -> list[str]:
        return self.status(name).get("nominatedClusterNames") or []

    def admit(self, name: str) -> str:
        """The cluster that is nominated takes it."""
        (cluster,) = self.nominated(name)
        self.say(
            name,
            clusterName=cluster,
            nominatedClusterNames=None,
            admissionChecks=[{"name": CHECK, "state": "Ready"}],
        )
        return cluster

    def evict(self, name: str) -> None:
        """It is taken back; its quota too."""
        self.say(
            name,
            conditions=[
                {"type": "QuotaReserved", "status": "False", "reason": "Pending"},
                {
                    "type": "Evicted",
                    "status": "True",
                    "reason": "Preempted",
                    "message": "for more important work",
                },
            ],
            clusterName=None,
            nominatedClusterNames=None,
        )

    def finish(self, name: str, reason: str = "Succeeded") -> None:
        held = self.status(name)["conditions"]
        self.say(
            name,
            conditions=[*held, {"type": "Finished", "status": "True", "reason": reason, "message": "done"}],
        )


class Place:
    """A manager of two clusters, and their sites: one of 8 GPUs and one of 4."""

    def __init__(self, folder: Path, admin: Admin, admit_within: str = "8s") -> None:
        self.folder, self.admin, self.admit_within = folder, admin, admit_within
        self.kueue = Kueue(admin)
        self.federation = DemoFederation(folder / "federation", 1.0)
        self.ada: AsyncClient

    async def begin(self) -> None:
        operator, agents = await asyncio.to_thread(self._install)
        self.federation.folder.mkdir()
        await self.federation.start_dispatcher()
        await self.federation.apply_policies(POLICIES)
        await self.federation.start_sites([self._site("north", 8, agents), self._site("south", 4, agents)])
        secret = (await self.federation.admin.create_token(TokenRequest(name="ada", role="user"))).secret
        self.ada = AsyncClient(self.federation.server, secret)
        (self.folder / "ada.token").write_text(secret)
        file = {
            "dispatcher": self.federation.server,
            "kubeconfig": str(operator),
            "namespaces": {"research": {"token_file": str(self.folder / "ada.token"), "queue": "multikueue"}},
            "multikueue": {"check": CHECK, "sites": ["north", "south"]},
            "mirror_every": "300ms",
        }
        (self.folder / "operator.yaml").write_text(json.dumps(file))
        self.start_operator()

    def _install(self) -> list[Path]:
        """What an administrator applies; kubeconfigs of the operator and of the agents, with the rights that this gives."""
        for name in ("federator-operator.yaml", "federator-multikueue.yaml"):
            for document in yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / name).read_text()):
                if document["kind"] in GRANTS:
                    self.admin.apply(document)
        made = []
        for account in ("federator-operator", "federator-multikueue"):
            path = f"/api/v1/namespaces/federator/serviceaccounts/{account}/token"
            wanted = {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": 3600},
            }
            token = self.admin.ask("POST", path, wanted)["status"]["token"]
            made.append(self.admin.kubeconfig(self.folder / f"{account}.kubeconfig", token))
        return made

    def start_operator(self) -> None:
        self.federation.processes.start(
            "operator", "federator", ["operator", "--config", str(self.folder / "operator.yaml")]
        )

    def _site(self, name: str, gpus: int, kubeconfig: Path) -> dict[str, Any]:
        pool = {
            "name": "main",
            "model": "A100",
            "nodes": 1,
            "gpus_per_node": gpus,
            "cpus_per_node": 64,
            "memory_per_node": "256GiB",
        }
        kueue = {
            "cluster": f"worker-{name}",
            "check": CHECK,
            "namespaces": {"research": "ada"},
            "kubeconfig": str(kubeconfig),
            "admit_within": self.admit_within,
        }
        return {
            "site": name,
            "kind": "onprem",
            "pools": [pool],
            "lend": {"queues": ["multikueue"]},
            "multikueue": kueue,
        }

    async def nominated(self, name: str) -> str:
        found = await until(lambda: self.kueue.nominated(name), f"{name} to be nominated")
        assert len(found) == 1
        return str(found[0])

    async def job(self, name: str, status: str) -> JobRow:
        async def there() -> JobRow | None:
            rows = [row async for row in self.ada.all_jobs(JobFilter(mine=True)) if row.name == name]
            return rows[0] if rows and rows[0].status == status else None

        found: JobRow = await until(there, f"the job of {name} to be {status}")
        return found


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    need(missing())
    with KubeCluster(tmp_path / "cluster") as cluster:
        for each in (definition(), WORKLOADS):
            cluster.admin.ask("POST", DEFINITIONS, each)
        cluster.admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "research"}})
        await until(lambda: cluster.admin.find(PATH), "the definition to be served")
        place = Place(tmp_path, cluster.admin)
        try:
            await place.begin()
            yield place
        finally:
            await place.ada.close()
            await place.federation.end()


async def test_workloads_are_nominated_by_one_plan_and_again_after_an_eviction(place: Place) -> None:
    kueue = place.kueue
    kueue.queue("large", 8)
    assert await place.nominated("large") == "worker-north"
    kueue.queue("small", 2, pods=2)
    assert await place.nominated("small") == "worker-south"
    kueue.queue("third", 4)  # all GPUs are nominated for others, though no pod of theirs runs yet
    await asyncio.to_thread(kueue.admit, "large")
    assert (await place.job("large", "RUNNING")).site == "north"
    kueue.admit("small")
    await place.job("small", "RUNNING")
    await place.job("third", "PENDING")
    assert kueue.nominated("third") == []

    kueue.evict("large")
    assert await place.nominated("third") == "worker-north"
    kueue.admit("third")
    await place.job("third", "RUNNING")
    kueue.reserve("large")  # queued again by the manager: it waits until north is empty
    place.federation.processes.kill("operator")
    kueue.finish("third")
    assert (await place.job("third", "SUCCEEDED")).site == "north"
    place.start_operator()
    assert await place.nominated("large") == "worker-north"

    kueue.finish("small", "Failed")
    await place.job("small", "FAILED")
    place.admin.ask("DELETE", f"{PATH}/large")
    await place.job("large", "CANCELLED")


async def test_a_cluster_that_does_not_admit_loses_the_nomination_and_who_cancels_a_job_has_it_evicted(
    place: Place,
) -> None:
    kueue = place.kueue
    await place.federation.admin.drain("south")
    kueue.queue("one", 4)
    assert await place.nominated("one") == "worker-north"
    await place.federation.admin.undrain("south")
    await until(
        lambda: kueue.nominated("one") == ["worker-south"], "another cluster to be nominated", limit_s=60.0
    )
    kueue.admit("one")
    row = await place.job("one", "RUNNING")
    await place.ada.act("cancel", [row.id])
    await until(
        lambda: kueue.status("one")["admissionChecks"][0]["state"] == "Retry", "Kueue to be asked to evict it"
    )
    kueue.evict("one")
    await place.job("one", "CANCELLED")
