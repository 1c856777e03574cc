"""An agent on a host with a GPU in MIG mode, through NVML's own symbols: its instances take work, ail and are tested, and change while it runs."""

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from federator.model.jobs import Accelerators, Resources
from federator.model.placements import PlacementStatus
from tests.integration.agent.conftest import AgentProcess, entry, serving
from tests.integration.agent.fake_dispatcher import FakeDispatcher
from tests.testbeds.nvml import A100, StubDriver

TEST = "echo $CUDA_VISIBLE_DEVICES >>{seen}"
SITE = """
gpu_test: {{command: '{test}'}}
lend: {{gpus: {{gpu-1g.10gb: 7}}}}
pools:
  - {{name: gpu, model: A100, gpu_memory: 80GB, gpus_per_node: 2, cpus_per_node: 16, memory_per_node: 64GiB}}
"""
SMALL, HALF = (7, "1g.10gb", 9728), (1, "3g.40gb", 40192)


@pytest.fixture
def driver(tmp_path: Path) -> StubDriver:
    stub = StubDriver(tmp_path, A100, A100)
    stub.cut(1, SMALL, HALF)
    return stub


@pytest.fixture
async def agent(
    dispatcher: FakeDispatcher, tmp_path: Path, driver: StubDriver
) -> AsyncIterator[AgentProcess]:
    test = TEST.format(seen=tmp_path / "seen")
    async with serving(dispatcher, tmp_path, SITE.format(test=test), driver) as process:
        yield process


def free(dispatcher: FakeDispatcher) -> dict[str, int]:
    return {
        pool.name: sum(shape.gpus * shape.count for shape in pool.free)
        for pool in dispatcher.reports[-1].pools
    }


async def test_instances_take_work_are_tested_and_change_while_the_agent_runs(
    dispatcher: FakeDispatcher, agent: AgentProcess, driver: StubDriver, tmp_path: Path
) -> None:
    assert free(dispatcher) == {"gpu": 1, "gpu-1g.10gb": 143, "gpu-3g.40gb": 500}
    run = 'echo "$CUDA_VISIBLE_DEVICES $FEDERATOR_GPU_MEMORY_MIB"; while ! [ -e go ]; do sleep 0.05; done'
    resources = Resources(gpus=Accelerators(count=1, share_milli=143))
    given = entry("p1", dispatcher.spec(run=run, resources=resources))
    await dispatcher.want(replace(given, pool="gpu-1g.10gb"))
    await dispatcher.until(lambda: dispatcher.log("p1").strip())
    driver.change(1, xid=95, xid_gi=1)
    await dispatcher.until((tmp_path / "seen").exists)
    await dispatcher.until(lambda: not dispatcher.reports[-1].ailing and free(dispatcher)["gpu-3g.40gb"])
    driver.cut(1, SMALL, (9, "1g.10gb", 9728))
    driver.cut(0)
    await dispatcher.until(lambda: free(dispatcher) == {"gpu": 0, "gpu-1g.10gb": 143})
    (ailing,) = dispatcher.reports[-1].ailing
    assert (ailing.gpu, ailing.why.partition(":")[0]) == (0, "it is in MIG mode and has no instances")
    await agent.end(signal.SIGKILL)
    before = len(dispatcher.reports)
    await agent.start()
    await dispatcher.until(lambda: len(dispatcher.reports) > before)
    assert free(dispatcher) == {"gpu": 0, "gpu-1g.10gb": 143}
    (agent.placement("p1") / "work" / "go").touch()
    assert (await dispatcher.ended("p1")).status is PlacementStatus.SUCCEEDED
    await dispatcher.until(lambda: free(dispatcher) == {"gpu": 0, "gpu-1g.10gb": 286})
    assert dispatcher.log("p1") == "MIG-00000001-0000-0000-0000-000000000007 9728\n"
    assert (tmp_path / "seen").read_text() == "MIG-00000001-0000-0000-0000-000000000001\n"
