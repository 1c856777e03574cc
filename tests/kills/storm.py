"""A federation of real processes under seeded kills.

Work keeps coming while victims are chosen by the seed: the dispatcher, an agent, a shim, a job's process, a rented machine as a whole (at
once, or taken back with a notice), the solver's child, and the dispatcher in the middle of a call to its provider (`launch`, `terminate`, `list`):
before the request has reached it, while it is being carried out, or before the reply is back. What an operator would do is done: dead dispatchers and
agents are started again, held suspects released. In the end everything must have finished, and nothing be left.
"""

import asyncio
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from federator.cli.demo.federation import DISPATCHER
from federator.client.jobs import JobFilter
from federator.kernel.errors import FederatorError
from federator.model.capacity import LEASE_ENDED
from federator.wire.http import LeaseRow
from federator_providers.local import interrupt
from federator_providers.local.folder import InstanceFolder
from tests.kills.judge import check_bill, judge, read_attempts
from tests.kills.trapped import CALLS, MOMENTS
from tests.kills.world import POLICIES, SITES, StormFederation, agent_of
from tests.support.waiting import POLL_S

BACKLOG = 10
"""So many unfinished jobs are kept in the system while kills go on."""
CALM_S = 240.0
"""Real seconds after the last kill within which everything must have finished."""
VICTIM_S = 4.0
CALL_S = 15.0
"""Real seconds in which a victim is looked for, and in which a call that is to be hit is waited for."""
NEED_S = 3.0
"""So often more work for machines is submitted until a launch has come."""
MOST_WAITING = 6
TRIES = 3
"""A kill that found no victim is tried again, in all so many times as often as kills were asked for."""
KINDS = ("dispatcher", "agent", "shim", "job", "instance", "interrupt", "solver", *CALLS)
WIDE = 0.1
"""The share of jobs that are gangs over both hosts of one site."""


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
        self.federation = StormFederation(folder)
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
            await self._rage(order, say)
            await self._calm()
            await self._judge()
        finally:
            await federation.end()
        return self.verdict

    async def _rage(self, order: list[str], say: Callable[[str], None]) -> None:
        """All kills, in this order; one that finds no victim goes to the end."""
        wanted, tries = len(order), TRIES * len(order)
        while order and tries:
            tries -= 1
            kind = order.pop(0)
            await asyncio.sleep(self.random.uniform(0.05, 0.8))
            if await self._strike(kind):
                self.verdict.kills[kind] += 1
            else:
                order.append(kind)
            await self._feed()
            if self.verdict.kills.total() % 20 == 0:
                say(
                    f"seed {self.verdict.seed}: {self.verdict.kills.total()} of {wanted} kills, {len(self.nodes)} jobs"
                )

    async def _strike(self, kind: str) -> bool:
        """Kill one victim of this kind, if there is one within a few seconds; start again what an operator would."""
        processes = self.federation.processes
        if kind == "dispatcher":
            self.federation.kill_dispatcher()
            await self.federation.start_dispatcher()
            return True
        if kind == "agent":
            name = agent_of(self.random.choice(SITES))
            processes.kill(name)
            self.federation.start_agent(name)
            return True
        if kind in CALLS:
            return await self._kill_in_call(kind)
        if kind == "interrupt":
            return await self._interrupt()
        return await self._in_time(VICTIM_S, lambda: self._kill_one(kind))

    def _kill_one(self, kind: str) -> bool:
        """Kill one of the processes of this kind, if there are any."""
        victims = sorted(pid for pid in self.federation.processes.living() if _kind_of(pid) == kind)
        if victims:
            with suppress(ProcessLookupError):
                os.kill(self.random.choice(victims), signal.SIGKILL)
        return bool(victims)

    async def _kill_in_call(self, call: str) -> bool:
        """Set a trap and see to it that there will be such a call; the dispatcher that was caught is started again."""
        trap = self.federation.folder / f"{call}.{self.random.choice(MOMENTS)}"
        dispatcher = self.federation.processes.started[DISPATCHER]
        trap.touch()
        asking: set[asyncio.Task[None]] = set()
        for _ in range(int(CALL_S / NEED_S)):
            if call != "list":
                asking.add(
                    asyncio.create_task(self._need_machines())
                )  # it may be caught in the middle of this
            if await self._in_time(NEED_S, lambda: dispatcher.poll() is not None):
                break
        if dispatcher.poll() is None:
            with suppress(FileNotFoundError):
                trap.unlink()
                await asyncio.gather(*asking)
                return False
            await asyncio.to_thread(dispatcher.wait)  # it was sprung at the last moment
        await self.federation.start_dispatcher()
        await asyncio.gather(*asking)
        return True

    async def _need_machines(self) -> None:
        """Work that nothing which is already rented can take on soon; what is to be given back has to have been rented."""
        waiting = await self.federation.admin.jobs(JobFilter(status="PENDING", queue="rented"))
        if waiting.total < MOST_WAITING:
            await self._submit_rented(self.random.choice((1, 4, 8)))

    async def _in_time(self, limit_s: float, holds: Callable[[], bool]) -> bool:
        """Whether it comes to hold within so many real seconds."""
        until_s = time.monotonic() + limit_s
        while not holds():
            if time.monotonic() > until_s:
                return False
            await asyncio.sleep(POLL_S)
        return True

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
        held = [row.id for row in page.jobs if row.status == "HELD"]
        if held:
            with suppress(FederatorError):
                await self.federation.admin.act("release", held)
        for _ in range(BACKLOG - page.total):
            if self.random.random() < 0.25:
                await self._submit_rented()
            else:
                await self._submit()

    async def _submit_rented(self, gpus: int = 1) -> None:
        await self._submit(queue="rented", placement={"kinds": ["cloud"]}, resources={"gpus": gpus}, nodes=1)

    async def _submit(self, **fields: object) -> None:
        wide = self.random.random() < WIDE  # no host of any site holds it alone
        nodes = 2 if wide else self.random.choice((1, 1, 1, 2, 3))
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
            "resources": {"gpus": 4 if wide else self.random.choice((0, 1, 2))},
            "estimate": "3m",
            "placement": {"sites": ["hall"]} if wide else {},
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
        if page.jobs:
            await self.federation.admin.act("release", [row.id for row in page.jobs])

    async def _judge(self) -> None:
        admin, verdict = self.federation.admin, self.verdict
        rows = {row.id: row async for row in admin.all_jobs()}
        history = {job: await admin.history(job) for job in self.nodes}
        attempts = read_attempts(self.journal)
        leases = await admin.leases()
        verdict.jobs, verdict.attempts, verdict.leases = len(self.nodes), len(attempts), len(leases)
        bill = await self.federation.bill()
        verdict.spent_usd = sum(instance.billed_usd for instance in bill)
        verdict.faults = judge(self.nodes, rows, history, attempts, self.nodes)
        verdict.faults += check_bill(leases, bill)
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
