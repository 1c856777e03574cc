"""A real dispatcher and a real agent with eight declared GPUs, for the whole of this folder's tests."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.waiting import PATIENCE_S, wait_until

SITE = """
site: north
kind: onprem
dispatcher: {address}
state_dir: {folder}/agent
report_every: 1s
pools: [{{name: a100, model: A100, gpu_memory: 80GB, nodes: 2, gpus_per_node: 4, cpus_per_node: 8, memory_per_node: 64GiB}}]
"""


class Federation(NamedTuple):
    """Where it runs, and the environment of somebody who uses it from the same machine."""

    folder: Path
    environ: dict[str, str]
    processes: "list[subprocess.Popen[bytes]]"
    """The dispatcher and the agent."""

    def serve(self, *words: str) -> "subprocess.Popen[bytes]":
        """Start a process of the federation itself."""
        with (self.folder / "log").open("a") as log:
            command = [sys.executable, "-m", *words]
            return subprocess.Popen(command, env=self.environ, stdout=log, stderr=log)

    def restart(self) -> None:
        """End the dispatcher, and start it again where it was."""
        address = self.folder / "state/address"
        port = address.read_text().strip().rpartition(":")[2]
        self.processes[0].terminate()
        self.processes[0].wait(PATIENCE_S)
        address.unlink(missing_ok=True)
        self.processes[0] = self.serve("federator", "serve", "--port", port)
        wait_until(address.exists, "the dispatcher to be back")
        wait_until(lambda: "READY" in self.run("sites").stdout, "the agent to be back")

    def start(self, *words: str, cwd: Path | None = None) -> "subprocess.Popen[str]":
        """Start `federator` with these words."""
        command = [sys.executable, "-m", "federator", *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=self.environ, cwd=cwd, text=True, stdout=pipe, stderr=pipe)

    def run(self, *words: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
        """Run `federator` with these words to its end."""
        process = self.start(*words, cwd=cwd)
        out, err = process.communicate(timeout=PATIENCE_S)
        return subprocess.CompletedProcess(words, process.returncode, out, err)


@pytest.fixture(scope="session")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    folder = tmp_path_factory.mktemp("federation")
    ours = ("FEDERATOR_", "XDG_CONFIG_HOME")
    environ = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    environ |= {
        "HOME": str(folder),
        "FEDERATOR_STATE_DIR": str(folder / "state"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    running = Federation(folder, environ, [])
    try:
        running.processes.append(running.serve("federator", "serve", "--port", "0"))
        wait_until((folder / "state/address").exists, "the dispatcher")
        _join(running)
        site = str(folder / "site.yaml")
        running.processes.append(running.serve("federator_agent", "serve", "--config", site))
        wait_until(lambda: "READY" in running.run("sites").stdout, "the agent")
        yield running
    finally:
        for process in reversed(running.processes):
            process.terminate()
        for process in running.processes:
            process.wait(PATIENCE_S)


def _join(federation: Federation) -> None:
    folder = federation.folder
    address = (folder / "state/address").read_text().strip()
    (folder / "site.yaml").write_text(SITE.format(address=address, folder=folder))
    token = federation.run("token", "create", "--site", "north", "--kind", "onprem").stdout.strip()
    command = [
        sys.executable,
        "-m",
        "federator_agent",
        "join",
        "--config",
        str(folder / "site.yaml"),
        "--token",
        token,
    ]
    subprocess.run(command, env=federation.environ, check=True, capture_output=True, timeout=PATIENCE_S)
