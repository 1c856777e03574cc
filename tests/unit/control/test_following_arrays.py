"""Jobs that follow an array follow all of it."""

from federator.model.jobs import JobStatus
from tests.support.dispatch import make_world


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
