"""Tasks of an array are named by their indices, and changed many at a time."""

import pytest

from federator.control.queries.job_lists import Wanted
from federator.control.submission.reruns import request_again
from federator.kernel.errors import Conflict, Forbidden, Invalid, NotFound
from federator.model.jobs import Job, JobStatus
from federator.wire.http import JobAction, JobPatch, JobRow
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
    assert labels((await views.find_all(ADA, "sweep[0,10]")).jobs) == ["sweep[0]", "sweep[10]"]
    assert labels((await views.find_all(ADA, str(task.array))).jobs) == ["sweep[0]", "sweep[5]", "sweep[10]"]
    assert labels((await views.find_all(ADA, task.id)).jobs) == ["sweep[5]"]
    assert labels((await views.find_all(ADA, "train")).jobs) == ["train"]


async def test_a_label_is_the_newest_task_that_has_it(world: World) -> None:
    first = await world.submit_all(name="sweep", array="0-3")
    single = await world.submit(name="sweep")
    again = await world.submit_all(name="sweep", array="1,3")
    views = world.core.views
    assert views.find_job(ADA, "sweep[3]").id == again.jobs[1]
    assert views.find_job(ADA, "sweep[2]").id == first.jobs[2]
    assert views.find_job(ADA, single).label == "sweep"
    assert labels((await views.find_all(ADA, "sweep")).jobs) == ["sweep[1]", "sweep[3]"], "the newest array"


async def test_what_is_not_there_is_said(world: World) -> None:
    await world.submit_all(name="sweep", array="0-3")
    views = world.core.views
    with pytest.raises(NotFound, match=r"sweep has no task 7-8"):
        await views.find_all(ADA, "sweep[3,7-8]")
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
    acted = await intake.verbs.act(ADA, JobAction("cancel", ("sweep",)), tasks[:99])
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
    acted = await world.core.intake.verbs.act(ADA, JobAction("requeue", ("sweep",)), tasks)
    assert (acted.changed, acted.left) == (3, 7)
    assert acted.left_because.startswith("sweep[0] has ended: SUCCEEDED")
    nothing = await world.core.intake.verbs.act(ADA, JobAction("requeue", ("sweep",)), tasks[:1])
    assert (nothing.changed, nothing.left) == (0, 1)
    cancel = JobAction("cancel", ("sweep",))
    acted = await world.core.intake.verbs.act(ADA, cancel, tasks)
    assert (acted.changed, acted.left, acted.because) == (9, 1, "cancelled by ada")
    assert acted.left_because == "sweep[0] has ended: SUCCEEDED (there is nothing left to cancel)"
    await world.obey()
    again = await world.core.intake.verbs.act(ADA, cancel, tasks[1:])
    assert (again.changed, again.left) == (0, 0), "what is cancelled already is as it was asked to be"


async def test_a_list_has_an_array_as_one_line_wherever_a_page_begins(world: World) -> None:
    await world.submit(name="first")
    sweep = await world.submit_all(name="sweep", array="0-9", resources={"gpus": 1})
    await world.submit(name="middle", caller=BOB)
    other = await world.submit_all(name="other", array="0-4:2", resources={"gpus": 1})
    await world.turn()
    views, array = world.core.views, world.job(sweep.jobs[0]).array
    pages: list[JobRow] = []
    after = None
    while True:
        page, after = await views.page(ADA, Wanted(collapse=True), limit=1, after=after)
        assert page.total == 4
        pages += page.jobs
        if after is None:
            break
    assert [row.label for row in pages] == ["other[0-4]", "middle", "sweep[0-9]", "first"]
    assert (pages[2].id, pages[2].tasks) == (array, {"RUNNING": 4, "PENDING": 6})
    assert pages[2].because.startswith("4 RUNNING, 6 PENDING: no room now for 1 node with 1 GPU")
    assert [row.label for row in (await views.page(ADA, Wanted(collapse=True, name="sweep")))[0].jobs] == [
        "sweep[0-9]"
    ]
    assert (
        await views.page(ADA, Wanted(owner="ada", collapse=True, statuses=frozenset([JobStatus.PENDING])))
    )[0].total == 2
    assert (await views.page(ADA, Wanted(name="other")))[0].total == len(other.jobs)


