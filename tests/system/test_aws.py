"""Bursts into EC2, from the deadline to the bill: the machines' agents boot from nothing but the user data that EC2 was given."""

import asyncio
import base64
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from federator.cli.demo.federation import Federation
from federator.cli.demo.world import PROVIDER, Document
from federator.kernel.clock import SystemClock
from federator.model.jobs import JobStatus
from federator.wire.http import LeaseRow
from federator_agent.local import traces
from tests.support.waiting import POLL_S, until
from tests.testbeds.ec2 import IMAGE, Ec2Proxy, MetadataService, MotoServer

SECRET = "hush-hush-secret-key"
ON_DEMAND_USD_H, SPOT_USD_H = 1.25, 0.5
"""Neither is the catalogue's."""
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
                "offers": [
                    {
                        "instance_type": "g5.xlarge",
                        "market": ["on-demand", "spot"],
                        "boot_delay": "5s",
                        "max_instances": 1,
                    }
                ],
                "boot": f"exec {sys.executable} -m federator_agent serve",
                **self._addresses,
            },
        }
        settings["log_level"] = "debug"
        return settings


@pytest.fixture
async def ec2() -> AsyncIterator[Ec2Proxy]:
    moto = MotoServer()
    proxy = Ec2Proxy(moto.url, SystemClock())
    proxy.on_demand_usd_h["g5.xlarge"] = ON_DEMAND_USD_H
    proxy.spot_usd_h["g5.xlarge", "us-east-1a"] = SPOT_USD_H
    await proxy.start()
    yield proxy
    await proxy.close()
    moto.close()


@pytest.fixture
async def federation(
    tmp_path: Path, ec2: Ec2Proxy, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[AwsFederation]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    (tmp_path / "world").mkdir()
    made = AwsFederation(tmp_path / "world", ec2)
    try:
        await made.start_dispatcher()
        await made.apply_policies(POLICIES)
        yield made
    finally:
        await made.end()


class Machine:
    """What cloud-init does on a machine, which moto has not: runs the user data, here with a metadata service of its own."""

    def __init__(self, folder: Path, launch: dict[str, str]) -> None:
        self.folder = folder
        self.script = base64.b64decode(launch["UserData"])
        self.metadata = MetadataService()
        self._process: asyncio.subprocess.Process | None = None

    async def boot(self) -> None:
        """Begin. What it writes goes to a log in its folder."""
        self.folder.mkdir()
        script = self.folder / "user-data.sh"
        script.write_bytes(self.script)
        await self.metadata.start()
        environment = {
            "PATH": os.environ["PATH"],
            "FEDERATOR_BOOT_DIR": str(self.folder / "boot"),
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": self.metadata.url,
            "FEDERATOR_ISOLATION": "shared",  # its jobs leave word in the test's folder
        }
        with (self.folder / "machine.log").open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                "/bin/sh", str(script), env=environment, cwd=self.folder, stdout=log, stderr=log
            )

    async def end(self) -> None:
        """Let it be gone."""
        if self._process is not None:
            self._process.kill()
            await self._process.wait()
            await self.metadata.close()
        for directory in self.folder.glob("boot/state/placements/*/rank-*"):
            traces.kill_all(directory, spare=None)


@pytest.fixture
async def machines(ec2: Ec2Proxy, tmp_path: Path) -> AsyncIterator[list[Machine]]:
    """Those that have been rented, in their order: each boots as soon as EC2 is asked for it."""
    made: list[Machine] = []

    async def provide() -> None:
        while True:
            launches = [call for call in ec2.calls if call["Action"] == "RunInstances"]
            for launch in launches[len(made) :]:
                machine = Machine(tmp_path / f"machine-{len(made)}", launch)
                await machine.boot()
                made.append(machine)
            await asyncio.sleep(POLL_S)

    task = asyncio.create_task(provide())
    yield made
    task.cancel()
    for machine in made:
        await machine.end()


