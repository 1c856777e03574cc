"""Real processes: started in sessions of their own, found again by the folder that they belong to, and all ended in the end.

Whoever starts a process here marks its environment with the folder of the demonstration; its children inherit the mark, jobs and rented
machines carry a path below the folder in variables of their own. So everything that belongs to a demonstration can be found from
`/proc` alone, by this process or a later one, also what has lost its parent, and nothing else is ever touched.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from federator.kernel.processes import environment_of

MARK = "FEDERATOR_DEMO_DIR"
TRACES = ("FEDERATOR_INSTANCE_DIR", "FEDERATOR_CHECKPOINT_DIR", "DEMO_JOURNAL")
"""Variables whose value lies below the folder: of rented machines, of jobs, of their set-up."""
PLACEMENT = "FEDERATOR_PLACEMENT_ID"
TERM_S = 8.0
"""How long processes have to end when asked to, before they are killed."""
PAUSE_S = 0.05


class RunningRank(NamedTuple):
    """One rank of one attempt of one job."""

    job: str
    placement: str
    rank: str


class Processes:
    """The processes of one demonstration. `folder` is the mark by which they are known."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: dict[str, subprocess.Popen[bytes]] = {}

    def start(
        self, name: str, module: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Run one of our programs in the background; what it prints goes to `logs/NAME.log`."""
        with self.log_file(name).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=self.folder,
                env=self.environment | dict(environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.started[name] = process
        return process

    def log_file(self, name: str) -> Path:
        """Where a process writes."""
        folder = self.folder / "logs"
        folder.mkdir(exist_ok=True)
        return folder / f"{name}.log"

    @property
    def environment(self) -> dict[str, str]:
        """Ours without what would make a process look at another federation, or an agent at this host's GPUs; jobs find this interpreter's programs first."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("FEDERATOR_")}
        programs = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', os.defpath)}"
        return kept | {
            MARK: str(self.folder),
            "PATH": programs,
            "FEDERATOR_NO_GPU_WATCH": "1",
            "FEDERATOR_ISOLATION": "shared",
        }

    def kill(self, name: str) -> int:
        """kill -9; returns the pid once the process is gone."""
        process = self.started[name]
        process.kill()
        process.wait()
        return process.pid

    def ended(self) -> list[str]:
        """Names of what was started here and has ended by itself."""
        return [name for name, process in self.started.items() if process.poll() is not None]

    def living(self) -> dict[int, dict[str, str]]:
        """Environments, by pid, of all living processes that belong to the folder; never our own."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                environment = _environment(int(entry.name))
                if self._is_ours(environment):
                    found[int(entry.name)] = environment
        return found

    def ranks(self) -> set[RunningRank]:
        """The ranks of jobs that have a living process now, wherever they run."""
        return {
            RunningRank(
                environment["FEDERATOR_JOB_ID"],
                environment[PLACEMENT],
                environment.get("FEDERATOR_NODE_RANK", ""),
            )
            for environment in self.living().values()
            if PLACEMENT in environment
        }

    def end_all(self) -> int:
        """End everything: what we started, in good order; whatever is left then, by force. Returns how many had to be killed."""
        for pid, environment in self.living().items():
            if environment.get(MARK) == str(self.folder):
                _signal(pid, signal.SIGTERM)
        until = time.monotonic() + TERM_S
        while time.monotonic() < until and self._marked():
            time.sleep(PAUSE_S)
        killed: set[int] = set()
        while left := set(self.living()):
            for pid in left:
                _signal(pid, signal.SIGKILL)
            killed |= left
            self.ended()
            time.sleep(PAUSE_S)
        return len(killed)

    def _marked(self) -> bool:
        """Whether anything that we started is left; collects what has ended."""
        self.ended()
        return any(environment.get(MARK) == str(self.folder) for environment in self.living().values())

    def _is_ours(self, environment: Mapping[str, str]) -> bool:
        below = f"{self.folder}{os.sep}"
        return environment.get(MARK) == str(self.folder) or any(
            environment.get(name, "").startswith(below) for name in TRACES
        )


def _environment(pid: int) -> dict[str, str]:
    """The environment that a process started with; empty for one that is over, or not ours to see."""
    pairs = (entry.partition("=") for entry in environment_of(pid).decode(errors="replace").split("\0"))
    return {key: value for key, _, value in pairs if key}


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return
