"""Jobs in the archive are answered for as they were in memory, none is lost and none is there twice, whatever is cut short."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast, get_args

import msgspec
import pytest

from federator.archive import ParquetArchive
from federator.control.maintenance import archive_writer
from federator.control.queries.job_lists import NEWEST_FIRST, Sorting, Wanted
from federator.control.queries.recorded_load import Span
from federator.control.queries.usage_report import UsageSums, add_jobs
from federator.control.record.rows import OutputPart, Outputs
from federator.kernel.errors import Conflict, Damaged, Invalid, TooMany, Unavailable
from federator.model.archive import ArchiveFilter
from federator.model.jobs import JobStatus
from federator.ports import Transaction
from federator.settings import LimitSettings
from federator.store.blobs import FileBlobs
from federator.store.memory import MemoryStore
from federator.wire.http import JobAction, JobOrder
from federator.wire.recorded import RecordedJob
from federator.wire.usage import Key
from tests.support.dispatch import ADA, BOB, World, make_world

DAY_S = 86400.0


class Place:
    """Blobs and an archive that outlive a dispatcher."""

    def __init__(self, folder: Path) -> None:
        self.blobs = FileBlobs(folder / "blobs")
        self.archive = ParquetArchive(self.blobs, folder)
        self.store: MemoryStore | None = None

    async def world(self, before: World | None = None) -> World:
        """A dispatcher, or the next one on the store of another."""
        clock = before.clock if before else None
        world = await make_world(self.store, clock, blobs=self.blobs, archive=self.archive)
        self.store = cast("MemoryStore", world.core.records.store)
        world.core.sweeper.retention.shares.limits = LimitSettings(person_share=1.0, team_share=1.0)
        return world


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    place = Place(tmp_path)
    yield place
    place.archive.close()


def keep(world: World, **limits: Any) -> None:
    """Put these limits in force."""
    retention = world.core.sweeper.retention
    retention.configure(msgspec.structs.replace(retention.settings, **limits))


async def archive_all(world: World) -> None:
    """All that has ended leaves memory."""
    keep(world, recent_jobs=1)
    await world.core.sweeper.retention.sweep()


async def end(world: World, *jobs: str, failed: tuple[str, ...] = ()) -> None:
    """Start what can start, and end these."""
    await world.turn()
    for job in jobs:
        world.core.blobs.append_log(f"{world.placement(job).id}/0", 0, b"text of the log")
        await world.sites["north"].finish(job, exit_code=3 if job in failed else 0)


async def a_history(place: Place) -> World:
    """Single jobs of two people, an array, one job that still waits."""
    world = await place.world()
    await world.add_site("north", nodes=2, gpus=8)
    first = await world.submit(
        name="train", resources={"gpus": 1}, labels={"model": "large"}, client_id="once"
    )
    world.clock.advance(5)
    sweep = (await world.submit_all(name="sweep", array="0-3", resources={"gpus": 1})).jobs
    world.clock.advance(5)
    theirs = await world.submit(BOB, name="train", resources={"gpus": 2})
    await end(world, first, *sweep, theirs, failed=(sweep[1],))
    output = place.blobs.put(b"output")
    await world.put(Outputs(first, world.placement(first).id, 1, (OutputPart("north", output, 6),)))
    world.clock.advance(DAY_S)
    await world.submit(name="eval", resources={"gpus": 1})
    return world


def in_memory(world: World) -> list[str]:
    return [job.name for job in world.core.records.jobs.values()]


async def stored(world: World, prefix: str) -> list[str]:
    page = await world.core.records.store.range(prefix, limit=100_000)
    return [item.key for item in page.items]


ORDERS: tuple[JobOrder, ...] = get_args(JobOrder)
WANTED = (
    Wanted(owner="ada"),
    Wanted(name="train"),
    Wanted(text="RAI"),
    Wanted(statuses=frozenset({JobStatus.FAILED, JobStatus.PENDING})),
    Wanted(site="north"),
    Wanted(labels={"model": "large"}),
    Wanted(since_at=0.0, until_at=1e12),
    Wanted(queue="default"),
    Wanted(reason="not-there"),
)


async def pages(world: World, *, every: bool = False) -> list[Any]:
    """All pages of the list, or of every list, and of it in every order."""
    asked = [(Wanted(), NEWEST_FIRST), (Wanted(collapse=True), NEWEST_FIRST)]
    if every:
        asked += [(Wanted(), Sorting(name, largest=number % 2 == 0)) for number, name in enumerate(ORDERS)]
        asked += [
            (Wanted(collapse=True), Sorting("spent")),
            (Wanted(collapse=True), Sorting("name", largest=False)),
        ]
        asked += [(wanted, NEWEST_FIRST) for wanted in WANTED]
    found = list[Any]()
    for wanted, sorting in asked:
        after, ids = None, list[str]()
        while True:
            page, after = await world.core.views.page(ADA, wanted, sorting=sorting, after=after, limit=3)
            ids += [row.id for row in page.jobs]
            found.append(msgspec.to_builtins(page))
            if after is None:
                break
        assert len(set(ids)) == len(ids) == page.total
    return found


async def details(world: World, names: list[str]) -> list[object]:
    """What `show`, `events` and the log say of jobs."""
    found = list[object]()
    for name in names:
        job = await world.core.views.find_any(ADA, name)
        found.append(msgspec.to_builtins(world.core.views.detail(job, seen_by=ADA)))
        found.append(msgspec.to_builtins(await world.core.views.explain(job)))
        found.append(msgspec.to_builtins(await world.core.views.events(job.id, None)))
        if job.array is not None:
            found.append(msgspec.to_builtins(await world.core.views.array(ADA, job)))
    return found


async def test_what_is_in_the_archive_is_answered_for_as_it_was_in_memory(place: Place) -> None:
    world = await a_history(place)
    names = ["train", "sweep", "sweep[1]", *world.core.records.jobs, *world.core.records.arrays]
    before = await pages(world, every=True), await details(world, names)
    selected = await world.core.views.find_all(ADA, "sweep[1-2]")
    await archive_all(world)
    assert in_memory(world) == ["eval"]
    assert (await pages(world, every=True), await details(world, names)) == before
    some, whole = [await world.core.views.find_all(ADA, name) for name in ("sweep[1-2]", "sweep")]
    assert (some.label, some.named, whole.named) == (selected.label, ((1, 3),), ((0, 4),))
    for prefix in ("job/", "placement/", "event/", "outputs/", "client/", "spec/"):
        left = await stored(world, prefix)
        assert len(left) == {"job/": 1, "event/": 1, "spec/": 1}.get(prefix, 0), left
    again = await place.world(world)
    assert await pages(again) == await pages(world)
    for name in names:
        job = await again.core.views.find_any(ADA, name)
        assert job == await world.core.views.find_any(ADA, name)
        assert await again.core.views.events(job.id, None) == await world.core.views.events(job.id, None)


async def test_the_load_of_a_time_has_what_is_in_the_archive(place: Place) -> None:
    world = await a_history(place)
    before = await load(world)
    assert {job.name for job in before.values()} == {"train", "sweep", "eval"}
    await archive_all(world)
    assert await load(world) == before
    assert await load(await place.world(world)) == before


async def test_run_times_in_the_archive_are_learned_from_after_a_restart(place: Place) -> None:
    world = await a_history(place)
    key = ("default", "train")
    theirs = world.core.history.runs(*key)
    await archive_all(world)
    again = await place.world(world)
    assert again.core.history.runs(*key) == ()
    await again.add_site("south", nodes=2, gpus=8)
    newer = await again.submit(name="train", resources={"gpus": 1})
    await again.turn()
    again.clock.advance(77)
    await again.sites["south"].finish(newer)
    await again.core.learn_older()
    runs = again.core.history.runs(*key)
    assert (sorted(runs[:-1]), runs[-1]) == (sorted(theirs), 77.0)


async def load(world: World) -> dict[str, RecordedJob]:
    """All pages of it."""
    now, after, found = world.clock.now(), None, list[RecordedJob]()
    while True:
        page = await world.core.recorded.jobs(Span(now - 2 * DAY_S, now), after=after, limit=2, now=now)
        found += page.jobs
        after = page.next_after
        if after is None:
            assert len(found) == 7
            return {job.id: job for job in found}


async def test_verbs_find_that_a_job_of_the_archive_has_ended(place: Place) -> None:
    world = await a_history(place)
    first = (await world.core.views.find_any(ADA, "train")).id
    await archive_all(world)
    job = await world.core.views.find_any(ADA, first[:14])
    assert job.id == first
    assert (await world.core.intake.cancel(ADA, job.id)).status is JobStatus.SUCCEEDED
    with pytest.raises(Conflict, match="has ended"):
        await world.core.intake.act_on_one(ADA, "hold", job.id)
    acted = await world.core.intake.verbs.act(ADA, JobAction("requeue", (job.id,)), [job.id])
    assert (acted.changed, acted.left) == (0, 1)
    assert world.core.records.jobs.get(first) is None


async def test_a_repeated_request_finds_its_job_in_the_archive(place: Place) -> None:
    world = await a_history(place)
    first = (await world.core.views.find_any(ADA, "train")).id
    await archive_all(world)
    for each in (world, await place.world(world)):
        fields: dict[str, Any] = {"name": "train", "resources": {"gpus": 1}, "labels": {"model": "large"}}
        answer = await each.submit_all(client_id="once", **fields)
        assert (answer.jobs, answer.repeated) == ((first,), True)
        assert in_memory(each) == ["eval"]


async def test_a_job_may_follow_what_is_in_the_archive(place: Place) -> None:
    world = await a_history(place)
    await archive_all(world)
    job = await world.submit(name="next", after="train")
    assert world.job(job).after == ()
    with pytest.raises(Invalid, match="sweep has ended"):
        await world.submit(name="next", after="sweep")
    job = await world.submit(name="next", after={"failed": "sweep"})
    assert world.job(job).after == ()
    tasks = await world.submit_all(name="next", array="2-3", after={"each": "sweep"})
    assert not any(world.job(each).after for each in tasks.jobs)


class Cut(Exception):
    """The dispatcher is killed here."""


async def test_a_crash_at_any_moment_of_a_move_loses_no_job_and_doubles_none(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write of the move is the last one in its turn."""
    world = await a_history(place)
    before = await pages(world)
    assert place.store is not None
    commit, left = place.store.commit, 0

    async def limited(transaction: Transaction) -> int:
        nonlocal left
        if any("archive/" in put.key for put in transaction.puts) or transaction.deletes:
            if left == 0:
                raise Cut
            left -= 1
        return await commit(transaction)

    monkeypatch.setattr(place.store, "commit", limited)
    monkeypatch.setattr(MemoryStore, "MAX_OPERATIONS", 12)
    for cut in range(12):
        left = cut
        try:
            await archive_all(world)
        except Cut:
            left = -1
        else:
            break
        world = await place.world(world)
        assert await pages(world) == before, cut
    else:
        pytest.fail("it was always cut short")
    assert in_memory(world) == ["eval"]
    assert await pages(world) == before


