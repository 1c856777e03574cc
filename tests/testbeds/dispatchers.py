"""Several dispatchers on one etcd cluster, and a site: real processes, each of which a test may kill, stop, go on with, or cut off from etcd.

Judged is by what the jobs have written down themselves, and by what clients are answered that are given all addresses.
"""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import aiohttp
import msgspec

import tests.kills.work
from federator.cli.demo.processes import Processes
from federator.client import AsyncClient
from federator.client.jobs import JobFilter
from federator.settings import S3Settings
from federator.wire.http import TokenRequest
from tests.kills.judge import judge, read_attempts
from tests.partitions.proxy import Proxy
from tests.testbeds.etcd import EtcdCluster
from tests.testbeds.ports import free_ports

TERM_S = 3.0
MARGIN_S = 1.0
READY_S = 60.0
BEAT = Path(tests.kills.work.__path__[0]) / "beat.py"


class Dispatchers:
    """`names`: one dispatcher each. Those in `proxied` reach etcd through proxies of their own. `etcd`: settings of the store beyond or instead of quick ones. Without a cluster there is one, with the embedded store. `s3`: the bucket that they have in place of a folder."""

    def __init__(
        self,
        folder: Path,
        cluster: EtcdCluster | None,
        names: str = "ab",
        proxied: str = "",
        etcd: Mapping[str, object] = MappingProxyType({}),
        s3: S3Settings | None = None,
    ) -> None:
        self.folder = folder
        self._etcd = etcd
        self._s3 = s3
        folder.mkdir(parents=True, exist_ok=True)
        self.cluster = cluster
        self.journal = folder / "journal"
        self.journal.mkdir()
        self.processes = Processes(folder)
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.proxies: dict[str, list[Proxy]] = {name: [] for name in proxied}
        self.nodes: dict[str, int] = {}
        """Acknowledged jobs, and how many ranks each has."""
        self.admin = AsyncClient(self.urls, patience_s=READY_S)
        self.token = ""
        self._http: aiohttp.ClientSession

    def url(self, name: str) -> str:
        """Where this dispatcher listens."""
        return f"http://127.0.0.1:{self.ports[name]}"

    @property
    def urls(self) -> str:
        """All addresses, as users and agents are given them."""
        return ",".join(map(self.url, self.ports))

    @property
    def urls_of_site(self) -> str:
        """The addresses that the site is given."""
        return self.urls

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20))
        try:
            await self._begin()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def _begin(self) -> None:
        for name in self.ports:
            await self._write_settings(name)
        first, *others = self.ports
        self.start(first)
        await self.until(lambda: self.leads(first), "the first leads")
        for name in others:
            self.start(name)
        self.token = (self.folder / first / "admin.token").read_text().strip()
        self.admin = AsyncClient(self.urls, self.token, patience_s=READY_S)
        await self._start_site()

    async def __aexit__(self, *_: object) -> None:
        for process in self.processes.started.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
        await self.admin.close()
        await self._http.close()
        await asyncio.to_thread(self.processes.end_all)
        for process in self.processes.started.values():
            process.wait()
        for proxies in self.proxies.values():
            for proxy in proxies:
                await proxy.close()

    def start(self, name: str) -> None:
        """Start this dispatcher, for the first time or again."""
        config = str(self.folder / f"{name}.yaml")
        if name in self.processes.started:
            self.processes.started[name].wait()
        self.processes.start(name, "federator", ["serve", "--config", config])

    def run(self, *words: str) -> str:
        """Run `federator` to its end; what it printed. Fails the test if it fails."""
        command = [sys.executable, "-m", "federator", *words]
        done = subprocess.run(
            command, env=self.processes.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send this dispatcher a signal."""
        self.processes.started[name].send_signal(number)

    def cut(self, name: str) -> None:
        """Hold back all that goes between this dispatcher and etcd."""
        for proxy in self.proxies[name]:
            proxy.cut()

    def heal(self, name: str) -> None:
        """Let it through again, what was held back too."""
        for proxy in self.proxies[name]:
            proxy.open()

    def said(self, name: str) -> str:
        """What this dispatcher has logged."""
        return self.processes.log_file(name).read_text(errors="replace")

    async def leads(self, name: str) -> bool:
        """Whether it says that it is ready."""
        try:
            async with self._http.get(f"{self.url(name)}/readyz") as answer:
                return answer.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    async def leader(self, *, but: str = "") -> str:
        """Who leads, once somebody does (of those but one)."""
        found = ""

        async def look() -> bool:
            nonlocal found
            for name in self.ports:
                if name != but and await self.leads(name):
                    found = name
            return bool(found)

        await self.until(look, "somebody leads")
        return found

    async def ask(self, name: str, method: str, path: str, **options: Any) -> tuple[int, dict[str, Any]]:
        """One request to this very dispatcher."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        async with self._http.request(method, self.url(name) + path, headers=headers, **options) as answer:
            return answer.status, await answer.json(content_type=None)

    async def fetch(self, name: str, path: str) -> tuple[int, bytes]:
        """What this very dispatcher answers, as it is."""
        headers = {"Authorization": f"Bearer {self.token}"}
        async with self._http.get(self.url(name) + path, headers=headers) as answer:
            return answer.status, await answer.read()

    async def submit(self, run_s: float, **fields: Any) -> str:
        """A job that writes down that it lives; acknowledged, so it counts."""
        job = self.job(run_s, **fields)
        submitted = (await self.admin.submit(job)).jobs[0]
        self.nodes[submitted] = 1
        return submitted

    def job(self, run_s: float, **fields: Any) -> dict[str, Any]:
        """Its file."""
        command = [sys.executable, str(BEAT), str(self.journal), f"{run_s:g}"]
        return {"name": "beat", "command": command, "resources": {"gpus": 1}, **fields}

    async def until(
        self, holds: Callable[[], bool | Awaitable[bool]], what: str, limit_s: float = READY_S
    ) -> float:
        """Wait; how long it took. Fails the test when it takes too long."""
        started_s = time.monotonic()
        while True:
            held = holds()
            if held if isinstance(held, bool) else await held:
                return time.monotonic() - started_s
            assert time.monotonic() < started_s + limit_s, f"not in time: {what}"
            await asyncio.sleep(0.05)

    async def running(self, *jobs: str) -> None:
        """Return when each of them has written that it lives."""
        await self.until(lambda: {a.job for a in read_attempts(self.journal)} >= set(jobs), "they run")

    async def faults(self) -> list[str]:
        """Wait until everything acknowledged is over, and judge."""

        async def over() -> bool:
            page = await self.admin.jobs(JobFilter(status="SUCCEEDED,FAILED,CANCELLED"))
            return page.total >= len(self.nodes)

        await self.until(over, "all jobs are over")
        rows = {row.id: row async for row in self.admin.all_jobs()}
        history = {job: await self.admin.history(job) for job in self.nodes}
        unknown = [f"{job} was never acknowledged" for job in rows.keys() - self.nodes.keys()]
        return judge(self.nodes, rows, history, read_attempts(self.journal), self.nodes) + unknown

    def placements(self, job: str) -> set[str]:
        """The attempts of a job that ever lived."""
        return {attempt.placement for attempt in read_attempts(self.journal) if attempt.job == job}

    async def _etcd_settings(self, name: str) -> dict[str, object] | None:
        if self.cluster is None:
            return None
        endpoints = list(self.cluster.endpoints)
        if name in self.proxies:
            self.proxies[name] = [Proxy(ports.client) for ports in self.cluster.ports]
            endpoints = [await proxy.start() for proxy in self.proxies[name]]
        return {
            "endpoints": endpoints,
            "shared_dir": "" if self._s3 else str(self.folder / "shared"),
            "term_s": TERM_S,
            "margin_s": MARGIN_S,
            "patience_s": 2.5,
        } | dict(self._etcd)

    async def _write_settings(self, name: str) -> None:
        etcd = await self._etcd_settings(name)
        settings = {
            "state_dir": str(self.folder / name),
            "server": {"port": self.ports[name]},
            "store": {"etcd": etcd, "s3": msgspec.to_builtins(self._s3)},
            "link": {"report_every_s": 0.5},
            "ledger": {"export": [f"file://{self.folder}/ledger.jsonl"]},
        }
        (self.folder / f"{name}.yaml").write_text(json.dumps(settings))

    async def _start_site(self) -> None:
        config = self.folder / "site.yaml"
        pool = {"name": "main", "model": "A100", "nodes": 1, "gpus_per_node": 8, "cpus_per_node": 64}
        token = await self.admin.create_token(TokenRequest(site="lab", kind="onprem"))
        site = {
            "site": "lab",
            "kind": "onprem",
            "pools": [pool],
            "dispatcher": self.urls_of_site,
            "state_dir": str(self.folder / "agent"),
            "report_every": "0.5s",
        }
        config.write_text(json.dumps(site))
        join = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "federator_agent", "join", "--config", str(config), "--token", "-",
            env=self.processes.environment, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        await join.communicate(token.secret.encode())
        assert join.returncode == 0
        self.processes.start("lab", "federator_agent", ["serve", "--config", str(config)])
        await self.until(self.site_ready, "the site is there")

    async def site_ready(self) -> bool:
        """Whether the leader hears the site."""
        return any(row.status == "READY" and row.age_s is not None for row in await self.admin.sites())
