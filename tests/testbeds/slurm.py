"""A real Slurm on this machine: one slurmctld and one slurmd on loopback, from Debian's packages, ended with everything that they started.

It needs neither munge nor root: whoever runs the tests is Slurm's user, and nothing listens beyond loopback. The nodes are declared larger than the
machine is (`config_overrides`), so that there can be many slots.
"""

import asyncio
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "squeue", "sinfo", "scontrol", "scancel")
REMEDY = "install Slurm: on Debian and Ubuntu, apt-get install slurm-wlm"
READY_S = 60.0
TERM_S = 10.0
POLL_S = 0.1
NODE = "bench"
_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))


class SlurmMissing(Exception):
    """Slurm, or a part of it, is not installed. The message says what to install."""


class SlurmFailed(Exception):
    """Slurm has not come up, or has refused a command. The message has what it said."""


def missing() -> str:
    """What is not installed and how to get it; empty when all is there."""
    lacking = [program for program in PROGRAMS if shutil.which(program, path=_PATH) is None]
    return f"{', '.join(lacking)} cannot be found; {REMEDY}" if lacking else ""


class Slurm:
    """One cluster with one node of `cpus` slots, and the partition `main`. `async with Slurm(folder) as slurm`."""

    def __init__(self, folder: Path, *, cpus: int = 64, memory_mib: int = 65536) -> None:
        self.folder = folder
        self.configuration = folder / "slurm.conf"
        self._cpus = cpus
        self._memory_mib = memory_mib
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
            self._start("slurmctld", ["-D", "-f", str(self.configuration)])
            self._start("slurmd", ["-D", "-f", str(self.configuration), "-N", NODE])
            await self._ready()
        except BaseException:
            await asyncio.to_thread(self._end)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """End its jobs, then it."""
        await asyncio.to_thread(self._end)

    def pid(self, daemon: str) -> int:
        """The process of `slurmctld` or `slurmd`."""
        return self._daemons[daemon].pid

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
        ctld, node = _free_ports(2)
        user = pwd.getpwuid(os.getuid()).pw_name
        for name in ("state", "spool", "jobs"):
            (self.folder / name).mkdir(exist_ok=True)
        lines = [
            "ClusterName=testbed",
            f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmctldPort={ctld}",
            f"SlurmUser={user}",
            f"SlurmdUser={user}",
            "AuthType=auth/none",
            "CredType=cred/none",
            "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny",
            f"StateSaveLocation={self.folder}/state",
            f"SlurmdSpoolDir={self.folder}/spool",
            f"SlurmctldPidFile={self.folder}/slurmctld.pid",
            f"SlurmdPidFile={self.folder}/slurmd.pid",
            f"SlurmctldLogFile={self.folder}/slurmctld.log",
            f"SlurmdLogFile={self.folder}/slurmd.log",
            "ProctrackType=proctrack/pgid",
            "TaskPlugin=task/none",
            "JobAcctGatherType=jobacct_gather/none",
            "AccountingStorageType=accounting_storage/none",
            "SlurmdParameters=config_overrides",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core",
            "MpiDefault=none",
            "ReturnToService=2",
            "MaxJobCount=100000",
            "MaxArraySize=10001",
            "MinJobAge=2",
            f"NodeName={NODE} NodeHostName={host} NodeAddr=127.0.0.1 Port={node} CPUs={self._cpus} RealMemory={self._memory_mib}",
            f"PartitionName=main Nodes={NODE} Default=YES MaxTime=INFINITE State=UP",
        ]
        self.configuration.write_text("\n".join(lines) + "\n")

    def _start(self, program: str, arguments: Sequence[str]) -> None:
        with (self.folder / f"{program}.out").open("wb") as out:
            self._daemons[program] = subprocess.Popen(
                [program, *arguments],
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    async def _ready(self) -> None:
        until = time.monotonic() + READY_S
        said = ""
        while time.monotonic() < until:
            for program, process in self._daemons.items():
                if process.poll() is not None:
                    raise SlurmFailed(f"{program} has ended: {self._said(program)}")
            try:
                said = (await self.command("sinfo", "--noheader", "--format=%T")).strip()
            except SlurmFailed as failed:
                said = str(failed)
            if said == "idle":
                return
            await asyncio.sleep(POLL_S)
        raise SlurmFailed(f"its node is not idle after {READY_S:g} s but: {said}; {self._said('slurmd')}")

    def _said(self, program: str) -> str:
        text = "".join(
            file.read_text(errors="replace")
            for file in (self.folder / f"{program}.out", self.folder / f"{program}.log")
            if file.exists()
        )
        return " / ".join(text.strip().splitlines()[-4:])

    def _end(self) -> None:
        """Jobs first, while there is somebody to end them; what then still lives below the folder, by force."""
        for program in ("slurmd", "slurmctld"):
            process = self._daemons.get(program)
            if process is None:
                continue
            if program == "slurmd" and process.poll() is None and self._daemons["slurmctld"].poll() is None:
                subprocess.run(
                    ["scancel", "--full", "--signal=KILL", f"--user={os.getuid()}"],
                    env=self.environment, capture_output=True, check=False, timeout=30,
                )  # fmt: skip
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


def _free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody has now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
