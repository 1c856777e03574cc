"""Large arrays: a few of their tasks are jobs, all others are as good as jobs to whoever asks, and each becomes one once."""

import asyncio

import pytest
from msgspec.structs import replace

from federator.control.queries.job_lists import Wanted
from federator.control.record.holders import Held, holders_of
from federator.control.submission import expansion
from federator.control.submission.reruns import request_again
from federator.kernel.errors import Conflict, Invalid, NotFound, TooMany
from federator.model.arrays import EVERYWHERE
from federator.model.jobs import TERMINAL, Job, JobStatus
from federator.ports import Transaction
from federator.store.memory import MemoryStore
from federator.wire.http import JobAction, JobPatch
from tests.support.dispatch import ADA, SharedClock, World, make_world

WINDOW = 10


async def a_world(store: MemoryStore | None = None, clock: SharedClock | None = None) -> World:
    """A site with four GPUs, and ten tasks of an array at most that wait."""
    world = await make_world(store, clock)
    limits = world.core.intake.acceptance.limits
    world.core.intake.acceptance.limits = replace(limits, array_waiting=WINDOW, array_tasks=1_000_000)
    if store is None:
        await world.add_site("lab", nodes=1, gpus=4)
    return world


def expanded(world: World) -> list[int]:
    """Indices of the tasks that are jobs."""
    return sorted(job.array_index or 0 for job in world.core.records.jobs.values())


async def fill(world: World) -> None:
    for array in tuple(world.core.records.job_arrays):
        await world.core.intake.expansion.fill(array)


async def act(world: World, verb: JobAction, name: str) -> int:
    """As the API does it for the whole of an array."""
    meant, intake = await world.core.views.find_all(ADA, name), world.core.intake
    assert meant.array is not None
    rest = await intake.verbs.act_on_rest(ADA, verb, meant.array.id, meant.places)
    jobs = (await world.core.views.find_all(ADA, name)).jobs
    return rest.changed + (await intake.verbs.act(ADA, verb, [job.id for job in jobs])).changed


async def run_out(world: World) -> None:
    """Until nothing of it is open."""
    while open_jobs := list(world.core.records.open_jobs.values()):
        for job in open_jobs:
            if job.status is JobStatus.RUNNING:
                await world.sites["lab"].finish(job.id)
        await fill(world)
        await world.turn()


async def test_tasks_become_jobs_in_order_as_others_start() -> None:
    world = await a_world()
    answer = await world.submit_all(name="sweep", array="0-99", resources={"gpus": 1})
    assert answer.tasks == 100
    assert expanded(world) == list(range(WINDOW))
    await world.turn()
    await fill(world)
    assert expanded(world) == list(range(WINDOW + 4)), "four run, and ten wait"
    assert [world.job(each).array_index for each in answer.jobs[:14]] == list(range(14))
    await run_out(world)
    assert expanded(world) == list(range(100))
    assert {job.id for job in world.core.records.jobs.values()} == set(answer.jobs)
    assert {job.status for job in world.core.records.jobs.values()} == {JobStatus.SUCCEEDED}


async def test_the_rest_counts_as_waiting_wherever_tasks_are_counted() -> None:
    world = await a_world()
    await world.submit_all(name="sweep", array="0-999:2", resources={"gpus": 1})
    await world.turn()
    index, views = world.core.records.index, world.core.views
    assert index.counts()[JobStatus.PENDING] == 496
    assert index.pending_by_queue() == {"default": 496}
    (row,) = (await views.page(ADA, Wanted(collapse=True)))[0].jobs
    assert (row.label, row.tasks) == ("sweep[0-998]", {"RUNNING": 4, "PENDING": 496})
    shown = await views.array(ADA, views.find_job(ADA, "sweep"))
    assert (shown.indices, shown.unexpanded) == ("0-998:2", 490)
    assert views.queues(ADA)[0].pending == 496


async def test_a_task_answers_before_it_is_a_job() -> None:
    world = await a_world()
    answer = await world.submit_all(name="sweep", array="5-999999")
    views = world.core.views
    task = views.find_job(ADA, "sweep[999999]")
    assert (task.label, task.status) == ("sweep[999999]", JobStatus.PENDING)
    assert "not expanded yet" in views.detail(task).job.because
    assert views.find_job(ADA, task.id) == task == views.find_job(ADA, f"{answer.array}[999999]")
    assert (await views.explain(task)).job == task.id
    assert await views.events(task.id, None) == []
    with pytest.raises(NotFound, match=r"sweep has no task 4"):
        views.find_job(ADA, "sweep[4]")
    with pytest.raises(NotFound, match=r"sweep has no task 1000000"):
        await views.find_all(ADA, "sweep[999999-1000000]")


