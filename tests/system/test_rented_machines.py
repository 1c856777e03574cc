"""Bursts into clouds, from the deadline to the bill: the machines' agents boot from nothing but the user data that the cloud was given."""

import asyncio
import base64
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from email.utils import formatdate
from pathlib import Path
from typing import Protocol, cast

import pytest

from federator.cli.demo.federation import DemoFederation
from federator.cli.demo.world import PROVIDER, Document
from federator.kernel.clock import SystemClock
from federator.model.jobs import JobStatus
from federator.wire.http import LeaseRow
from federator_agent.local import traces
from federator_providers.gce import catalogue
from tests.support.waiting import POLL_S, until
from tests.testbeds import azure
from tests.testbeds.ec2 import IMAGE, Ec2Proxy, MetadataService, MotoServer
from tests.testbeds.gce import IMAGE as GCE_IMAGE
from tests.testbeds.gce import PROJECT, GceServer

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
    "estimate": "5s",
    "max_duration": "2m",
    "finish_within": "8h",
    "placement": {"kinds": ["cloud"]},
    "spot_policy": "on-demand",
}


class Cloud(Protocol):
    """A stand-in of a cloud, which runs no machine: its test does that."""

    kind: str
    """The provider's type."""
    instance_type: str
    gpu: str
    on_demand_usd_h: float
    spot_usd_h: float
    price_source: str
    """How the source of the price on demand begins."""
    signs_with: str
    """The library that signs in: it may write nothing to a log."""
    offer_terms: Document
    """Of the offer, beside what all have."""
    settings: Document
    """Of the provider, beside what all have."""

    async def close(self) -> None:
        """Stop it."""

    def secrets(self) -> list[str]:
        """What no log may hold."""

    def scripts(self) -> list[bytes]:
        """What each machine that was asked for runs at its first boot, in their order."""

    async def living(self) -> int:
        """How many machines cost."""

    def metadata_at(self, service: MetadataService) -> dict[str, str]:
        """The variable that says where a machine's metadata service is."""

    def give_notice(self, service: MetadataService) -> None:
        """Tell a machine that it is taken back, and nobody else."""


class Ec2:
    """Moto, behind the proxy. Its prices are not the catalogue's."""

    kind, instance_type, gpu = "aws", "g5.xlarge", "A10G"
    on_demand_usd_h, spot_usd_h = 1.25, 0.5
    price_source, signs_with = "AWS price list", "botocore"

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush-secret-key")
        self._moto = MotoServer()
        self._proxy = Ec2Proxy(self._moto.url, SystemClock())
        self._proxy.on_demand_usd_h["g5.xlarge"] = self.on_demand_usd_h
        self._proxy.spot_usd_h["g5.xlarge", "us-east-1a"] = self.spot_usd_h
        self.offer_terms: Document = {}
        self.settings: Document = {"region": "us-east-1", "zones": ["us-east-1a"], "image": IMAGE}

    async def start(self) -> None:
        await self._proxy.start()
        self.settings |= self._proxy.addresses

    async def close(self) -> None:
        await self._proxy.close()
        self._moto.close()

    def secrets(self) -> list[str]:
        return ["hush-hush-secret-key"]

    def scripts(self) -> list[bytes]:
        launches = [call for call in self._proxy.calls if call["Action"] == "RunInstances"]
        return [base64.b64decode(launch["UserData"]) for launch in launches]

    async def living(self) -> int:
        return len(await self._proxy.living())

    def metadata_at(self, service: MetadataService) -> dict[str, str]:
        return {"AWS_EC2_METADATA_SERVICE_ENDPOINT": service.url}

    def give_notice(self, service: MetadataService) -> None:
        service.give_notice(time.time() + 120)