async def test_an_error_in_a_move_hides_no_job_and_the_next_sweep_goes_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dispatcher lives on where the store was away for a moment."""
    world = await a_history(place)
    before, names = await pages(world), sorted(world.core.records.jobs)
    assert place.store is not None
    commit, left = place.store.commit, 0

    async def limited(transaction: Transaction) -> int:
        nonlocal left
        if transaction.deletes or any(b'"moved":true' in put.value for put in transaction.puts):
            if left == 0:
                raise Cut
            left -= 1
        return await commit(transaction)

    monkeypatch.setattr(place.store, "commit", limited)
    monkeypatch.setattr(MemoryStore, "MAX_OPERATIONS", 12)
    for _ in range(20):
        left = 1
        try:
            await archive_all(world)
        except Cut:
            page, _ = await world.core.views.page(ADA)
            assert sorted(row.id for row in page.jobs) == names
            fields: dict[str, Any] = {"name": "train", "resources": {"gpus": 1}, "labels": {"model": "large"}}
            assert (await world.submit_all(client_id="once", **fields)).repeated
        else:
            break
    left = -1
    await archive_all(world)
    assert in_memory(world) == ["eval"]
    assert len(world.core.records.archive_files) == 1
    assert await pages(await place.world(world)) == before


async def test_whoever_asks_while_jobs_move_sees_each_of_them_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await a_history(place)
    names = sorted(world.core.records.jobs)
    assert place.store is not None
    commit, seen = place.store.commit, 0

    async def look_and_commit(transaction: Transaction) -> int:
        nonlocal seen
        revision = await commit(transaction)
        page, _ = await world.core.views.page(ADA)
        assert sorted(row.id for row in page.jobs) == names
        seen += 1
        return revision

    monkeypatch.setattr(place.store, "commit", look_and_commit)
    monkeypatch.setattr(MemoryStore, "MAX_OPERATIONS", 12)
    await archive_all(world)
    assert seen > 6
    assert in_memory(world) == ["eval"]


async def test_a_job_that_changes_while_its_file_is_written_stays(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await a_history(place)
    first = (await world.core.views.find_any(ADA, "train")).id
    write = place.archive.write
    monkeypatch.setattr(place.archive, "write", lambda rows: _changing(world, first, write, rows))
    await archive_all(world)
    assert sorted(in_memory(world)) == ["eval", "train"]
    (file,) = world.core.records.archive_files.values()
    assert (file.void, file.moved) == ((first,), True)
    page, _ = await world.core.views.page(ADA, Wanted(name="train", owner="ada"))
    assert [(row.id, row.spent_usd) for row in page.jobs] == [(first, 12.5)]


def _changing(world: World, job: str, write: Any, rows: Any) -> Any:
    found = write(rows)
    late = msgspec.structs.replace(world.job(job), spent_usd=12.5)
    world.core.records.jobs[job] = late
    return found


# -------------------------------------------------------------------------------------------------------------- limits


async def later(world: World, days: float) -> None:
    """Some days pass, and the sweeper sweeps."""
    world.clock.advance(days * DAY_S)
    world.sites["north"].report()
    await world.core.sweeper.retention.sweep()


async def test_logs_and_outputs_go_at_their_age_and_the_jobs_with_the_archive(place: Place) -> None:
    world = await a_history(place)
    await archive_all(world)
    job = await world.core.views.find_any(ADA, "train")
    output = place.blobs.put(b"output")
    await later(world, 25)
    assert place.blobs.log_length(f"{job.placement}/0") == 15
    await world.core.sweeper.retention.blobs.sweep(0, -1, -1)
    assert place.blobs.get(output) is not None, "the archive names it"
    await later(world, 10)
    assert place.blobs.log_length(f"{job.placement}/0") == 0
    assert (await world.core.views.find_any(ADA, "train")).id == job.id
    await world.core.sweeper.retention.blobs.sweep(0, -1, -1)
    assert place.blobs.get(output) is None
    (file,) = world.core.records.archive_files.values()
    await later(world, 400)
    assert world.core.records.archive_files == {}
    await world.core.sweeper.retention.blobs.sweep(0, -1, -1)
    assert place.blobs.get(file.digest) is None
    assert in_memory(world) == ["eval"]


async def test_what_would_be_dropped_is_archived_without_its_logs(place: Place) -> None:
    world = await a_history(place)
    job = await world.core.views.find_any(ADA, "train")
    await later(world, 31)
    assert in_memory(world) == ["eval"]
    assert place.blobs.log_length(f"{job.placement}/0") == 0
    assert (await world.core.views.find_any(ADA, "train")).id == job.id


async def test_who_has_filled_their_share_of_the_archive_loses_what_is_older_than_promised(
    place: Place,
) -> None:
    world = await a_history(place)
    await archive_all(world)
    retention = world.core.sweeper.retention
    retention.shares.limits = LimitSettings(person_share=0.5, team_share=1.0)
    keep(world, archive_jobs=10)
    with pytest.raises(TooMany, match="user ada has 5 jobs in the archive"):
        await world.submit(name="more")
    seen = [await world.core.views.find_any(who, "train") for who in (ADA, BOB)]
    logs = {job.owner: job.placement for job in seen}
    await later(world, 1)
    assert world.core.views.search.archived.total == 6, "they are younger than promised"
    await later(world, 7)
    page, _ = await world.core.views.page(ADA)
    assert [(row.name, row.owner) for row in page.jobs] == [("eval", "ada"), ("train", "bob")]
    lengths = {who: place.blobs.log_length(f"{name}/0") for who, name in logs.items()}
    assert lengths == {"ada": 0, "bob": 15}, "their logs went with them"
    assert await world.submit(name="more")


async def test_many_files_become_one(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    world = await a_history(place)
    before = await pages(world)
    monkeypatch.setattr(archive_writer, "FILE_JOBS", 1)
    monkeypatch.setattr(archive_writer, "TOGETHER", 2)
    await archive_all(world)
    for _ in range(4):
        await later(world, 0)
        await world.turn()
    assert len(world.core.records.archive_files) == 2, "of three, the two that are of one size became one"
    assert [page["total"] for page in await pages(world)] == [page["total"] for page in before]
    assert (await world.core.views.find_any(ADA, "train")).name == "train"


async def test_an_array_with_long_texts_is_moved_a_few_rows_at_a_time(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand tasks may have a long job file each."""
    world = await a_history(place)
    before = await pages(world), await details(world, ["sweep", "sweep[1]"])
    monkeypatch.setattr(archive_writer, "FILE_BYTES", 1)
    monkeypatch.setattr(archive_writer, "PIECE_BYTES", 1)
    write, sizes = place.archive.write, list[int]()

    def watched(rows: Any) -> Any:
        assert not isinstance(rows, list), "they are not all in memory at once"
        sizes.append((written := write(rows)).rows)
        return written

    monkeypatch.setattr(place.archive, "write", watched)
    await archive_all(world)
    assert (sizes, in_memory(world)) == ([1] * 6, ["eval"])
    assert (await pages(world), await details(world, ["sweep", "sweep[1]"])) == before
    assert await pages(await place.world(world)) == before[0]


