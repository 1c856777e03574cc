"""Series: runs come when they are due, once each, whoever leads; what does not come is said, and why."""

import asyncio
from typing import Any

import pytest

from federator.control.intake import PART
from federator.control.series_runs import LONGEST_WAIT_S
from federator.kernel.errors import Conflict, Forbidden, NotFound, TooMany
from federator.kernel.quantities import parse_instant
from federator.model.events import Event, LedgerEntry
from federator.model.jobs import Job, JobStatus
from federator.model.series import Series
from federator.store.memory import MemoryStore
from federator.telemetry import METRICS
from federator.wire.http import TokenRequest
from tests.support.dispatch import ADA, ADMIN, BOB, SharedClock, World, make_world
from tests.support.waiting import until

HOUR = 3600.0
MIDNIGHT = parse_instant("2026-03-01T00:00:00Z")


async def a_world(**fields: Any) -> World:
    """Midnight, at a site with four GPUs."""
    world = await make_world(clock=SharedClock(at=MIDNIGHT), **fields)
    await world.add_site("lab")
    return world


async def again_and_again(world: World, **fields: Any) -> Series:
    """Submit ada's series `nightly`."""
    given = {"name": "nightly", "every": "6h", "estimate": "1h", "resources": {"gpus": 1}, **fields}
    answer = await world.submit_all(ADA, **given)
    assert (answer.jobs, answer.series) == ((), "nightly")
    return series(world)


def series(world: World) -> Series:
    return world.core.records.series["ada/nightly"]


def runs(world: World) -> list[Job]:
    """Its jobs, oldest first."""
    found = world.core.records.runs.get("ada/nightly", {})
    return [found[name] for name in sorted(found)]


def names(world: World) -> list[str]:
    return [job.name for job in runs(world)]


def notes(world: World) -> list[str]:
    return [note.text for note in series(world).notes]


def because(world: World) -> str:
    return world.core.series.row(series(world)).because


async def pass_time(world: World, hours: float, *, ends: bool = True) -> None:
    """Let so many hours pass, one look after each; `ends`: runs are over before the next look."""
    for _ in range(round(hours)):
        world.clock.advance(HOUR)
        await world.core.series_runs.look()
        if ends:
            await end_runs(world)


async def end_runs(world: World) -> None:
    await world.turn()
    for job in runs(world):
        if job.status is JobStatus.RUNNING:
            await world.sites["lab"].finish(job.id)


async def test_an_interval_begins_at_once_and_goes_on() -> None:
    world = await a_world()
    await again_and_again(world)
    await world.core.series_runs.look()
    await end_runs(world)
    await pass_time(world, 12)
    assert names(world) == ["nightly-1", "nightly-2", "nightly-3"]
    assert [job.due_at for job in runs(world)] == [MIDNIGHT, MIDNIGHT + 6 * HOUR, MIDNIGHT + 12 * HOUR]
    assert all(job.status is JobStatus.SUCCEEDED for job in runs(world))
    assert because(world) == "next run at 2026-03-01T18:00:00Z, in 6h"


async def test_a_clock_time_of_a_zone() -> None:
    world = await a_world()
    await again_and_again(world, every={"at": "0 3 * * *", "timezone": "Europe/Berlin"})
    await pass_time(world, 30)
    assert [job.due_at for job in runs(world)] == [MIDNIGHT + 2 * HOUR, MIDNIGHT + 26 * HOUR]


async def test_a_run_is_a_job_like_any_other() -> None:
    """Deadlines count from when it is due, and it is told which run it is."""
    world = await a_world()
    await again_and_again(
        world,
        finish_within="5h",
        env={"A": "b"},
        secrets=["wandb"],
        inputs=["s3://data/y"],
        labels={"t": "v"},
    )
    world.clock.advance(60.0)
    await world.core.series_runs.look()
    (job,) = runs(world)
    spec = world.core.records.spec(job.spec_hash)
    assert (job.owner, job.queue, job.deadline_at) == ("ada", "default", MIDNIGHT + 5 * HOUR)
    assert (job.series, spec.name, spec.secrets, spec.labels) == (
        "nightly",
        "nightly-1",
        ("wandb",),
        {"t": "v"},
    )
    assert spec.inputs[0].uri == "s3://data/y"  # type: ignore[index]
    assert spec.env == {
        "A": "b",
        "FEDERATOR_SERIES": "nightly",
        "FEDERATOR_RUN": "1",
        "FEDERATOR_DUE": "2026-03-01T00:00:00Z",
    }
    assert world.core.views.find_job(ADA, "nightly") is job
    assert world.core.views.page(ADA, series="nightly").total == 1
    assert world.core.views.page(ADA, series="other").total == 0


