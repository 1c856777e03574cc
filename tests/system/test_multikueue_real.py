"""The same at a real MultiKueue, by hand: `docs/testing.md` says how its manager and two workers are started. What Kueue does here by itself is played by hand in `test_multikueue.py`.

Pods of workers have no node: a test ends them.
"""

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
from tests.testbeds.kubernetes.cluster import NotThere
from tests.testbeds.kubernetes.multikueue import GPUS, MANAGER, NAMESPACE, QUEUE, VARIABLE
from tests.testbeds.kubernetes.shared import admin_of

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not os.environ.get(VARIABLE), reason=f"{VARIABLE} names no MultiKueue"),
]
GROUP = "kueue.x-k8s.io"
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
WORKLOADS = f"/apis/{GROUP}/v1beta2/namespaces/{NAMESPACE}/workloads"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
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

    def run(
        self, name: str, gpus: int, pods: int = 1, at: str = MANAGER, high: bool = False, **labels: str
    ) -> None:
        """Somebody makes a Job. `high`: of the highest priority; `labels`: of Kueue."""
        requests = {"cpu": "1", "nvidia.com/gpu": str(gpus)}
        container = {"name": "c", "image": "any", "resources": {"requests": requests, "limits": requests}}
        pod = {"restartPolicy": "Never", "priorityClassName": HIGH if high else "", "containers": [container]}
        said = {
            f"{GROUP}/{key.replace('_', '-')}": value
            for key, value in {"queue_name": QUEUE, **labels}.items()
        }
        size = {"parallelism": pods, "completions": pods, "backoffLimit": 0}
        spec = {"suspend": True, "template": {"spec": pod}, **size}
        body = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "labels": said},
            "spec": spec,
        }
        self.admins[at].ask("POST", JOBS, body)

    def workload(self, name: str, at: str = MANAGER) -> dict[str, Any]:
        """Of that Job; empty: none."""
        found = self.admins[at].ask("GET", WORKLOADS)["items"]
        return next((each for each in found if each["metadata"]["name"].startswith(f"job-{name}-")), {})

    def says(self, found: dict[str, Any], *kinds: str) -> dict[str, Any]:
        """The condition of such a type that is true; empty: none."""
        all_of = found.get("status", {}).get("conditions", ())
        return next((each for each in all_of if each["type"] in kinds and each["status"] == "True"), {})

    async def at(self, name: str, cluster: str) -> None:
        """Admitted there, and nowhere else."""
        chosen = f"worker-{cluster}"
        await until(
            lambda: self.workload(name).get("status", {}).get("clusterName") == chosen,
            f"{name} at {cluster}",
            90.0,
        )
        assert [each for each in GPUS if self.workload(name, each)] == [cluster]
        self.note(f"{name} is admitted at {cluster} alone")

    async def end(self, name: str, at: str, phase: str = "Succeeded") -> str:
        """Its pods end. How the Job at the manager does."""
        admin, which = self.admins[at], f"?labelSelector=batch.kubernetes.io/job-name={name}"
        for pod in await until(
            lambda: admin.ask("GET", f"{PODS}{which}")["items"], f"pods of {name} at {at}"
        ):
            admin.patch(f"{PODS}/{pod['metadata']['name']}/status", {"status": {"phase": phase}})
        over = await until(
            lambda: self.says(self.admin.ask("GET", f"{JOBS}/{name}"), "Complete", "Failed"),
            f"Job {name} to be over",
        )
        self.note(f"Job {name} is {over['type']}")
        return str(over["type"])

    async def newest(self, name: str, status: str, count: int = 1) -> JobRow:
        """The newest of that many jobs that have stood for it."""

        async def there() -> JobRow | None:
            rows = [
                row
                async for row in self.ada.all_jobs(JobFilter(mine=True))
                if row.name.startswith(f"job-{name}-")
            ]
            newest = max(rows, key=lambda row: row.submitted_at, default=None)
            return newest if newest and len(rows) == count and newest.status == status else None

        row: JobRow = await until(there, f"job {count} of {name} to be {status}", 90.0)
        self.note(f"job {count} of {name} is {status} at {row.site}")
        return row

    def remove(self, name: str, at: str = MANAGER) -> None:
        """Somebody deletes the Job."""
        self.admins[at].ask("DELETE", f"{JOBS}/{name}", {"propagationPolicy": "Background"})

    def left(self) -> list[str]:
        """Jobs and Workloads everywhere, all of which are told to go."""
        found = [
            (at, each["metadata"]["name"])
            for at, admin in self.admins.items()
            for each in admin.ask("GET", JOBS)["items"]
        ]
        for at, name in found:
            with contextlib.suppress(NotThere):
                self.remove(name, at)
        return [name for _, name in found] + [
            at for at, admin in self.admins.items() if admin.ask("GET", WORKLOADS)["items"]
        ]


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[Real]:
    real = Real(tmp_path)
    real.admin.apply(definition())
    await until(lambda: not real.left(), "an empty MultiKueue")
    try:
        await real.begin()
        real.began = time.monotonic()
        yield real
    finally:
        real.left()
        await real.ada.close()
        await real.federation.end()


async def test_a_job_is_given_to_one_cluster_and_ends_as_it_ends(real: Real) -> None:
    real.run("large", 8, priority_class="urgent", max_exec_time_seconds="3600")
    await real.at("large", "north")
    job = (await real.ada.job((await real.newest("large", "RUNNING")).id)).job
    assert (job.priority, job.max_duration_s) == (50, 3600.0)
    real.run("small", 2, pods=2)
    await real.at("small", "south")
    await real.newest("small", "RUNNING")
    real.federation.processes.kill("operator")
    assert await real.end("large", "north") == "Complete"
    assert (await real.newest("large", "SUCCEEDED")).site == "north"
    real.start_operator()
    assert await real.end("small", "south", "Failed") == "Failed"
    await real.newest("small", "FAILED")

    real.run("gone", 1)
    await real.newest("gone", "RUNNING")
    real.remove("gone")
    await real.newest("gone", "CANCELLED")
    await until(lambda: not any(real.workload("gone", each) for each in GPUS), "no cluster to have it")


async def test_what_is_taken_back_is_planned_again(real: Real) -> None:
    real.run("one", 4)
    await real.newest("one", "RUNNING")
    (first,) = [each for each in GPUS if real.workload("one", each)]
    (second,) = GPUS.keys() - {first}
    real.run("local", GPUS[first], at=first, high=True)  # of those who work there beside MultiKueue
    await real.at("one", second)
    assert real.says(real.workload("local", first), "Admitted")
    row = await real.newest("one", "RUNNING", 2)
    real.remove("local", first)
    await real.ada.act("cancel", [row.id])
    await real.newest("one", "RUNNING", 3)

    real.run(
        "first", 8, high=True
    )  # the manager takes its quota back from the other for it, and 12 are too few for three
    real.run("second", 4, high=True)
    await real.at("first", "north")
    await real.at("second", "south")
    await real.newest("one", "CANCELLED", 3)
    assert await real.end("first", "north") == "Complete"
    await real.newest("one", "RUNNING", 4)

    # Kueue may hold its quota on, where it takes the Job away from the worker before it has copied that no pod is active.
    real.federation.processes.kill("operator")
    path = f"{WORKLOADS}/{real.workload('one')['metadata']['name']}"
    real.admin.patch(path, {"spec": {"active": False}})
    await until(lambda: not any(real.workload("one", each) for each in GPUS), "no cluster to have it")
    real.start_operator()
    await real.newest("one", "CANCELLED", 4)
    assert real.says(real.workload("one"), "Evicted")["reason"] == "Deactivated"
