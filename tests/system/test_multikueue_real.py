"""The same at a real MultiKueue, by hand: `docs/testing.md` says how its manager and two workers are started. What is asked of Kueue here is what the stand-in of `test_multikueue.py` does by itself.

Pods of workers have no node; a test ends them.
"""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from federator.client.jobs import JobFilter
from federator.operator.definition import definition
from federator.wire.http import JobRow
from tests.support.waiting import until
from tests.system.test_multikueue import Place
from tests.testbeds.kubernetes.multikueue import GPUS, MANAGER, NAMESPACE, QUEUE, VARIABLE
from tests.testbeds.kubernetes.shared import admin_of

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not os.environ.get(VARIABLE), reason=f"{VARIABLE} names no MultiKueue"),
]
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
WORKLOADS = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/workloads"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
PRIORITIES = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "WorkloadPriorityClass",
    "metadata": {"name": "urgent"},
    "value": 50,
}
HIGH = "system-cluster-critical"
"""A class of priority that every cluster has."""


class Real(Place):
    """Dispatcher, operator and agents beside it."""

    def __init__(self, folder: Path) -> None:
        given = Path(os.environ[VARIABLE])
        self.admins = {}
        for name in (MANAGER, *GPUS):
            (folder / name).mkdir()
            self.admins[name] = admin_of(given / f"{name}.kubeconfig", folder / name)
        super().__init__(folder, self.admins[MANAGER], "20s")
        self.began = time.monotonic()

    def note(self, text: str) -> None:
        sys.stdout.write(f"{time.monotonic() - self.began:7.1f} s  {text}\n")

    def run(self, name: str, gpus: int, pods: int = 1, at: str = MANAGER, high: bool = False, **labels: str) -> None:
        """Somebody makes a Job."""
        requests = {"cpu": "1", "nvidia.com/gpu": str(gpus)}
        container = {"name": "c", "image": "any", "resources": {"requests": requests, "limits": requests}}
        spec = {"restartPolicy": "Never", "containers": [container]} | ({"priorityClassName": HIGH} if high else {})
        body = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": QUEUE} | {f"kueue.x-k8s.io/{key.replace('_', '-')}": value for key, value in labels.items()}},
            "spec": {"parallelism": pods, "completions": pods, "suspend": True, "backoffLimit": 0, "template": {"spec": spec}},
        }
        self.admins[at].ask("POST", JOBS, body)

    def workload(self, name: str, at: str = MANAGER) -> dict[str, Any]:
        """Of that Job; empty: none."""
        found = [
            each
            for each in self.admins[at].ask("GET", WORKLOADS)["items"]
            if name in [owner["name"] for owner in each["metadata"].get("ownerReferences", ())]
            or each["metadata"]["name"].startswith(f"job-{name}-")
        ]
        return found[0] if found else {}

    def condition(self, name: str, kind: str, at: str = MANAGER) -> str:
        """The reason of a condition that is true; empty: it is not."""
        found = self.workload(name, at).get("status", {}).get("conditions", ())
        return next((each["reason"] for each in found if each["type"] == kind and each["status"] == "True"), "")

    def cluster(self, name: str) -> str:
        return str(self.workload(name).get("status", {}).get("clusterName", ""))

    async def at(self, name: str, cluster: str, limit_s: float = 90.0) -> None:
        await until(lambda: self.cluster(name) == cluster, f"{name} to be admitted at {cluster}", limit_s)
        self.note(f"{name} is admitted at {cluster}")
        others = [each for each in GPUS if f"worker-{each}" != cluster and self.workload(name, each)]
        assert others == []

    def pods(self, name: str, at: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.admins[at].ask("GET", f"{PODS}?labelSelector=batch.kubernetes.io/job-name={name}")["items"]
        return found

    async def end(self, name: str, at: str, phase: str = "Succeeded") -> None:
        """Its pods end."""
        pods = await until(lambda: self.pods(name, at), f"pods of {name} at {at}")
        for pod in pods:
            self.admins[at].patch(f"{PODS}/{pod['metadata']['name']}/status", {"status": {"phase": phase}})

    async def has_ended(self, name: str) -> str:
        def over() -> str:
            found = self.admin.ask("GET", f"{JOBS}/{name}").get("status", {}).get("conditions", ())
            return next((each["type"] for each in found if each["status"] == "True" and each["type"] in ("Complete", "Failed")), "")
        said = str(await until(over, f"Job {name} to be over"))
        self.note(f"Job {name} is {said}")
        return said

    async def rows(self, name: str) -> list[JobRow]:
        """Its jobs, the oldest first."""
        full = self.workload(name).get("metadata", {}).get("name") or name
        found = [row async for row in self.ada.all_jobs(JobFilter(mine=True)) if row.name.startswith(f"job-{name}-") or row.name == full]
        return sorted(found, key=lambda row: row.submitted_at)

    async def newest(self, name: str, status: str, count: int = 1) -> JobRow:
        async def there() -> JobRow | None:
            rows = await self.rows(name)
            return rows[-1] if len(rows) >= count and rows[-1].status == status else None
        row: JobRow = await until(there, f"job {count} of {name} to be {status}", 90.0)
        self.note(f"job {count} of {name} is {status} at {row.site}")
        return row

    def prioritise(self) -> None:
        """A class of priority for Workloads."""
        path = "/apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses"
        if self.admin.find(f"{path}/urgent") is None:
            self.admin.ask("POST", path, PRIORITIES)

    def clear(self) -> None:
        for admin in self.admins.values():
            for job in admin.ask("GET", JOBS)["items"]:
                with contextlib.suppress(Exception):
                    admin.ask("DELETE", f"{JOBS}/{job['metadata']['name']}", {"propagationPolicy": "Background"})


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[Real]:
    real = Real(tmp_path)
    real.admin.apply(definition())
    real.clear()
    await until(lambda: not any(real.admins[each].ask("GET", WORKLOADS)["items"] for each in real.admins), "an empty MultiKueue")
    try:
        await real.begin()
        yield real
    finally:
        real.clear()
        await real.ada.close()
        await real.federation.end()


async def test_a_job_is_given_to_one_cluster_and_ends_as_it_ends(real: Real) -> None:
    real.prioritise()
    real.run("large", 8, priority_class="urgent", max_exec_time_seconds="3600")
    await real.at("large", "worker-north")
    row = await real.newest("large", "RUNNING")
    job = (await real.ada.job(row.id)).job
    assert (job.priority, job.max_duration_s) == (50, 3600.0)
    real.run("small", 2, pods=2)
    await real.at("small", "worker-south")
    await real.newest("small", "RUNNING")
    real.federation.processes.kill("operator")
    await real.end("large", "north")
    assert await real.has_ended("large") == "Complete"
    real.start_operator()
    assert (await real.newest("large", "SUCCEEDED")).site == "north"
    await real.end("small", "south", "Failed")
    assert await real.has_ended("small") == "Failed"
    await real.newest("small", "FAILED")

    real.run("long", 1, max_exec_time_seconds="5")
    await real.newest("long", "CANCELLED")
    assert real.condition("long", "Evicted").startswith("Deactivated")


async def test_what_a_worker_or_somebody_takes_back_is_planned_again(real: Real) -> None:
    real.run("one", 4)
    await real.newest("one", "RUNNING")
    first = real.cluster("one").removeprefix("worker-")
    (second,) = GPUS.keys() - {first}
    real.run("local", GPUS[first], at=first, high=True)  # of those who work there beside MultiKueue
    await real.at("one", f"worker-{second}")
    assert real.condition("local", "Admitted", first)
    row = await real.newest("one", "RUNNING", 2)
    await real.ada.act("cancel", [row.id])
    await real.newest("one", "RUNNING", 3)

    real.federation.processes.kill("operator")
    path = f"{WORKLOADS}/{real.workload('one')['metadata']['name']}"
    real.admin.patch(path, {"spec": {"active": False}})
    await until(lambda: not real.condition("one", "QuotaReserved"), "the quota to be given back")
    real.admin.patch(path, {"spec": {"active": True}})
    real.start_operator()
    await real.newest("one", "RUNNING", 4)
    name = path.rpartition("/")[2]
    real.admin.ask("DELETE", f"{JOBS}/one", {"propagationPolicy": "Background"})
    await real.job(name, "CANCELLED")
    real.note("Job one is gone, and so is its job")
