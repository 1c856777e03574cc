"""One identity, two agents; and one agent, two boots: whatever happens, no work runs twice at once, and none is lost from sight."""

import asyncio
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import tests
from federator.model.jobs import JobStatus
from federator.wire.http import SiteRow
from tests.kills.judge import overlaps
from tests.partitions.world import World
from tests.support.waiting import until

pytestmark = pytest.mark.system

LONG_S = 600.0
ROOT = Path(tests.__path__[0]).parent
REFUSED = "refused (duplicate)"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """One site with a job that runs, as the dispatcher knows."""
    async with World(tmp_path / "world") as world:
        await world.add_site("north")
        await world.submit("north", LONG_S, on_disconnect="keep", placement={"sites": ["north"]})
        await world.settled("north")
        yield world


def _copy(world: World) -> Path:
    """A copy of the agent's state directory, and a site file for it."""
    folder = world.federation.folder
    shutil.copytree(folder / "agents" / "north", folder / "agents" / "copy")
    site = json.loads((folder / "sites" / "north.yaml").read_text())
    config = folder / "sites" / "copy.yaml"
    config.write_text(json.dumps(site | {"state_dir": str(folder / "agents" / "copy")}))
    return config


def _said(world: World, name: str) -> str:
    return world.federation.processes.log_file(name).read_text(errors="replace")


async def _site(world: World) -> SiteRow:
    return next(row for row in await world.federation.admin.sites() if row.name == "north")


async def test_a_copy_of_a_state_directory_is_not_served(world: World) -> None:
    processes = world.federation.processes
    processes.start("copy", "federator_agent", ["serve", "--config", str(_copy(world))])
    await until(lambda: "copy" in processes.ended(), "the copy to give up")
    assert processes.started["copy"].returncode == 1
    assert "is a copy of" in _said(world, "copy")
    assert (await _site(world)).status == "READY"
    assert len(world.traces("north")) == 1


async def test_two_live_agents_of_one_identity(world: World) -> None:
    """Somebody says that the directory was moved, which is not true: only the dispatcher is left to see it."""
    processes = world.federation.processes
    sessions = _said(world, "dispatcher").count("session opens")
    processes.start("copy", "federator_agent", ["serve", "--moved", "--config", str(_copy(world))])
    await until(lambda: REFUSED in _said(world, "copy"), "the copy to be turned away")

    async def told() -> bool:
        row = await _site(world)
        folder = world.federation.folder / "agents"
        return row.status == "DEGRADED" and all(
            str(folder / each) in row.because for each in ("north", "copy")
        )

    await until(told, "the site to say so, and to name both")
    assert "Stop one of the two" in _said(world, "copy")
    assert "refused" not in _said(world, "north"), "the one who sits there notices nothing"
    await asyncio.sleep(3.0)
    assert _said(world, "copy").count(REFUSED) == 1, "it stays away for long"
    assert _said(world, "dispatcher").count("session opens") == sessions, "nobody's session was taken"
    assert len(world.traces("north")) == 1
    assert (await world.row("north")).status == JobStatus.RUNNING

    # When the dispatcher comes back, the one that was turned away does not get in before the other.
    world.federation.kill_dispatcher()
    await world.federation.start_dispatcher()
    await until(told, "the first agent to be back, and the doubt with it")
    processes.kill("copy")
    await world.federation.admin.trust_member("north", "north")

    async def trusted() -> bool:
        return (await _site(world)).status == "READY"

    await until(trusted, "the site to take work again")
    assert "refused" not in _said(world, "north")
    assert (await world.row("north")).status == JobStatus.RUNNING
    assert len(world.traces("north")) == 1, "the job has been running all the time, once"


def _reboot(world: World) -> None:
    """End the agent and everything of its host, with no time to say anything."""
    world.federation.processes.kill("north")
    for pid, environment in world.federation.processes.living().items():
        if "FEDERATOR_PLACEMENT_ID" in environment:
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("disk", "because"), [("kept", "the machine was restarted"), ("wiped", "remembers nothing of it")]
)
async def test_an_agents_host_that_reboots(world: World, disk: str, because: str) -> None:
    """What ran is lost for certain, and runs again; also where only key and name have outlived the reboot."""
    folder = world.federation.folder
    (first,) = world.attempts()
    _reboot(world)
    if disk == "wiped":
        (folder / "agents" / "north" / "journal").unlink()
        shutil.rmtree(folder / "agents" / "north" / "placements")
    world.federation.processes.start(
        "north",
        "tests.support.other_boot",
        ["another-boot", "serve", "--config", str(folder / "sites" / "north.yaml")],
        {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
    )
    await until(lambda: len(world.traces("north")) == 2, "the job to run again")
    assert {attempt.placement for attempt in world.attempts()} > {first.placement}, "as another attempt"
    history = [event.text for event in await world.federation.admin.history(world.jobs["north"])]
    assert any(because in text for text in history), history
    assert overlaps(world.attempts()) == []
