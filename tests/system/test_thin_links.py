"""A site behind a satellite, on real processes: a job with inputs and outputs runs, its log arrives, and what is cut goes on."""

import random
from pathlib import Path
from typing import Any

import pytest

from federator.model.jobs import JobStatus
from federator.wire.http import MemberRow
from tests.partitions.satellite import Satellite
from tests.partitions.world import SPEED, World
from tests.support.waiting import until

pytestmark = pytest.mark.system

INPUT_BYTES, OUTPUT_BYTES = 400_000, 500_000
"""Of noise, which no gzip makes smaller: a quarter of a minute of that link each, at its rate."""


async def a_site(world: World, **link: Any) -> Satellite:
    """One of one host, behind a satellite."""
    satellite = Satellite(int(world.federation.server.rpartition(":")[2]), SPEED)
    world.proxies["ship"] = satellite
    pool = {"name": "main", "model": "A100", "nodes": 1, "gpus_per_node": 8, "cpus_per_node": 64}
    site = {"site": "ship", "kind": "edge", "pools": [pool], "dispatcher": await satellite.start()}
    await world.federation.start_sites([{**site, **({"link": link} if link else {})}])
    return satellite


async def test_a_job_over_a_satellite(tmp_path: Path) -> None:
    async with World(tmp_path / "world") as world:
        satellite = await a_site(world, budget="2MiB", bulk={"rate": "24KiB"})
        admin = world.federation.admin
        folder = tmp_path / "work"
        folder.mkdir()
        (folder / "data").write_bytes(random.Random(3).randbytes(INPUT_BYTES))
        workdir = f"sha256:{(await admin.upload(folder)).hash}"
        command = f"wc -c <data; head -c {OUTPUT_BYTES} /dev/urandom >result; echo over"
        job = {
            "name": "ship", "run": command, "workdir": workdir, "outputs": ["result"], "resources": {"gpus": 1},
        }  # fmt: skip
        world.jobs["ship"] = (await admin.submit(job)).jobs[0]

        async def status() -> JobStatus:
            return JobStatus((await world.row("ship")).status)

        begun = dict(satellite.moved)
        await until(
            lambda: satellite.moved["down"] > begun.get("down", 0) + INPUT_BYTES // 2, "half of the input"
        )
        satellite.sever()
        before = dict(satellite.moved)

        async def runs() -> bool:
            return await status() in (JobStatus.RUNNING, JobStatus.SUCCEEDED)

        await until(runs, "the job to run")
        assert satellite.moved["down"] - before["down"] < INPUT_BYTES * 0.75, (
            "what had come was not sent again"
        )
        began_up = satellite.moved["up"]
        await until(lambda: satellite.moved["up"] > began_up + OUTPUT_BYTES // 2, "half of the output")
        processes = world.federation.processes
        processes.kill("ship")
        world.federation.kill_dispatcher()
        satellite.sever()
        before = dict(satellite.moved)
        await world.federation.start_dispatcher()
        config = str(world.federation.folder / "sites" / "ship.yaml")
        processes.start("ship", "federator_agent", ["serve", "--config", config])

        async def over() -> bool:
            return await status() is JobStatus.SUCCEEDED

        await until(over, "the job to end")
        assert satellite.moved["up"] - before["up"] < OUTPUT_BYTES * 0.75
        log = b"".join([part async for part in admin.logs(world.jobs["ship"])]).decode()
        assert log.split() == [str(INPUT_BYTES), "over"]

        async def told() -> bool:
            state = (await host(world)).link
            return state is not None and {"reports", "logs", "bulk"} == {each.kind for each in state.hour}

        await until(told, "the state of the link")
        state = (await host(world)).link
        assert state is not None
        assert state.budget == 2 * 2**20
        assert state.round_trip_s is not None
        assert state.round_trip_s >= 0.6


async def host(world: World) -> MemberRow:
    """What the dispatcher tells of the site's only one."""
    (found,) = (await world.federation.admin.site("ship")).hosts
    return found
