"""EC2 as a provider under contract: one moto for all tests, and for each a proxy and an account without anything in it."""

from collections.abc import AsyncIterator, Iterator

import pytest

from federator.kernel.clock import ManualClock
from tests.testbeds.ec2 import Ec2Proxy, MotoServer

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