async def test_run_times_are_learned_of_all_runs_together() -> None:
    world = await a_world()
    await again_and_again(world, every="2h", estimate="30m")
    for _ in range(4):
        await world.core.series_runs.look()
        await world.turn()
        world.clock.advance(HOUR)
        await end_runs(world)
        world.clock.advance(HOUR)
    assert world.core.history.learned("default", "nightly") == 4
    assert world.core.history.learned("default", "nightly-1") == 0


async def test_what_is_due_while_the_last_runs_is_skipped_and_said() -> None:
    world = await a_world()
    await again_and_again(world)
    await world.core.series_runs.look()
    await world.turn()
    assert because(world).endswith("unless nightly-1 is over by then, it is skipped")
    await pass_time(world, 7, ends=False)
    assert names(world) == ["nightly-1"]
    assert notes(world) == ["the run due at 2026-03-01T06:00:00Z is skipped: nightly-1 is not over"]
    assert notes(world)[0] in because(world)
    await end_runs(world)
    await pass_time(world, 5)
    assert names(world) == ["nightly-1", "nightly-2"]


async def test_what_is_due_while_the_last_runs_may_wait_for_its_end() -> None:
    """However many are due meanwhile, one waits: the newest."""
    world = await a_world()
    await again_and_again(world, overlap="queue")
    await world.core.series_runs.look()
    await world.turn()
    await pass_time(world, 13, ends=False)
    assert names(world) == ["nightly-1"]
    assert because(world).startswith("the run due at 2026-03-01T12:00:00Z waits for nightly-1 to end")
    await end_runs(world)
    await world.core.series_runs.look()
    assert names(world) == ["nightly-1", "nightly-2"]
    assert runs(world)[1].due_at == MIDNIGHT + 12 * HOUR
    assert "the run due at 2026-03-01T06:00:00Z is given up" in notes(world)[0]
    assert notes(world)[1] == "nightly-2 was due at 2026-03-01T12:00:00Z and is 1h late"


async def test_what_is_due_may_take_the_place_of_the_last_once_that_is_gone() -> None:
    world = await a_world()
    await again_and_again(world, overlap="replace")
    await world.core.series_runs.look()
    await world.turn()
    await pass_time(world, 6, ends=False)
    assert [job.status for job in runs(world)] == [JobStatus.CANCELLING]
    await world.obey()
    await world.core.series_runs.look()
    assert [job.status for job in runs(world)] == [JobStatus.CANCELLED, JobStatus.PENDING]


async def test_of_all_that_nobody_was_there_for_one_run_is_made_up_for() -> None:
    store = MemoryStore(SharedClock(at=MIDNIGHT))
    world = await a_world(store=store)
    await again_and_again(world, every={"at": "0 * * * *"})
    world.clock.advance(10.5 * HOUR)
    after = await make_world(store=store, clock=world.clock)
    for _ in range(3):
        await after.core.series_runs.look()
    assert [job.due_at for job in runs(after)] == [MIDNIGHT + 10 * HOUR]
    assert notes(after)[0] == (
        "nobody was there for what was due from 2026-03-01T00:00:00Z on; of that, the run due at 2026-03-01T10:00:00Z "
        "is made up for"
    )


async def test_a_run_that_would_come_too_late_is_left_out() -> None:
    world = await a_world()
    await again_and_again(world, every={"at": "0 3 * * *", "submit_within": "2h"})
    world.clock.advance(6 * HOUR)
    await world.core.series_runs.look()
    assert names(world) == []
    assert notes(world) == [
        "the run due at 2026-03-01T03:00:00Z is left out: it could not be submitted within 2h"
    ]


async def test_it_begins_and_ends_when_it_is_said() -> None:
    world = await a_world()
    every = {"interval": "2h", "start": "2026-03-01T05:00:00Z", "end": "2026-03-01T09:00:00Z"}
    await again_and_again(world, every=every)
    await pass_time(world, 12)
    assert [job.due_at for job in runs(world)] == [MIDNIGHT + 5 * HOUR, MIDNIGHT + 7 * HOUR]
    assert because(world) == "ended: no more runs are due"
    assert world.core.series.rows(ADA) == []
    assert len(world.core.series.rows(ADA, ended=True)) == 1