async def test_a_million_tasks_cost_no_more_than_those_that_wait() -> None:
    world = await a_world()
    answer = await world.submit_all(name="sweep", array="0-999999")
    assert answer.tasks == 1_000_000
    assert len(answer.jobs) == 10_000, "ids of the others follow from the array's"
    assert len(world.core.records.jobs) == WINDOW
    assert await act(world, JobAction("cancel", ("sweep",)), "sweep") == 1_000_000
    assert world.core.records.index.task_counts(answer.array) == {JobStatus.CANCELLED: 1_000_000}
    shown = await world.core.views.array(ADA, world.core.views.find_job(ADA, "sweep"))
    assert shown.ended["CANCELLED, before it was a job"] == "10-999999"
    assert shown.finished_at is not None
    assert world.core.views.find_job(ADA, "sweep[500000]").status is JobStatus.CANCELLED


async def test_a_successor_goes_on_and_neither_loses_nor_doubles_a_task() -> None:
    clock = SharedClock()
    store = MemoryStore(clock)
    world = await a_world(store, clock)
    answer = await world.submit_all(client_id="c", name="sweep", array="0-199")
    after = await a_world(store, clock)
    assert expanded(after) == expanded(world) == list(range(WINDOW))
    again = await after.submit_all(client_id="c", name="sweep", array="0-199")
    assert again == replace(answer, repeated=True)
    await after.add_site("lab", nodes=1, gpus=4)
    await run_out(after)
    assert expanded(after) == list(range(200))
    assert not after.core.records.has_left(answer.array)


async def test_some_of_the_rest_are_cancelled_without_becoming_jobs() -> None:
    world = await a_world()
    await world.submit_all(name="sweep", array="0-99")
    assert await act(world, JobAction("cancel", ("sweep[5-19,50-99]",)), "sweep[5-19,50-99]") == 65
    assert await act(world, JobAction("cancel", ("sweep[5-19]",)), "sweep[5-19]") == 0, "once is enough"
    await run_out(world)
    assert expanded(world) == [*range(10), *range(20, 50)]
    shown = await world.core.views.array(ADA, world.core.views.find_job(ADA, "sweep"))
    assert shown.tasks == {"CANCELLED": 65, "SUCCEEDED": 35}


async def test_what_is_held_or_changed_as_a_whole_stays_so_when_it_becomes_jobs() -> None:
    world = await a_world()
    answer = await world.submit_all(name="sweep", array="0-99")
    assert await act(world, JobAction("hold", ("sweep",)), "sweep") == 100
    assert world.core.records.index.task_counts(answer.array) == {JobStatus.HELD: 100}
    await fill(world)
    assert len(world.core.records.jobs) == WINDOW, "nothing of it is to start"
    patch = JobAction("update", ("sweep",), JobPatch(priority=7))
    assert await act(world, patch, "sweep") == 100
    assert await act(world, JobAction("release", ("sweep",)), "sweep") == 100
    await run_out(world)
    assert {(job.priority, job.status) for job in world.core.records.jobs.values()} == {
        (7, JobStatus.SUCCEEDED)
    }
    assert expanded(world) == list(range(100))


async def test_an_array_is_given_other_gpu_models_as_a_whole() -> None:
    world = await a_world()
    wants = {"gpus": {"count": 1, "models": ["B200"]}}
    await world.submit_all(name="sweep", array="0-29", resources=wants)
    patch = JobAction("update", ("sweep",), JobPatch(models="none"))
    assert await act(world, patch, "sweep") == 30
    (array,) = world.core.records.job_arrays.values()
    assert array.template.spec_hash not in world.core.records.unused_specs()
    await run_out(world)
    assert expanded(world) == list(range(30))
    assert {job.status for job in world.core.records.jobs.values()} == {JobStatus.SUCCEEDED}


async def test_a_task_that_somebody_acts_on_becomes_a_job() -> None:
    world = await a_world()
    await world.submit_all(name="sweep", array="0-99")
    task = world.core.views.find_job(ADA, "sweep[70]")
    await world.core.intake.act_on_one(ADA, "hold", task.id)
    assert expanded(world) == [*range(WINDOW), 70]
    assert world.job(task.id).status is JobStatus.HELD
    assert [event.kind for event in await world.core.views.events(task.id, None)] == ["submit", "hold"]
    with pytest.raises(Conflict, match="only a job that has been placed"):
        await world.core.intake.act_on_one(ADA, "requeue", world.core.views.find_job(ADA, "sweep[80]").id)
    assert expanded(world) == [*range(WINDOW), 70]
    await world.core.intake.act_on_one(ADA, "release", task.id)
    await run_out(world)
    assert expanded(world) == list(range(100))


