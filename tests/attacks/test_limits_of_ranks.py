"""A job that takes more than it was given: it is held to that where the agent may make control groups, and nothing of them is left."""

import os
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from federator.kernel.errors import Invalid
from federator.model.jobs import Resources
from federator.model.placements import Cause
from federator.wire.decoding import decode
from federator_agent.core.state import PlacementRecord
from federator_agent.local import cgroups
from federator_agent.local.cgroups import Limits
from federator_agent.local.confinement import Confinement
from federator_agent.local.isolation import Isolation, Mode
from federator_agent.local.runtime import LocalRuntime
from federator_agent.staging_errors import StagingError
from tests.contract.runtimes import factories_local_users
from tests.contract.runtimes.world import RuntimeWorld, Site
from tests.support.waiting import until
from tests.testbeds.required import need

HOG = "data = bytearray(400 << 20); print('has it', flush=True)"
PYTHON = "exec /usr/bin/python3 -c"
WAIT = "echo up; until [ -e stop ]; do sleep 0.1; done"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[RuntimeWorld]:
    need(factories_local_users.lacking() or cgroups.parents().why)
    made = Isolation(mode=Mode.USERS, processes=64)
    state = tmp_path / "state"
    site = Site(
        lambda around: LocalRuntime(around._replace(confinement=Confinement(Mode.USERS, made, state))), "cpu"
    )
    world = RuntimeWorld(tmp_path, site)
    world.begin()
    yield world
    await world.close()


def _groups(record: PlacementRecord) -> list[Path]:
    parents = cgroups.parents().by_controller
    name = f"federator-{record.entry.placement}-rank-0"
    return [folder for parent in set(parents.values()) if (folder := parent / name).exists()]


async def test_a_job_that_takes_more_memory_than_it_asked_for_is_killed_and_told_so(
    world: RuntimeWorld,
) -> None:
    asked = Resources(cpus_milli=500, memory_mib=100)
    record = await world.run(world.spec(f"{PYTHON} {shlex.quote(HOG)}", resources=asked))
    (end,) = await world.over(record)
    assert (end.exit_code, end.cause) == (137, Cause.OUT_OF_MEMORY)
    assert "has it" not in world.log(record)
    assert _groups(record) == []


async def test_a_job_that_asked_for_no_memory_is_not_limited(world: RuntimeWorld) -> None:
    record = await world.run(world.spec(f"{PYTHON} {shlex.quote(HOG)}", resources=Resources()))
    (end,) = await world.over(record)
    assert (end.exit_code, end.cause) == (0, None)


async def test_a_kill_that_is_not_for_memory_is_not_told_as_one(world: RuntimeWorld) -> None:
    record = await world.run(world.spec("kill -9 $$", resources=Resources(memory_mib=100)))
    (end,) = await world.over(record)
    assert end.cause is None


async def test_all_of_a_rank_is_in_its_groups_and_cannot_leave_them(
    world: RuntimeWorld, tmp_path: Path
) -> None:
    script = "for f in /sys/fs/cgroup/*/cgroup.procs /sys/fs/cgroup/cgroup.procs; do echo 0 > $f; done 2>/dev/null; cat /proc/self/cgroup; "
    record = await world.run(world.spec(script + WAIT, resources=Resources(cpus_milli=1500, memory_mib=100)))
    await world.has_written(record, "up\n")
    said = world.log(record)
    assert said.count(f"federator-{record.entry.placement}-rank-0\n") == len(_groups(record)) > 0
    (tmp_path / "state/placements" / record.entry.placement / "work/stop").touch()
    await world.over(record)


async def test_groups_of_what_ran_through_a_restart_of_the_agent_go_as_well(
    world: RuntimeWorld, tmp_path: Path
) -> None:
    record = await world.run(world.spec(WAIT))
    await world.has_written(record, "up\n")
    assert _groups(record)
    await world.restart()
    world.runtime.find(record, 0)
    (tmp_path / "state/placements" / record.entry.placement / "work/stop").touch()
    await world.over(record)
    assert _groups(record) == []


