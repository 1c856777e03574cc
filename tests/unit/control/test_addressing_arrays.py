"""Tasks of an array are named by their indices, and changed many at a time."""

import pytest

from federator.kernel.errors import Invalid, NotFound
from federator.model.jobs import Job, JobStatus
from tests.support.dispatch import ADA, BOB, World, make_world


@pytest.fixture
async def world() -> World:
    world = await make_world()
    await world.add_site("lab", nodes=1, gpus=4)
    return world


def labels(jobs: list[Job]) -> list[str]:
    return [job.label for job in jobs]


async def test_a_task_is_found_by_name_and_index_and_by_the_id_of_its_array(world: World) -> None:
    await world.submit_all(name="sweep", array="0-10:5")
    await world.submit(name="train")
    views = world.core.views
    task = views.find_job(ADA, "sweep[5]")
    assert task.label == "sweep[5]"
    assert views.find_job(ADA, f"{task.array}[5]") == task
    assert views.find_job(BOB, "sweep[5]") == task, "another's, where one has none of that name"
    assert labels(views.find_jobs(ADA, "sweep[0,10]")) == ["sweep[0]", "sweep[10]"]
    assert labels(views.find_jobs(ADA, str(task.array))) == ["sweep[0]", "sweep[5]", "sweep[10]"]
    assert labels(views.find_jobs(ADA, task.id)) == ["sweep[5]"]
    assert labels(views.find_jobs(ADA, "train")) == ["train"]


async def test_a_label_is_the_newest_task_that_has_it(world: World) -> None:
    first = await world.submit_all(name="sweep", array="0-3")
    single = await world.submit(name="sweep")
    again = await world.submit_all(name="sweep", array="1,3")
    views = world.core.views
    assert views.find_job(ADA, "sweep[3]").id == again.jobs[1]
    assert views.find_job(ADA, "sweep[2]").id == first.jobs[2]
    assert views.find_job(ADA, single).label == "sweep"
    assert labels(views.find_jobs(ADA, "sweep")) == ["sweep[1]", "sweep[3]"], "the newest array"


async def test_what_is_not_there_is_said(world: World) -> None:
    await world.submit_all(name="sweep", array="0-3")
    views = world.core.views
    with pytest.raises(NotFound, match=r"sweep has no task 7-8"):
        views.find_jobs(ADA, "sweep[3,7-8]")
    with pytest.raises(NotFound, match=r"no job 'swep\[1\]'"):
        views.find_job(ADA, "swep[1]")
    with pytest.raises(Invalid, match="names several tasks"):
        views.find_job(ADA, "sweep[1-2]")
    with pytest.raises(Invalid, match="not a range of indices"):
        views.find_job(ADA, "sweep[one]")


async def test_many_are_changed_in_few_transactions_with_a_line_in_the_ledger_for_each(world: World) -> None:
    tasks = (await world.submit_all(name="sweep", array="0-99", resources={"gpus": 1})).jobs
    await world.turn()
    records, intake = world.core.records, world.core.intake
    before = records.revision
    acted = await intake.act(ADA, "cancel", tasks[:99])
    assert (acted.changed, acted.left) == (99, 0)
    assert records.revision - before <= 4
    statuses = [world.job(task).status for task in tasks]
    assert statuses == [JobStatus.CANCELLING] * 4 + [JobStatus.CANCELLED] * 95 + [JobStatus.PENDING]
    told = [entry.what for entry in await world.core.views.ledger(limit=100)]
    assert next(what for what in told if what.startswith("cancel")) == "cancel sweep[0-28]"
    await world.obey()
    assert world.job(tasks[0]).status is JobStatus.CANCELLED


async def test_tasks_that_a_verb_does_not_suit_are_left_and_counted(world: World) -> None:
    tasks = (await world.submit_all(name="sweep", array="0-9", resources={"gpus": 1})).jobs
    await world.turn()
    await world.sites["lab"].finish(tasks[0])
    acted = await world.core.intake.act(ADA, "requeue", tasks)
    assert (acted.changed, acted.left) == (3, 7)
    assert acted.because.startswith("sweep[0] has ended: SUCCEEDED")
    nothing = await world.core.intake.act(ADA, "requeue", tasks[:1])
    assert (nothing.changed, nothing.left) == (0, 1)
