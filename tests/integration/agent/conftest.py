"""A dispatcher that is a fake, and an agent that is not: a process with its own state directory."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from federator.model.placements import DesiredEntry, Order
from tests.integration.agent.fake_dispatcher import TOKEN, FakeDispatcher

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
        )
        output, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, output.decode()

    async def join(self) -> None:
        code, output = await self.run("join", "--token", TOKEN)
        assert code == 0, output

    async def start(self) -> None:
        with self.output.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "federator_agent",
                "serve",
                "--config",
                str(self.config),
                stdout=output,
                stderr=output,
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

    def placement(self, placement: str) -> Path:
        return self.state / "placements" / placement


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
    await process.join()
    await process.start()
    await dispatcher.until(lambda: dispatcher.reports)
    yield process
    await process.end(signal.SIGKILL)


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
