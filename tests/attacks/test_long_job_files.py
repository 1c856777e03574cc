"""Jobs with very long texts: what is kept of one is bounded, and many of them in the archive keep nobody from looking."""

import math
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from federator import archive
from federator.archive import ParquetArchive
from federator.control.queries.job_lists import Wanted
from federator.control.record import decoders, past
from federator.kernel.errors import Invalid
from federator.model.archive import ArchiveFilter
from federator.model.jobs import JobStatus
from federator.store.blobs import MemoryBlobs
from federator.store.memory import MemoryStore
from federator.wire.http import JobAction
from federator.wire.jobfile import MAX_SPEC_BYTES, encode_spec, read_job
from tests.support.dispatch import ADA, BOB, SharedClock, World, make_world

JOBS = 200
LONG = {f"LONG_{number}": "x" * 50_000 for number in range(4)}


def test_what_is_on_record_of_a_job_is_bounded() -> None:
    longest = read_job({"run": "true", "env": LONG}, now=0.0).spec
    assert 200_000 < len(encode_spec(longest)) <= MAX_SPEC_BYTES
    with pytest.raises(Invalid, match=f"at most {MAX_SPEC_BYTES}") as error:
        read_job({"run": "true", "env": LONG | {"MORE": "x" * 64_000}}, now=0.0)
    assert error.value.remedy


async def archived(folder: Path) -> World:
    """Jobs of bob's with texts that differ, all of them in the archive."""
    blobs, clock = MemoryBlobs(), SharedClock()
    store = MemoryStore(clock)
    world = await make_world(store, clock, blobs=blobs, archive=ParquetArchive(blobs, folder))
    retention = world.core.sweeper.retention
    retention.configure(replace(retention.settings, recent_jobs=1))
    made = [await world.submit(BOB, name="long", env=LONG | {"N": str(number)}) for number in range(JOBS)]
    await world.core.intake.verbs.act(BOB, JobAction("cancel", ("long",)), made)
    clock.advance(3600.0)
    await retention.sweep()
    assert not world.core.records.jobs
    return world


async def test_a_page_of_them_is_read_in_as_much_memory_as_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty mebibytes of texts in less: else nobody could list jobs while these are among them."""
    world = await archived(tmp_path)
    monkeypatch.setattr(archive, "MEMORY_MIB", 36)
    kept = world.core.views.search.archived
    monkeypatch.setattr(kept, "archive", ParquetArchive(world.core.blobs, tmp_path / "small"))
    page, _ = await world.core.views.page(ADA, Wanted(name="long"), limit=1000)
    assert len(page.jobs) == JOBS


async def test_what_was_read_of_them_leaves_memory_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await archived(tmp_path)
    monkeypatch.setattr(world.core.records.past.specs, "_most_bytes", 10 * MAX_SPEC_BYTES)
    await world.core.views.page(ADA, Wanted(name="long"), limit=10)
    specs = world.core.records.past.specs
    held = [specs.get(name) or b"" for name in specs.rows]
    assert 10 <= len(held) < JOBS
    assert sum(map(len, held)) <= 10 * MAX_SPEC_BYTES
    assert past.SPEC_BYTES >= 1000 * MAX_SPEC_BYTES, "the largest page is there as a whole"


async def test_run_times_are_learned_from_as_many_of_them_as_are_in_memory(tmp_path: Path) -> None:
    world = await archived(tmp_path)
    records, history = world.core.records, world.core.history
    jobs = await world.core.views.search.archived.jobs(ArchiveFilter(name="long"))
    ran = [replace(job, status=JobStatus.SUCCEEDED, started_at=1.0, finished_at=61.0) for job in jobs]
    records.past.specs = type(records.past.specs)(10, past.SPEC_BYTES)
    history.learn_older(ran, records)
    assert not history.runs("default", "long")
    await world.core.views.search.archived.jobs(ArchiveFilter(ids=(jobs[3].id,)))
    history.learn_older(ran, records)
    assert len(history.runs("default", "long")) == 1


async def test_no_cache_keeps_the_texts_of_jobs_that_have_gone() -> None:
    """Of tens of thousands of long job files, gibibytes."""
    world = await make_world()
    name = await world.submit(BOB, name="new", env=LONG, labels={"of": "bob"})
    digest = world.job(name).spec_hash
    data = world.core.records.spec_bytes(digest)
    before = sys.getrefcount(data)
    assert world.core.records.specs_labelled({"of": "bob"}) == {digest}
    assert world.core.records.specs_labelled({"of": "ada"}) == set()
    assert sys.getrefcount(data) == before, "nobody else holds it"
    for cache, longest in (
        (decoders.long_specs, MAX_SPEC_BYTES),
        (decoders.short_specs, decoders.LONG_BYTES),
    ):
        assert (cache.cache_info().maxsize or math.inf) * longest <= 2**28
