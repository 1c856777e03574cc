"""A federation of real processes with one site of several hosts, each with an agent of its own; a gang whose ranks meet is there to run."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self

from federator.cli.demo.federation import REPORT_S, DemoFederation
from federator.wire.http import JobDetail, TokenRequest

SPEED = 10.0
SITE = "lab"
MEET = '''
"""Two ranks meet where they are told to, leave a note each, and stay until they are let go."""
import os, pathlib, socket, sys, time

rank, folder = int(os.environ["FEDERATOR_NODE_RANK"]), pathlib.Path(sys.argv[1])
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    peer, _ = socket.create_server(place).accept()
else:
    peer = None
    while peer is None:
        try:
            peer = socket.create_connection(place, timeout=60)
        except ConnectionRefusedError:
            time.sleep(0.05)
peer.sendall(b"rank %d" % rank)
print(f"rank {rank} of {os.environ['FEDERATOR_NUM_NODES']} met {peer.recv(64).decode()} at {place[0]}", flush=True)
pathlib.Path("results").mkdir(exist_ok=True)
pathlib.Path(f"results/rank-{rank}").write_text(os.environ["FEDERATOR_PLACEMENT_ID"])
(folder / f"met-{rank}-{os.environ['FEDERATOR_PLACEMENT_ID']}").touch()
while not (folder / "go").exists():
    time.sleep(0.05)
'''
"""The work directory's only program; its argument is a folder for its notes."""


class Hosts:
    """The federation, and the gang in it."""

    def __init__(self, folder: Path) -> None:
        self.federation = DemoFederation(folder, SPEED)
        self.notes = folder / "notes"
        self.workdir = folder / "work"
        self.job = ""

    async def __aenter__(self) -> Self:
        for each in (self.notes, self.workdir):
            each.mkdir(parents=True)
        (self.workdir / "meet.py").write_text(MEET)
        await self.federation.start_dispatcher()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.federation.end()

    async def add(self, member: str, address: str) -> None:
        """One more host of the site, with one GPU, reached by the others under `address`."""
        site = {
            "site": SITE,
            "member": member,
            "address": address,
            "dispatcher": self.federation.server,
            "state_dir": str(self.federation.folder / "agents" / member),
            "clock": f"scaled:{SPEED:g}@{self.federation.origin_at}",
            "report_every": f"{REPORT_S * SPEED:g}s",
            "pools": [{"name": "main", "model": "A100", "nodes": 1, "gpus_per_node": 1, "cpus_per_node": 8}],
        }
        self._config(member).write_text(json.dumps(site))
        token = await self.federation.admin.create_token(TokenRequest(site=SITE, kind="onprem"))
        await self.federation.join(member, self._config(member), token.secret)
        self.start(member)

    def start(self, member: str) -> None:
        """Start its agent, for the first time or again."""
        self.federation.processes.start(
            member, "federator_agent", ["serve", "--config", str(self._config(member))]
        )

    def kill(self, member: str, placement: str, rank: int) -> None:
        """kill -9 of a host's agent, and of all that a rank there consists of, in that order."""
        self.federation.processes.kill(member)
        for pid, environment in self.federation.processes.living().items():
            if (environment.get("FEDERATOR_PLACEMENT_ID"), environment.get("FEDERATOR_NODE_RANK")) == (
                placement,
                str(rank),
            ):
                os.kill(pid, signal.SIGKILL)

    def placed(self, member: str, placement: str) -> Path:
        """Where a host keeps its part of an attempt."""
        return self.federation.folder / "agents" / member / "placements" / placement

    async def submit(self) -> None:
        """A gang of two ranks with a GPU each, which no host holds alone."""
        job = {
            "name": "pair",
            "nodes": 2,
            "resources": {"gpus": "A100:1"},
            "run": f'exec python3 meet.py "{self.notes}"',
            "outputs": ["results/**"],
            "max_duration": "2h",
        }
        submitted = await self.federation.admin.submit(job, workdir=self.workdir)
        self.job = submitted.jobs[0]

    def met(self) -> list[str]:
        """The attempts in which both ranks have met."""
        seen = [path.name.split("-", 2)[1:] for path in self.notes.glob("met-*")]
        return sorted({name for _, name in seen if all([str(rank), name] in seen for rank in range(2))})

    def let_go(self) -> None:
        """The ranks may end."""
        (self.notes / "go").touch()

    async def detail(self) -> JobDetail:
        """The job, as the dispatcher has it."""
        return await self.federation.admin.job(self.job)

    async def log(self, rank: int) -> str:
        """What a rank of the newest attempt has written."""
        return b"".join([part async for part in self.federation.admin.logs(self.job, node=rank)]).decode()

    async def until(self, holds: Callable[[], Awaitable[bool]], limit_s: float = 60.0) -> None:
        """Wait; fail the test when it takes longer, in real seconds."""
        until_s = time.monotonic() + limit_s
        while not await holds():
            assert time.monotonic() < until_s, f"it has not come about in time: {await self.detail()}"
            await asyncio.sleep(0.1)

    def _config(self, member: str) -> Path:
        return self.federation.folder / f"{member}.yaml"
