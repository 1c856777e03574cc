"""The agent's own process at a real cluster, with a dispatcher that is a fake; and what an administrator does behind its back."""

import json
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from federator_agent.kube.runtime import KubeRuntime
from tests.contract.runtimes import factories_kube
from tests.contract.runtimes.world import RuntimeWorld, Site
from tests.integration.agent.conftest import AgentProcess
from tests.integration.agent.fake_dispatcher import FakeDispatcher
from tests.support.waiting import until
from tests.testbeds.kubernetes import shared
from tests.testbeds.kubernetes.cluster import NAMESPACE
from tests.testbeds.kubernetes.shared import Bed
from tests.testbeds.required import need

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
POOL = "a100"


@pytest.fixture
def testbed() -> Bed:
    need(shared.lacking())
    return shared.testbed()


class KubeAgent(AgentProcess):
    """An agent whose site is the cluster."""

    def __init__(self, directory: Path, url: str, testbed: Bed, **kube: object) -> None:
        super().__init__(directory, url)
        self.testbed = testbed
        site = {
            "site": "here",
            "dispatcher": url,
            "state_dir": str(self.state),
            "report_every": "1s",
            "kube": {
                "kubeconfig": str(testbed.kubeconfig),
                "namespace": NAMESPACE,
                "service_account": "federator-job",
                "image": testbed.image,
                "side_image": testbed.image,
                **kube,
            },
        }
        self.config.write_text(json.dumps(site))

    def pod(self, placement: str, rank: int = 0) -> dict[str, Any] | None:
        """A rank's pod as the API server has it; None: there is none."""
        return self.testbed.admin.find(f"{PODS}/{placement}-{rank}")

    async def main_runs(self, placement: str, rank: int = 0) -> dict[str, Any]:
        """Its pod, once its main container runs."""

        def running() -> dict[str, Any] | None:
            pod = self.pod(placement, rank)
            for status in (pod or {}).get("status", {}).get("containerStatuses", ()):
                if status["name"] == "main" and "running" in status["state"]:
                    return pod
            return None

        found: dict[str, Any] = await until(running, f"{placement} to run")
        return found

    def delete(self, placement: str, rank: int = 0, **options: object) -> None:
        """What `kubectl delete pod` does."""
        self.testbed.admin.ask("DELETE", f"{PODS}/{placement}-{rank}", options or None)

    def evict(self, placement: str, rank: int = 0) -> None:
        """What `kubectl drain` does to each pod of a node."""
        name = f"{placement}-{rank}"
        policies = self.testbed.admin.find("/apis/policy")
        assert policies is not None
        served = [each["version"] for each in policies["versions"]]
        eviction = {
            "apiVersion": f"policy/{'v1' if 'v1' in served else 'v1beta1'}",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": NAMESPACE},
        }
        self.testbed.admin.ask("POST", f"{PODS}/{name}/eviction", eviction)

    def remove(self, placement: str, rank: int = 0) -> None:
        """What somebody does who will not wait for anyone: finalizers away, and the object at once."""
        self.testbed.admin.remove(f"{PODS}/{placement}-{rank}")

    async def die(self) -> None:
        """kill -9."""
        await self.end(signal.SIGKILL)


@pytest.fixture
async def dispatcher() -> AsyncIterator[FakeDispatcher]:
    fake = FakeDispatcher()
    await fake.start()
    yield fake
    await fake.stop()


@pytest.fixture
async def agent(
    dispatcher: FakeDispatcher, tmp_path: Path, testbed: Bed, no_pods_left: None
) -> AsyncIterator[KubeAgent]:
    """One that has joined, serves, and has seen the cluster."""
    process = KubeAgent(tmp_path, dispatcher.url, testbed)
    await process.join(dispatcher.url)
    await process.start()
    await dispatcher.until(lambda: any(report.pools for report in dispatcher.reports))
    yield process
    await process.end(signal.SIGKILL)


@pytest.fixture
async def world(tmp_path: Path, testbed: Bed, no_pods_left: None) -> AsyncIterator[RuntimeWorld]:
    """The runtime without its agent."""
    world = RuntimeWorld(tmp_path, factories_kube.site())
    world.begin()
    yield world
    await world.close()


def tight(**fields: object) -> Site:
    """A site with other settings than the usual."""
    settings = factories_kube.settings(**fields)
    return Site(lambda around: KubeRuntime(settings, around), POOL)


@pytest.fixture
def no_pods_left(testbed: Bed) -> Iterator[None]:
    """Whatever a test leaves is removed after it."""
    yield
    give_up_at = time.monotonic() + 60
    while pods := testbed.admin.ask("GET", PODS)["items"]:
        for pod in pods:
            testbed.admin.remove(f"{PODS}/{pod['metadata']['name']}")
        assert time.monotonic() < give_up_at, [pod["metadata"]["name"] for pod in pods]
        time.sleep(0.05)
