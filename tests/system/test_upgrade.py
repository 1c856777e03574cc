"""Agents and dispatchers a version apart, on real processes, while a job runs."""

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import tests
from federator.cli.demo.federation import DISPATCHER
from federator.client.jobs import JobFilter
from federator.model.jobs import JobStatus
from federator.store.sqlite_file import SCHEMA_VERSION
from tests.partitions.world import World
from tests.support import newer_dispatcher
from tests.support.waiting import until

pytestmark = pytest.mark.system

LONG_S = 600.0
TESTS = Path(tests.__path__[0])
RECORDED = TESTS / "contract" / "wire" / "store-v1.db"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """One site with a job that runs, as the dispatcher knows."""
    async with World(tmp_path / "world") as world:
        await world.add_site("north")
        await world.submit("north", LONG_S, on_disconnect="keep", placement={"sites": ["north"]})
        await world.settled("north")
        yield world


def _exchange(world: World, module: str, *words: str) -> None:
    """Put another version of the agent in the place of the one that runs."""
    processes = world.federation.processes
    processes.kill("north")
    processes.log_file("north").write_text("")
    config = str(world.federation.folder / "sites" / "north.yaml")
    path = os.pathsep.join([str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
    processes.start("north", module, [*words, "serve", "--config", config], {"PYTHONPATH": path})


async def _exchange_dispatcher(world: World) -> None:
    """Put a dispatcher of the next version in the place of the one that runs."""
    federation = world.federation
    federation.kill_dispatcher()
    config, port = str(federation.folder / "dispatcher.yaml"), federation.server.rpartition(":")[2]
    path = os.pathsep.join([str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
    words = ["serve", "--config", config, "--port", port]
    federation.processes.start(DISPATCHER, newer_dispatcher.__name__, words, {"PYTHONPATH": path})
    about = await federation.admin.transport.call("GET", "/v1/openapi.json", dict[str, Any])
    assert about["info"]["version"] == newer_dispatcher.VERSION


def _said(world: World) -> str:
    return world.federation.processes.log_file("north").read_text(errors="replace")


async def _stands(world: World) -> None:
    await until(lambda: " stands" in _said(world), "a session of the other version")


async def _works(world: World) -> None:
    """The old job has been running all the time; a new one is taken, and ends well."""
    admin = world.federation.admin
    new = (await admin.submit({"run": "true", "resources": {"gpus": 1}})).jobs[0]

    async def over() -> bool:
        rows = {row.id: row for row in (await admin.jobs(JobFilter())).jobs}
        return rows[new].status == JobStatus.SUCCEEDED

    await until(over, "a job of the other version")
    assert len(world.traces("north")) == 1
    assert (await world.row("north")).status == JobStatus.RUNNING


async def test_an_older_agent_hears_nothing_that_it_does_not_know(world: World) -> None:
    _exchange(world, "tests.support.other_version", "older")
    await _stands(world)
    await _works(world)
    assert "does not know" not in _said(world)


async def test_a_newer_agent_says_its_hello_in_the_dispatchers_words(world: World) -> None:
    _exchange(world, "tests.support.other_version", "newer")
    await _stands(world)
    assert "older than this agent" in _said(world)
    await _works(world)


async def test_an_agent_too_new_for_its_dispatcher_is_told_so_and_its_work_goes_on(world: World) -> None:
    """The dispatcher comes first in an upgrade. Who forgets it loses nothing."""
    _exchange(world, "tests.support.other_version", "bold")
    await until(lambda: "weather" in _said(world), "the refusal to name the field")
    assert "upgrade the dispatcher" in _said(world)
    _exchange(world, "federator_agent")
    await _stands(world)
    await _works(world)


async def test_a_dispatcher_goes_back_over_what_the_next_version_has_written(world: World) -> None:
    """It passes over the fields that it does not know, and what runs goes on under both."""
    await _exchange_dispatcher(world)
    await _works(world)
    world.federation.kill_dispatcher()
    written = (world.federation.folder / "dispatcher").glob("*.db*")
    assert any(newer_dispatcher.ADDED in file.read_bytes() for file in written)
    await world.federation.start_dispatcher()
    await _works(world)


async def test_a_dispatcher_on_the_store_of_an_older_one(tmp_path: Path) -> None:
    shutil.copy(RECORDED, tmp_path / "store.db")
    process = await _serve(tmp_path)
    try:
        await until((tmp_path / "address").exists, "the dispatcher")
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"{(tmp_path / 'address').read_text().strip()}/readyz") as answer,
        ):
            assert answer.status == 200
    finally:
        process.send_signal(signal.SIGTERM)
        said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()


async def test_a_dispatcher_that_was_rolled_back_too_far_says_so_and_touches_nothing(tmp_path: Path) -> None:
    shutil.copy(RECORDED, tmp_path / "store.db")
    with sqlite3.connect(tmp_path / "store.db") as newer:
        newer.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    newer.close()
    before = (tmp_path / "store.db").read_bytes()
    process = await _serve(tmp_path)
    said, _ = await process.communicate()
    assert process.returncode == 2
    assert b"newer version" in said
    assert b"restore the backup" in said
    assert (tmp_path / "store.db").read_bytes() == before


async def _serve(state_dir: Path) -> asyncio.subprocess.Process:
    words = ["serve", "--port", "0", "--state-dir", str(state_dir)]
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "federator", *words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