async def test_two_leaders_submit_a_run_once() -> None:
    """The one whose row has moved on computes its look again, and finds nothing to do."""
    store = MemoryStore(SharedClock(at=MIDNIGHT))
    world = await a_world(store=store)
    await again_and_again(world)
    other = await make_world(store=store, clock=world.clock)
    await other.core.series_runs.look()
    with pytest.raises(Exception, match=r"lost 50 races|lead"):
        await world.core.records.transact(lambda: world.core.series_runs._step("ada/nightly"))
    third = await make_world(store=store, clock=world.clock)
    await third.core.series_runs.look()
    assert names(third) == ["nightly-1"]


async def test_another_file_counts_from_the_next_run_on() -> None:
    world = await a_world()
    await again_and_again(world, env={"V": "1"})
    await world.core.series_runs.look()
    assert (
        await world.submit_all(
            ADA, name="nightly", every="6h", estimate="1h", resources={"gpus": 1}, env={"V": "1"}
        )
    ).repeated
    await again_and_again(world, env={"V": "2"})
    await end_runs(world)
    await pass_time(world, 6)
    told = [world.core.records.spec(job.spec_hash).env["V"] for job in runs(world)]
    assert told == ["1", "2"]


async def test_other_times_count_from_now_on() -> None:
    world = await a_world()
    await again_and_again(world, every="0 3 * * *")
    await again_and_again(world, every="0 5 * * *")
    await pass_time(world, 24)
    assert [job.due_at for job in runs(world)] == [MIDNIGHT + 5 * HOUR]


async def test_it_can_be_paused_and_resumed() -> None:
    world = await a_world()
    await again_and_again(world, every="0 * * * *")
    await world.core.series.pause(ADA, series(world))
    await pass_time(world, 5)
    assert names(world) == []
    assert because(world) == "paused by ada: no runs are submitted until it is resumed"
    await world.core.series.resume(ADA, series(world))
    await pass_time(world, 1)
    assert [job.due_at for job in runs(world)] == [MIDNIGHT + 6 * HOUR]


async def test_it_can_be_ended_and_begun_again_under_its_numbers() -> None:
    world = await a_world()
    await again_and_again(world)
    await world.core.series_runs.look()
    await world.core.series.end(ADA, series(world))
    await end_runs(world)
    await pass_time(world, 12)
    assert names(world) == ["nightly-1"]
    assert because(world) == "ended: cancelled by ada"
    with pytest.raises(Conflict):
        await world.core.series.resume(ADA, series(world))
    await again_and_again(world)
    await world.core.series_runs.look()
    assert names(world) == ["nightly-1", "nightly-2"]


async def test_only_its_owner_and_the_platform_change_it() -> None:
    world = await a_world()
    await again_and_again(world, env={"TOKEN": "secret"})
    with pytest.raises(Forbidden):
        await world.core.series.end(BOB, series(world))
    assert world.core.series.detail(BOB, world.core.series.find(BOB, "nightly")).file is None
    detail = await world.core.series.pause(ADMIN, series(world))
    assert detail.file is not None
    assert detail.series.status == "PAUSED"
    with pytest.raises(NotFound):
        world.core.series.find(BOB, "nightly", "bob")


async def test_what_is_done_to_it_is_in_the_ledger() -> None:
    world = await a_world()
    await again_and_again(world)
    await world.core.series.pause(ADA, series(world))
    lines = [entry async for entry in _ledger(world)]
    assert [line.what for line in lines] == ["submit series nightly", "pause series nightly"]
    assert {line.who for line in lines} == {"user:ada"}


async def _ledger(world: World) -> Any:
    import msgspec  # noqa: PLC0415 - of this one test

    page = await world.core.records.store.range("ledger/", limit=100)
    for item in page.items:
        yield msgspec.json.decode(item.value, type=LedgerEntry)


