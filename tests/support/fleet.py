"""Hundreds of agents in one process, and a real dispatcher for them.

Everything between an agent and the dispatcher is the real thing: the agent's link with its handshake and its pauses, its core that decides, bulk over HTTP.
Only what the core would have done on a host is replaced by the answer that a host would give at once: `true` ends with 0, and all other work "runs" until
it is told to stop.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import aiohttp
import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from federator.cli.demo.processes import Processes
from federator.client import AsyncClient
from federator.kernel.clock import SystemClock
from federator.kernel.errors import Transient
from federator.kernel.route import Way
from federator.model.jobs import JobSpec
from federator.wire.http import TokenRequest
from federator.wire.link import (
    Desired,
    DesiredAck,
    Heard,
    JoinRequest,
    KeyRequest,
    Report,
    StatusAck,
    Statuses,
    Welcome,
)
from federator_agent.bulk import Bulk
from federator_agent.core import events as ev
from federator_agent.core import instructions as do
from federator_agent.core.lent_capacity import HostPool, Site
from federator_agent.core.machine import step
from federator_agent.core.state import State
from federator_agent.enrollment import join
from federator_agent.keys import Keys, public
from federator_agent.link import Link, Said
from federator_agent.link_use import LinkUse
from federator_agent.spool import Identity

DISPATCHER = "dispatcher"
POOL = "main"


class HeldKey(Keys):
    """A key that is on no disk, and stays."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    @property
    def present(self) -> Ed25519PrivateKey:
        """The key."""
        return self._key

    async def proof(self, message: bytes) -> str:
        """Signed here."""
        return self._key.sign(message).hex()

    @property
    def stamp(self) -> object:
        """Always the same."""
        return None

    def request(self, member: str) -> KeyRequest | None:
        """It was never changed."""
        return None


class Dispatcher:
    """`federator serve` in a folder, which can be killed and started again at the same address."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self._folder = folder
        self._given = settings
        self._processes = Processes(folder)
        self.pid = 0
        self.url = ""
        self.token = ""

    async def start(self, limit_s: float = 120.0) -> None:
        """Start it, and return once it answers."""
        settings = self._folder / "dispatcher.yaml"
        state = self._folder / "dispatcher"
        given = {"state_dir": str(state), "server": {"port": 0}, "turn": {"solver": False}}
        settings.write_text(json.dumps(given | self._given) + "\n")
        port = ["--port", self.url.rpartition(":")[2]] if self.url else []
        (state / "address").unlink(missing_ok=True)
        self.pid = self._processes.start(
            DISPATCHER, "federator", ["serve", "--config", str(settings), *port]
        ).pid
        async with asyncio.timeout(limit_s):
            while not (state / "address").exists():
                assert not self._processes.ended(), self.log()
                await asyncio.sleep(0.02)
            self.url = (state / "address").read_text().strip()
            self.token = (state / "admin.token").read_text().strip()
            async with AsyncClient(self.url, patience_s=0.0) as client:
                while True:
                    with contextlib.suppress(Transient):
                        await client.transport.call("GET", "/readyz", dict[str, str])
                        return
                    await asyncio.sleep(0.02)

    def kill(self) -> None:
        """kill -9, and wait for its end."""
        self._processes.kill(DISPATCHER)

    def end(self) -> None:
        """Leave nothing behind."""
        self._processes.end_all()
        for process in self._processes.started.values():
            process.wait()

    def log(self) -> str:
        """What it has said."""
        return self._processes.log_file(DISPATCHER).read_text(errors="replace")


class SimulatedAgent:
    """One agent: the real link, the real core, and a host that does at once whatever it is asked to."""

    def __init__(self, fleet: "Fleet", identity: Identity, key: Ed25519PrivateKey) -> None:
        self.name = identity.member
        self.attempts = 0
        """Connections tried, whatever became of them."""
        self.welcomes: list[Welcome] = []
        self.linked = False
        self._fleet = fleet
        self._clock = SystemClock()
        pool = HostPool(
            name=POOL, cpus_milli_per_node=1000 * fleet.slots, memory_mib_per_node=1024 * fleet.slots
        )
        self._state = State(site=Site(name=identity.site, pools=(pool,)))
        self._http = fleet.http(self._tried)
        use = LinkUse(self._clock)
        self._link = Link(identity, HeldKey(key), Way(), f"boot-of-{identity.member}", self, use)
        self._bulk = Bulk(self._link, self._http, use)
        self._tasks: set[asyncio.Task[None]] = set()
        self._every_s = 5.0
        self._handle(ev.Awake(f"boot-of-{identity.member}"))

    @property
    def running(self) -> set[str]:
        """The placements that have started here and not ended."""
        records = self._state.records.items()
        return {name for name, record in records if any(not rank.ended for rank in record.ranks)}

    def start(self) -> None:
        """Hold a session from now on."""
        self._spawn(self._link.run(self._http))
        self._spawn(self._report())

    async def close(self) -> None:
        """Be gone, as if killed."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._http.close()

    # What the link tells -------------------------------------------------------------------------------------------

    def boot_s(self) -> float:
        """The boot clock."""
        return self._clock.boot()

    def link_up(self, welcome: Welcome, asked_boot_s: float) -> None:
        """A session stands."""
        self.welcomes.append(welcome)
        self.linked = True
        self._every_s = welcome.report_every_s
        self._handle(ev.LinkUp(welcome.incarnation, welcome.term, asked_boot_s))

    def link_down(self) -> None:
        """It is over."""
        self.linked = False
        self._handle(ev.LinkDown())

    def said(self, message: Said) -> None:
        """The dispatcher said something."""
        match message:
            case StatusAck(seq):
                self._handle(ev.Acknowledged(seq))
            case Heard(sent_boot_s):
                self._handle(ev.Renewed(sent_boot_s))
            case Desired():
                self._handle(ev.DesiredChanged(message))

    def acceptable(self, incarnation: str, term: int | None) -> bool:
        """Anybody."""
        return bool(incarnation) or term is None

    # The host ------------------------------------------------------------------------------------------------------

    def _handle(self, event: ev.Event) -> None:
        events: Sequence[ev.Event] = [event]
        while events:
            now = ev.Now(self._clock.now(), self._clock.boot())
            self._state, instructions = step(self._state, events, now)
            events = [answer for each in instructions for answer in self._carry_out(each, now)]

    def _carry_out(self, instruction: do.Instruction, now: ev.Now) -> Sequence[ev.Event]:  # noqa: C901
        """Do it, or say at once what a host would have answered in a moment."""
        match instruction:
            case do.SendStatuses(reports):
                self._link.say(Statuses(reports))
            case do.SendReport(report):
                self._link.say(Report(report, now.boot_s))
            case do.SendDesiredAck(generation, digest):
                self._link.say(DesiredAck(generation, digest))
            case do.FetchSpec(spec_hash):
                self._spawn(self._fetch(spec_hash))
            case do.Stage(record, _):
                return [ev.Staged(record.entry.placement, 1)]
            case do.StopStaging(placement):
                return [ev.StagingStopped(placement)]
            case do.StartRanks(record, spec, ranks):
                began = [ev.RankStarted(record.entry.placement, rank, now.at) for rank in ranks]
                if spec.run != "true":
                    return began
                return [*began, *(ev.RankEnded(record.entry.placement, rank, now.at, 0) for rank in ranks)]
            case do.SignalRanks(placement, ranks, _):
                return [ev.RankEnded(placement, rank, now.at, 143) for rank in ranks]
            case do.Collect(record, _):
                return [ev.Collected(record.entry.placement)]
            case _:
                pass
        return ()

    async def _fetch(self, spec_hash: str) -> None:
        if spec_hash not in self._fleet.specs:
            data = await self._bulk.spec(spec_hash)
            self._fleet.specs[spec_hash] = msgspec.json.decode(data, type=JobSpec)
        self._handle(ev.SpecArrived(spec_hash, self._fleet.specs[spec_hash]))

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            self._handle(ev.ReportDue())

    def _tried(self) -> None:
        self.attempts += 1

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Reached(Protocol):
    """A dispatcher to talk to, with an administrator's token."""

    url: str
    token: str