@pytest.mark.parametrize("damaged", [False, True])
async def test_a_file_that_cannot_be_read_is_left_out_until_it_can_be(
    place: Place, monkeypatch: pytest.MonkeyPatch, *, damaged: bool
) -> None:
    """A restored store may name a file that a merge has replaced, and disks rot."""
    world = await a_history(place)
    before = await pages(world)
    await archive_all(world)
    (file,) = world.core.records.archive_files.values()
    output = place.blobs.put(b"output")
    place.archive.forget(file.digest)
    opened = place.blobs.open

    def without(digest: str) -> Any:
        if digest == file.digest and damaged:
            raise Damaged("it is damaged")
        return None if digest == file.digest else opened(digest)

    monkeypatch.setattr(place.blobs, "open", without)
    world = await place.world(world)
    page, _ = await world.core.views.page(ADA)
    assert ([row.name for row in page.jobs], page.total) == (["eval"], 1)
    await world.core.sweeper.retention.sweep()
    await world.core.sweeper.retention.blobs.sweep(0, -1, -1)
    assert place.blobs.get(output) is not None, "the file may name it"
    monkeypatch.undo()
    await world.core.sweeper.retention.sweep()
    assert await pages(world) == before


async def test_a_dispatcher_whose_archive_was_turned_off_starts_and_keeps_its_blobs(place: Place) -> None:
    world = await a_history(place)
    await archive_all(world)
    output = place.blobs.put(b"output")
    world = await make_world(place.store, world.clock, blobs=place.blobs)
    await world.core.sweeper.retention.sweep()
    await world.core.sweeper.retention.blobs.sweep(0, -1, -1)
    assert place.blobs.get(output) is not None
    page, _ = await world.core.views.page(ADA)
    assert [row.name for row in page.jobs] == ["eval"]


