"""A dispatcher that is a fake, and an agent that is not: a process with its own state directory."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from federator.kernel.route import Way
from federator.model.placements import DesiredEntry, Order
from federator.wire.link import JoinRequest
from federator_agent.enrollment import join
from federator_agent.keys import load_key, public
from federator_agent.local import traces
from federator_agent.spool import Spool
from tests.integration.agent.fake_dispatcher import TOKEN, FakeDispatcher
from tests.support.waiting import until
from tests.testbeds.nvml import StubDriver

SITE = """
site: here
kind: onprem
dispatcher: {url}
state_dir: {state}
report_every: 1s
pools:
  - {{name: gpu, model: A100, gpu_memory: 80GB, nodes: 2, gpus_per_node: 4, cpus_per_node: 16, memory_per_node: 64GiB}}
  - {{name: cpu, nodes: 1, gpus_per_node: 0, cpus_per_node: 8, memory_per_node: 8GiB}}
"""


class AgentProcess:
    """`federator-agent` as an administrator runs it."""

    def __init__(self, directory: Path, url: str, more: str = "") -> None:
        self.state = directory / "state"
        self.config = directory / "site.yaml"
        self.config.write_text(SITE.format(url=url, state=self.state) + more)
        self.output = directory / "agent.log"
        self.environment: dict[str, str] = {}
        """What it is started with beside our own."""
        self._process: asyncio.subprocess.Process | None = None

    async def run(self, *arguments: str) -> tuple[int, str]:
        """Run one verb to its end: exit code and output."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "federator_agent",
            *arguments,
            "--config",
            str(self.config),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=os.environ | self.environment,
        )
        output, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, output.decode()

    async def join(self, url: str) -> None:
        """Join without a process, which would take most of a test's time."""
        spool = Spool(self.state)
        spool.keep_identity(
            await join(url, TOKEN, JoinRequest(public(load_key(self.state / "key"))), way=Way())
        )

    async def start(self) -> None:
        await self._serve(["--config", str(self.config)], {})

    async def start_as_instance(self) -> None:
        """Serve as on a rented machine: no arguments, everything in the user data."""
        await self._serve([], {"FEDERATOR_USER_DATA_FILE": str(self.config)})

    async def _serve(self, arguments: list[str], environment: dict[str, str]) -> None:
        with self.output.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "federator_agent",
                "serve",
                *arguments,
                stdout=output,
                stderr=output,
                env=os.environ | self.environment | environment,
            )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End the agent's process, and wait for it."""
        if self._process is None:
            return 0
        if self._process.returncode is None:
            self._process.send_signal(number)
        return await self._process.wait()

    async def gone(self, placement: str) -> None:
        """Wait until the files of a placement are removed."""
        await until(lambda: not self.placement(placement).exists(), f"the end of {placement}'s files")

    async def has_said(self, words: str) -> None:
        """Wait until the agent has printed this."""
        await until(lambda: words in self.output.read_text(), f"the agent to say {words!r}")

    def placement(self, placement: str) -> Path:
        return self.state / "placements" / placement


@asynccontextmanager
async def serving(
    dispatcher: FakeDispatcher, folder: Path, pools: str, driver: StubDriver
) -> AsyncIterator[AgentProcess]:
    """An agent with these pools on a host with these GPUs, that has joined and reported; nothing of it is left."""
    process = AgentProcess(folder, dispatcher.url)
    site = process.config.read_text()
    process.config.write_text(site[: site.index("pools:")] + pools)
    await process.join(dispatcher.url)
    process.environment = driver.environment
    await process.start()
    await dispatcher.until(lambda: dispatcher.reports)
    yield process
    await process.end(signal.SIGKILL)
    for directory in process.state.glob("placements/*/rank-*"):
        traces.kill_all(directory, spare=None)


@pytest.fixture
async def dispatcher() -> AsyncIterator[FakeDispatcher]:
    fake = FakeDispatcher()
    await fake.start()
    yield fake
    await fake.stop()


@pytest.fixture
async def agent(dispatcher: FakeDispatcher, tmp_path: Path) -> AsyncIterator[AgentProcess]:
    """An agent that has joined and serves."""
    process = AgentProcess(tmp_path, dispatcher.url)
    await process.join(dispatcher.url)
    await process.start()
    await dispatcher.until(lambda: dispatcher.reports)
    yield process
    await process.end(signal.SIGKILL)
    for pattern in ("placements/*/rank-*", "setups/*"):
        for directory in process.state.glob(pattern):
            traces.kill_all(directory, spare=None)  # work outlives its agent: that is what is promised


def entry(
    placement: str, spec_hash: str, nodes: int = 1, pool: str = "gpu", **fields: object
) -> DesiredEntry:
    """A desired entry as the dispatcher would make it."""
    defaults = {
        "placement": placement,
        "job": f"job-of-{placement}",
        "job_name": "job",
        "epoch": 1,
        "spec_hash": spec_hash,
        "order": Order.RUN,
        "ranks": tuple(range(nodes)),
        "pool": pool,
    }
    return DesiredEntry(**(defaults | fields))  # type: ignore[arg-type]