class Fleet:
    """All agents of a test, one per site. `slots`: how many jobs of one CPU each site holds."""

    def __init__(self, dispatcher: Reached, *, slots: int = 4) -> None:
        self.agents: list[SimulatedAgent] = []
        self.specs: dict[str, JobSpec] = {}
        self.slots = slots
        self._dispatcher = dispatcher
        self._connector = aiohttp.TCPConnector(limit=0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(agent.close() for agent in self.agents))
        await self._connector.close()

    def http(self, tried: Callable[[], None]) -> aiohttp.ClientSession:
        """A session of one agent; `tried` is called for every attempt to open the link."""
        trace = aiohttp.TraceConfig()

        async def started(
            _session: aiohttp.ClientSession, _context: object, started: aiohttp.TraceRequestStartParams
        ) -> None:
            if started.url.path.endswith("/link"):
                tried()

        trace.on_request_start.append(started)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=60)
        return aiohttp.ClientSession(
            connector=self._connector, connector_owner=False, timeout=timeout, trace_configs=[trace]
        )

    async def join(self, count: int) -> None:
        """Let so many sites join, by one token, and hold their sessions."""
        first = len(self.agents)
        at_once = asyncio.Semaphore(32)
        async with AsyncClient(self._dispatcher.url, self._dispatcher.token) as admin:
            token = await admin.create_token(TokenRequest(site="site-*", kind="onprem", most=count))

        async def one(number: int) -> None:
            key = Ed25519PrivateKey.generate()
            wish = JoinRequest(public(key))
            async with at_once:
                identity = await join(self._dispatcher.url, token.secret, wish, f"site-{number}", way=Way())
            self.agents.append(SimulatedAgent(self, identity, key))

        await asyncio.gather(*(one(number) for number in range(first, first + count)))
        for agent in self.agents[first:]:
            agent.start()

    @property
    def linked(self) -> int:
        """How many agents hold a session."""
        return sum(agent.linked for agent in self.agents)

    @property
    def running(self) -> set[str]:
        """The placements that run, by the agents' word."""
        return {placement for agent in self.agents for placement in agent.running}

    async def until(self, true: Callable[[], bool], limit_s: float) -> float:
        """Wait for a condition; the seconds it took. Raises TimeoutError."""
        began_s = time.monotonic()
        async with asyncio.timeout(limit_s):
            while not true():
                await asyncio.sleep(0.05)
        return time.monotonic() - began_s
