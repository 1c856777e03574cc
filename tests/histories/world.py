"""Three dispatchers, three members of etcd and a site, with a proxy of the test's own on each way between them, and disks and clocks that a test may stop and set.

Ways: clients to each dispatcher, the site to each dispatcher, each dispatcher to each member, and each member to each other one.
"""

import asyncio
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from federator.cli.demo.processes import Processes
from tests.histories import program
from tests.histories.disks import Disk
from tests.histories.record import Line
from tests.partitions.proxy import Proxy
from tests.testbeds.dispatchers import Dispatchers
from tests.testbeds.etcd import EtcdCluster

NAMES = "abc"
SITE = "lab"
MEMBERS = range(3)
SHARED = "shared"
WORK = Path(__file__).with_name("work.sh")
TCP = Path("/proc/net/tcp")
ESTABLISHED_INODE = 9
"""The column of a socket's inode."""


class PeerProxy(Proxy):
    """Stands before a member of etcd and tells its callers apart: each pair of members has a gate of its own."""

    def __init__(self, number: int, cluster: EtcdCluster, gates: dict[frozenset[int], asyncio.Event]) -> None:
        super().__init__(cluster.ports[number].peer)
        self._number, self._cluster, self._pairs = number, cluster, gates

    def _gates(self, writer: asyncio.StreamWriter) -> tuple[asyncio.Event, asyncio.Event]:
        caller = _who(writer.get_extra_info("peername")[1], self._cluster.pids)
        gate = self._pairs.get(frozenset({self._number, caller}))
        return (gate, gate) if gate else (self._up, self._down)


def _who(port: int, pids: Mapping[int, int]) -> int:
    """Whose socket has this port; -1: none of theirs."""
    end = f":{port:04X}"
    rows = (line.split() for line in TCP.read_text().splitlines()[1:])
    inodes = {f"socket:[{row[ESTABLISHED_INODE]}]" for row in rows if row[1].endswith(end)}
    for number, pid in pids.items():
        for link in Path(f"/proc/{pid}/fd").iterdir():
            try:
                if str(link.readlink()) in inodes:
                    return number
            except OSError:  # closed meanwhile
                continue
    return -1


class ClockedProcesses(Processes):
    """Each of our programs runs on a clock that may be set."""

    def start(
        self, name: str, module: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[bytes]":
        """As any process, by way of `tests.histories.program`."""
        clock = {program.CLOCK: str(self.clock_of(name))}
        return super().start(name, program.__name__, [module, *arguments], clock | dict(environment or {}))

    def clock_of(self, name: str) -> Path:
        """The file with the seconds by which its clock is wrong."""
        return self.folder / f"{name}.clock"


class HistoryWorld(Dispatchers):
    """`async with HistoryWorld(folder)`. Without the right to mount there are no `disks`."""

    def __init__(self, folder: Path) -> None:
        self.members = EtcdCluster(folder.with_name(f"{folder.name}-etcd"))
        super().__init__(folder, self.members, NAMES, NAMES)
        self.clocked = ClockedProcesses(folder)
        self.processes = self.clocked
        self.runs = folder / "runs"
        self.disks: dict[str, Disk] = {}
        self.without_disks = ""
        """Why there are none."""
        self.fronts = {name: Proxy(port) for name, port in self.ports.items()}
        """Before each dispatcher, for clients,"""
        self.backs = {name: Proxy(port) for name, port in self.ports.items()}
        """and for the site."""
        pairs = (frozenset({one, other}) for one in MEMBERS for other in MEMBERS if one < other)
        self.pairs = {pair: asyncio.Event() for pair in pairs}
        """Set: these two members reach each other."""
        self.peers = [PeerProxy(number, self.members, self.pairs) for number in MEMBERS]
        self.addresses: dict[str, str] = {}
        self._site_addresses: list[str] = []
        self._stack = ExitStack()

    @property
    def urls_of_site(self) -> str:
        """Through proxies."""
        return ",".join(self._site_addresses)

    async def __aenter__(self) -> Self:
        for gate in self.pairs.values():
            gate.set()
        try:
            self._mount()
            self.members.peer_urls[:] = [await proxy.start() for proxy in self.peers]
            await asyncio.to_thread(self.members.__enter__)
            self._stack.callback(self.members.end)
            self.addresses = {name: await proxy.start() for name, proxy in self.fronts.items()}
            self._site_addresses = [await proxy.start() for proxy in self.backs.values()]
        except BaseException:
            self._stack.close()
            raise
        return await super().__aenter__()

    async def __aexit__(self, *given: object) -> None:
        await super().__aexit__(*given)
        for proxy in (*self.fronts.values(), *self.backs.values(), *self.peers):
            await proxy.close()
        await asyncio.to_thread(self._stack.close)

    def _mount(self) -> None:
        etcd = self.folder.with_name(f"{self.folder.name}-etcd")
        folders = {f"m{number}": etcd / f"m{number}" for number in MEMBERS} | {SHARED: self.folder / SHARED}
        try:
            for name, folder in folders.items():
                self.disks[name] = self._stack.enter_context(Disk(folder))
        except OSError as error:
            self.without_disks = str(error)
            self.disks.clear()

    def work(self, run_s: float) -> list[str]:
        """The command of a job."""
        return ["sh", str(WORK), str(self.runs), f"{run_s:.2f}"]

    def lines(self) -> list[Line]:
        """What all jobs have written so far."""
        if not self.runs.exists():
            return []
        found = []
        for text in self.runs.read_text().splitlines():
            word, job, placement, process, at_s, code, token = text.split()
            found.append(Line(word, job, placement, process, float(at_s), int(code), token))
        return found

    def start_site(self) -> None:
        """Start the agent again."""
        self.processes.start(SITE, "federator_agent", ["serve", "--config", str(self.folder / "site.yaml")])

    def set_clock(self, name: str, wrong_s: float) -> None:
        """From now on the wall clock of this process is wrong by so much."""
        file = self.clocked.clock_of(name)
        new = file.with_suffix(".new")
        new.write_text(f"{wrong_s:.3f}")
        new.rename(file)
