"""A federation of real processes under seeded kills.

Work keeps coming while victims are chosen by the seed: the dispatcher, an agent, a shim, a job's process, a rented machine as a whole (at
once, or taken back with a notice), the solver's child, and the dispatcher at the moment a machine has just been launched and the
provider's answer is on its way. What an operator would do is done: dead dispatchers and agents are started again, held suspects released. In the end everything must have finished, and nothing be left.
"""

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from federator.cli.demo.federation import Federation
from federator.cli.demo.world import Document
from federator.client.jobs import JobFilter
from federator.kernel.errors import FederatorError
from federator.model.capacity import LEASE_ENDED
from federator.wire.http import LeaseRow
from federator_providers.local import interrupt
from federator_providers.local.folder import InstanceFolder
from tests.kills.judge import judge, read_attempts

SPEED = 60.0
BACKLOG = 10
"""So many unfinished jobs are kept in the system while kills go on."""
CALM_S = 120.0
"""Real seconds after the last kill within which everything must have finished."""
LAUNCH_LOOKS = 3000
KINDS = ("dispatcher", "agent", "shim", "job", "instance", "interrupt", "solver", "launch")
SITES: list[Document] = [
    *({"site": "lab", "member": name, "kind": "onprem", "pools": [{"name": "a", "model": "A100", "gpu_memory": "80GiB", "nodes": 1, "gpus_per_node": 4, "cpus_per_node": 32, "memory_per_node": "256GiB"}]} for name in ("lab", "lab-2")),
    {"site": "edge", "kind": "edge", "pools": [{"name": "l", "model": "L4", "gpu_memory": "24GiB", "nodes": 2, "gpus_per_node": 1, "cpus_per_node": 8, "memory_per_node": "32GiB"}]},
]  # fmt: skip
SHAPES = ((1, 0), (1, 1), (1, 2), (1, 2), (2, 1), (2, 3), (2, 3))
"""Nodes, and GPUs of each. Two with three each lie over both hosts of the lab."""
POLICIES = """
apiVersion: federator/v1
kind: Queue
metadata: {name: default}
spec: {max_duration: 30m, max_priority: 100}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: rented}
spec: {max_duration: 20m}
---
apiVersion: federator/v1
kind: BurstPolicy
metadata: {name: always}
spec:
  who: {queues: [rented]}
  when: {mode: always}
  limits: {usd: {total: 100000}}
"""


@dataclass
class Verdict:
    """What the judge found, and how much happened."""

    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    jobs: int = 0
    attempts: int = 0
    leases: int = 0
    spent_usd: float = 0.0
    faults: list[str] = field(default_factory=list)


