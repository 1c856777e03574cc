"""Why jobs wait, added up: by reason, of what somebody is shown, and what is kept for whom."""

import pytest

from federator.control.administration.visibility import ANOTHERS, Visibility
from federator.control.queries import waits
from federator.control.record.records import Flag
from federator.model.identity import Caller
from federator.wire.waiting import WaitingNow
from tests.support.dispatch import ADA, ADMIN, BOB, World, make_world


async def seen(world: World, caller: Caller = ADMIN, *, by_team: bool = False) -> WaitingNow:
    sight = Visibility(world.core.records, world.core.authority, by_team=by_team).of(caller)
    return await world.core.views.waits.now(sight)


async def test_what_waits_is_added_up_by_the_reason_that_a_list_filters_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waits, "REST", 0.0)
    world = await make_world()
    await world.add_site("north", gpus=4)
    assert await seen(world) == WaitingNow(jobs=0, gpus=0)
    await world.submit(ADA, run="true", resources={"gpus": 4}, max_duration="1h")
    first = await world.submit(ADA, run="true", resources={"gpus": 4}, max_duration="1h")
    await world.submit(BOB, run="true", resources={"gpus": 2}, max_duration="1h")
    await world.submit(BOB, run="true", resources={"accelerators": "H100:1"})
    await world.turn()
    found = await seen(world)
    assert (found.jobs, found.gpus) == (3, 7)
    busy, missing = found.reasons
    assert (busy.jobs, busy.gpus, busy.first) == (2, 6, first)
    assert busy.because
    assert missing.jobs == 1
    assert "H100" in missing.because
    of_bob = await seen(world, BOB, by_team=True)
    assert (of_bob.jobs, of_bob.gpus) == (2, 3), "of others' jobs not even the sums"


async def test_a_job_that_waits_says_of_when_its_plan_is() -> None:
    """Not every turn is recorded, so the decision's id does not tell one plan from the next."""
    world = await make_world()
    await world.add_site("north", gpus=4)
    runs = await world.submit(ADA, run="true", resources={"gpus": 4}, max_duration="1h")
    waits = await world.submit(ADA, run="true", resources={"gpus": 4}, max_duration="1h")

    async def planned_at(job: str) -> float | None:
        await world.turn()
        return world.core.views.detail(world.core.records.jobs[job]).planned_at

    first = await planned_at(waits)
    world.clock.advance(30.0)
    second = await planned_at(waits)
    assert first is not None
    assert second == first + 30.0
    assert await planned_at(runs) is None


async def test_what_is_kept_for_a_gang_is_named_to_those_who_may_see_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waits, "REST", 0.0)
    world = await make_world()
    await world.add_site("north", gpus=4, nodes=2)
    await world.submit(ADA, name="long", run="true", resources={"gpus": 4}, max_duration="1h")
    await world.turn()
    await world.submit(
        ADA, name="gang", run="true", nodes=2, resources={"gpus": 4}, max_duration="1h", priority=90
    )
    await world.submit(BOB, name="small", run="true", resources={"gpus": 1}, max_duration="5h")
    await world.turn()
    (kept,) = (await seen(world)).reserved
    assert (kept.site, kept.name, kept.gpus) == ("north", "gang", 8)
    (kept,) = (await seen(world, BOB, by_team=True)).reserved
    assert (kept.job, kept.name) == ("", ANOTHERS)


async def test_alerts_are_of_what_somebody_is_shown() -> None:
    world = await make_world()
    job = await world.submit(ADA, run="true")
    await world.put(
        Flag(f"alert/deadline/{job}/1", True, "late", 2.0),
        Flag("alert/identity/north/1", False, "a key has changed", 3.0),
        Flag("alert/budget/Budget-all", False, "90% are used", 1.0),
        Flag("burst-paused", True, "ada", 4.0),
    )

    def kinds(caller: Caller, *, overseer: bool) -> list[str]:
        sight = Visibility(world.core.records, world.core.authority, by_team=True).of(caller)
        return [row.kind for row in world.core.alerts.rows(sight, overseer=overseer)]

    assert kinds(ADMIN, overseer=True) == ["identity", "deadline", "budget"]
    assert kinds(ADA, overseer=False) == ["deadline", "budget"]
    assert kinds(BOB, overseer=False) == ["budget"]
