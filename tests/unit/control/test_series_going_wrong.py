"""Series whose owner is let in no more, whose clock was wrong, or that cannot be seen to."""

import asyncio
from typing import Any

import pytest

from federator.control.submission.series_runs import LONGEST_WAIT_S
from federator.telemetry import METRICS
from federator.wire.http import TokenRequest
from tests.support.dispatch import ADA, ADMIN, World
from tests.support.waiting import until
from tests.unit.control.series_story import (
    HOUR,
    MIDNIGHT,
    a_world,
    again_and_again,
    because,
    end_runs,
    ledger,
    names,
    notes,
    pass_time,
    runs,
    series,
    timeline,
)


async def a_token(world: World, name: str = "ada", expires_in: str = "") -> None:
    request = TokenRequest(name=name, role="user", expires_in=expires_in)
    await world.core.admission.create_token(ADMIN, request)


async def test_it_is_paused_once_its_owner_has_no_token_and_goes_on_when_somebody_resumes_it() -> None:
    world = await a_world()
    await a_token(world)
    await again_and_again(world)
    await pass_time(world, 6)
    assert names(world) == ["nightly-1", "nightly-2"]
    await world.core.admission.revoke(ADMIN, "ada")
    await pass_time(world, 6)
    assert names(world) == ["nightly-1", "nightly-2"]
    assert because(world) == (
        "paused by dispatcher: of ada's tokens none is valid any more; no runs are submitted until one is, or until it is resumed"
    )
    told = "series nightly is paused: of ada's tokens none is valid any more"
    assert [event.text for event in await timeline(world, runs(world)[-1].id) if event.kind == "series"] == [
        told
    ]
    assert ("dispatcher", told) in [(line.who, line.what) async for line in ledger(world)]
    await world.core.series.resume(ADMIN, series(world))
    await pass_time(world, 12)
    assert names(world) == ["nightly-1", "nightly-2", "nightly-3", "nightly-4", "nightly-5"]
    await a_token(world)
    await pass_time(world, 1)
    await world.core.admission.revoke(ADMIN, "ada")
    await pass_time(world, 6)
    assert series(world).paused_by == "dispatcher", "what an admin vouched for was the time without a token"


async def test_it_goes_on_by_itself_once_its_owner_has_a_token_again() -> None:
    """A token may be revoked before the one that takes its place is made."""
    world = await a_world()
    await a_token(world)
    await again_and_again(world)
    await pass_time(world, 6)
    await world.core.admission.revoke(ADMIN, "ada")
    await pass_time(world, 1)
    assert series(world).paused_by == "dispatcher"
    await a_token(world)
    await pass_time(world, 6)
    assert names(world) == ["nightly-1", "nightly-2", "nightly-3"]
    told = "series nightly goes on: ada may submit it again"
    assert told in [event.text for event in await timeline(world, runs(world)[-2].id)]
    assert ("dispatcher", told) in [(line.who, line.what) async for line in ledger(world)]


async def test_what_a_person_has_paused_no_token_resumes() -> None:
    world = await a_world()
    await a_token(world)
    await again_and_again(world)
    await world.core.series.pause(ADA, series(world))
    await world.core.admission.revoke(ADMIN, "ada")
    await pass_time(world, 1)
    await a_token(world)
    await pass_time(world, 12)
    assert (names(world), series(world).paused_by) == ([], "ada")


async def test_a_token_that_expires_ends_what_was_lent_with_it() -> None:
    world = await a_world()
    await a_token(world, expires_in="2h")
    await again_and_again(world)
    await pass_time(world, 7)
    assert names(world) == ["nightly-1"]
    assert "none is valid any more" in because(world)


async def test_another_token_of_its_owner_is_enough() -> None:
    world = await a_world()
    await a_token(world, expires_in="2h")
    await a_token(world)
    await again_and_again(world)
    await pass_time(world, 7)
    assert names(world) == ["nightly-1", "nightly-2"]


async def test_a_revoked_token_is_seen_to_at_once() -> None:
    """Long before the next run is due."""
    world = await a_world()
    await a_token(world)
    await again_and_again(world, every={"interval": "6h", "start": "2026-04-01T00:00:00Z"})
    loop = asyncio.create_task(world.core.series_runs.run())
    try:
        await world.core.series_runs.look()
        await world.core.admission.revoke(ADMIN, "ada")
        await until(lambda: series(world).paused_by == "dispatcher")
    finally:
        loop.cancel()
    events = [event for event in await timeline(world, "") if event.kind == "series"]
    assert [event.text for event in events] == [
        "series nightly is paused: of ada's tokens none is valid any more"
    ]


@pytest.mark.parametrize("every", ["6h", "0 */6 * * *"])
async def test_runs_come_again_after_the_clock_was_far_ahead_and_was_put_back(every: str) -> None:
    world = await a_world()
    await again_and_again(world, every=every, finish_within="5h")
    await pass_time(world, 1)
    world.clock.at += 3650 * 24 * HOUR
    await pass_time(world, 1)
    world.clock.at -= 3650 * 24 * HOUR
    await pass_time(world, 13)
    due = [job.due_at for job in runs(world)]
    assert len(due) == 4
    assert due[2:] == [MIDNIGHT + 6 * HOUR, MIDNIGHT + 12 * HOUR]
    assert any(note.startswith("the clock was put back by") for note in notes(world))


async def test_a_series_that_was_begun_while_the_clock_was_far_ahead_begins_when_it_is_put_back() -> None:
    world = await a_world()
    world.clock.at += 3650 * 24 * HOUR
    await again_and_again(world)
    world.clock.at -= 3650 * 24 * HOUR
    await pass_time(world, 12)
    assert len(names(world)) == 2


async def test_a_time_that_was_decided_of_gets_no_second_run_by_other_times() -> None:
    world = await a_world()
    await again_and_again(world)
    await world.core.series_runs.look()
    await end_runs(world)
    await again_and_again(world, every="1h")
    await world.core.series_runs.look()
    assert names(world) == ["nightly-1"]
    assert series(world).next_at == MIDNIGHT + HOUR


async def test_a_fault_of_one_series_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = await a_world()
    await again_and_again(world)
    await world.submit_all(ADA, name="other", every="6h", resources={"gpus": 1})
    looked = world.core.series_runs.step

    def step(key: str) -> Any:
        if key == "ada/nightly":
            raise ZeroDivisionError("division by zero")
        return looked(key)

    before = METRICS.value("federator_series_faults_total") or 0.0
    with monkeypatch.context() as patch:
        patch.setattr(world.core.series_runs, "step", step)
        again_at = await world.core.series_runs.look()
    assert world.core.records.series["ada/other"].runs == 1
    assert notes(world) == [
        "ZeroDivisionError while it was seen to, see the dispatcher's log; it is tried again"
    ]
    assert notes(world)[0] in because(world)
    assert METRICS.value("federator_series_faults_total") == before + 1
    assert "ada/nightly" in caplog.text
    assert again_at == world.clock.now() + LONGEST_WAIT_S
    await world.core.series_runs.look()
    assert names(world) == ["nightly-1"]
