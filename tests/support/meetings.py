"""Ranks of a gang as their launcher starts them, without an agent; and strangers who connect to rank 0."""

import os
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from federator.wire.jobfile import read_job
from tests.support.waiting import PATIENCE_S

SECRET = "5" * 64
OTHER = "6" * 64
JUNK = b"x" * (1 << 20)


def program(framework: str, run: str, limits: str = "10, 5") -> list[str]:
    """What each rank runs. `limits`: for the meeting, and for a proof."""
    spec = read_job({"run": run, "nodes": 2, "framework": framework}, now=0.0).spec
    python, option, text, *words = spec.launch or ()
    changed = text.replace("MEET_S, PROVE_S = 300, 10", f"MEET_S, PROVE_S = {limits}")
    assert changed != text
    return [python, option, changed, *words]


class Gang:
    """Two ranks of one host that run a command by a framework; for `mpi` with a stand-in for mpirun that starts one on rank 1."""

    def __init__(self, folder: Path, framework: str = "mpi", run: str = "train") -> None:
        self.folder = folder
        self.framework, self.run = framework, run
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.place = ("127.0.0.1", self.port)
        self.running: list[subprocess.Popen[str]] = []

    def variables(self, rank: int, secret: str) -> dict[str, str]:
        return {
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.port),
            "FEDERATOR_NODE_RANK": str(rank),
            "FEDERATOR_NUM_NODES": "2",
            "FEDERATOR_GPUS_PER_NODE": "0",
        } | ({"FEDERATOR_GANG_SECRET": secret} if secret else {})

    def starts(self, command: str) -> None:
        """What mpirun starts on rank 1; it ends with its code."""
        (self.folder / "remote").write_text(command)
        mpirun = self.folder / "mpirun"
        mpirun.write_text(
            f'#!/bin/sh\n[ "$1" != --version ] || exit 0\nexec "$PRTE_MCA_plm_ssh_agent" -x rank-1 sh {self.folder}/remote\n'
        )
        mpirun.chmod(0o755)

    def rank(self, rank: int, secret: str = SECRET, limits: str = "10, 5") -> subprocess.Popen[str]:
        found = subprocess.Popen(
            program(self.framework, self.run, limits),
            env=self.variables(rank, secret),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.running.append(found)
        return found

    def connect(self) -> socket.socket:
        """To rank 0, as soon as it listens."""
        for _ in range(200):
            with suppress(OSError):
                return socket.create_connection(self.place, 5)
            time.sleep(0.05)
        raise AssertionError("rank 0 does not listen")


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


def hung_up(connection: socket.socket) -> bool:
    """Whether the other side has ended it, or does within the socket's limit."""
    try:
        while connection.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


# Strangers ------------------------------------------------------------------------------------------------------------


def silent(connection: socket.socket) -> None:
    del connection


def junk(connection: socket.socket) -> None:
    connection.sendall(JUNK)


def impostor(connection: socket.socket) -> None:
    connection.sendall(b"0" * 64 + b' {"rank": 1, "host": "evil", "challenge": ""}\n')


def empty_proof(connection: socket.socket) -> None:
    connection.sendall(b"\n")


def not_ascii(connection: socket.socket) -> None:
    connection.sendall(b"\xff\xfe {}\n")


ATTACKS = (silent, junk, impostor, empty_proof, not_ascii)
