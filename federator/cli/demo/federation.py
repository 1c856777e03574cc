"""A whole federation in one folder: a dispatcher, a site file and an agent per site, and a provider, all real processes.

Times in the settings are written in real seconds and multiplied by the speed of the clock, so that the machinery keeps its pace however fast the world's time runs.
"""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from federator.cli.demo.processes import Processes
from federator.cli.demo.world import PROVIDER, Document, provider_settings
from federator.client import AsyncClient
from federator.kernel.clock import ScaledClock
from federator.kernel.errors import FederatorError, Transient
from federator.wire.administration import PolicyVerdict
from federator.wire.http import TokenRequest

DISPATCHER = "dispatcher"
FEDERATION = "demo"
READY_S = 60.0
"""How long anything may take to come up, in real seconds."""
PATIENCE_S = 20.0
REPORT_S = 1.0
POLL_S = 0.1


class NotStarted(FederatorError):
    """A process of the demonstration has not come up."""

    code = "not-started"


class DemoFederation:
    """The processes, and clients to talk to them. `speed`: how many seconds of the world's time pass in a real one."""

    def __init__(self, folder: Path, speed: float) -> None:
        self.folder = folder
        self.speed = speed
        self.origin_at = round(time.time(), 3)
        self.clock = ScaledClock(speed, self.origin_at)
        self.processes = Processes(folder)
        self.machines = folder / "machines"
        self.server = ""
        self.admin_token = ""
        self._clients: dict[str, AsyncClient] = {}

    @property
    def console(self) -> str:
        """Where a browser finds the console, with the administrator's token filled in."""
        return f"{self.server}/sign-in#{self.admin_token}"

    @property
    def admin(self) -> AsyncClient:
        """The administrator's client."""
        return self._client("admin", self.admin_token)

    async def as_person(self, name: str) -> AsyncClient:
        """A client with a user's token, made on first use."""
        if name not in self._clients:
            answer = await self.admin.create_token(TokenRequest(name=name, role="user"))
            self._client(name, answer.secret)
        return self._clients[name]

    async def start_dispatcher(self) -> int:
        """Start it, for the first time or again, and return its pid once it answers. Raises `NotStarted`."""
        settings = self.folder / "dispatcher.yaml"
        if not settings.exists():
            settings.write_text(json.dumps(self._settings(), indent=2) + "\n")
        arguments = ["serve", "--config", str(settings)]
        if self.server:
            arguments += ["--port", self.server.rpartition(":")[2]]
        state = self.folder / "dispatcher"
        (state / "address").unlink(missing_ok=True)
        process = self.processes.start(DISPATCHER, "federator", arguments)
        until = time.monotonic() + READY_S
        self.server = await self._line(state / "address", until)
        self.admin_token = await self._line(state / "admin.token", until)
        await self._answering(until)
        return process.pid

    async def apply_policies(self, text: str) -> PolicyVerdict:
        """Put the policies in force. Raises `NotStarted` when they are refused."""
        verdict = await self.admin.apply_policies(text, "the demonstration's rules")
        if verdict.problems:
            raise NotStarted(f"its policies are refused: {verdict.problems[0].detail}")
        return verdict

    async def start_sites(self, sites: Sequence[Document]) -> None:
        """Give each a one-time token, let its agent join, and return when all sites have reported. `member`: of a site with several."""
        await asyncio.gather(*(self._start_site(site) for site in sites))
        names = {site["site"] for site in sites}
        agents = [_agent(site) for site in sites]
        until = time.monotonic() + READY_S
        while True:
            rows = await self.admin.sites()
            if names <= {row.name for row in rows if row.status == "READY" and row.age_s is not None}:
                return
            for agent in agents:
                self._check_started(agent, until)
            await asyncio.sleep(POLL_S)

    def kill_dispatcher(self) -> int:
        """kill -9. Its pid, once it is dead."""
        return self.processes.kill(DISPATCHER)

    async def close(self) -> None:
        """Let go of all connections; the processes stay."""
        for client in self._clients.values():
            await client.close()
        self._clients.clear()

    async def end(self) -> None:
        """Let go, and end every process that was started for it."""
        await self.close()
        await asyncio.to_thread(self.processes.end_all)
        for process in self.processes.started.values():
            process.wait()

    def _client(self, name: str, token: str) -> AsyncClient:
        if name not in self._clients:
            self._clients[name] = AsyncClient(self.server, token, patience_s=PATIENCE_S)
        return self._clients[name]

    def _settings(self) -> Document:
        """The dispatcher's settings file."""

        def real(seconds: float) -> float:
            return seconds * self.speed

        return {
            "state_dir": str(self.folder / "dispatcher"),
            "federation": FEDERATION,
            "clock": f"scaled:{self.speed:g}@{self.origin_at}",
            "server": {"port": 0},
            "turn": {"heartbeat_s": real(2)},
            "link": {"report_every_s": real(REPORT_S), "unreachable_after_s": real(10)},
            "leases": {
                "idle_s": real(4),
                "join_within_s": real(30),
                "drain_within_s": real(20),
                "poll_s": real(0.7),
                "slack_s": real(8),
            },
            "retention": {"sweep_s": real(5)},
            "providers": {
                PROVIDER: provider_settings(self.machines, (sys.executable, "-m", "federator_agent", "serve"))
            },
        }

    async def _start_site(self, site: Document) -> None:
        name = _agent(site)
        config = self.folder / "sites" / f"{name}.yaml"
        config.parent.mkdir(exist_ok=True)
        given = {
            "dispatcher": self.server,
            "state_dir": str(self.folder / "agents" / name),
            "clock": f"scaled:{self.speed:g}@{self.origin_at}",
            "report_every": f"{REPORT_S * self.speed:g}s",
        }
        config.write_text(json.dumps(given | site, indent=2) + "\n")
        token = await self.admin.create_token(
            TokenRequest(site=site["site"], kind=site["kind"], region=site.get("region", ""))
        )
        await self.join(name, config, token.secret)
        self.processes.start(name, "federator_agent", ["serve", "--config", str(config)])

    async def join(self, name: str, config: Path, secret: str) -> None:
        """As a site's administrator does it; the token goes through a pipe, because command lines can be seen by all."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "federator_agent", "join", "--config", str(config), "--token", "-",
            env=self.processes.environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        said, _ = await process.communicate(secret.encode())
        if process.returncode != 0:
            raise NotStarted(f"the agent of {name} cannot join: {said.decode(errors='replace').strip()}")

    async def _line(self, file: Path, until: float) -> str:
        """The line in a file that the dispatcher writes, once it is there whole."""
        while not (text := _text(file)).endswith("\n"):
            self._check_started(DISPATCHER, until)
            await asyncio.sleep(POLL_S)
        return text.strip()

    async def _answering(self, until: float) -> None:
        """Return when the dispatcher says that it is ready."""
        async with AsyncClient(self.server, patience_s=0.0) as client:
            while True:
                try:
                    await client.transport.call("GET", "/readyz", dict[str, str])
                except Transient:
                    self._check_started(DISPATCHER, until)
                    await asyncio.sleep(POLL_S)
                else:
                    return

    def _check_started(self, name: str, until: float) -> None:
        """Raise `NotStarted` with the last of what a process has said, when it is dead or late."""
        if name not in self.processes.ended() and time.monotonic() < until:
            return
        said = self.processes.log_file(name).read_text(errors="replace").strip().splitlines()[-3:]
        raise NotStarted(
            f"{name} has not come up: {' / '.join(said) or 'it has said nothing'}",
            remedy=f"see {self.processes.log_file(name)}",
        )


def _agent(site: Document) -> str:
    """What the agent of a site file is called here."""
    return str(site.get("member", site["site"]))


def _text(file: Path) -> str:
    return file.read_text() if file.exists() else ""
