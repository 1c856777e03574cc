"""A store whose disk is full, read-only, slow or damaged, under a whole dispatcher: what is acknowledged is kept, everything else is refused with
the reason, and with the disk the dispatcher is well again, without anybody's help.

The faults are made in SQLite itself: `max_page_count` is a full disk to it, `query_only` a read-only one.
"""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp.test_utils import TestClient, TestServer

from federator.api.server import build_app
from federator.kernel.clock import SystemClock
from federator.kernel.errors import Damaged
from federator.model.jobs import JobStatus
from federator.store.sqlite import SqliteStore
from tests.integration.api.rig import Rig
from tests.support.dispatch import FakeSite, make_world
from tests.support.waiting import PATIENCE_S, until

PLENTY = 1_000_000


class Disk:
    """A dispatcher with all its loops over a store in a file, and what can happen to its disk."""

    def __init__(self, rig: Rig, store: SqliteStore, path: Path, site: FakeSite) -> None:
        self.rig = rig
        self.store = store
        self.path = path
        self.site = site
        self._pragma = store.writer.connection.execute

    def fill(self) -> None:
        (pages,) = self._pragma("PRAGMA page_count").fetchone()
        self._pragma(f"PRAGMA max_page_count = {pages}")

    def free(self) -> None:
        self._pragma(f"PRAGMA max_page_count = {PLENTY}")

    def protect(self, *, on: bool) -> None:
        self._pragma(f"PRAGMA query_only = {'ON' if on else 'OFF'}")

    async def stop(self) -> None:
        """Everything, once."""
        if self.rig.world.core.ready:
            await self.rig.client.close()
            await self.rig.world.core.stop()

    async def submit(self, **fields: Any) -> Any:
        return await self.rig.ask(
            "POST", "/v1/jobs", json={"run": "true", "resources": {"gpus": 1}, **fields}
        )

    async def placed(self, job: str) -> None:
        """Wait until the loops have given it a place."""

        def has_place() -> bool:
            self.site.report()
            return self.rig.world.job(job).status is not JobStatus.PENDING

        await until(has_place, f"a place for {job}")


@pytest.fixture
async def disk(tmp_path: Path) -> AsyncIterator[Disk]:
    path = tmp_path / "store.db"
    store = SqliteStore.open(path, SystemClock())
    world = await make_world(store, SystemClock())  # type: ignore[arg-type]
    site = await world.add_site("north", nodes=4, gpus=8)
    await world.core.start()
    client = TestClient(TestServer(build_app(world.core)))
    await client.start_server()
    rig = Rig(world, client)
    await rig.make_tokens()
    disk = Disk(rig, store, path, site)
    yield disk
    await disk.stop()


async def acknowledged(path: Path) -> set[str]:
    """The jobs in the file, as another process would find them."""
    store = SqliteStore.open(path, SystemClock())
    page = await store.range("job/", limit=10_000)
    await store.close()
    return {item.key.removeprefix("job/") for item in page.items}


async def test_a_full_disk_refuses_with_the_reason_and_is_over_by_itself(disk: Disk) -> None:
    kept = [(await disk.submit()).json()["jobs"][0]]
    await disk.placed(kept[0])
    disk.fill()
    refused = 0
    while refused < 3:  # what room is left inside the last page is used up first
        answer = await disk.submit(env={"PAD": "x" * 20_000})
        if answer.status == 201:
            kept += answer.json()["jobs"]
            continue
        assert answer.status == 503
        assert "is full" in answer.problem["detail"]
        assert answer.problem["remedy"] == "free space on it"
        assert int(answer.headers["Retry-After"]) >= 1
        refused += 1
    lines = b'{"run":"true","env":{"PAD":"' + b"x" * 20_000 + b'"}}\n'
    batch = await disk.rig.ask(
        "POST", "/v1/jobs", data=lines * 3, headers={"Content-Type": "application/x-ndjson"}
    )
    assert [msgspec.json.decode(line)["problem"]["status"] for line in batch.data.splitlines()] == [503] * 3
    assert (await disk.rig.ask("GET", "/v1/jobs")).status == 200, "it can still be read"
    assert (await disk.rig.ask("GET", f"/v1/jobs/{kept[0]}/events?follow=false")).status == 200
    assert set(disk.rig.world.core.records.jobs) == set(kept)
    await asyncio.sleep(0.5)  # the loops fail meanwhile, and wait
    disk.free()

    async def accepted() -> list[str]:
        answer = await disk.submit()
        return answer.json()["jobs"] if answer.status == 201 else []

    kept += await until(accepted, "the disk to be well again")
    for job in kept:
        await disk.placed(job)
    assert set(disk.rig.world.core.records.jobs) == set(kept)
    await disk.stop()
    assert await acknowledged(disk.path) == set(kept)


