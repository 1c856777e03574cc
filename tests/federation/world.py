"""A whole federation: one dispatcher on three members of etcd, sites of every runtime whose server is installed, and a provider that rents out machines.

`async with federated(folder) as world`; each of `world.sites` can be cut off, healed, have its agents killed and started again. All of it is real, and
on real time. What is judged is what each rank has written down for itself (`beat.sh`).
"""

import asyncio
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import tests
from federator.cli.demo.federation import DISPATCHER, DemoFederation
from federator.cli.demo.processes import Processes
from federator.cli.demo.world import PROVIDER, Document
from federator.client.jobs import JobFilter
from federator.model.jobs import TERMINAL
from federator.wire.http import JobRow
from tests.federation.grounds import GROUNDS, Ground
from tests.kills.judge import Attempt, read_attempts
from tests.partitions.proxy import Proxy
from tests.testbeds.etcd import EtcdCluster

BEAT = Path(__file__).parent / "beat.sh"
TESTS = Path(tests.__path__[0])
PATIENCE_S = 120.0
"""How long anything may take: the machine is small, and much is going on."""
MACHINE = {"instance_type": "a2-highgpu-1g", "market": ["on-demand"], "boot_delay": "1s", "max_instances": 2}
POLL_S = 0.1
"""Looking costs something too: the journal has hundreds of files."""
POLICIES = """
apiVersion: federator/v1
kind: Queue
metadata: {name: default}
spec: {max_duration: 30m, met_deadline_usd_per_gpu_hour: 1000}
---
apiVersion: federator/v1
kind: BurstPolicy
metadata: {name: deadlines-only}
spec: {who: {queues: [default]}, when: {mode: economic}, limits: {usd: {total: 1000}}}
"""