async def test_use_is_added_up_over_memory_and_archive(place: Place) -> None:
    """What `usage` says does not depend on where jobs are."""
    world = await a_history(place)
    assert await used(world) != {}
    before = await used(world)
    await archive_all(world)
    assert await used(world) == before


BY: tuple[Key, ...] = ("user", "model", "day")


async def used(world: World) -> dict[tuple[str, ...], tuple[object, ...]]:
    """Jobs by person, model and day, of memory and of the archive."""
    sums, records = UsageSums(BY), world.core.records
    jobs = [(job, records.placements.get(job.placement or "")) for job in records.jobs.values()]
    old = await world.core.views.search.usage(ArchiveFilter(), BY, lambda _share: True)
    await add_jobs(sums, jobs, 0.0, 1e12)
    for each in old:
        sums.archived(each, BY)
    report = sums.report(whose="", since=0.0, until=1e12)
    return {
        (row.user, row.model, row.day): (
            row.jobs,
            row.succeeded,
            row.wait_s,
            row.starts_told,
            row.finishes_kept,
            row.costs_told,
            row.costs_kept,
        )
        for row in (*report.rows, report.total)
    }


async def test_a_stop_does_not_wait_for_what_the_archive_is_doing(place: Place) -> None:
    """A merge of a million jobs takes a minute, and a dispatcher that stops has none."""
    world = await a_history(place)
    await archive_all(world)
    slow = asyncio.create_task(
        asyncio.to_thread(place.archive.fetch, "SELECT sum(range) FROM range(1000000000000)", [])
    )
    while not (place.archive.busy or slow.done()):
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)
    place.archive.close()
    with pytest.raises(Unavailable, match="the dispatcher stops"):
        async with asyncio.timeout(20):
            await slow
