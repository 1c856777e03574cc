"""A site behind a satellite, on real processes and the kernel's own connections: jobs run, what is cut goes on, and what is told of the link is true."""

import asyncio
import contextlib
import json
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from federator.cli.demo.processes import Processes
from federator.client import AsyncClient
from federator.model.jobs import JobStatus
from federator.wire.http import MemberRow, TokenRequest
from tests.support.fleet import Dispatcher
from tests.support.thin_link import NEAR, Satellite, ThinLink
from tests.support.waiting import until

pytestmark = pytest.mark.system

SPEED = 10.0
INPUT_BYTES, OUTPUT_BYTES, LOG_BYTES = 400_000, 2_000_000, 4_000_000
"""Of noise, which no gzip makes smaller."""
SLOW_BYTES = 150_000
BUDGET_BYTES = 2**20
TOLD = 0.8
"""At least so much of what the link has carried is in `site show`: without heads of packets, acknowledgements and what was sent twice."""
PORT = 7070
"""In a namespace of its own each is free."""


class Ship:
    """A dispatcher here, and a site of one host with a real agent beyond the link."""

    def __init__(self, folder: Path, link: ThinLink, speed: float) -> None:
        self.link = link
        self.clock = f"scaled:{speed:g}@{time.time():.3f}"
        server = {"host": "0.0.0.0", "port": PORT, "insecure": True, "advertise": f"http://127.0.0.1:{PORT}"}
        (folder / "centre").mkdir(parents=True)
        self.dispatcher = Dispatcher(
            folder / "centre", server=server, clock=self.clock, link={"report_every_s": 5.0}
        )
        self.folder = folder
        self.processes = Processes(folder)

    async def join(self) -> None:
        """As an administrator does it there, with a one-time token."""
        await self.dispatcher.start()
        self.admin = AsyncClient(self.dispatcher.url, self.dispatcher.token)
        token = await self.admin.create_token(TokenRequest(site="ship", kind="edge"))
        site = {
            "site": "ship", "kind": "edge", "dispatcher": f"http://{NEAR}:{PORT}", "state_dir": str(self.folder / "agent"),
            "clock": self.clock, "pools": [{"name": "main", "nodes": 1, "cpus_per_node": 4}], "link": {"budget": "1MiB"},
            "data_networks": [f"{NEAR}/32"],
        }  # fmt: skip
        (self.folder / "site.yaml").write_text(json.dumps(site))
        self.serve("join", "--token", token.secret)
        assert await asyncio.to_thread(self.processes.started["join"].wait, 60) == 0
        self.began = self.link.carried
        self.serve("serve")

    def serve(self, verb: str, *words: str) -> None:
        """A verb of the agent, on the far side."""
        with self.link.far():
            self.processes.start(
                verb, "federator_agent", [verb, "--config", str(self.folder / "site.yaml"), *words]
            )

    def carried(self) -> tuple[int, int]:
        """Bytes up and down since the agent began to serve."""
        now = self.link.carried
        return now.up - self.began.up, now.down - self.began.down

    async def submit(self, run: str, **fields: Any) -> str:
        """A job there; its id."""
        return (await self.admin.submit({"name": "ship", "run": run, **fields})).jobs[0]

    async def until_status(self, job: str, *wanted: JobStatus) -> None:
        """Wait for it."""

        async def reached() -> bool:
            return JobStatus((await self.admin.job(job)).job.status) in wanted

        await until(reached, f"{job} to be {wanted}")

    async def log(self, job: str) -> str:
        """What it has written, as far as it has come home."""
        return b"".join([part async for part in self.admin.logs(job)]).decode()

    async def host(self) -> MemberRow:
        """What the dispatcher tells of the site's only one."""
        (found,) = (await self.admin.site("ship")).hosts
        return found

    def written(self, side: str, files: str) -> int:
        """Bytes of the largest of some files there: what is in one outlives whoever wrote it."""
        sizes = [0]
        for each in (self.folder / side).rglob(files):
            with contextlib.suppress(FileNotFoundError):
                sizes.append(each.stat().st_size)
        return max(sizes)

    async def told_bytes(self) -> int:
        """What the agent says of its link."""
        state = (await self.host()).link
        return sum(each.sent + each.received for each in state.hour) if state else 0

    async def end(self) -> None:
        """Leave nothing behind."""
        await self.admin.close()
        self.processes.end_all()
        for process in self.processes.started.values():
            process.wait()
        self.dispatcher.end()


