"""Gauges of what exists now: by team, of sick GPUs, and of real use; with a bound on how many series there are."""

import pytest
from msgspec.structs import replace

from federator.api import service
from federator.api.service import OTHERS, measure
from federator.model.sites import AilingGpu, GpuUse
from federator.telemetry import Metrics
from tests.support.dispatch import World
from tests.unit.control.test_measurements import running


def told(world: World) -> Metrics:
    into = Metrics()
    measure(world.core, into)
    return into


def gpu(number: int, busy: int | None, *placements: str) -> GpuUse:
    return GpuUse("main", "host-0", number, busy, 0, None, placements)


async def test_real_use_is_of_the_gpus_that_jobs_hold() -> None:
    world, job = await running()
    assert told(world).value("federator_site_gpu_use_ratio", site="north") is None
    held = world.placement(job).id
    uses = gpu(0, 80, held), gpu(1, 20, held), gpu(2, 100), gpu(3, None, held), gpu(4, 100, "pl-gone")
    world.core.inventory.measured("north", (), uses)
    assert told(world).value("federator_site_gpu_use_ratio", site="north") == 0.5


async def test_sick_gpus_are_counted_and_gone_when_they_are_well() -> None:
    world, _ = await running()
    assert told(world).value("federator_site_sick_gpus", site="north") == 0
    heard = world.core.inventory.members["north"]
    assert heard.report is not None
    ailing = AilingGpu("main", "host-0", 3, "Xid 79"), AilingGpu("main", "host-0", 2, "Xid 79")
    heard.report = replace(heard.report, ailing=ailing)
    assert told(world).value("federator_site_sick_gpus", site="north") == 2


async def test_teams_beyond_a_bound_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    world, job = await running()
    assert told(world).value("federator_team_gpus", team="vision") is None
    world.core.records.jobs[job] = replace(world.job(job), team="vision")
    assert told(world).value("federator_team_gpus", team="vision") == 2
    monkeypatch.setattr(service, "MOST_TEAMS", 0)
    found = told(world)
    assert found.value("federator_team_gpus", team="vision") is None
    assert found.value("federator_team_gpus", team=OTHERS) == 2
