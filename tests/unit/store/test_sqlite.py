"""What only the embedded store does: reopening, its lock, its schema, its errors, shared syncs."""

import asyncio
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from federator.kernel.clock import ManualClock
from federator.kernel.errors import Permanent, Unavailable
from federator.ports import Put, Transaction
from federator.store.sqlite import SqliteStore
from federator.store.sqlite_file import QUERIES, SCHEMA_VERSION, read_queries
from tests.support.waiting import PATIENCE_S


def reopen(path: Path, clock: ManualClock | None = None) -> SqliteStore:
    return SqliteStore.open(path, clock or ManualClock())


async def put(store: SqliteStore, key: str, value: bytes = b"v", expires_in_s: float | None = None) -> int:
    return await store.commit(Transaction(puts=(Put(key, value, expires_in_s),)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "store.db"


async def test_contents_revision_and_incarnation_survive_closing(path: Path) -> None:
    store = reopen(path)
    incarnation, revision = store.incarnation, await put(store, "a", b"1")
    await store.close()
    store = reopen(path)
    assert store.incarnation == incarnation
    item = await store.get("a")
    assert item is not None
    assert (item.value, item.revision) == (b"1", revision)
    assert await put(store, "b") == revision + 1
    await store.close()


async def test_two_files_have_different_incarnations(tmp_path: Path) -> None:
    first, second = reopen(tmp_path / "1.db"), reopen(tmp_path / "2.db")
    assert first.incarnation != second.incarnation
    await first.close()
    await second.close()


async def test_an_expiring_key_has_its_whole_time_again_after_opening(path: Path) -> None:
    clock = ManualClock()
    store = reopen(path, clock)
    await put(store, "lock", expires_in_s=10.0)
    await store.close()
    # Another boot: its clock says nothing about the one before.
    clock = ManualClock(boot_s=1.0)
    store = reopen(path, clock)
    clock.advance(9.0)
    assert await store.get("lock") is not None
    clock.advance(2.0)
    assert await store.get("lock") is None
    await store.close()


async def test_a_key_that_was_made_to_stay_still_stays_after_opening(path: Path) -> None:
    store = reopen(path)
    await put(store, "lock", expires_in_s=10.0)
    await put(store, "lock")
    await store.close()
    clock = ManualClock()
    store = reopen(path, clock)
    clock.advance(100.0)
    assert await store.get("lock") is not None
    await store.close()


async def test_every_commit_waits_for_the_disk(path: Path) -> None:
    """A test cannot cut the power, and a kill leaves the kernel's cache: only these two settings outlive a loss of power."""
    store = reopen(path)
    settings = [
        store.writer.connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous")
    ]
    assert settings == ["wal", 2]
    await store.close()


async def test_only_its_user_may_read_the_files(path: Path) -> None:
    store = reopen(path)
    await put(store, "secret")
    assert path.with_name("store.db-wal").exists()
    for file in path.parent.iterdir():
        assert file.stat().st_mode & 0o077 == 0, file.name
    await store.close()


# ------------------------------------------------------------------------------------------------------------- lock


async def test_a_second_process_is_turned_away_with_the_owner_and_the_remedy(path: Path) -> None:
    store = reopen(path)
    program = (
        "import sys; from pathlib import Path; from federator.kernel.clock import SystemClock; "
        "from federator.store.sqlite import SqliteStore; SqliteStore.open(Path(sys.argv[1]), SystemClock())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode != 0
    assert f"in use by process {os.getpid()}" in done.stderr
    assert "another path" in done.stderr
    await put(store, "still", b"ours")
    await store.close()


async def test_the_lock_is_released_by_closing_and_by_a_failed_opening(path: Path) -> None:
    store = reopen(path)
    with pytest.raises(Unavailable, match="in use"):
        reopen(path)
    await store.close()
    path.write_bytes(b"not a database" * 1000)
    for _ in range(2):
        with pytest.raises(Permanent, match="damaged"):
            reopen(path)


# ----------------------------------------------------------------------------------------------------------- schema


async def test_a_file_of_a_newer_version_is_refused_and_left_alone(path: Path) -> None:
    await reopen(path).close()
    with sqlite3.connect(path) as newer:
        newer.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    newer.close()
    before = path.read_bytes()
    with pytest.raises(Permanent, match="newer version"):
        reopen(path)
    assert path.read_bytes() == before


def test_a_database_of_another_program_is_refused_and_left_alone(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(Permanent, match="another program"):
        reopen(path)
    assert path.read_bytes() == before


async def test_an_empty_file_left_by_a_kill_while_creating_is_made_into_a_store(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    store = reopen(path)
    assert await put(store, "a") == 1
    await store.close()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="cannot be opened"):
        reopen(tmp_path / "file" / "store.db")


def test_statements_are_found_by_name_with_their_comments() -> None:
    assert read_queries("-- head\n\n-- name: one\n-- why\nSELECT 1;\n\n-- name: two\nSELECT 2;\n") == {
        "one": "-- why\nSELECT 1;",
        "two": "SELECT 2;",
    }
    assert set(QUERIES) >= {"get_item", "put_item", "delete_item", "list_items"}


# ----------------------------------------------------------------------------------------------------------- errors


async def test_a_full_disk_is_unavailable_loses_nothing_and_is_over_when_there_is_room(path: Path) -> None:
    store = reopen(path)
    await put(store, "a", b"kept")
    limit = store.writer.connection.execute("PRAGMA page_count").fetchone()[0]
    store.writer.connection.execute(f"PRAGMA max_page_count = {limit}")
    with pytest.raises(Unavailable, match=r"disk of the store .* is full"):
        await put(store, "big", bytes(1_000_000))
    page = await store.range("")
    assert [(item.key, item.value) for item in page.items] == [("a", b"kept")]
    store.writer.connection.execute("PRAGMA max_page_count = 1000000")
    # A failed transaction uses up no revision.
    assert await put(store, "b") == page.revision + 1
    await store.close()


async def test_when_the_shared_sync_fails_every_caller_of_it_is_told(path: Path) -> None:
    store = reopen(path)
    store.writer.connection.execute("PRAGMA query_only = ON")
    results = await asyncio.gather(*(put(store, f"k{number}") for number in range(5)), return_exceptions=True)
    assert [type(result) for result in results] == [Unavailable] * 5
    assert all("read-only" in str(result) for result in results)
    store.writer.connection.execute("PRAGMA query_only = OFF")
    assert await put(store, "a") == 1
    await store.close()


async def test_a_damaged_file_is_a_permanent_error_with_its_remedy(path: Path) -> None:
    store = reopen(path)
    for number in range(200):
        await put(store, f"key-{number:04}", bytes(2000))
    await store.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(16 * 4096)
        file.write(b"\xee" * (size - 16 * 4096))
    store = reopen(path)
    with pytest.raises(Permanent, match=r"damaged.*backup"):
        await store.range("")
    await store.close()


# ----------------------------------------------------------------------------------------------- the writing thread


async def test_callers_that_wait_together_share_a_sync(path: Path) -> None:
    """Without it, throughput would be one transaction per turn of the disk."""
    store = reopen(path)
    commits = 0

    def count(statement: str) -> None:
        nonlocal commits
        commits += statement == "COMMIT"

    store.writer.connection.set_trace_callback(count)
    await asyncio.gather(*(put(store, f"k{number}") for number in range(300)))
    assert commits < 100
    await store.close()


async def test_closing_finishes_what_was_queued_and_refuses_what_comes_later(path: Path) -> None:
    store = reopen(path)
    queued = [asyncio.create_task(put(store, f"k{number}")) for number in range(20)]
    await asyncio.sleep(0)
    await store.close()
    assert sorted(await asyncio.gather(*queued)) == list(range(1, 21))
    with pytest.raises(Unavailable, match="closed"):
        await put(store, "late")
    store = reopen(path)
    assert len((await store.range("k")).items) == 20
    await store.close()


async def test_a_backlog_that_the_disk_cannot_clear_turns_callers_away(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("federator.store.sqlite_writer.MAX_WAITING", 0)
    store = reopen(path)
    with pytest.raises(Unavailable, match="waiting for the disk"):
        await put(store, "a")
    await store.close()