class Storm:
    """One federation and one seed."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.federation = Federation(folder, SPEED)
        self.journal = folder / "journal"
        self.journal.mkdir(parents=True)
        self.random = random.Random(seed)
        self.verdict = Verdict(seed)
        self.nodes: dict[str, int] = {}
        """Acknowledged jobs, and how many ranks each has."""

    async def run(self, kills: dict[str, int], say: Callable[[str], None] = lambda _: None) -> Verdict:
        """Kill that many of each kind while work goes on, then wait for calm, judge, and end everything."""
        federation = self.federation
        try:
            await federation.start_dispatcher()
            await federation.apply_policies(POLICIES)
            await federation.start_sites(SITES)
            await self._feed()
            order = [kind for kind, count in kills.items() for _ in range(count)]
            self.random.shuffle(order)
            for number, kind in enumerate(order):
                await asyncio.sleep(self.random.uniform(0.05, 0.8))
                if await self._strike(kind):
                    self.verdict.kills[kind] += 1
                await self._feed()
                if number % 20 == 19:
                    say(
                        f"seed {self.verdict.seed}: {number + 1} of {len(order)} kills, {len(self.nodes)} jobs"
                    )
            await self._calm()
            await self._judge()
        finally:
            await federation.close()
            await asyncio.to_thread(federation.processes.end_all)
            for process in federation.processes.started.values():
                process.wait()
        return self.verdict

    async def _strike(self, kind: str) -> bool:
        """Kill one victim of this kind, if there is one within a few seconds; start again what an operator would."""
        processes = self.federation.processes
        if kind == "dispatcher":
            self.federation.kill_dispatcher()
            await self.federation.start_dispatcher()
            return True
        if kind == "agent":
            name = self.random.choice([site.get("member", site["site"]) for site in SITES])
            processes.kill(str(name))
            config = self.federation.folder / "sites" / f"{name}.yaml"
            processes.start(str(name), "federator_agent", ["serve", "--config", str(config)])
            return True
        if kind == "launch":
            return await self._kill_at_launch()
        if kind == "interrupt":
            return await self._interrupt()
        for _ in range(40):
            victims = sorted(pid for pid in processes.living() if _kind_of(pid) == kind)
            if victims:
                with suppress(ProcessLookupError):
                    os.kill(self.random.choice(victims), signal.SIGKILL)
                return True
            await asyncio.sleep(0.1)
        return False

    async def _kill_at_launch(self) -> bool:
        """Kill the dispatcher as soon as a new machine's folder is there: its provider's answer is not written down yet."""
        before = self._machines()
        for number in range(LAUNCH_LOOKS):
            if number % (LAUNCH_LOOKS // 6) == 0:
                await self._submit_rented(8)  # warm machines are used first: ask for more than they have
            if self._machines() - before:
                self.federation.kill_dispatcher()
                await self.federation.start_dispatcher()
                return True
            await asyncio.sleep(0.002)
        return False

    async def _interrupt(self) -> bool:
        """Have a machine taken back that is booting or at work; it dies by itself when its notice is over."""
        for number in range(40):
            if number % 10 == 0:
                await self._submit_rented()
            on = [
                name
                for name in sorted(self._machines())
                if not (folder := InstanceFolder(self.federation.machines / name)).interrupt_file.exists()
                and not folder.ended_file.exists()
                and folder.is_on()
            ]
            if on:
                interrupt(self.federation.machines, self.random.choice(on))
                return True
            await asyncio.sleep(0.1)
        return False

    def _machines(self) -> set[str]:
        """Folders of all machines that were ever launched."""
        folder = self.federation.machines
        return {path.name for path in folder.glob("lease-*")}

    async def _feed(self) -> None:
        """Submit until the backlog is full; every job is durable before it counts."""
        page = await self.federation.admin.jobs(
            JobFilter(status="PENDING,PLACED,STARTING,RUNNING,HELD,RECOVERING")
        )
        for row in page.jobs:
            if row.status == "HELD":
                with suppress(FederatorError):
                    await self.federation.admin.release(row.id)
        for _ in range(BACKLOG - page.total):
            if self.random.random() < 0.25:
                await self._submit_rented()
            else:
                await self._submit()

    async def _submit_rented(self, gpus: int = 1) -> None:
        await self._submit(queue="rented", placement={"kinds": ["cloud"]}, resources={"gpus": gpus}, nodes=1)

    async def _submit(self, **fields: object) -> None:
        nodes, gpus = self.random.choice(SHAPES)
        run_s = self.random.uniform(0.2, 2.5)
        job = {
            "name": "beat",
            "command": [
                sys.executable,
                str(Path(__file__).parent / "work" / "beat.py"),
                str(self.journal),
                f"{run_s:.2f}",
            ],
            "nodes": nodes,
            "resources": {"gpus": gpus},
            "estimate": "3m",
            "retry": {"on": ["error", "preemption"], "max": 1000, "backoff": "1s"},
            "checkpoint": {"grace": "1m"},
            **fields,
        }
        submitted = await self.federation.admin.submit(job)
        self.nodes[submitted.jobs[0]] = int(str(job["nodes"]))

    async def _calm(self) -> None:
        """No more kills: wait until all is done and given back."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + CALM_S
        while loop.time() < until_s:
            await self._release_suspects()
            page = await self.federation.admin.jobs(JobFilter(status="SUCCEEDED,FAILED,CANCELLED"))
            leases = await self.federation.admin.leases()
            if page.total >= len(self.nodes) and all(_over(lease) for lease in leases):
                return
            await asyncio.sleep(0.3)

    async def _release_suspects(self) -> None:
        page = await self.federation.admin.jobs(JobFilter(status="HELD"))
        for row in page.jobs:
            await self.federation.admin.release(row.id)

    async def _judge(self) -> None:
        admin, verdict = self.federation.admin, self.verdict
        rows = {row.id: row async for row in admin.all_jobs()}
        history = {job: await admin.history(job) for job in self.nodes}
        attempts = read_attempts(self.journal)
        leases = await admin.leases()
        verdict.jobs, verdict.attempts, verdict.leases = len(self.nodes), len(attempts), len(leases)
        verdict.spent_usd = sum(lease.billed_usd for lease in leases)
        verdict.faults = judge(self.nodes, rows, history, attempts, self.nodes)
        verdict.faults += [
            f"lease {lease.id} is still {lease.status}" for lease in leases if not _over(lease)
        ]
        left = self.federation.processes.ranks()
        verdict.faults += [f"a process of {rank.job} ({rank.placement}) is left" for rank in left]
        machines = [pid for pid in self.federation.processes.living() if _kind_of(pid) == "instance"]
        verdict.faults += [f"a machine is left: process {pid}" for pid in machines]


def _over(lease: LeaseRow) -> bool:
    return lease.status in LEASE_ENDED


def _kind_of(pid: int) -> str:
    """What sort of process this is, by its command line."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
    for sign, kind in (
        ("shim.sh", "shim"),
        ("beat.py", "job"),
        ("federator_providers.local.machine", "instance"),
        ("federator.solving.worker", "solver"),
    ):
        if sign in line:
            return kind
    return ""