async def test_an_array_is_added_up(world: World) -> None:
    tasks = (await world.submit_all(name="sweep", array="0-5%4", resources={"gpus": 1})).jobs
    await world.turn()
    world.clock.advance(60)
    lab = world.sites["lab"]
    await lab.finish(tasks[0])
    await lab.finish(tasks[1], exit_code=3)
    shown = await world.core.views.array(BOB, world.job(tasks[5]))
    assert shown.tasks == {"RUNNING": 2, "PENDING": 2, "FAILED": 1, "SUCCEEDED": 1}
    assert (shown.indices, shown.at_once, shown.sites) == ("0-5", 4, {"lab": 2})
    assert shown.ended == {"FAILED, exit-code 3": "1"}
    assert (shown.mean_run_s, shown.finished_at) == (60.0, None)
    assert shown.gpu_s == pytest.approx(120.0)
    assert shown.waits == world.core.views.row(world.job(tasks[4])).because
    assert shown.waits
    for task in tasks[2:]:
        await world.core.intake.cancel(ADA, task)
    assert not (await world.core.views.array(BOB, world.job(tasks[5]))).waits
    single = await world.submit(name="train")
    with pytest.raises(NotFound, match="train is not an array"):
        await world.core.views.array(ADA, world.job(single))


async def test_what_failed_is_submitted_again_as_it_was(world: World) -> None:
    tasks = (
        await world.submit_all(
            name="sweep", array="0-3%2", resources={"gpus": 1}, priority=40, finish_within="1h"
        )
    ).jobs
    core, now = world.core, world.clock.now
    for index in range(4):
        await world.turn()
        await world.sites["lab"].finish(tasks[index], exit_code=index % 2)
    jobs = (await core.views.find_all(ADA, "sweep")).jobs
    again = request_again(core.records, ADA, jobs, failed=True, now=now())
    assert (tuple(again.array), again.at_once, again.priority) == ((1, 3), 2, 40)
    assert again.spec == core.records.spec(jobs[0].spec_hash)
    assert again.deadline_at == jobs[0].deadline_at
    assert request_again(core.records, ADA, jobs, failed=False, now=now() + 7200).deadline_at is None
    with pytest.raises(Forbidden, match="sweep belongs to ada"):
        request_again(core.records, BOB, jobs, failed=True, now=now())
    with pytest.raises(Conflict, match=r"nothing of sweep\[0\] has failed"):
        request_again(core.records, ADA, jobs[:1], failed=True, now=now())
    await core.intake.submit(ADA, again, client_id=None, body_hash="")
    assert labels((await core.views.find_all(ADA, "sweep")).jobs) == ["sweep[1]", "sweep[3]"]
    with pytest.raises(Conflict, match="has not ended: it is PENDING"):
        request_again(
            core.records, ADA, (await core.views.find_all(ADA, "sweep")).jobs, failed=False, now=now()
        )


async def test_a_job_is_named_by_how_its_id_begins(world: World) -> None:
    job = await world.submit(name="train")
    world.clock.advance(1)
    task = (await world.submit_all(name="sweep", array="7")).jobs[0]
    views = world.core.views
    assert views.find_job(ADA, job[:16]).id == job
    assert labels((await views.find_all(ADA, task)).jobs) == ["sweep[7]"], "an id is no array's name"
    with pytest.raises(Invalid, match="the ids of several jobs begin with job-"):
        views.find_job(ADA, job[:10])
    with pytest.raises(NotFound):
        views.find_job(ADA, job[:9])


async def test_all_tasks_of_an_array_are_updated_and_told_to_their_sites(world: World) -> None:
    tasks = (
        await world.submit_all(name="sweep", array="0-99", resources={"gpus": 1}, max_duration="1h")
    ).jobs
    await world.turn()
    await world.sites["lab"].finish(tasks[0])
    records, patch = world.core.records, JobPatch(priority=20, max_duration="2h")
    acted = await world.core.intake.verbs.act(ADA, JobAction("update", ("sweep",), patch), tasks)
    assert (acted.changed, acted.left) == (99, 1)
    assert {world.job(task).priority for task in tasks[1:]} == {20}
    assert world.placement(tasks[1]).max_duration_s == 7200
    told = [entry.what for entry in await world.core.views.ledger(limit=100)]
    assert "update priority=20, max_duration=2h sweep[1-28]" in told
    with pytest.raises(Invalid, match="101 is outside"):
        await world.core.intake.verbs.act(ADA, JobAction("update", ("sweep",), JobPatch(priority=101)), tasks)
    assert records.jobs[tasks[9]].priority == 20
