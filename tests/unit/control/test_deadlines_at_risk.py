"""Lists of jobs whose deadlines are at risk, by the newest plan."""

from typing import Any

import pytest

from federator.control.queries import job_sorting
from federator.control.queries.job_lists import Sorting, Wanted
from federator.model.identity import Caller
from tests.support.dispatch import ADA, ADMIN, BOB, World, make_world

WHOLE = {"gpus": 4}


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A site that is full for three hours."""
    monkeypatch.setattr(job_sorting, "REST", 0.0)
    world = await make_world()
    await world.add_site("north", gpus=4)
    await world.submit(ADA, name="long", run="true", resources=WHOLE, estimate="3h", finish_within="10h")
    await world.turn()
    return world


async def at_risk(world: World, caller: Caller = ADMIN, **wanted: Any) -> list[str]:
    """By deadline, the soonest first."""
    order = Sorting("deadline", largest=False)
    page, _ = await world.core.views.page(caller, Wanted(at_risk=True, **wanted), sorting=order)
    assert page.total == len(page.jobs)
    return [row.name for row in page.jobs]


async def test_only_what_is_expected_to_be_late_is_listed(world: World) -> None:
    asks: dict[str, Any] = {"run": "true", "resources": WHOLE, "estimate": "1h"}
    await world.submit(ADA, name="due-soon", finish_within="2h", **asks)
    await world.submit(BOB, name="in-time", finish_within="20h", **asks)
    await world.submit(BOB, name="without", **asks)
    await world.submit(
        BOB, name="nowhere", run="true", resources={"accelerators": "H100:1"}, finish_within="90m"
    )
    assert await at_risk(world) == [], "of what no plan has seen nothing is known"
    await world.turn()
    assert await at_risk(world) == ["nowhere", "due-soon"]
    assert await at_risk(world, owner="bob") == ["nowhere"]
    assert await at_risk(world, text="due") == ["due-soon"]


async def test_what_runs_for_too_long_is_listed_and_what_is_over_is_not(world: World) -> None:
    job = await world.submit(
        ADA, name="tight", run="true", resources=WHOLE, finish_within="2h", estimate="1h"
    )
    await world.turn()
    assert await at_risk(world) == ["tight"]
    await world.core.intake.cancel(ADMIN, job)
    assert await at_risk(world) == []
