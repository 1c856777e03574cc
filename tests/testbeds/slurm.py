"""A real Slurm on this machine: one slurmctld and a slurmd for each node, on loopback, from Debian's packages, ended with everything that they started.

It needs neither munge nor root: whoever runs the tests is Slurm's user, and nothing listens beyond loopback. The nodes are declared larger than the
machine is (`config_overrides`), so that there can be many slots; their GPUs are links to /dev/null, which Slurm hands out like any others. Clusters do not
know of each other: several can stand side by side.
"""

import asyncio
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.testbeds.ports import free_ports

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "squeue", "sinfo", "scontrol", "scancel", "srun")
REMEDY = "install Slurm: on Debian and Ubuntu, apt-get install slurm-wlm"
READY_S = 60.0
TERM_S = 10.0
POLL_S = 0.1
GPU_MODEL = "a100"
HALF = "a100_3g.20gb"
_DEFAULTS = {
    "AuthType": "auth/none",
    "CredType": "cred/none",
    "CommunicationParameters": "NoInAddrAny,NoCtldInAddrAny",
    "ProctrackType": "proctrack/linuxproc",
    "TaskPlugin": "task/none",
    "JobAcctGatherType": "jobacct_gather/none",
    "AccountingStorageType": "accounting_storage/none",
    "SlurmdParameters": "config_overrides",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_Core",
    "GresTypes": "gpu,shard",
    "MpiDefault": "none",
    "ReturnToService": "2",
    "MaxJobCount": "100000",
    "MaxArraySize": "10001",
    "MinJobAge": "2",
}
_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))


class SlurmMissing(Exception):
    """Slurm, or a part of it, is not installed. The message says what to install."""


class SlurmFailed(Exception):
    """Slurm has not come up, or has refused a command. The message has what it said."""


def missing() -> str:
    """What is not installed and how to get it; empty when all is there."""
    lacking = [program for program in PROGRAMS if shutil.which(program, path=_PATH) is None]
    return f"{', '.join(lacking)} cannot be found; {REMEDY}" if lacking else ""


def _devices(folder: Path, gpus: int, shards: int, halves: int) -> None:
    """Files that are GPUs to the nodes, and what says so."""
    lines = []
    for number in range(gpus + halves):
        device = folder / f"gpu{number}"
        device.symlink_to(os.devnull)
        lines.append(f"Name=gpu Type={GPU_MODEL if number < gpus else HALF} File={device}\n")
    lines += [f"Name=shard Count={shards} File={folder}/gpu{number}\n" for number in range(gpus) if shards]
    (folder / "gres.conf").write_text("".join(lines))


