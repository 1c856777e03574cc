"""A spot machine of real processes is taken back under a running job: the job saves itself, and is done elsewhere."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from federator.cli.demo.federation import DemoFederation
from federator.cli.demo.world import PROVIDER, Document
from federator.model.jobs import JobStatus
from federator_providers.local import interrupt
from federator_providers.local.folder import InstanceFolder
from tests.support.waiting import until

SPEED = 60.0
NOTICE = "20m"
"""Twenty real seconds: what the job writes has to come home within them, on a slow machine too."""
POLICIES = """
apiVersion: federator/v1
kind: Queue
metadata: {name: default}
spec: {max_duration: 30m, met_deadline_usd_per_gpu_hour: 1000}
---
apiVersion: federator/v1
kind: BurstPolicy
metadata: {name: always}
spec: {who: {queues: [default]}, when: {mode: always}, limits: {usd: {total: 100000}}}
"""
JOB: dict[str, Any] = {
    "name": "train",
    # It goes on until it is told to save itself, and is done when it starts again. The shell answers the signal between two naps.
    "run": "trap 'echo saved; touch {saved}; exit 0' TERM; echo ready; until [ -e {saved} ]; do sleep 0.1; done; echo done",
    "resources": {"gpus": "A100:1"},
    "estimate": "5m",
    "finish_within": "8h",
    "placement": {"kinds": ["cloud"]},
    "checkpoint": {"grace": "5m"},
}


class SpotFederation(DemoFederation):
    """One type of machine, in both markets."""

    def _settings(self) -> Document:
        settings = super()._settings()
        offer = {"instance_type": "a2-highgpu-1g", "market": ["on-demand", "spot"], "boot_delay": "2m"}
        settings["providers"][PROVIDER]["settings"] |= {"offers": [offer], "spot": {"notice": NOTICE}}
        return settings


@pytest.fixture
async def federation(tmp_path: Path) -> AsyncIterator[DemoFederation]:
    (tmp_path / "world").mkdir()
    made = SpotFederation(tmp_path / "world", SPEED)
    try:
        await made.start_dispatcher()
        await made.apply_policies(POLICIES)
        yield made
    finally:
        await made.end()


async def log_of(federation: DemoFederation, job: str, placement: str) -> str:
    query = {"node": "0", "placement": placement}
    path = f"/v1/jobs/{job}/logs"
    async with federation.admin.transport.open("GET", path, query=query, headers={"Accept": "*/*"}) as answer:
        return (await answer.read()).decode()


@pytest.mark.system
@pytest.mark.timeout(600)
async def test_an_interrupted_job_is_done_on_demand_and_nothing_is_left(
    federation: DemoFederation, tmp_path: Path
) -> None:
    admin = federation.admin
    (job,) = (await admin.submit({**JOB, "run": JOB["run"].format(saved=tmp_path / "saved")})).jobs

    async def running() -> bool:
        return (await admin.job(job)).job.status is JobStatus.RUNNING

    await until(running, "the first start")
    (first,) = await admin.leases()
    assert first.market == "spot"
    assert first.evidence is not None
    assert first.evidence.fallback_finish_at is not None
    attempt = (await admin.job(job)).job.placement or ""

    async def ready() -> bool:
        return "ready" in await log_of(federation, job, attempt)

    await until(ready, "the job to listen for its signal")
    interrupt(federation.machines, first.id)

    async def two() -> bool:
        return len(await admin.leases()) == 2

    await until(two, "the second rental")
    assert "saved" in await log_of(federation, job, attempt), "what it wrote within the notice has come home"
    done = await admin.wait(job)
    assert done.job.status is JobStatus.SUCCEEDED
    leases = {lease.market: lease for lease in await admin.leases()}
    assert set(leases) == {"spot", "on-demand"}
    assert leases["spot"].failure == "the provider takes the machine back"

    async def all_gone() -> bool:
        return all(lease.status == "GONE" for lease in await admin.leases())

    await until(all_gone, "the end of both machines")
    assert not InstanceFolder(federation.machines / first.id).is_on()
