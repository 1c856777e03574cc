"""A federation of real processes on a clock ten times as fast as life, each site behind a proxy of its own.

Judged is what the jobs themselves have written down, with the boot clock: when each attempt lived, was asked to end, and was last seen alive.
"""

import signal
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple, Self

import tests.kills.work
from federator.cli.demo.federation import DemoFederation
from federator.client.jobs import JobFilter
from federator.model.jobs import JobStatus
from federator.wire.http import JobRow
from federator_agent.local.watchdog import read_renewal
from tests.kills.judge import Attempt, read_attempts
from tests.partitions.proxy import Proxy
from tests.support.waiting import until

SPEED = 10.0
GRACE_S = 2.0
STOP_WITHIN_S = 8.0
MARGIN_S = 3.0
"""Real seconds: 20 s of grace, 80 s of stop_within and the margin of 30 s, ten times as fast."""
SLACK_S = 2.0
"""Of a loaded machine: how late in real seconds a process may do what it does on time. Less than the margin: whoever is later than that may
meet who replaces him."""
BEAT = Path(tests.kills.work.__path__[0]) / "beat.py"
POLICIES = """
apiVersion: federator/v1
kind: Queue
metadata: {name: default}
spec: {max_duration: 60m}
"""


class Trace(NamedTuple):
    """One attempt as it wrote itself down. Real seconds of the boot clock."""

    first_s: float
    last_s: float
    asked_s: float | None


class World:
    """The federation; `proxies` by site."""

    def __init__(self, folder: Path) -> None:
        self.federation = DemoFederation(folder, SPEED)
        self.journal = folder / "journal"
        self.proxies: dict[str, Proxy] = {}
        self.jobs: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        self.journal.mkdir(parents=True)
        await self.federation.start_dispatcher()
        await self.federation.apply_policies(POLICIES)
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self.federation.processes.started.values():
            process.send_signal(signal.SIGCONT)
        await self.federation.end()
        for proxy in self.proxies.values():
            await proxy.close()

    async def add_site(self, name: str) -> None:
        """A site of one host whose agent dials its own proxy."""
        port = int(self.federation.server.rpartition(":")[2])
        self.proxies[name] = Proxy(port)
        pool = {"name": "main", "model": "A100", "nodes": 1, "gpus_per_node": 8, "cpus_per_node": 64}
        address = await self.proxies[name].start()
        await self.federation.start_sites(
            [{"site": name, "kind": "onprem", "pools": [pool], "dispatcher": address}]
        )

    async def submit(self, site: str, run_s: float, *, stubborn: bool = False, **fields: Any) -> None:
        """A job that is to start at `site` (as long as there is no other) and then at `spare`. `stubborn`: it does not end when asked."""
        words = [sys.executable, str(BEAT), str(self.journal), str(run_s)] + ["stubborn"] * stubborn
        job = {
            "name": site,
            "command": words,
            "resources": {"gpus": 1},
            "placement": {"sites": [site, "spare"]},
            "checkpoint": {"grace": f"{GRACE_S * SPEED:g}s"},
            "on_disconnect": {"stop_within": f"{STOP_WITHIN_S * SPEED:g}s"},
            **fields,
        }
        self.jobs[site] = (await self.federation.admin.submit(job)).jobs[0]

    async def settled(self, *sites: str) -> None:
        """Return when the jobs of these sites run and the dispatcher knows it."""
        await self.running(*sites)

        async def known() -> bool:
            return all([(await self.row(site)).status == JobStatus.RUNNING for site in sites])

        await until(known, "all jobs to be known to run")

    async def row(self, site: str) -> JobRow:
        """The job that was started there, as the dispatcher has it."""
        return {row.id: row for row in (await self.federation.admin.jobs(JobFilter())).jobs}[self.jobs[site]]

    def attempts(self) -> list[Attempt]:
        """All attempts of all jobs."""
        return read_attempts(self.journal)

    def traces(self, site: str) -> list[Trace]:
        """The attempts of the job that was started there, oldest first."""
        found = []
        for path in self.journal.glob(f"{self.jobs[site]}.*"):
            lines = [line.split() for line in path.read_text().splitlines()]
            times = [float(line[1]) for line in lines if len(line) == 2]
            asked = next((float(line[1]) for line in lines if line[0] in ("stopped", "asked")), None)
            if times:
                found.append(Trace(min(times), max(times), asked))
        return sorted(found)

    def renewed_s(self, site: str) -> float:
        """When the agent sent the last renewal that it has an answer to."""
        renewed_s = read_renewal(self.federation.folder / "agents" / site / "renewed")
        assert renewed_s is not None
        return renewed_s

    async def running(self, *sites: str) -> None:
        """Return when the jobs of these sites have written their first line."""
        await until(lambda: all(self.traces(site) for site in sites), "all jobs to run")


def boot_s() -> float:
    """The boot clock, in real seconds."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