async def test_a_read_only_disk_is_told_from_a_full_one_and_statuses_wait_at_the_agent(disk: Disk) -> None:
    job = (await disk.submit()).json()["jobs"][0]
    await disk.placed(job)
    agent = await disk.rig.agent("south")
    disk.protect(on=True)
    answer = await disk.submit()
    assert answer.status == 503
    assert "is read-only" in answer.problem["detail"]
    for method, path, body in (
        ("DELETE", f"/v1/jobs/{job}", None),
        ("PATCH", f"/v1/jobs/{job}", {"priority": 10}),
        ("POST", "/v1/tokens", {"name": "new", "role": "user"}),
        ("POST", "/v1/burst/pause", None),
    ):
        refused = await disk.rig.ask(method, path, "root", json=body)
        assert refused.status == 503, path
    assert disk.rig.world.job(job).priority == 50
    assert agent.welcome is not None
    session = disk.rig.world.core.hub.session_of(agent.welcome.ticket)
    assert not session.ended.done(), "who says nothing new is left alone"
    disk.protect(on=False)
    assert (await disk.rig.ask("PATCH", f"/v1/jobs/{job}", json={"priority": 10})).status == 200


async def test_a_slow_disk_slows_those_who_write_and_nobody_who_reads(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = disk.store.writer.commit_batch
    stuck, go_on = threading.Event(), threading.Event()

    def slowly(batch: Any) -> Any:
        stuck.set()
        go_on.wait(PATIENCE_S)
        return commit(batch)

    monkeypatch.setattr(disk.store.writer, "commit_batch", slowly)
    writing = [asyncio.create_task(disk.submit()) for _ in range(50)]
    await until(stuck.is_set, "the first to write")
    for _ in range(20):
        assert (await disk.rig.ask("GET", "/v1/queues")).status == 200
        assert (await disk.rig.ask("GET", "/v1/ledger", "root")).status == 200
    assert not any(task.done() for task in writing), "nothing is on disk, so nothing may be acknowledged"
    go_on.set()
    answers = await asyncio.gather(*writing)
    assert [answer.status for answer in answers] == [201] * 50


async def test_damage_found_while_running_is_nobodys_fault_who_asks(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = (await disk.submit()).json()["jobs"][0]

    async def damaged(*_: object, **__: object) -> None:
        raise Damaged("the store is damaged", remedy="restore it from a backup")

    monkeypatch.setattr(disk.store, "range", damaged)
    answer = await disk.rig.ask("GET", f"/v1/jobs/{job}/events?follow=false")
    assert answer.status == 503
    assert answer.problem["code"] == "damaged"


@pytest.mark.parametrize("damage", ["pages", "half", "text", "row"])
async def test_a_damaged_store_is_not_started_on_and_says_so(tmp_path: Path, damage: str) -> None:
    """Rather not at all than with half of the jobs."""
    path = tmp_path / "store.db"
    store = SqliteStore.open(path, SystemClock())
    world = await make_world(store, SystemClock())  # type: ignore[arg-type]
    for number in range(40):
        await world.submit(name=f"n{number}", env={"PAD": "x" * 3000})
    await store.close()
    data = path.read_bytes()
    path.with_name("store.db-wal").unlink(missing_ok=True)
    if damage == "pages":
        path.write_bytes(data[: 4096 * 3] + b"\xee" * (len(data) - 4096 * 3))
    elif damage == "half":
        path.write_bytes(data[: len(data) // 2 // 4096 * 4096])
    elif damage == "text":
        path.write_bytes(b"this is not a database at all " * 1000)
    else:
        path.write_bytes(data.replace(b'"status":"PENDING"', b'"status":"PENDIMG"'))
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "federator", "serve", "--port", "0", "--state-dir", str(tmp_path)]
    done = await asyncio.to_thread(
        subprocess.run, command, env=environ, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 2, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert "damaged" in last or "cannot be read" in last
    assert "backup" in last
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "address").exists()
