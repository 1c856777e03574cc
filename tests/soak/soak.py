"""A federation of real processes that works for some minutes, sixty times as fast as life, and is looked at every few seconds.

Jobs, gangs and rented machines come and go as in the storms of kills, only that nobody is killed. What has ended is dropped after a minute, so that
records, files and memory come to a level, which is the one to be watched.
"""

import asyncio
import sqlite3
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

from federator.cli.demo.federation import DISPATCHER
from federator.cli.demo.processes import Processes
from federator.cli.demo.world import Document
from tests.bench.measuring import child, resident_mb
from tests.kills.storm import Storm, Verdict
from tests.kills.world import POLICIES, SITES, SPEED, StormFederation
from tests.soak import counted
from tests.soak.growth import Sample

KEEP_S = 60.0
LOOK_S = 5.0
FEED_S = 1.0
"""Real seconds."""
LOG_TAIL = 20_000
"""Characters."""


class CountedProcesses(Processes):
    """Each writes down how many tasks it has."""

    def start(
        self, name: str, module: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[bytes]":
        """As any process."""
        return super().start(
            name, counted.__name__, [str(_tasks_file(self.folder, name)), module, *arguments], environment
        )


class SoakFederation(StormFederation):
    """One that keeps nothing for long."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.processes = CountedProcesses(folder)

    def _settings(self) -> Document:
        settings = super()._settings()
        keep_s = KEEP_S * SPEED
        settings["retention"] |= {
            "promised_s": keep_s,
            "jobs_s": keep_s,
            "recent_jobs": 0,
            "ledger_s": keep_s,
            "decisions_s": keep_s,
            "unused_blob_s": keep_s,
        }
        return settings


class Soak(Storm):
    """A storm without kills."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, seed)
        self.federation = SoakFederation(folder)
        self.samples: list[Sample] = []

    async def soak(self, for_s: float, say: Callable[[str], None]) -> Verdict:
        """Work and look for so many real seconds, then end everything."""
        federation = self.federation
        try:
            await federation.start_dispatcher()
            await federation.apply_policies(POLICIES)
            await federation.start_sites(SITES)
            until_s, look_s = time.monotonic() + for_s, 0.0
            while (now_s := time.monotonic()) < until_s:
                await self._feed()
                if now_s >= look_s:
                    look_s = now_s + LOOK_S
                    self.samples.append(await asyncio.to_thread(self._look))
                    if len(self.samples) % 12 == 0:
                        say(f"{len(self.nodes)} jobs; {_told(self.samples[-1])}")
                await asyncio.sleep(FEED_S)
        finally:
            await federation.end()
        self.verdict.jobs = len(self.nodes)
        return self.verdict

    def log_tail(self) -> str:
        """The end of what the dispatcher has written: the folder goes with the soak."""
        return self.federation.processes.log_file(DISPATCHER).read_text()[-LOG_TAIL:]

    def _look(self) -> Sample:
        """Memory, descriptors, threads, children and tasks of each process, and rows of the store by what they are of."""
        found: dict[str, float] = {}
        for name, process in self.federation.processes.started.items():
            found |= _of_process(name, process.pid)
            with suppress(FileNotFoundError):
                found[f"{name} tasks"] = float(_tasks_file(self.federation.folder, name).read_text())
        with suppress(LookupError, OSError):
            solver = child(self.federation.processes.started[DISPATCHER].pid, "federator.solving.worker")
            found |= _of_process("solver", solver)
        return found | _rows(self.federation.folder / "dispatcher" / "store.db")


def _tasks_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.tasks"


def _of_process(name: str, pid: int) -> dict[str, float]:
    root = Path(f"/proc/{pid}")
    threads = sum(1 for _ in (root / "task").iterdir())
    children = sum(len((task / "children").read_text().split()) for task in (root / "task").iterdir())
    return {
        f"{name} MB": resident_mb(pid),
        f"{name} descriptors": sum(1 for _ in (root / "fd").iterdir()),
        f"{name} threads": threads,
        f"{name} processes": children,
    }


def _rows(store: Path) -> dict[str, float]:
    """By the first word of their keys."""
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
        query = "SELECT substr(key, 1, instr(key, '/') - 1), count(*) FROM item GROUP BY 1"
        return {f"{kind or 'other'} rows": float(count) for kind, count in connection.execute(query)}


def _told(sample: Sample) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in sample.items() if name.startswith(DISPATCHER))