async def test_groups_of_a_rank_that_never_started_go_with_its_placement(
    world: RuntimeWorld, tmp_path: Path
) -> None:
    """The agent died between making them and starting it."""
    record = world.record(world.spec("true"))
    directory = tmp_path / "state/placements" / record.entry.placement / "rank-0"
    directory.mkdir(parents=True)
    name = f"federator-{record.entry.placement}-rank-0"
    cgroups.make(cgroups.parents(), directory, name, Limits(1000, 0, 64))
    assert _groups(record)
    await world.runtime.discard(record.entry.placement, None)
    await until(lambda: _groups(record) == [], "its groups are gone")


def _setup_groups() -> list[Path]:
    parents = set(cgroups.parents().by_controller.values())
    return [folder for parent in parents for folder in parent.glob(f"federator-setup-*-{os.getpid()}")]


async def test_a_set_up_is_held_to_what_its_job_asked_for(world: RuntimeWorld) -> None:
    asked = Resources(cpus_milli=500, memory_mib=100)
    spec = world.spec("true", setup=f"{PYTHON} {shlex.quote(HOG)}", resources=asked)
    with pytest.raises(StagingError) as caught:
        await world.prepare(world.record(spec), spec)
    assert caught.value.cause is Cause.SETUP
    assert "out of memory" in caught.value.message
    assert _setup_groups() == []


async def test_what_a_set_up_leaves_running_ends_with_it(world: RuntimeWorld) -> None:
    """It hides from who looks for the mark in its environment; its control group it cannot leave."""
    hides = "env -i setsid sh -c 'cat /proc/self/cgroup; exec sleep 3003' & sleep 0.2"
    spec = world.spec("true", setup=hides)
    record = world.record(spec)
    await world.prepare(record, spec)
    assert f"-{os.getpid()}\n" in world.log(record)
    await until(lambda: _setup_groups() == [], "its groups are gone, and so is all that was in them")


def test_what_is_written_in_the_unified_hierarchy(tmp_path: Path) -> None:
    """Plain files stand for the kernel's."""
    unit = tmp_path / "sys/fs/cgroup/system.slice/federator-agent.service"
    unit.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    own = tmp_path / "proc/self/cgroup"
    own.write_text("0::/system.slice/federator-agent.service\n")
    assert "DelegateSubgroup=agent" in cgroups.parents(tmp_path).why
    own.write_text("0::/system.slice/federator-agent.service/agent\n")
    (unit / "cgroup.controllers").write_text("cpu pids\n")
    assert cgroups.parents(tmp_path).why.endswith("has no controller memory")
    (unit / "cgroup.controllers").write_text("cpu io memory pids\n")
    found = cgroups.parents(tmp_path)
    assert set(found.by_controller.values()) == {unit}
    assert (unit / "cgroup.subtree_control").read_text() == "+memory +cpu +pids"
    words = cgroups.make(found, tmp_path, "rank", Limits(2500, 100, 64))
    assert str(unit / "rank/cgroup.procs") in words
    files = {file.name: file.read_text() for file in (unit / "rank").iterdir()}
    assert files == {"cpu.weight": "250", "memory.max": str(100 << 20), "pids.max": "64"}
    (unit / "rank/memory.events").write_text("oom 3\noom_kill 2\n")
    assert cgroups.kills(cgroups.of(tmp_path)) == 2


def test_limits_can_be_left_out(tmp_path: Path) -> None:
    isolation = decode({"limits": False}, Isolation, "$.isolation")
    confinement = Confinement(Mode.SANDBOX, isolation, tmp_path)
    assert not confinement.limits
    assert confinement.describe_limits().endswith("isolation.limits is false")
    with pytest.raises(Invalid, match="true or false"):
        decode({"limits": "perhaps"}, Isolation, "$.isolation")
