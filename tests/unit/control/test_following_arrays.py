"""Jobs that follow others: all of an array, a task of it each, or what fails."""

import pytest

from federator.kernel.errors import Invalid
from federator.model.jobs import JobStatus, TerminalReason
from federator.wire.http import JobAction, JobPatch
from tests.support.dispatch import ADA, World, make_world


async def test_a_job_that_follows_an_array_waits_for_all_its_tasks() -> None:
    world = await make_world()
    await world.add_site("lab", nodes=1, gpus=4)
    tasks = (await world.submit_all(name="preprocess", array="0-2", resources={"gpus": 1})).jobs
    by_name = await world.submit(name="train", after=["preprocess"])
    by_id = await world.submit(name="train", after=[world.job(tasks[0]).array])
    await world.turn()
    await world.sites["lab"].finish(tasks[2])
    await world.turn()
    assert world.job(by_name).status is JobStatus.PENDING
    assert world.job(by_id).status is JobStatus.PENDING
    assert world.core.views.row(world.job(by_name)).because == "waits for preprocess to succeed"
    for task in tasks[:2]:
        await world.sites["lab"].finish(task)
    await world.turn()
    assert world.job(by_name).status is JobStatus.RUNNING
    assert world.job(by_id).status is JobStatus.RUNNING


async def test_one_failed_task_fails_what_follows_the_array() -> None:
    world = await make_world()
    await world.add_site("lab", nodes=1, gpus=4)
    tasks = (await world.submit_all(name="preprocess", array="0-2", resources={"gpus": 1})).jobs
    job = await world.submit(name="train", after=["preprocess"])
    await world.turn()
    await world.sites["lab"].finish(tasks[0], exit_code=1)
    await world.turn()
    assert world.job(job).status is JobStatus.FAILED


@pytest.fixture
async def world() -> World:
    world = await make_world()
    await world.add_site("lab", nodes=1, gpus=4)
    return world


async def test_what_follows_any_end_starts_after_a_failure_too(world: World) -> None:
    first = await world.submit(name="train")
    after = await world.submit(name="report", after={"any": "train"})
    await world.turn()
    assert world.core.views.row(world.job(after)).because == "waits for train to end"
    await world.sites["lab"].finish(first, exit_code=1)
    await world.turn()
    assert world.job(after).status is JobStatus.RUNNING


async def test_what_follows_a_failure_starts_after_one_and_is_not_needed_after_success(world: World) -> None:
    good, bad = await world.submit(name="good"), await world.submit(name="bad")
    idle = await world.submit(name="mend-good", after={"failed": [good]})
    mend = await world.submit(name="mend-bad", after={"failed": [bad]})
    await world.turn()
    await world.sites["lab"].finish(good)
    await world.sites["lab"].finish(bad, exit_code=1)
    await world.turn()
    assert world.job(mend).status is JobStatus.RUNNING
    ended = world.job(idle)
    assert (ended.status, ended.outcome and ended.outcome.reason) == (
        JobStatus.CANCELLED,
        TerminalReason.CANCELLED,
    )
    assert ended.because.startswith("not needed: it was to start if good")


async def test_a_failed_task_of_an_array_is_followed_once_all_have_ended(world: World) -> None:
    tasks = (await world.submit_all(name="sweep", array="0-2")).jobs
    mend = await world.submit(name="mend", after={"failed": "sweep"})
    await world.turn()
    await world.sites["lab"].finish(tasks[0], exit_code=1)
    await world.sites["lab"].finish(tasks[1])
    await world.turn()
    assert world.job(mend).status is JobStatus.PENDING
    await world.sites["lab"].finish(tasks[2])
    await world.turn()
    assert world.job(mend).status is JobStatus.RUNNING


async def test_each_task_follows_the_task_with_its_index(world: World) -> None:
    before = (await world.submit_all(name="prepare", array="0-2", resources={"gpus": 1})).jobs
    after = (await world.submit_all(name="train", array="0,2", after={"each": "prepare"})).jobs
    await world.turn()
    await world.sites["lab"].finish(before[2])
    await world.sites["lab"].finish(before[0], exit_code=1)
    await world.turn()
    assert world.job(after[0]).status is JobStatus.FAILED
    assert world.job(after[1]).status is JobStatus.RUNNING
    with pytest.raises(Invalid, match="no task 3"):
        await world.submit(name="more", after={"each": "prepare"}, array="0-3")
    with pytest.raises(Invalid, match="not an array"):
        await world.submit(name="more", after={"each": "prepare"})