@pytest.fixture
async def ship(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Ship]:
    speed = getattr(request, "param", SPEED)
    with ThinLink(tmp_path, Satellite(speed)) as link:
        made = Ship(tmp_path / "world", link, speed)
        await made.join()
        yield made
        await made.end()


async def test_a_job_over_a_satellite(ship: Ship, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "data").write_bytes(random.Random(3).randbytes(INPUT_BYTES))
    workdir = f"sha256:{(await ship.admin.upload(tmp_path / 'work')).hash}"
    command = f"wc -c <data; head -c {OUTPUT_BYTES} /dev/urandom >result; echo over"
    job = await ship.submit(command, workdir=workdir, outputs=["result"])
    await until(lambda: ship.written("agent", ".*.new") > INPUT_BYTES // 2, "half of the input")
    ship.processes.kill("serve")
    before = ship.link.carried
    ship.serve("serve")
    await ship.until_status(job, JobStatus.RUNNING, JobStatus.SUCCEEDED)
    assert ship.link.carried.down - before.down < INPUT_BYTES * 0.75, "what had come was not sent again"
    await until(lambda: ship.written("centre", "outputs-*/*.log") > OUTPUT_BYTES // 2, "half of the output")
    ship.processes.kill("serve")
    ship.dispatcher.kill()
    before = ship.link.carried
    await ship.dispatcher.start()
    ship.serve("serve")
    await ship.until_status(job, JobStatus.SUCCEEDED)
    assert ship.link.carried.up - before.up < OUTPUT_BYTES * 0.75
    assert (await ship.log(job)).split() == [str(INPUT_BYTES), "over"]

    assert ship.link.carried.lost


@pytest.mark.parametrize("ship", [1.0], indirect=True)
async def test_a_small_job_as_slowly_as_life(ship: Ship, tmp_path: Path) -> None:
    """600 ms, one packet in a hundred lost and 256 kbit/s, with the kernel's own time-outs."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "data").write_bytes(random.Random(3).randbytes(SLOW_BYTES))
    workdir = f"sha256:{(await ship.admin.upload(tmp_path / 'work')).hash}"
    job = await ship.submit("cp data result; echo over", workdir=workdir, outputs=["result"])
    await ship.until_status(job, JobStatus.SUCCEEDED)
    assert (await ship.log(job)).split() == ["over"]
    up, down = ship.carried()
    assert SLOW_BYTES < up < 2 * SLOW_BYTES
    assert SLOW_BYTES < down < 2 * SLOW_BYTES


@pytest.fixture
async def data(ship: Ship) -> AsyncIterator[str]:
    """The address of a file of a web server on the near side."""
    del ship  # its namespace
    content = random.Random(4).randbytes(OUTPUT_BYTES)

    async def answer(request: web.Request) -> web.Response:
        del request
        return web.Response(body=content)

    application = web.Application()
    application.router.add_get("/data", answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, NEAR, 0).start()
    yield f"http://{NEAR}:{runner.addresses[0][1]}/data"
    await runner.cleanup()


async def test_what_a_site_tells_of_its_link_agrees_with_what_that_has_carried(ship: Ship, data: str) -> None:
    """Its budget of an hour holds by the link's own count, with a log that is four times as long. An input that does not come from the dispatcher counts as well."""
    job = await ship.submit(f"head -c {LOG_BYTES * 3 // 4} /dev/urandom | base64; echo over")
    await ship.until_status(job, JobStatus.SUCCEEDED)
    log = await ship.log(job)
    assert log.endswith("over\n")
    assert "left out" in log
    assert sum(ship.carried()) < BUDGET_BYTES
    run = f"head -c {OUTPUT_BYTES} /dev/urandom >result"
    job = await ship.submit(run, outputs=["result"], inputs=[data])
    await ship.until_status(job, JobStatus.SUCCEEDED)

    async def told() -> int:
        found = await ship.told_bytes()
        return found if found > 2 * OUTPUT_BYTES else 0

    told_bytes = await until(told, "the bytes of the link")
    carried = sum(ship.carried())
    assert TOLD * carried <= told_bytes <= carried
    state = (await ship.host()).link
    assert state is not None
    assert (state.round_trip_s or 0) >= 0.6
