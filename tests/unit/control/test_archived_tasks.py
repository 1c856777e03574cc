"""Tasks of a large array leave memory for the archive while others of it run: whoever asks is told of all of them."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from federator.archive import ParquetArchive
from federator.control.queries.job_lists import Wanted
from federator.control.record.rows import OutputPart, Outputs
from federator.control.submission import sources
from federator.control.submission.reruns import request_again
from federator.kernel.errors import Conflict, Invalid, NotFound
from federator.model.jobs import TERMINAL, Job, JobStatus
from federator.store.blobs import MemoryBlobs
from federator.store.memory import MemoryStore
from federator.wire.http import ArrayDetail, JobAction
from tests.support.dispatch import ADA, SharedClock, World, make_world

TASKS, WINDOW = 40, 8


class Place:
    """Blobs, archive and store that outlive a dispatcher."""

    def __init__(self, folder: Path) -> None:
        self.clock = SharedClock()
        self.store, self.blobs = MemoryStore(self.clock), MemoryBlobs()
        self.archive = ParquetArchive(self.blobs, folder)

    async def world(self) -> World:
        world = await make_world(self.store, self.clock, blobs=self.blobs, archive=self.archive)
        acceptance, retention = world.core.intake.acceptance, world.core.sweeper.retention
        acceptance.limits = replace(acceptance.limits, array_waiting=WINDOW)
        retention.configure(replace(retention.settings, recent_jobs=1))
        return world


@pytest.fixture
async def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def a_sweep(place: Place) -> World:
    """Sixteen tasks have ended, each after a minute, the third of them not in success; all but one are in the archive."""
    world = await place.world()
    await world.add_site("lab", nodes=1, gpus=4)
    await world.submit_all(name="sweep", array=f"0-{TASKS - 1}", resources={"gpus": 1}, client_id="once")
    for _ in range(4):
        await end_four(world)
    output = place.blobs.put(b"output")
    first = world.core.views.find_job(ADA, "sweep[4]")
    await world.put(Outputs(first.id, first.placement or "", 1, (OutputPart("lab", output, 6),)))
    world.clock.advance(3600.0)
    await world.core.sweeper.retention.sweep()
    return world


async def end_four(world: World) -> None:
    await fill(world)
    await world.turn()
    world.clock.advance(60.0)
    for job in list(world.core.records.open_jobs.values()):
        if job.status is JobStatus.RUNNING:
            await world.sites["lab"].finish(job.id, exit_code=3 if job.array_index == 2 else 0)


async def fill(world: World) -> None:
    for array in tuple(world.core.records.job_arrays):
        await world.core.intake.expansion.fill(array)


async def detail(world: World) -> ArrayDetail:
    return await world.core.views.array(ADA, await world.core.views.find_any(ADA, "sweep"))


def ended(world: World) -> list[Job]:
    return [job for job in world.core.records.jobs.values() if job.status in TERMINAL]


async def test_all_are_counted_and_added_up(place: Place) -> None:
    world = await a_sweep(place)
    assert [job.array_index for job in ended(world)] == [0], "one stays, by which the array is known"
    shown = await detail(world)
    assert shown.tasks == {"PENDING": 24, "FAILED": 1, "SUCCEEDED": 15}
    assert (shown.indices, shown.ended, shown.outputs) == ("0-39", {"FAILED, exit-code 3": "2"}, "4")
    assert shown.mean_run_s == 60.0
    assert shown.finished_at is None
    (row,) = (await world.core.views.page(ADA, Wanted(collapse=True)))[0].jobs
    assert row.tasks == shown.tasks
    succeeded = Wanted(collapse=True, statuses=frozenset({JobStatus.FAILED}))
    (row,) = (await world.core.views.page(ADA, succeeded))[0].jobs
    assert row.tasks == shown.tasks, "all that match are in the archive"


async def test_each_is_found_and_can_run_again(place: Place) -> None:
    world = await a_sweep(place)
    views, records = world.core.views, world.core.records
    for index in range(TASKS):
        assert (await views.find_any(ADA, f"sweep[{index}]")).array_index == index
    meant = await views.find_all(ADA, "sweep")
    again = request_again(records, ADA, meant.jobs, (meant.array, meant.named), failed=True, now=0.0)
    assert list(again.array) == [2]
    meant = await views.find_all(ADA, "sweep[1-9]")
    again = request_again(records, ADA, meant.jobs, (meant.array, meant.named), failed=False, now=0.0)
    assert list(again.array) == list(range(1, 10))


async def test_what_follows_is_told_of_tasks_in_the_archive(place: Place) -> None:
    world = await a_sweep(place)
    ok = await world.submit(name="ok", after=["sweep"])
    await world.submit_all(name="next", array="0-3", after={"each": "sweep"}, resources={"gpus": 1})
    await world.turn()
    for _ in range(8):
        await end_four(world)
    assert world.job(ok).status is JobStatus.FAILED
    assert "sweep" in world.job(ok).because
    found = {job.label: job.status for job in world.core.records.jobs.values() if job.name == "next"}
    assert found["next[2]"] is JobStatus.FAILED
    assert {found[f"next[{index}]"] for index in (0, 1, 3)} == {JobStatus.SUCCEEDED}


async def test_a_successor_knows_of_them_and_finishes_the_array(place: Place) -> None:
    before = await detail(await a_sweep(place))
    world = await place.world()
    world.connect("lab", 1, 4, "A100")
    assert replace(await detail(world), waits=before.waits) == before
    answer = await world.submit_all(
        name="sweep", array=f"0-{TASKS - 1}", resources={"gpus": 1}, client_id="once"
    )
    assert answer.repeated
    for _ in range(7):
        await end_four(world)
    after = await detail(world)
    assert after.tasks == {"FAILED": 1, "SUCCEEDED": TASKS - 1}
    assert after.finished_at is not None
    world.clock.advance(3600.0)
    await world.core.sweeper.retention.sweep()
    assert world.core.records.jobs == {}
    assert world.core.records.job_arrays == {}
    assert await detail(world) == after, "now by what the archive has of it"
    assert world.core.views.search.archived.total == TASKS


async def test_the_rest_can_be_cancelled_when_all_others_are_in_the_archive(place: Place) -> None:
    world = await a_sweep(place)
    meant = await world.core.views.find_all(ADA, "sweep")
    assert meant.array is not None
    action = JobAction("cancel", ("sweep",))
    await world.core.intake.verbs.act_on_rest(ADA, action, meant.array.id, meant.places)
    await world.core.intake.verbs.act(ADA, action, [job.id for job in meant.jobs])
    shown = await detail(world)
    assert shown.tasks == {"FAILED": 1, "CANCELLED": 24, "SUCCEEDED": 15}
    assert shown.finished_at is not None


async def test_what_follows_an_archived_array_is_told_of_tasks_that_never_became_jobs(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await place.world()
    await world.add_site("lab", nodes=1, gpus=4)
    await world.submit_all(name="sweep", array=f"0-{TASKS - 1}", resources={"gpus": 1})
    meant = await world.core.views.find_all(ADA, "sweep")
    assert meant.array is not None
    await world.core.intake.verbs.act_on_rest(
        ADA, JobAction("cancel", ("sweep",)), meant.array.id, meant.places
    )
    while world.core.records.open_jobs:
        await world.turn()
        for job in list(world.core.records.open_jobs.values()):
            if job.status is JobStatus.RUNNING:
                await world.sites["lab"].finish(job.id)
    world.clock.advance(3600.0)
    await world.core.sweeper.retention.sweep()
    assert not world.core.records.jobs
    assert not world.core.records.job_arrays
    monkeypatch.setattr(world.core.views.search, "selected", None)  # nor is every task of it read
    meant = await world.core.views.find_all(ADA, "sweep")
    of = (meant.array, meant.named)
    again = request_again(world.core.records, ADA, meant.jobs, of, failed=False, now=0.0)
    assert list(again.array) == list(range(TASKS))
    with pytest.raises(Conflict, match="nothing of sweep has failed"):
        request_again(world.core.records, ADA, meant.jobs, of, failed=True, now=0.0)
    with pytest.raises(NotFound, match="sweep has no task 40"):
        await world.core.views.find_all(ADA, "sweep[39-40]")
    ran = await world.submit_all(name="next", array="0-7", after={"each": "sweep"})
    assert all(world.job(job).after == () for job in ran.jobs)
    with pytest.raises(Invalid, match="not so that a job may follow it"):
        await world.submit_all(name="next", array="0-8", after={"each": "sweep"})
    with pytest.raises(Invalid, match="not so that a job may follow it"):
        await world.submit(name="ok", after="sweep")
    failed = await world.submit(name="failed", after={"failed": "sweep"})
    assert world.job(failed).after == ()


async def test_outputs_of_too_many_tasks_are_not_read_as_a_whole_wherever_the_tasks_are(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else whoever reads them would be given those of some, and not know."""
    monkeypatch.setattr(sources, "MOST_TASKS", TASKS - 1)
    world = await place.world()
    await world.add_site("lab", nodes=1, gpus=4)
    await world.submit_all(
        name="sweep", array=f"0-{TASKS - 1}", resources={"gpus": 1}, outputs=["**"], client_id="once"
    )
    assert len(world.core.records.jobs) == WINDOW, "the others wait as one record"
    with pytest.raises(Invalid, match=f"has {TASKS} tasks"):
        await world.submit(name="best", inputs={"from": "sweep"})
    alone = world.core.views.find_job(ADA, "sweep[2]").id
    while world.core.records.open_jobs:
        await fill(world)
        await world.turn()
        for job in list(world.core.records.open_jobs.values()):
            if job.status is JobStatus.RUNNING:
                await world.sites["lab"].finish(job.id)
    world.clock.advance(3600.0)
    await world.core.sweeper.retention.sweep()
    assert not [job for job in world.core.records.jobs.values() if job.name == "sweep"]
    with pytest.raises(Invalid, match=f"has {TASKS} tasks"):
        await world.submit(name="best", inputs={"from": "sweep"})
    await world.submit_all(name="plot", array="0-1", after={"each": "sweep"}, inputs={"from": "sweep"})
    await world.submit(name="one", inputs={"from": alone})