class Gce:
    """The stand-in of Compute Engine, at the catalogue's prices."""

    kind, instance_type, gpu = "gce", "g2-standard-4", "L4"
    price_source, signs_with = "catalogue of", "google.auth"

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        row = catalogue.CATALOGUE.rows["g2-standard-4"]
        self.on_demand_usd_h, self.spot_usd_h = row.on_demand_usd_h or 0.0, row.spot_usd_h or 0.0
        self._server = GceServer(SystemClock())
        self._folder, self._monkeypatch = folder, monkeypatch
        self.offer_terms: Document = {}
        self.settings: Document = {
            "project": PROJECT,
            "region": "us-central1",
            "zones": ["us-central1-a"],
            "image": GCE_IMAGE,
        }

    async def start(self) -> None:
        await self._server.start(self._folder)
        self._monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(self._server.credentials))
        self.settings |= {"endpoint_url": self._server.url}

    async def close(self) -> None:
        await self._server.close()

    def secrets(self) -> list[str]:
        key = json.loads(self._server.credentials.read_text())["private_key"]
        return [key.splitlines()[1], *self._server.tokens]

    def scripts(self) -> list[bytes]:
        launches = [
            body
            for method, path, body in self._server.calls
            if (method, path[-10:]) == ("POST", "/instances")
        ]
        return [launch["metadata"]["items"][0]["value"].encode() for launch in launches]

    async def living(self) -> int:
        return len(self._server.living())

    def metadata_at(self, service: MetadataService) -> dict[str, str]:
        return {"GCE_METADATA_HOST": service.url.removeprefix("http://")}

    def give_notice(self, service: MetadataService) -> None:
        service.preempted = "TRUE"


class Azure:
    """The stand-in of Azure."""

    kind, instance_type, gpu = "azure", "Standard_NC4as_T4_v3", "T4"
    on_demand_usd_h, spot_usd_h = 0.526, 0.2
    price_source, signs_with = "skypilot-catalog", "azure.identity"

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._server = azure.AzureServer(SystemClock())
        self._monkeypatch = monkeypatch
        self.offer_terms: Document = {"spot_price_usd_h": self.spot_usd_h}
        self.settings: Document = {
            "subscription": azure.SUBSCRIPTION,
            "resource_group": azure.GROUP,
            "region": azure.REGION,
            "image": azure.IMAGE,
            "subnet": azure.SUBNET,
            "ssh_public_key": "ssh-ed25519 AAAA",
        }

    async def start(self) -> None:
        await self._server.start()
        for name, value in self._server.environment.items():
            self._monkeypatch.setenv(name, value)
        self.settings |= {"endpoint_url": self._server.url}

    async def close(self) -> None:
        await self._server.close()

    def secrets(self) -> list[str]:
        return [azure.SECRET, *self._server.tokens]

    def scripts(self) -> list[bytes]:
        return self._server.scripts()

    async def living(self) -> int:
        return len(self._server.living())

    def metadata_at(self, service: MetadataService) -> dict[str, str]:
        return {"AZURE_POD_IDENTITY_AUTHORITY_HOST": service.url}

    def give_notice(self, service: MetadataService) -> None:
        service.events.append(
            {"EventType": "Preempt", "NotBefore": formatdate(time.time() + 30, usegmt=True)}
        )


class RentingFederation(DemoFederation):
    """Its provider is a cloud; time runs as it does."""

    def __init__(self, folder: Path, cloud: Cloud) -> None:
        super().__init__(folder, 1.0)
        self._cloud = cloud

    def _settings(self) -> Document:
        settings = super()._settings()
        offer = {"instance_type": self._cloud.instance_type, "market": ["on-demand", "spot"]}
        settings["providers"][PROVIDER] |= {
            "type": self._cloud.kind,
            "settings": {
                "offers": [offer | self._cloud.offer_terms | {"boot_delay": "5s", "max_instances": 1}],
                "boot": f"exec {sys.executable} -m federator_agent serve",
                **self._cloud.settings,
            },
        }
        settings["log_level"] = "debug"
        return settings


@pytest.fixture(params=["aws", "azure", "gce"])
async def cloud(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Cloud]:
    made: Ec2 | Azure | Gce
    match request.param:
        case "aws":
            made = Ec2(monkeypatch)
        case "azure":
            made = Azure(monkeypatch)
        case _:
            made = Gce(tmp_path, monkeypatch)
    await made.start()
    yield made
    await made.close()


@pytest.fixture
async def federation(tmp_path: Path, cloud: Cloud) -> AsyncIterator[RentingFederation]:
    (tmp_path / "world").mkdir()
    made = RentingFederation(tmp_path / "world", cloud)
    try:
        await made.start_dispatcher()
        await made.apply_policies(POLICIES)
        yield made
    finally:
        await made.end()


