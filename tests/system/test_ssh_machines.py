"""Bursts to a machine of a list: the agent that joins was started over SSH, and is gone when the machine is given back."""

import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from federator.cli.demo.federation import DemoFederation
from federator.cli.demo.world import PROVIDER, Document
from federator.model.jobs import JobStatus
from federator.wire.http import LeaseRow
from federator_providers.local.folder import TAG
from federator_providers.local.processes import kill_tagged
from tests.support.waiting import until
from tests.testbeds.required import need
from tests.testbeds.ssh import SshMachines

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


class SshFederation(DemoFederation):
    """Its provider is a list of machines; time runs as it does."""

    def __init__(self, folder: Path, machines: SshMachines) -> None:
        super().__init__(folder, 1.0)
        self._machines = machines

    def _settings(self) -> Document:
        settings = super()._settings()
        given = self._machines.settings(sys.executable, env={"FEDERATOR_NO_GPU_WATCH": "1"})
        settings["providers"][PROVIDER] |= {"type": "ssh", "settings": given}
        return settings


@pytest.fixture
async def machines(tmp_path: Path) -> AsyncIterator[SshMachines]:
    need("" if shutil.which("ssh") else "ssh is not installed (Debian: openssh-client)")
    made = SshMachines(tmp_path / "ssh")
    await made.add()
    yield made
    await made.close()
    for taken in made.folder.glob("*/federator-machines/*"):
        kill_tagged(TAG, str(taken))


@pytest.fixture
async def federation(tmp_path: Path, machines: SshMachines) -> AsyncIterator[SshFederation]:
    (tmp_path / "world").mkdir()
    made = SshFederation(tmp_path / "world", machines)
    try:
        await made.start_dispatcher()
        await made.apply_policies(POLICIES)
        yield made
    finally:
        await made.end()


@pytest.mark.system
@pytest.mark.timeout(600)
async def test_a_job_runs_on_a_machine_of_the_list_that_is_given_back(
    federation: SshFederation, machines: SshMachines
) -> None:
    (job,) = (await federation.admin.submit(JOB)).jobs
    assert (await federation.admin.wait(job)).job.status is JobStatus.SUCCEEDED

    async def given_back() -> LeaseRow | None:
        (lease,) = await federation.admin.leases()
        return lease if lease.status == "GONE" else None

    lease = await until(given_back, "the end of the lease")
    assert lease is not None
    assert lease.failure is None
    assert lease.billed_usd >= 3.6 * 60 / 3600, "the minimum at least"
    (folder,) = machines.machines[0].home.glob("federator-machines/lease-*")
    assert (folder / "ended").exists()
    assert not (folder / "user_data").exists(), "the secret is gone with it"
    (offer,) = [offer for offer in await federation.admin.offers() if offer.provider == PROVIDER]
    assert offer.available == 1
