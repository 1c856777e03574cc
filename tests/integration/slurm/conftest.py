"""Two real Slurm clusters side by side, agents as an administrator runs them, and to each a dispatcher that is a fake."""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from federator.model.jobs import Accelerators, PlacementConstraints, Resources
from federator.model.placements import PlacementReport, PlacementStatus
from federator_agent.local import traces
from tests.integration.agent.conftest import AgentProcess, entry
from tests.integration.agent.fake_dispatcher import FakeDispatcher
from tests.support.waiting import until
from tests.testbeds.required import need
from tests.testbeds.slurm import Slurm, missing

SETTINGS = {
    "SelectTypeParameters": "CR_Core_Memory",
    "SchedulerParameters": "batch_sched_delay=0,sched_interval=1,bf_interval=1",
    "KillWait": "1",
    "PreemptType": "preempt/partition_prio",
    "PreemptMode": "REQUEUE",
}
PARTITIONS = (
    "main Nodes=ALL Default=YES MaxTime=1-00:00:00 PriorityTier=1",
    "local Nodes=ALL MaxTime=INFINITE PriorityTier=10",
    "polite Nodes=ALL MaxTime=INFINITE PriorityTier=1 GraceTime=60",
    "narrow Nodes=n0 MaxTime=INFINITE PriorityTier=1",
    "single Nodes=ALL MaxTime=INFINITE PriorityTier=1 MaxNodes=1",
)
SITE = """
site: {name}
kind: onprem
dispatcher: {{url}}
state_dir: {{state}}
report_every: 1s
slurm:
  shared_dir: {shared}
  conf: {conf}
  partitions: [{partitions}]
  gpus: {{{{a100: "A100:80GB"}}}}
  start_within: {start_within}
{topology}
  queues:
    narrow: {{{{partition: narrow}}}}
    polite: {{{{partition: polite}}}}
    single: {{{{partition: single}}}}
    nowhere: {{{{partition: nowhere}}}}
"""


@pytest.fixture(autouse=True)
def _needs_slurm() -> None:
    need(missing())


def _cluster(folder: Path, **settings: str) -> Iterator[Slurm]:
    need(missing())
    slurm = Slurm(folder, nodes=4, gpus=8, cpus=32, partitions=PARTITIONS, settings=SETTINGS | settings)
    asyncio.run(slurm.__aenter__())
    yield slurm
    slurm.end()