async def test_what_follows_an_array_waits_for_tasks_that_are_no_jobs() -> None:
    world = await a_world()
    await world.submit_all(name="sweep", array="0-24", resources={"gpus": 1})
    after = {how: await world.submit(name=how, after={how: "sweep"}) for how in ("ok", "any", "failed")}
    for _ in range(3):
        await world.turn()
        for job in list(world.core.records.open_jobs.values()):
            if job.status is JobStatus.RUNNING:
                await world.sites["lab"].finish(job.id)
    assert {world.job(job).status for job in after.values()} == {JobStatus.PENDING}
    await act(world, JobAction("cancel", ("sweep",)), "sweep")
    await world.turn()
    ended = {how: world.job(job).status for how, job in after.items()}
    assert ended == {"ok": JobStatus.FAILED, "any": JobStatus.RUNNING, "failed": JobStatus.RUNNING}


async def test_each_task_follows_that_with_its_index_though_neither_is_a_job() -> None:
    world = await a_world()
    await world.submit_all(name="first", array="0-39", resources={"gpus": 1})
    await world.submit_all(name="second", array="10-39", after={"each": "first"})
    with pytest.raises(Invalid, match="there is no task 40"):
        await world.submit_all(name="third", array="10-40", after={"each": "first"})
    views = world.core.views
    await act(world, JobAction("cancel", ("first[35-39]",)), "first[35-39]")
    await run_out(world)
    tasks = {job.label: job for job in world.core.records.jobs.values()}
    assert {tasks[f"second[{index}]"].status for index in range(10, 35)} == {JobStatus.SUCCEEDED}
    assert {tasks[f"second[{index}]"].status for index in range(35, 40)} == {JobStatus.FAILED}
    second = tasks["second[12]"]
    assert second.after == (tasks["first[12]"].id,)
    assert (second.started_at or 0.0) >= (tasks["first[12]"].finished_at or 0.0)
    assert views.find_job(ADA, "first[37]").status is JobStatus.CANCELLED


async def test_one_person_may_not_fill_the_queue_with_arrays() -> None:
    world = await a_world()
    world.core.intake.acceptance.limits = replace(
        world.core.intake.acceptance.limits, array_waiting=1000, queued_jobs=10_000
    )
    shares = world.core.intake.acceptance.shares
    shares.limits = replace(shares.limits, queued_jobs=10_000)
    await world.submit_all(name="sweep", array="0-999999")
    held = world.core.records.held_counts.of(Held.QUEUED, holders_of("ada")[0])
    assert held == 2000, "those that wait, and as many again that may come to"
    with pytest.raises(TooMany, match="queued jobs"):
        await world.submit_all(name="more", array="0-999999")
    await act(world, JobAction("cancel", ("sweep",)), "sweep")
    assert world.core.records.held_counts.of(Held.QUEUED, holders_of("ada")[0]) == 0


async def test_it_is_run_again_with_what_was_cancelled_before_it_was_a_job() -> None:
    world = await a_world()
    await world.submit_all(name="sweep", array="0-29", resources={"gpus": 1})

    async def again(*, failed: bool) -> list[int]:
        meant = await world.core.views.find_all(ADA, "sweep")
        records, now = world.core.records, world.clock.now()
        of = (meant.array, meant.named)
        return list(request_again(records, ADA, meant.jobs, of, failed=failed, now=now).array)

    with pytest.raises(Conflict, match="tasks of sweep wait"):
        await again(failed=False)
    await world.turn()
    await world.sites["lab"].finish(_task(world, 2).id, exit_code=1)
    assert await again(failed=True) == [2]
    await act(world, JobAction("cancel", ("sweep[20-29]",)), "sweep[20-29]")
    await run_out(world)
    assert await again(failed=False) == list(range(30))


async def test_at_most_so_many_run_though_many_are_no_jobs() -> None:
    world = await a_world()
    await world.submit_all(name="sweep", array="0-49%2", resources={"gpus": 1})
    for _ in range(4):
        await world.turn()
        await fill(world)
        running = [job for job in world.core.records.jobs.values() if job.status is JobStatus.RUNNING]
        assert len(running) == 2
        await world.sites["lab"].finish(running[0].id)