async def test_only_so_many_tasks_of_an_array_run_at_once(world: World) -> None:
    tasks = (await world.submit_all(name="sweep", array="0-5%2", resources={"gpus": 1})).jobs
    await world.submit(name="other", resources={"gpus": 1})

    def running() -> list[int]:
        return [n for n, task in enumerate(tasks) if world.job(task).status is JobStatus.RUNNING]

    await world.turn()
    assert running() == [0, 1]
    why = world.core.views.row(world.job(tasks[2])).because
    assert why == "at most 2 tasks of sweep run at once (array: …%2)"
    await world.sites["lab"].finish(tasks[0])
    await world.turn()
    assert running() == [1, 2]
    await world.core.intake.verbs.act(ADA, JobAction("hold", ("sweep",)), tasks[3:5])
    await world.sites["lab"].finish(tasks[1])
    await world.turn()
    assert running() == [2, 5], "tasks that are held take no turn"
    await world.core.intake.verbs.act(ADA, JobAction("release", ("sweep",)), tasks[3:5])
    await world.turn()
    assert running() == [2, 5], "a task that is let go waits for those that run"
    await world.core.intake.cancel(ADA, tasks[5])
    await world.turn()
    await world.turn()
    assert running() == [2, 3]


async def test_the_limit_holds_over_queues(world: World) -> None:
    """The order is that of the array, whichever queue a task waits in."""
    await world.policies("apiVersion: federator/v1\nkind: Queue\nmetadata: {name: other}\nspec: {}\n")
    tasks = (await world.submit_all(name="sweep", array="0-5%2", resources={"gpus": 1})).jobs
    for number in (0, 3):
        await world.core.intake.update(ADA, tasks[number], JobPatch(queue="other"))
    for began in ([0, 1], [1, 2], [2, 3]):
        await world.turn()
        assert [n for n, each in enumerate(tasks) if world.job(each).status is JobStatus.RUNNING] == began
        await world.sites["lab"].finish(tasks[began[0]])


async def test_a_task_that_cannot_start_yet_holds_no_place_of_the_limit(world: World) -> None:
    before = (await world.submit_all(name="prepare", array="0-3", resources={"gpus": 1})).jobs
    after = (
        await world.submit_all(name="train", array="0-3%1", after={"each": "prepare"}, resources={"gpus": 1})
    ).jobs
    await world.turn()
    await world.sites["lab"].finish(before[2])
    await world.turn()
    assert world.job(after[2]).status is JobStatus.RUNNING, "tasks 0 and 1 follow what has not ended"
    await world.sites["lab"].finish(before[1])
    await world.turn()
    assert world.job(after[1]).status is JobStatus.PENDING
    why = world.core.views.row(world.job(after[1])).because
    assert why == "at most 1 tasks of train run at once (array: …%1)"
    await world.sites["lab"].finish(after[2])
    await world.turn()
    assert world.job(after[1]).status is JobStatus.RUNNING


async def test_a_task_that_is_tried_again_later_lets_others_go_before_it(world: World) -> None:
    tasks = (
        await world.submit_all(
            name="sweep",
            array="0-2%1",
            retry={"max": 2, "backoff": "5m", "on": ["preemption", "error"]},
            resources={"gpus": 1},
        )
    ).jobs
    await world.turn()
    await world.sites["lab"].finish(tasks[0], exit_code=1)
    await world.turn()
    assert [world.job(task).status for task in tasks[:2]] == [JobStatus.PENDING, JobStatus.RUNNING]
    world.clock.advance(301.0)
    await world.sites["lab"].finish(tasks[1])
    await world.turn()
    states = [world.job(task).status for task in tasks]
    assert states == [JobStatus.RUNNING, JobStatus.SUCCEEDED, JobStatus.PENDING], "its time has come"


async def test_a_task_that_is_set_aside_lets_others_go_before_it(world: World) -> None:
    tasks = (await world.submit_all(name="sweep", array="0-2%1", resources={"gpus": 1})).jobs
    world.core.turn.aside.add(tasks[0], ValueError("odd"))
    await world.turn()
    assert [world.job(task).status for task in tasks[:2]] == [JobStatus.PENDING, JobStatus.RUNNING]
    world.clock.advance(61.0)
    await world.sites["lab"].finish(tasks[1])
    await world.turn()
    assert world.job(tasks[0]).status is JobStatus.RUNNING