async def test_a_run_that_is_refused_is_said_and_the_next_comes() -> None:
    world = await a_world()
    await world.policies("apiVersion: federator/v1\nkind: Queue\nmetadata: {name: vision}\nspec: {}\n")
    await again_and_again(world, queue="vision")
    await world.policies("apiVersion: federator/v1\nkind: Queue\nmetadata: {name: other}\nspec: {}\n")
    await world.core.series_runs.look()
    assert "nightly-1 was refused: $.queue: no queue 'vision'" in notes(world)[0]
    await world.policies("apiVersion: federator/v1\nkind: Queue\nmetadata: {name: vision}\nspec: {}\n")
    await pass_time(world, 6)
    assert names(world) == ["nightly-1"]


async def test_a_run_that_there_is_no_room_for_comes_once_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await a_world()
    await again_and_again(world)
    full = TooMany("1 jobs are queued already", retry_after_s=1.0)
    with monkeypatch.context() as patch:
        patch.setattr(world.core.series_runs._acceptance._retention, "refuse_if_full", _raises(full))
        await world.core.series_runs.look()
        assert names(world) == []
        assert "nightly-1 is not taken yet: 1 jobs are queued already" in because(world)
    again_at = await world.core.series_runs.look()
    assert names(world) == ["nightly-1"]
    assert again_at == MIDNIGHT + 6 * HOUR


def _raises(error: Exception) -> Any:
    def raises() -> None:
        raise error

    return raises


async def test_a_run_of_many_tasks_is_completed_by_a_successor(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore(SharedClock(at=MIDNIGHT))
    world = await a_world(store=store)
    tasks = 2 * PART + 7
    await again_and_again(world, array=f"0-{tasks - 1}")

    async def dies(*_: object) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        patch.setattr(world.core.series_runs, "_fill", dies)
        with pytest.raises(asyncio.CancelledError):
            await world.core.series_runs.look()
    assert len(runs(world)) == PART
    await world.core.series.pause(ADA, series(world))
    after = await make_world(store=store, clock=world.clock)
    await after.core.series_runs.look()
    await after.core.series_runs.look()
    assert sorted(job.array_index or 0 for job in runs(after)) == list(range(tasks))
    assert {(job.series, job.due_at) for job in runs(after)} == {("nightly", MIDNIGHT)}
    assert len({job.array for job in runs(after)}) == 1
    assert series(after).filling is None


async def test_there_is_a_limit_on_series() -> None:
    world = await a_world()
    world.core.series._limits = type(world.core.series._limits)(series=1)
    await again_and_again(world)
    await again_and_again(world, env={"V": "2"})
    with pytest.raises(TooMany):
        await world.submit_all(ADA, name="another", every="6h")


async def test_a_run_comes_once_though_the_clock_is_put_back_and_it_is_resumed() -> None:
    world = await a_world()
    await again_and_again(world, every="0 * * * *")
    world.clock.advance(HOUR)
    await world.core.series_runs.look()
    await end_runs(world)
    world.clock.at -= 60.0
    await world.core.series.pause(ADA, series(world))
    await world.core.series.resume(ADA, series(world))
    world.clock.advance(120.0)
    await world.core.series_runs.look()
    assert names(world) == ["nightly-1"]


async def timeline(world: World, job_id: str) -> list[Event]:
    return await world.core.views.events(job_id, None)


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
        "paused by dispatcher: of ada's tokens none is valid any more; no runs are submitted until it is resumed"
    )
    told = "series nightly is paused: of ada's tokens none is valid any more"
    assert [event.text for event in await timeline(world, runs(world)[-1].id) if event.kind == "series"] == [
        told
    ]
    assert ("dispatcher", told) in [(line.who, line.what) async for line in _ledger(world)]
    await world.core.series.resume(ADMIN, series(world))
    await pass_time(world, 12)
    assert names(world) == ["nightly-1", "nightly-2", "nightly-3", "nightly-4", "nightly-5"]
    await a_token(world)
    await pass_time(world, 1)
    await world.core.admission.revoke(ADMIN, "ada")
    await pass_time(world, 6)
    assert series(world).paused_by == "dispatcher", "what an admin vouched for was the time without a token"
    await a_token(world)
    await world.core.series.resume(ADA, series(world))
    await pass_time(world, 6)
    assert names(world)[5:] == ["nightly-6"]


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
    looked = world.core.series_runs._step

    def step(key: str) -> Any:
        if key == "ada/nightly":
            raise ZeroDivisionError("division by zero")
        return looked(key)

    before = METRICS.value("federator_series_faults_total") or 0.0
    with monkeypatch.context() as patch:
        patch.setattr(world.core.series_runs, "_step", step)
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
