"""Series: runs come when they are due, once each, whoever leads; what does not come is said, and why."""

from typing import Any

import pytest

from federator.control.queries.job_lists import Wanted
from federator.control.submission.expansion import PART
from federator.control.submission.series import running
from federator.kernel.errors import Conflict, Forbidden, NotFound, TooMany
from federator.model.jobs import JobStatus
from federator.store.memory import MemoryStore
from tests.support.dispatch import ADA, ADMIN, BOB, SharedClock, make_world
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
)


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
    assert (await world.core.views.page(ADA, Wanted(series="nightly")))[0].total == 1
    assert (await world.core.views.page(ADA, Wanted(series="other")))[0].total == 0


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
        "no dispatcher was running when runs were due from 2026-03-01T00:00:00Z on; of that, the run due at 2026-03-01T10:00:00Z "
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
        await world.core.records.transact(lambda: world.core.series_runs.step("ada/nightly"))
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


async def test_a_file_for_a_paused_one_is_answered_by_that() -> None:
    world = await a_world()
    await again_and_again(world)
    await world.core.series.pause(ADA, series(world))
    answer = await world.submit_all(ADA, name="nightly", every="6h", env={"V": "2"})
    assert answer.paused == "paused by ada: no runs are submitted until it is resumed"
    assert answer.next_at is None
    await world.core.series.resume(ADA, series(world))
    answer = await world.submit_all(ADA, name="nightly", every="6h", env={"V": "3"})
    assert (answer.paused, answer.next_at) == ("", MIDNIGHT)


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
    await again_and_again(world, env={"WORD": "secret"})
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
    lines = [entry async for entry in ledger(world)]
    assert [line.what for line in lines] == ["submit series nightly", "pause series nightly"]
    assert {line.who for line in lines} == {"user:ada"}


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
        patch.setattr(world.core.series_runs.acceptance.retention, "refuse_if_full", _raises(full))
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


async def test_a_run_of_many_tasks_is_completed_by_a_successor() -> None:
    store = MemoryStore(SharedClock(at=MIDNIGHT))
    world = await a_world(store=store)
    tasks = 2 * PART + 7
    await again_and_again(world, array=f"0-{tasks - 1}")
    await world.core.series_runs.look()
    assert len(runs(world)) == PART
    after = await make_world(store=store, clock=world.clock)
    assert running(after.core.records, after.core.records.series["ada/nightly"]) == "nightly-1"
    for array in after.core.records.job_arrays:
        await after.core.intake.expansion.fill(array)
    assert sorted(job.array_index or 0 for job in runs(after)) == list(range(tasks))
    assert {(job.series, job.due_at) for job in runs(after)} == {("nightly", MIDNIGHT)}
    assert len({job.array for job in runs(after)}) == 1


async def test_there_is_a_limit_on_series() -> None:
    world = await a_world()
    world.core.series.limits = type(world.core.series.limits)(series=1)
    await again_and_again(world)
    await again_and_again(world, env={"V": "2"})
    with pytest.raises(TooMany):
        await world.submit_all(ADA, name="another", every="6h")
    await world.core.series.end(ADA, series(world))
    with pytest.raises(TooMany):
        await world.submit_all(
            ADA, name="another", every="6h"
        )  # or rows of some that are begun and ended would have no limit
    await again_and_again(world)


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