class Machine:
    """What cloud-init does on a machine, which no stand-in has: runs the user data, here with a metadata service of its own."""

    def __init__(self, folder: Path, cloud: Cloud, script: bytes) -> None:
        self.folder = folder
        self.script = script
        self._cloud = cloud
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
            "FEDERATOR_ISOLATION": "shared",  # its jobs leave word in the test's folder
            **self._cloud.metadata_at(self.metadata),
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
async def machines(cloud: Cloud, tmp_path: Path) -> AsyncIterator[list[Machine]]:
    """Those that have been rented, in their order: each boots as soon as the cloud is asked for it."""
    made: list[Machine] = []

    async def provide() -> None:
        while True:
            for script in cloud.scripts()[len(made) :]:
                machine = Machine(tmp_path / f"machine-{len(made)}", cloud, script)
                await machine.boot()
                made.append(machine)
            await asyncio.sleep(POLL_S)

    task = asyncio.create_task(provide())
    yield made
    task.cancel()
    for machine in made:
        await machine.end()


def on_a_gpu(cloud: Cloud) -> Document:
    """What of a job file asks for such a machine."""
    return {"resources": {"gpus": f"{cloud.gpu}:1"}}


async def all_given_back(federation: RentingFederation) -> list[LeaseRow]:
    """The leases, once each has ended."""

    async def given_back() -> list[LeaseRow] | None:
        leases: list[LeaseRow] = await federation.admin.leases()
        return leases if all(lease.status == "GONE" for lease in leases) else None

    return cast(list[LeaseRow], await until(given_back, "the end of every lease"))


def assert_nothing_secret_is_logged(
    federation: RentingFederation, cloud: Cloud, machines: list[Machine]
) -> None:
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
        for secret in (*cloud.secrets(), *tokens):
            assert secret not in text, log
    assert cloud.signs_with not in (federation.folder / "logs" / "dispatcher.log").read_text(), (
        "not even that it signs"
    )
    for machine in machines:
        for secret in cloud.secrets():
            assert secret.encode() not in machine.script, "a rented machine has none of it"


@pytest.mark.system
@pytest.mark.timeout(600)
async def test_a_job_runs_on_a_machine_of_a_cloud_that_is_given_back_and_paid_for(
    federation: RentingFederation, cloud: Cloud, machines: list[Machine]
) -> None:
    (job,) = (await federation.admin.submit(JOB | on_a_gpu(cloud))).jobs
    assert (await federation.admin.wait(job)).job.status is JobStatus.SUCCEEDED
    (lease,) = await all_given_back(federation)
    assert await cloud.living() == 0
    assert len(machines) == 1
    assert lease.failure is None
    assert lease.billed_usd >= cloud.on_demand_usd_h * 60 / 3600, "the minimum at least"
    (offer,) = [offer for offer in await federation.admin.offers() if offer.market == "on-demand"]
    assert offer.price_usd_h == cloud.on_demand_usd_h
    assert offer.price_source.startswith(cloud.price_source)
    assert_nothing_secret_is_logged(federation, cloud, machines)


@pytest.mark.system
@pytest.mark.timeout(600)
async def test_a_machine_learns_itself_that_it_is_taken_back_and_its_job_is_done_on_another(
    federation: RentingFederation, cloud: Cloud, machines: list[Machine], tmp_path: Path
) -> None:
    """The cloud's own listing says nothing of it: only the machine's metadata service does."""
    admin, saved = federation.admin, tmp_path / "saved"
    run = f"[ -e {saved} ] && exit 0; trap 'touch {saved}; exit 0' TERM; while :; do sleep 0.1; done"
    terms: Document = {"spot_policy": "auto", "max_duration": "20m", "checkpoint": {"grace": "30s"}}
    (job,) = (await admin.submit(JOB | on_a_gpu(cloud) | terms | {"run": run})).jobs

    async def running() -> bool:
        return (await admin.job(job)).job.status is JobStatus.RUNNING

    await until(running, "the first start")
    assert [lease.market for lease in await admin.leases()] == ["spot"]
    cloud.give_notice(machines[0].metadata)
    assert (await admin.wait(job)).job.status is JobStatus.SUCCEEDED
    assert saved.exists(), "it was asked to save itself"
    leases = {lease.market: lease for lease in await all_given_back(federation)}
    assert set(leases) == {"spot", "on-demand"}
    assert leases["spot"].failure == "the provider takes the machine back"
    assert leases["spot"].billed_usd >= cloud.spot_usd_h * 60 / 3600
    assert leases["on-demand"].billed_usd >= cloud.on_demand_usd_h * 60 / 3600
    assert {lease.committed_usd for lease in leases.values()} == {0.0}
    assert await cloud.living() == 0
    assert len(machines) == 2
    assert_nothing_secret_is_logged(federation, cloud, machines)