class _Programs(Processes):
    """Processes, with another program in the dispatcher's place."""

    program = "federator"

    def start(
        self, name: str, module: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[bytes]":
        """As any process, the dispatcher excepted."""
        if name != DISPATCHER:
            return super().start(name, module, arguments, environment)
        path = os.pathsep.join([str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
        return super().start(name, self.program, arguments, {"PYTHONPATH": path} | dict(environment or {}))


class EtcdFederation(DemoFederation):
    """A federation as the demonstration's, whose dispatcher keeps everything in etcd."""

    def __init__(self, folder: Path, cluster: EtcdCluster) -> None:
        super().__init__(folder, 1.0)
        self.processes: _Programs = _Programs(folder)
        self.cluster = cluster

    async def exchange_dispatcher(self, module: str = "federator") -> str:
        """kill -9 of the dispatcher, and another program in its place. The version that it says it is."""
        self.kill_dispatcher()
        self.processes.program = module
        await self.start_dispatcher()
        about = await self.admin.transport.call("GET", "/v1/openapi.json", dict[str, Any])
        return str(about["info"]["version"])

    def _settings(self) -> Document:
        settings = super()._settings()
        etcd = {
            "endpoints": list(self.cluster.endpoints),
            "shared_dir": str(self.folder / "shared"),
            "term_s": 4.0,
            "margin_s": 1.0,
        }
        settings["store"] = {"etcd": etcd}
        settings["providers"][PROVIDER]["settings"]["offers"] = [MACHINE]
        settings["leases"] |= {"idle_s": 1.0, "slack_s": 2.0, "poll_s": 0.5}
        settings["link"] |= {"unreachable_after_s": 4.0}
        return settings


class Site:
    """A site of the federation: its agents, and their way to the dispatcher."""

    def __init__(self, federation: DemoFederation, ground: Ground, proxy: Proxy) -> None:
        self.ground = ground
        self.name = ground.name
        self._federation = federation
        self._proxy = proxy
        self.agents: tuple[str, ...] = ()

    async def start(self, documents: Sequence[Document]) -> None:
        """Its agents, for the first time; returns when the dispatcher has heard from the site."""
        address = await self._proxy.start()
        reach = {"site": self.name, "kind": "onprem", "dispatcher": address}
        await self._federation.start_sites([document | reach for document in documents])
        self.agents = tuple(str(document.get("member", self.name)) for document in documents)

    def kill(self, agent: str) -> None:
        """kill -9 of one of its agents. What it runs goes on."""
        self._federation.processes.kill(agent)

    def start_again(self, agent: str, version: str = "") -> None:
        """Start an agent again, as its init system would; or one of the `older` or a `newer` version in its place."""
        words = ["serve", "--config", str(self._federation.folder / "sites" / f"{agent}.yaml")]
        processes = self._federation.processes
        if version:
            path = os.pathsep.join([str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
            processes.start(agent, "tests.support.other_version", [version, *words], {"PYTHONPATH": path})
        else:
            processes.start(agent, "federator_agent", words)

    def exchange(self, version: str) -> None:
        """Put all of its agents out for others of that version, under whatever runs there."""
        for agent in self.agents:
            self.kill(agent)
            self.start_again(agent, version)

    def cut(self) -> None:
        """Hold back every byte between its agents and the dispatcher, in old connections and in new ones."""
        self._proxy.cut()

    def heal(self) -> None:
        """Let everything through again, also what was held back."""
        self._proxy.open()


class Submitted(NamedTuple):
    """An acknowledged job: how many ranks it has, and which sites it may use, if not all."""

    nodes: int
    sites: tuple[str, ...] = ()


class Bought(NamedTuple):
    """An acknowledged job, and what was said of its price."""

    job: str
    told: str


class World:
    """The federation, its sites by name, and the jobs that it has acknowledged."""

    def __init__(self, folder: Path, federation: EtcdFederation) -> None:
        self.folder = folder
        self.federation = federation
        self.admin = federation.admin
        self.journal = folder / "journal"
        self.journal.mkdir()
        self.sites: dict[str, Site] = {}
        self.submitted: dict[str, Submitted] = {}

    async def submit(self, beats: int, **fields: Any) -> str:
        """A job that writes down that it lives, for so many fifths of a second or until `open_gate(gate)`. Acknowledged, so it counts."""
        (job,) = await self.submit_all(beats, **fields)
        return job

    async def submit_all(
        self, beats: int, *, gate: str = "", sites: Sequence[str] = (), **fields: Any
    ) -> tuple[str, ...]:
        """The same for arrays; their tasks."""
        job = self._job(beats, gate=gate, sites=sites, **fields)
        jobs = (await self.admin.submit(job)).jobs
        self.submitted |= dict.fromkeys(jobs, Submitted(int(job.get("nodes", 1)), tuple(sites)))
        return jobs

    async def buy(self, beats: int, by: str, *, sites: Sequence[str]) -> Bought:
        """A job that is submitted by command for what it costs to be done by then."""
        file = self.folder / "bought.json"
        file.write_text(json.dumps(self._job(beats, sites=sites)))
        words = [sys.executable, "-m", "federator", "submit", str(file), "--by", by, "--yes"]
        run = partial(subprocess.run, words, env=self.environ, capture_output=True, text=True, check=False)
        ran = await asyncio.to_thread(run)
        assert ran.returncode == 0, ran.stderr
        job = ran.stdout.split()[0]
        self.submitted[job] = Submitted(1, tuple(sites))
        return Bought(job, ran.stderr)

    @property
    def environ(self) -> dict[str, str]:
        """Of somebody who uses it by command."""
        federation = self.federation
        asked = {"FEDERATOR_SERVER": federation.server, "FEDERATOR_TOKEN": federation.admin_token}
        return federation.processes.environment | asked

    def _job(self, beats: int, *, gate: str = "", sites: Sequence[str] = (), **fields: Any) -> Document:
        words = shlex.join([str(self.journal), str(beats), *([str(self.folder / gate)] if gate else [])])
        return {
            "name": gate or "beat",
            "run": f"set -- {words}\n{BEAT.read_text()}",
            "resources": {"gpus": 1, "cpus": 0.1},
            "estimate": "10s",
            "placement": {"sites": list(sites)} if sites else {"kinds": ["onprem"]},
            **fields,
        }

    def open_gate(self, gate: str) -> None:
        """What waits for this file may end."""
        for folder in (self.folder, *self._journals()[1:]):
            (folder / gate).touch()

    def attempts(self) -> list[Attempt]:
        """What all ranks have written down so far, at all sites."""
        return [attempt for folder in self._journals() for attempt in read_attempts(folder)]

    def where(self) -> dict[str, set[tuple[str, str]]]:
        """Site and host of every rank of every attempt, by placement, as the ranks themselves saw it."""
        found: dict[str, set[tuple[str, str]]] = {}
        for path in (path for folder in self._journals() for path in folder.glob("*.*")):
            words = path.read_text().partition("\n")[0].split()
            if words[:1] == ["at"]:
                found.setdefault(path.name.split(".")[1], set()).add((words[1], words[2]))
        return found

    def _journals(self) -> list[Path]:
        return [self.journal, *(each for site in self.sites.values() for each in site.ground.journals())]

    async def living(self, jobs: dict[str, int]) -> None:
        """Return when so many ranks of each of these jobs have written that they live."""

        def all_live() -> bool:
            ranks = {(attempt.job, attempt.rank) for attempt in self.attempts()}
            return all((job, rank) in ranks for job, nodes in jobs.items() for rank in range(nodes))

        await self.until(all_live, "ranks that live")

    async def rows(self) -> dict[str, JobRow]:
        """All jobs, as the dispatcher lists them."""
        return {row.id: row async for row in self.admin.all_jobs(JobFilter())}

    async def over(self, jobs: Sequence[str]) -> None:
        """Return when the dispatcher knows the end of all of these."""

        async def known() -> bool:
            rows = await self.rows()
            return all(job in rows and rows[job].status in TERMINAL for job in jobs)

        await self.until(known, f"the end of {len(jobs)} jobs")

    async def until(self, holds: Callable[[], bool | Awaitable[bool]], what: str) -> None:
        """Wait, patiently; fails with what the dispatcher says of what is not over."""
        give_up_s = time.monotonic() + PATIENCE_S
        while not (held if isinstance(held := holds(), bool) else await held):
            if time.monotonic() > give_up_s:
                rows = [row for row in (await self.rows()).values() if row.status not in TERMINAL]
                waits = "; ".join(
                    f"{row.name} {row.id} {row.status} {row.site} {row.because}" for row in rows
                )
                raise AssertionError(f"waited {PATIENCE_S:.0f} s in vain: {what}. Not over: {waits}")
            await asyncio.sleep(POLL_S)


@asynccontextmanager
async def federated(folder: Path) -> AsyncIterator[World]:
    """All of it, ready, with all sites whose servers are installed; ended with everything that was started."""
    folder.mkdir(parents=True)
    async with AsyncExitStack() as stack:
        cluster = await _entered(stack, EtcdCluster(folder / "etcd"))
        (folder / "world").mkdir()
        federation = EtcdFederation(folder / "world", cluster)
        stack.push_async_callback(federation.end)
        grounds = [ground for each in GROUNDS if not (ground := each()).lack]
        started = asyncio.gather(*(ground.start(stack, folder / ground.name) for ground in grounds))
        await federation.start_dispatcher()
        await federation.apply_policies(POLICIES)
        world = World(folder, federation)
        for ground, documents in zip(grounds, await started, strict=True):
            proxy = Proxy(int(federation.server.rpartition(":")[2]))
            stack.push_async_callback(proxy.close)
            world.sites[ground.name] = Site(federation, ground, proxy)
            await world.sites[ground.name].start(documents)
        yield world


async def _entered(stack: AsyncExitStack, cluster: EtcdCluster) -> EtcdCluster:
    """Started beside the loop, and ended so."""
    stack.push_async_callback(asyncio.to_thread, cluster.end)
    return await asyncio.to_thread(cluster.__enter__)
