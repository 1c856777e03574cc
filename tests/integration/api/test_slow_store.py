"""A store that takes its time for every commit, under a whole dispatcher with real links: everything waits for it and nothing breaks."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestServer

from federator.api.server import build_app
from federator.client import AsyncClient
from federator.kernel.clock import SystemClock
from federator.model.sites import SiteStatus
from federator.settings import LinkSettings
from federator.store.sqlite import SqliteStore
from tests.support.dispatch import World, make_world
from tests.support.fleet import Fleet
from tests.support.waiting import until

AGENTS = 5
JOBS = 40
SLOW_S = (0.2, 1.0)
"""What a commit takes, in real seconds: anything in between."""
REPORT_S = 0.5
SILENT_S = 8.0
"""Silence after which a member is UNREACHABLE: longer than a commit, shorter than the commits of a round of statuses one by one."""


class Slow:
    """A dispatcher whose store can be made slow, and what was seen of it."""

    def __init__(self, world: World, store: SqliteStore, url: str, token: str) -> None:
        self.world = world
        self.url = url
        self.token = token
        self.commits = 0
        self.waiting = 0
        """The most transactions that ever waited for the store."""
        self.seen: set[SiteStatus] = set()
        self._slow = False
        self._writer = store.writer
        self._commit = store.writer.commit_batch
        store.writer.commit_batch = self._slowly  # type: ignore[method-assign]
        world.core.inventory.subscribe(self._look)

    def slow_down(self) -> None:
        """From now on."""
        self._slow = True

    def _slowly(self, batch: Any) -> Any:
        if self._slow:
            self.commits += 1
            self.waiting = max(self.waiting, self._writer.waiting.qsize())
            time.sleep(random.uniform(*SLOW_S))
        return self._commit(batch)

    def _look(self) -> None:
        self.seen |= {heard.status for heard in self.world.core.inventory.members.values()}


@pytest.fixture
async def slow(tmp_path: Path) -> AsyncIterator[Slow]:
    store = SqliteStore.open(tmp_path / "store.db", SystemClock())
    settings = LinkSettings(report_every_s=REPORT_S, unreachable_after_s=SILENT_S)
    world = await make_world(store, SystemClock(), link=settings)  # type: ignore[arg-type]
    await world.core.start()
    server = TestServer(build_app(world.core))
    await server.start_server()
    secrets: dict[str, str] = {}
    await world.core.admission.bootstrap_admin(lambda secret: secrets.update(root=secret))
    yield Slow(world, store, str(server.make_url("")).rstrip("/"), secrets["root"])
    await world.core.stop()
    await server.close()


async def test_a_slow_store_slows_everything_and_breaks_nothing(slow: Slow) -> None:
    async with Fleet(slow, slots=JOBS) as fleet, AsyncClient(slow.url, slow.token, patience_s=0.0) as people:
        await fleet.join(AGENTS)
        await until(lambda: fleet.linked == AGENTS, "the agents")
        slow.slow_down()

        async def submit(number: int) -> str:
            job = (await people.submit({"run": "true", "name": f"n{number}", "resources": {"cpus": 1}})).jobs[
                0
            ]
            assert await slow.world.core.records.store.get(f"job/{job}"), "acknowledged is durable"
            return job

        submitting = [asyncio.create_task(submit(number)) for number in range(JOBS)]
        reads = 0
        while not all(task.done() for task in submitting):
            await people.jobs()
            reads += 1
            await asyncio.sleep(0.02)
        jobs = await asyncio.gather(*submitting)
        assert reads > slow.commits, "who reads does not wait for the store"
        records = slow.world.core.records
        await until(lambda: all(records.jobs[job].terminal for job in jobs), "all to end")
        assert [records.jobs[job].status for job in jobs] == ["SUCCEEDED"] * JOBS
        assert slow.waiting <= 3 * JOBS, "what waits for the store is bounded by what goes on"
        assert slow.commits < 3 * JOBS, "what waits goes together"
        assert slow.seen <= {SiteStatus.JOINING, SiteStatus.READY}, "nobody was taken for dead"
        assert {len(agent.welcomes) for agent in fleet.agents} == {1}, "and every session has stayed"
