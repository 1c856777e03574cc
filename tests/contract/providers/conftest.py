"""Clouds as providers under contract: EC2, of which there is one moto for all tests and for each a proxy and an empty account; and a Compute Engine, an Azure and a Kubernetes for each."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from federator.kernel.clock import ManualClock
from tests.testbeds.azure import AzureServer
from tests.testbeds.ec2 import Ec2Proxy, MotoServer
from tests.testbeds.gce import GceServer
from tests.testbeds.kubernetes.virtual import VirtualCluster

SECRET = "hush-hush-secret-key"


@pytest.fixture(scope="session")
def moto() -> Iterator[MotoServer]:
    server = MotoServer()
    yield server
    server.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def ec2(
    moto: MotoServer, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Ec2Proxy]:
    moto.reset()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.delenv(name, raising=False)
    proxy = Ec2Proxy(moto.url, clock)
    await proxy.start()
    yield proxy
    await proxy.close()


@pytest.fixture
async def gce_server(
    clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[GceServer]:
    server = GceServer(clock)
    await server.start(tmp_path)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(server.credentials))
    yield server
    await server.close()


@pytest.fixture
async def azure_server(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AzureServer]:
    server = AzureServer(clock)
    await server.start()
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    yield server
    await server.close()


@pytest.fixture
async def virtual_cluster(clock: ManualClock, tmp_path: Path) -> AsyncIterator[VirtualCluster]:
    cluster = VirtualCluster(clock)
    await cluster.start(tmp_path)
    yield cluster
    await cluster.close()
