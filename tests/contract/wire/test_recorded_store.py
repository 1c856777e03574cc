"""A new dispatcher on an old store: `store-v1.db` was written by the first version with this schema, a day of work with a rental in it.

It is never written anew. Whatever the rows become, a dispatcher must start on it, go on from it, and keep what it promised.
"""

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

from federator.control.record.records import TABLES, Records
from federator.kernel.clock import ManualClock
from federator.kernel.errors import Damaged, Permanent
from federator.model.archive import ArchiveFile
from federator.model.arrays import JobArray
from federator.model.capacity import LeaseStatus
from federator.model.identity import BlobOwner, OwnAddress
from federator.model.jobs import JobStatus
from federator.model.ledger import LedgerState, Seal
from federator.model.rules import PolicySet
from federator.model.series import Series
from federator.model.services import Service
from federator.ports import Put, Transaction
from federator.store.sqlite import SqliteStore
from federator.store.sqlite_file import SCHEMA_VERSION
from tests.support.dispatch import ADA, ADMIN, World, make_world

RECORDED = Path(__file__).parent / "store-v1.db"
LATER: dict[type, Path] = {
    Series: Path(__file__).parent / "series-v1.json",
    BlobOwner: Path(__file__).parent / "blob-owner-v1.json",
    LedgerState: Path(__file__).parent / "ledger-state-v1.json",
    Seal: Path(__file__).parent / "seal-v1.json",
    OwnAddress: Path(__file__).parent / "own-address-v1.json",
    ArchiveFile: Path(__file__).parent / "archive-file-v1.json",
    JobArray: Path(__file__).parent / "job-array-v1.json",
    Service: Path(__file__).parent / "service-v1.json",
}
"""Kinds of rows that came after it, each as it was first written."""
NOT_NEEDED = {"last_seen_at", "filling"}
"""No longer written: each had a default then, which is what older versions go by."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A copy: opening a store writes to it."""
    return Path(shutil.copy(RECORDED, tmp_path / "store.db"))


async def opened(path: Path) -> World:
    clock = ManualClock()
    return await make_world(SqliteStore.open(path, clock), clock)  # type: ignore[arg-type]


async def test_every_kind_of_row_is_recorded_and_read(path: Path) -> None:
    store = SqliteStore.open(path, ManualClock())
    for kind, table in TABLES.items():
        page = await store.range(table.prefix, limit=1000)
        if kind in LATER:
            continue
        assert page.items, f"no {kind.__name__} is recorded"
        for item in page.items:
            row: Any = msgspec.json.decode(item.value, type=kind)
            assert table.prefix + table.key(row) == item.key
    await store.close()


@pytest.mark.parametrize(("kind", "path"), LATER.items())
def test_rows_of_kinds_that_came_later_are_read_as_they_were_first_written(kind: type, path: Path) -> None:
    """Fields that have come since are told by their absence."""
    data = path.read_bytes().strip()
    written: dict[str, Any] = msgspec.json.decode(data)
    read: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(msgspec.json.decode(data, type=kind)))
    written = {name: each for name, each in written.items() if name not in NOT_NEEDED}
    assert _as_far(read, written) == written
    assert not any(read[name] for name in read.keys() - written.keys())


def _as_far(read: Any, written: Any) -> Any:
    """What was read, without fields that what was written had not, in records inside of it too."""
    if not isinstance(written, dict):
        return read
    return {name: _as_far(read[name], each) for name, each in written.items()}


async def test_a_dispatcher_starts_on_it_and_goes_on_from_it(path: Path) -> None:
    world = await opened(path)
    by_name = {job.name: job for job in world.core.records.jobs.values()}
    assert by_name["filler"].status is JobStatus.SUCCEEDED
    assert by_name["rented"].status is JobStatus.RUNNING
    assert by_name["held"].status is JobStatus.HELD
    assert [lease.status for lease in world.leases()] == [LeaseStatus.READY]
    assert world.core.records.policies.version == 1
    again = await world.submit_all(client_id="c1", resources={"gpus": 4}, estimate="4h", max_duration="5h", name="filler", env={"A": "b"}, labels={"team": "x"}, checkpoint={"signal": "USR1"})  # fmt: skip
    assert again.repeated
    assert again.jobs == (by_name["filler"].id,)
    new = await world.submit(name="new")
    await world.core.intake.act_on_one(ADA, "release", by_name["held"].id)
    await world.turn()
    await world.core.sweeper.sweep()
    assert world.job(new).status is JobStatus.PENDING
    assert (await world.core.views.explain(world.job(new))).job == new
    assert await world.core.views.events(by_name["filler"].id, None)
    assert await world.core.views.ledger()
    assert world.core.views.overview(ADMIN).jobs
    await world.core.records.store.close()


async def test_what_this_version_writes_the_recorded_one_could_read_back(path: Path) -> None:
    """Rolling back: rows keep the fields that the older version needs; it passes over those that it does not know."""
    world = await opened(path)
    for kind, table in TABLES.items():
        page = await world.core.records.store.range(table.prefix, limit=1000)
        for item in page.items:
            before = msgspec.json.decode(item.value)
            now = msgspec.json.decode(msgspec.json.encode(msgspec.json.decode(item.value, type=kind)))
            assert before.keys() - NOT_NEEDED <= now.keys(), item.key
    await world.core.records.store.close()


def test_what_is_inside_of_rows_may_have_fields_of_a_newer_version_too() -> None:
    """But for policies: what a rule says besides may be what it is about."""
    for kind in TABLES.keys() - {PolicySet}:
        found = _structs(msgspec.inspect.type_info(kind), set())
        strict = [each for each in found if each.__struct_config__.forbid_unknown_fields]
        assert not strict, f"{kind.__name__}: an older version would refuse a field more in {strict}"


def _structs(kind: msgspec.inspect.Type, found: set[type[msgspec.Struct]]) -> set[type[msgspec.Struct]]:
    """Those found, and those of which such a value may have some."""
    if isinstance(kind, msgspec.inspect.StructType):
        if kind.cls in found:
            return found
        found.add(kind.cls)
    for name in ("fields", "type", "types", "item_type", "item_types", "value_type"):
        within = getattr(kind, name, ())
        for each in within if isinstance(within, tuple) else (within,):
            _structs(each, found)
    return found


async def test_a_row_of_a_newer_version_in_words_of_its_own_is_not_guessed_at(path: Path) -> None:
    store = SqliteStore.open(path, ManualClock())
    item = (await store.range("job/")).items[0]
    newer = item.value.replace(b'"status":"', b'"status":"NEW-')
    await store.commit(Transaction(puts=(Put(item.key, newer),)))
    with pytest.raises(Damaged, match=rf"row {item.key} .*start the version that wrote it"):
        await Records(store).load()
    await store.close()


async def test_a_newer_schema_is_refused_and_the_file_left_as_it_is(path: Path) -> None:
    with sqlite3.connect(path) as newer:
        newer.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    newer.close()
    before = path.read_bytes()
    with pytest.raises(Permanent, match=r"newer version.*schema 2.*run the newer version, or restore"):
        SqliteStore.open(path, ManualClock())
    assert path.read_bytes() == before
