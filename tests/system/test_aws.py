"""A burst into EC2, from the deadline to the bill: the machine's agent boots from nothing but the user data that EC2 was given."""

import asyncio
import base64
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from federator.cli.demo.federation import Federation
from federator.cli.demo.world import PROVIDER, Document
from federator.kernel.clock import SystemClock
from federator.model.jobs import JobStatus
from tests.support.waiting import until
from tests.testbeds.ec2 import IMAGE, Ec2Proxy, MotoServer

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
    "name": "embed",
    "run": "echo on a rented machine",
    "resources": {"gpus": "A10G:1"},
    "estimate": "5s",
    "max_duration": "2m",
    "finish_within": "8h",
    "placement": {"kinds": ["cloud"]},
    "spot_policy": "on-demand",
}


class AwsFederation(Federation):
    """Its provider is EC2; time runs as it does."""

    def __init__(self, folder: Path, ec2: Ec2Proxy) -> None:
        super().__init__(folder, 1.0)
        self._addresses = ec2.addresses

    def _settings(self) -> Document:
        settings = super()._settings()
        settings["providers"][PROVIDER] |= {
            "type": "aws",
            "settings": {
                "region": "us-east-1",
                "zones": ["us-east-1a"],
                "image": IMAGE,
                "offers": [{"instance_type": "g5.xlarge", "boot_delay": "5s", "max_instances": 1}],
                "boot": f"exec {sys.executable} -m federator_agent serve",
                **self._addresses,
            },
        }
        return settings


@pytest.fixture
async def ec2() -> AsyncIterator[Ec2Proxy]:
    moto = MotoServer()
    proxy = Ec2Proxy(moto.url, SystemClock())
    await proxy.start()
    yield proxy
    await proxy.close()
    moto.close()


@pytest.fixture
async def federation(
    tmp_path: Path, ec2: Ec2Proxy, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[AwsFederation]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    (tmp_path / "world").mkdir()
    made = AwsFederation(tmp_path / "world", ec2)
    try:
        await made.start_dispatcher()
        await made.apply_policies(POLICIES)
        yield made
    finally:
        await made.end()


async def boot(user_data: str, folder: Path) -> asyncio.subprocess.Process:
    """What cloud-init does on a machine: moto has none."""
    script = folder / "user-data.sh"
    script.write_bytes(base64.b64decode(user_data))
    environment = {"PATH": os.environ["PATH"], "FEDERATOR_BOOT_DIR": str(folder / "boot")}
    return await asyncio.create_subprocess_exec("/bin/sh", str(script), env=environment, cwd=folder)


@pytest.mark.system
async def test_a_job_runs_on_a_machine_of_ec2_that_is_given_back_and_paid_for(
    federation: AwsFederation, ec2: Ec2Proxy, tmp_path: Path
) -> None:
    admin = federation.admin
    (job,) = (await admin.submit(JOB)).jobs

    def launches() -> list[dict[str, str]]:
        return [call for call in ec2.calls if call["Action"] == "RunInstances"]

    await until(launches, "a launch")
    (launch,) = launches()
    machine = await boot(launch["UserData"], tmp_path)
    try:
        assert (await admin.wait(job)).job.status is JobStatus.SUCCEEDED

        async def given_back() -> bool:
            return [lease.status for lease in await admin.leases()] == ["GONE"]

        await until(given_back, "the end of the lease")
    finally:
        machine.terminate()
        await machine.wait()
    assert await ec2.living() == []
    assert len(await ec2.machines()) == len(launches()) == 1
    (lease,) = await admin.leases()
    assert lease.failure is None
    assert lease.billed_usd >= 1.006 * 60 / 3600, "the minimum at least"
    logs = "".join(file.read_text(errors="replace") for file in federation.folder.rglob("*.log"))
    assert logs
    assert "hush" not in logs
    assert "join_token" not in logs