@pytest.fixture(scope="session")
def east(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """A cluster of four nodes with eight GPUs each, which remembers jobs for a while."""
    yield from _cluster(tmp_path_factory.mktemp("east"), MinJobAge="60", SlurmdTimeout="5")


@pytest.fixture(scope="session")
def west(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Another, which forgets them at once, with two leaf switches."""
    folder = tmp_path_factory.mktemp("west")
    switches = "SwitchName=s0 Nodes=n[0-1]\nSwitchName=s1 Nodes=n[2-3]\nSwitchName=top Switches=s[0-1]\n"
    (folder / "topology.conf").write_text(switches)
    yield from _cluster(folder, MinJobAge="2", TopologyPlugin="topology/tree")


class SlurmAgent(AgentProcess):
    """The agent of one cluster, and its dispatcher."""

    def __init__(
        self,
        directory: Path,
        dispatcher: FakeDispatcher,
        slurm: Slurm,
        *,
        partitions: str = "main",
        start_within: str = "10m",
        topology: str = "",
    ) -> None:
        self.slurm = slurm
        self.dispatcher = dispatcher
        self._unique = uuid4().hex[:8]
        self.shared = directory / "shared"
        self.shared.mkdir()
        self.programs = directory / "programs"
        self.programs.mkdir()
        super().__init__(directory, dispatcher.url)
        site = SITE.format(
            name="here",
            shared=self.shared,
            conf=slurm.configuration,
            partitions=partitions,
            start_within=start_within,
            topology=f"  topology: {topology}" if topology else "",
        )
        self.config.write_text(site.format(url=dispatcher.url, state=self.state))

    async def start(self) -> None:
        """With the programs of `replace` before all others."""
        path = f"{self.programs}{os.pathsep}{self.slurm.environment['PATH']}"
        await self._serve(["--config", str(self.config)], {"PATH": path})

    def replace(self, program: str, script: str) -> None:
        """Let the agent run this instead of one of Slurm's commands, whose true path is `$REAL`."""
        real = shutil.which(program, path=self.slurm.environment["PATH"])
        file = self.programs / program
        file.write_text(f"#!/bin/bash\nREAL={real}\n{script}\n")
        file.chmod(0o755)

    async def wait(self) -> None:
        """Until its process has ended by itself."""
        assert self._process is not None
        await self._process.wait()

    async def kill(self) -> None:
        """As the kernel does."""
        await self.end(signal.SIGKILL)

    def id(self, placement: str = "p1") -> str:
        """The whole id of a placement, which no other test has: Slurm remembers their jobs."""
        return f"{placement}-{self._unique}"

    async def run_job(
        self, run: str, nodes: int = 1, placement: str = "p1", together: str = "", **fields: Any
    ) -> None:
        """Have a job run, its ranks `together` in one domain; other `fields` are of its spec, or of its entry: pool, queue, owner, grace_s, max_duration_s, success."""
        of_entry = {"pool": "main"} | {
            key: fields.pop(key)
            for key in ("pool", "queue", "owner", "grace_s", "max_duration_s", "success")
            if key in fields
        }
        if together:
            fields["placement"] = PlacementConstraints(together=together)
        spec = self.dispatcher.spec(run=run, nodes=nodes, **fields)
        await self.dispatcher.want(entry(self.id(placement), spec, nodes, **of_entry))

    async def is_(self, status: PlacementStatus, placement: str = "p1") -> None:
        """Wait until the agent has told of this status."""
        await self.dispatcher.until(
            lambda: (last := self.dispatcher.last(self.id(placement))) and last.status is status
        )

    async def ended(self, placement: str = "p1") -> PlacementReport:
        """How it ended, once that is told."""
        return await self.dispatcher.ended(self.id(placement))

    async def jobs(self, placement: str = "p1") -> list[str]:
        """State and number of all jobs of that name that Slurm knows."""
        squeue = ("squeue", "--noheader", "--states=all", f"--name={self.id(placement)}", "--format=%T %i")
        return (await self.slurm.command(*squeue)).splitlines()

    async def job(self, placement: str = "p1") -> str:
        """The number of its one job."""
        [job] = await self.jobs(placement)
        return job.split()[1]

    async def stop(self, placement: str = "p1") -> None:
        """Tell it to stop."""
        await self.dispatcher.stop_placement(self.id(placement))

    def log(self, placement: str = "p1", rank: int = 0) -> str:
        """What is at the dispatcher of a rank's log."""
        return self.dispatcher.log(self.id(placement), rank)

    async def has(self, *states: str, placement: str = "p1") -> None:
        """Wait until Slurm says that its one job is in that state; of none: that it does not know it any more."""

        async def holds() -> bool:
            return [job.split()[0] for job in await self.jobs(placement)] == list(states)

        await until(holds, f"{placement} to be {states or 'forgotten'}")


class Agents:
    """Agents of a test, with the clusters that they have used."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: list[SlurmAgent] = []

    async def of(self, slurm: Slurm, **fields: str) -> SlurmAgent:
        """One that serves, and has seen its cluster."""
        folder = self._folder / f"agent-{len(self._made)}"
        folder.mkdir()
        dispatcher = FakeDispatcher()
        await dispatcher.start()
        agent = SlurmAgent(folder, dispatcher, slurm, **fields)
        self._made.append(agent)
        await agent.join(dispatcher.url)
        await agent.start()
        await dispatcher.until(lambda: dispatcher.reports and dispatcher.reports[-1].pools)
        return agent

    async def end(self) -> None:
        """End them and the jobs of their clusters; each is idle afterwards."""
        for agent in self._made:
            await agent.kill()
            await agent.dispatcher.stop()
            for directory in agent.shared.glob("setups/*"):
                traces.kill_all(directory, spare=None)
        for slurm in {agent.slurm for agent in self._made}:
            await slurm.command("scancel", f"--user={os.getuid()}")
            await slurm.idle()
            # Nodes are tidied up for a while after their jobs, and meanwhile take nothing: the next test counts on all of them.
            await slurm.ready()


@pytest.fixture
async def agents(tmp_path: Path) -> AsyncIterator[Agents]:
    """Makes agents that have joined and serve, and tidies up after them."""
    made = Agents(tmp_path)
    yield made
    await made.end()


def gpus(count: int) -> Resources:
    """What a rank with so many GPUs needs."""
    return Resources(gpus=Accelerators(count=count))
