"""An agent that shares GPUs, through NVML's own symbols: parts on one GPU, what ranks are told, and the same after the agent's death."""

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

POOLS = """
pools:
  - {name: gpu, model: A100, gpu_memory: 80GiB, gpus_per_node: 4, shared: 2, cpus_per_node: 16, memory_per_node: 64GiB}
"""
ECHO = 'echo "$CUDA_VISIBLE_DEVICES $FEDERATOR_GPU_SHARE $FEDERATOR_GPU_MEMORY_MIB"'
WAIT = "while ! [ -e go ]; do sleep 0.05; done"


@pytest.fixture
def driver(tmp_path: Path) -> StubDriver:
    return StubDriver(tmp_path, A100, A100, A100, A100)


@pytest.fixture
async def agent(
    dispatcher: FakeDispatcher, tmp_path: Path, driver: StubDriver
) -> AsyncIterator[AgentProcess]:
    async with serving(dispatcher, tmp_path, POOLS, driver) as process:
        yield process


def free(dispatcher: FakeDispatcher) -> list[int]:
    (pool,) = (pool for pool in dispatcher.reports[-1].pools if pool.name == "gpu-shared")
    assert (pool.shared, pool.gpus_per_node, pool.nodes) == (True, 1000, 2)
    return sorted(shape.gpus for shape in pool.free for _ in range(shape.count))


async def want(dispatcher: FakeDispatcher, placement: str, milli: int, run: str) -> None:
    resources = Resources(gpus=Accelerators(count=1, share_milli=milli))
    given = entry(placement, dispatcher.spec(run=run, resources=resources))
    await dispatcher.want(replace(given, pool="gpu-shared"))


async def test_parts_of_gpus_are_kept_apart_and_outlive_the_agent(
    dispatcher: FakeDispatcher, agent: AgentProcess, driver: StubDriver
) -> None:
    assert free(dispatcher) == [1000, 1000]
    await want(dispatcher, "p1", 500, f"{ECHO}; {WAIT}")
    await want(dispatcher, "p2", 600, f"{ECHO}; {WAIT}")
    await dispatcher.until(lambda: free(dispatcher) == [400, 500])
    await dispatcher.until(lambda: dispatcher.log("p1").strip() and dispatcher.log("p2").strip())
    await agent.end(signal.SIGKILL)
    before = len(dispatcher.reports)
    await agent.start()
    await dispatcher.until(lambda: len(dispatcher.reports) > before and free(dispatcher) == [400, 500])
    await want(dispatcher, "p3", 501, ECHO)
    assert (await dispatcher.ended("p3")).status is PlacementStatus.REFUSED
    await want(dispatcher, "p4", 400, ECHO)
    assert (await dispatcher.ended("p4")).status is PlacementStatus.SUCCEEDED
    driver.change(2, lost=1)
    await dispatcher.until(lambda: free(dispatcher) == [0, 400])
    for placement in ("p1", "p2"):
        (agent.placement(placement) / "work" / "go").touch()
        assert (await dispatcher.ended(placement)).status is PlacementStatus.SUCCEEDED
    await dispatcher.until(lambda: free(dispatcher) == [0, 1000])
    assert dispatcher.log("p1") == "2 0.5 40960\n"
    assert dispatcher.log("p2") == "3 0.6 49152\n"
    assert dispatcher.log("p4") == "3 0.4 32768\n", "the fullest that holds it"


async def test_the_check_says_what_is_shared(agent: AgentProcess) -> None:
    _, output = await agent.run("check")
    assert "pool gpu: 1 host, each 2 GPUs A100" in output
    assert "pool gpu-shared: 2 GPUs A100, shared: each is a host for parts of it" in output