async def test_nothing_of_it_is_dropped_while_tasks_are_left() -> None:
    world = await a_world()
    await world.submit_all(name="sweep", array="0-29", resources={"gpus": 1})
    await world.core.intake.verbs.act_on_rest(
        ADA, JobAction("hold", ("sweep",)), _task(world, 0).array or "", EVERYWHERE
    )
    await run_out(world)
    assert all(job.status in TERMINAL for job in world.core.records.jobs.values())
    world.clock.advance(400 * 86400)
    await world.core.sweeper.sweep()
    assert expanded(world) == list(range(WINDOW))


def _task(world: World, index: int) -> Job:
    return world.core.views.find_job(ADA, f"sweep[{index}]")


async def test_who_acts_on_tasks_while_others_become_jobs_has_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store takes its time, as a disk does: two who write at once begin with the same row."""
    world = await a_world()
    commit = world.core.records.store.commit

    async def slow(transaction: Transaction) -> int:
        await asyncio.sleep(0.001)
        return await commit(transaction)

    monkeypatch.setattr(world.core.records.store, "commit", slow)
    limits = world.core.intake.acceptance.limits
    world.core.intake.acceptance.limits = replace(limits, array_waiting=4000)
    making = world.core.intake.expansion
    submitting = asyncio.ensure_future(world.submit_all(name="sweep", array="0-9999"))
    while not world.core.records.job_arrays:
        await asyncio.sleep(0)
    (array,) = world.core.records.job_arrays
    filling = asyncio.ensure_future(making.fill(array))
    task = world.core.views.find_job(ADA, "sweep[9999]")
    await world.core.intake.act_on_one(ADA, "hold", task.id)
    await world.core.intake.verbs.act_on_rest(ADA, JobAction("cancel", ("x",)), array, ((9000, 9999),))
    assert not submitting.done(), "this comes while the window is filled"
    await asyncio.gather(submitting, filling)
    assert expanded(world) == [*range(4000), 9999]


async def test_single_tasks_do_not_tear_it_into_more_pieces_than_its_row_may_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(expansion, "MOST_SPANS", 5)
    world = await a_world()
    answer = await world.submit_all(name="sweep", array="0-99")
    every_other = (await world.core.views.find_all(ADA, "sweep[20-98:2]")).tasks
    acted = await world.core.intake.verbs.act(ADA, JobAction("hold", ()), [job.id for job in every_other])
    row = world.core.records.job_arrays[answer.array]
    assert acted.left == 40 - acted.changed > 0
    assert "over 5 pieces (name tasks that follow each other)" in acted.left_because
    with pytest.raises(Conflict, match="over 5 pieces"):
        await world.core.intake.act_on_one(ADA, "hold", _task(world, 97).id)
    with pytest.raises(Conflict, match="over 5 pieces"):
        await act(world, JobAction("cancel", ("sweep[97]",)), "sweep[97]")
    assert world.core.records.job_arrays[answer.array] == row
    assert await act(world, JobAction("cancel", ("sweep",)), "sweep") == 100, "all of it is no more pieces"


async def test_the_rest_of_an_array_ends_with_what_it_follows() -> None:
    world = await a_world()
    first = await world.submit(name="first")
    await world.submit_all(name="ok", array="0-99", after="first")
    await world.submit_all(name="each", array="0-99", after={"each": "ok"})
    await world.submit_all(name="any", array="0-99", after={"any": "first"})
    await world.turn()
    await world.sites["lab"].finish(first, exit_code=1)
    await world.turn()
    views = world.core.views
    for name in ("ok", "each"):
        shown = await views.array(ADA, views.find_job(ADA, name))
        assert shown.tasks == {"FAILED": WINDOW, "CANCELLED": 90}
    told = views.detail(views.find_job(ADA, "ok[50]")).job
    assert (told.status, told.because) == (JobStatus.CANCELLED, "it must follow first, which is FAILED")
    assert world.core.records.index.task_counts(views.find_job(ADA, "any").array or "").keys() <= {
        JobStatus.PENDING,
        JobStatus.RUNNING,
    }


async def test_an_answer_does_not_wait_for_tasks_that_start_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if every task started in the moment in which it is a job."""
    world = await a_world()
    monkeypatch.setattr(world.core.records.index, "waiting_tasks", lambda _array: 0)
    await world.submit_all(name="sweep", array="0-9999")
    assert len(world.core.records.jobs) <= 2 * WINDOW