class Slurm:
    """One cluster of equal nodes `n0`, `n1` … and the partition `main` of all of them. `async with Slurm(folder) as slurm`."""

    def __init__(
        self,
        folder: Path,
        *,
        cpus: int = 64,
        memory_mib: int = 65536,
        nodes: int = 1,
        gpus: int = 0,
        shards: int = 0,
        halves: int = 0,
        partitions: Sequence[str] = ("main Nodes=ALL Default=YES MaxTime=INFINITE",),
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`cpus`, `memory_mib` and `gpus` are of each node, `shards` of each GPU, and `halves` MIG instances of each node beside these; `partitions` and `settings` are what slurm.conf is to say beyond, or instead of, the usual."""
        self.folder = folder
        self.configuration = folder / "slurm.conf"
        self.nodes = tuple(f"n{number}" for number in range(nodes))
        self._cpus = cpus
        self._memory_mib = memory_mib
        self._gpus = gpus
        self._shards = shards
        self._halves = halves
        self._partitions = partitions
        self._settings = _DEFAULTS | dict(settings or {})
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def environment(self) -> dict[str, str]:
        """In which Slurm's commands talk to this cluster and no other."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "SBATCH_"))}
        return kept | {"SLURM_CONF": str(self.configuration), "PATH": _PATH}

    async def __aenter__(self) -> Self:
        """Start it; returns when its node takes work. Raises `SlurmMissing`, `SlurmFailed`."""
        if lack := missing():
            raise SlurmMissing(lack)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._configure()
        try:
            for daemon in ("slurmctld", *self.nodes):
                self.start(daemon)
            await self.ready()
        except BaseException:
            await asyncio.to_thread(self.end)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """End its jobs, then it."""
        await asyncio.to_thread(self.end)

    def pid(self, daemon: str) -> int:
        """The process of `slurmctld`, or of the slurmd of a node."""
        return self._daemons[daemon].pid

    def kill(self, daemon: str) -> None:
        """Kill the slurmd of a node. What runs there goes on."""
        self._daemons[daemon].kill()
        self._daemons.pop(daemon).wait()

    def stop(self, daemon: str) -> None:
        """End `slurmctld` as its service does: one that is killed forgets its last seconds."""
        self._daemons[daemon].terminate()
        self._daemons.pop(daemon).wait(TERM_S)

    async def command(self, program: str, *arguments: str, stdin: str = "") -> str:
        """What one of Slurm's commands prints. Raises `SlurmFailed` with what it says when it fails."""
        process = await asyncio.create_subprocess_exec(
            program, *arguments,
            env=self.environment,
            cwd=self.folder,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        said, error = await process.communicate(stdin.encode())
        if process.returncode != 0:
            raise SlurmFailed(f"{program}: {error.decode(errors='replace').strip()}")
        return said.decode()

    async def submit(self, script: str, *options: str) -> str:
        """Submit a batch script; answers the job's id."""
        return (await self.command("sbatch", "--parsable", *options, stdin=script)).strip()

    async def idle(self) -> None:
        """Return when no job is waiting, running or being tidied up after."""
        while (await self.command("squeue", "--noheader", "--format=%T")).strip():
            await asyncio.sleep(POLL_S)

    def _configure(self) -> None:
        host = socket.gethostname().partition(".")[0]
        ctld, *ports = free_ports(1 + len(self.nodes))
        user = pwd.getpwuid(os.getuid()).pw_name
        for name in ("state", "jobs", *(f"spool-{node}" for node in self.nodes)):
            (self.folder / name).mkdir(exist_ok=True)
        sorts = (
            (f"gpu:{GPU_MODEL}", self._gpus),
            (f"gpu:{HALF}", self._halves),
            ("shard", self._gpus * self._shards),
        )
        gres = ",".join(f"{name}:{count}" for name, count in sorts if count)
        gpus = f"Gres={gres} " if gres else ""
        lines = [
            "ClusterName=testbed",
            f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmctldPort={ctld}",
            f"SlurmUser={user}",
            f"SlurmdUser={user}",
            f"StateSaveLocation={self.folder}/state",
            f"SlurmdSpoolDir={self.folder}/spool-%n",
            f"SlurmctldPidFile={self.folder}/slurmctld.pid",
            f"SlurmdPidFile={self.folder}/slurmd-%n.pid",
            f"SlurmctldLogFile={self.folder}/slurmctld.log",
            f"SlurmdLogFile={self.folder}/%n.log",
            *(f"{key}={value}" for key, value in self._settings.items()),
            f"NodeName=DEFAULT CPUs={self._cpus} RealMemory={self._memory_mib} {gpus}",
            *(
                f"NodeName={node} NodeHostName={host} NodeAddr=127.0.0.1 Port={port}"
                for node, port in zip(self.nodes, ports, strict=True)
            ),
            *(f"PartitionName={partition} State=UP" for partition in self._partitions),
        ]
        self.configuration.write_text("\n".join(lines) + "\n")
        _devices(self.folder, self._gpus, self._shards, self._halves)

    def start(self, daemon: str) -> None:
        """Start `slurmctld`, or the slurmd of a node."""
        program = ["slurmctld"] if daemon == "slurmctld" else ["slurmd", "-N", daemon]
        with (self.folder / f"{daemon}.out").open("ab") as out:
            self._daemons[daemon] = subprocess.Popen(
                [*program, "-D", "-f", str(self.configuration)],
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    async def ready(self) -> None:
        """Return when all nodes take work. Raises `SlurmFailed`."""
        until = time.monotonic() + READY_S
        said = ""
        while time.monotonic() < until:
            for daemon, process in self._daemons.items():
                if process.poll() is not None:
                    raise SlurmFailed(f"{daemon} has ended: {self._said(daemon)}")
            try:
                said = await self.command("sinfo", "--noheader", "--Node", "--format=%N %T")
            except SlurmFailed as failed:
                said = str(failed)
            if {f"{node} idle" for node in self.nodes} == set(said.splitlines()):
                return
            await asyncio.sleep(POLL_S)
        raise SlurmFailed(
            f"its nodes are not idle after {READY_S:g} s but: {said}; {self._said(self.nodes[0])}"
        )

    def _said(self, daemon: str) -> str:
        text = "".join(
            file.read_text(errors="replace")
            for file in (self.folder / f"{daemon}.out", self.folder / f"{daemon}.log")
            if file.exists()
        )
        return " / ".join(text.strip().splitlines()[-4:])

    def end(self) -> None:
        """Jobs first, while there is somebody to end them; what then still lives below the folder, by force."""
        if all(process.poll() is None for process in self._daemons.values()) and "slurmctld" in self._daemons:
            subprocess.run(
                ["scancel", "--full", "--signal=KILL", f"--user={os.getuid()}"],
                env=self.environment, capture_output=True, check=False, timeout=30,
            )  # fmt: skip
        for daemon in sorted(self._daemons, key=lambda name: name == "slurmctld"):
            process = self._daemons[daemon]
            process.terminate()
            try:
                process.wait(TERM_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pid in self._left():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def _left(self) -> list[int]:
        """Processes whose environment names this cluster: its step daemons, and jobs that outlived them."""
        mark = f"SLURM_CONF={self.configuration}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    environment = (entry / "environ").read_bytes().split(b"\0")
                except OSError:
                    continue
                if mark in environment:
                    found.append(int(entry.name))
        return found