async def all_given_back(federation: AwsFederation) -> list[LeaseRow]:
    """The leases, once each has ended."""

    async def given_back() -> list[LeaseRow] | None:
        leases: list[LeaseRow] = await federation.admin.leases()
        return leases if all(lease.status == "GONE" for lease in leases) else None

    return cast(list[LeaseRow], await until(given_back, "the end of every lease"))


def assert_nothing_secret_is_logged(federation: AwsFederation, machines: list[Machine]) -> None:
    """Of all processes: the dispatcher, which holds the credentials and makes the tokens, and the machines' agents and jobs."""
    tokens = [
        json.loads(line)["join_token"]
        for m in machines
        for line in m.script.splitlines()
        if b"join_token" in line
    ]
    assert len(tokens) == len(machines)
    logs = [*federation.folder.rglob("*.log"), *federation.folder.parent.glob("machine-*/**/*.log")]
    assert {log.name for log in logs} >= {"dispatcher.log", "machine.log"}
    logs += federation.folder.parent.glob("machine-*/**/rank-*/log")
    for log in logs:
        text = log.read_text(errors="replace")
        for secret in (SECRET, *tokens):
            assert secret not in text, log
    assert "botocore" not in (federation.folder / "logs" / "dispatcher.log").read_text(), (
        "not even that it signs"
    )
    for machine in machines:
        assert SECRET.encode() not in machine.script, "a rented machine has none of it"


@pytest.mark.system
@pytest.mark.timeout(600)
async def test_a_job_runs_on_a_machine_of_ec2_that_is_given_back_and_paid_for(
    federation: AwsFederation, ec2: Ec2Proxy, machines: list[Machine]
) -> None:
    (job,) = (await federation.admin.submit(JOB)).jobs
    assert (await federation.admin.wait(job)).job.status is JobStatus.SUCCEEDED
    (lease,) = await all_given_back(federation)
    assert await ec2.living() == []
    assert len(await ec2.machines()) == len(machines) == 1
    assert lease.failure is None
    assert lease.billed_usd >= ON_DEMAND_USD_H * 60 / 3600, "the minimum at least, at the price list's price"
    (offer,) = [offer for offer in await federation.admin.offers() if offer.market == "on-demand"]
    assert (offer.price_usd_h, offer.price_source[:14]) == (ON_DEMAND_USD_H, "AWS price list")
    assert_nothing_secret_is_logged(federation, machines)


@pytest.mark.system
@pytest.mark.timeout(600)
async def test_a_machine_learns_itself_that_it_is_taken_back_and_its_job_is_done_on_another(
    federation: AwsFederation, ec2: Ec2Proxy, machines: list[Machine], tmp_path: Path
) -> None:
    """EC2's own listing says nothing of it: only the machine's metadata service does."""
    admin, saved = federation.admin, tmp_path / "saved"
    run = f"[ -e {saved} ] && exit 0; trap 'touch {saved}; exit 0' TERM; while :; do sleep 0.1; done"
    terms: Document = {"spot_policy": "auto", "max_duration": "20m", "checkpoint": {"grace": "30s"}}
    (job,) = (await admin.submit(JOB | terms | {"run": run})).jobs

    async def running() -> bool:
        return (await admin.job(job)).job.status is JobStatus.RUNNING

    await until(running, "the first start")
    assert [lease.market for lease in await admin.leases()] == ["spot"]
    machines[0].metadata.give_notice(time.time() + 120)
    assert (await admin.wait(job)).job.status is JobStatus.SUCCEEDED
    assert saved.exists(), "it was asked to save itself"
    leases = {lease.market: lease for lease in await all_given_back(federation)}
    assert set(leases) == {"spot", "on-demand"}
    assert leases["spot"].failure == "the provider takes the machine back"
    assert leases["spot"].billed_usd >= SPOT_USD_H * 60 / 3600
    assert leases["on-demand"].billed_usd >= ON_DEMAND_USD_H * 60 / 3600
    assert {lease.committed_usd for lease in leases.values()} == {0.0}
    assert await ec2.living() == []
    assert len(machines) == 2
    assert_nothing_secret_is_logged(federation, machines)
