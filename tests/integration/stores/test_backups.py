"""Backups: of one moment, found out when they are not whole, and put back whole or not at all."""

import asyncio
import gzip
import shutil
from pathlib import Path

import msgspec
import pytest

from federator.backups import adopt_store, back_up, restore
from federator.control.maintenance.reconciliation import FLAG
from federator.kernel.clock import SystemClock
from federator.kernel.errors import Conflict, Damaged, Invalid, NotFound, Permanent, Unavailable
from federator.ports import Put, Store, Transaction
from federator.settings import EtcdSettings, Settings, StoreSettings
from federator.store import backup
from federator.store.shared import LINEAGE, open_bucket, open_shared
from federator.store.sqlite import SqliteStore
from tests.testbeds.etcd import shared_cluster
from tests.testbeds.s3 import settings_for, shared_server

LARGE = b"large" * 10_000


def embedded(folder: Path) -> Settings:
    return Settings(state_dir=str(folder))


def on_etcd(folder: Path, prefix: str, shared: str = "shared") -> Settings:
    etcd = EtcdSettings(
        endpoints=shared_cluster().endpoints, shared_dir=str(folder / shared), prefix=f"/{prefix}", term_s=2.0,
        margin_s=0.5,
    )  # fmt: skip
    return Settings(state_dir=str(folder / "state"), store=StoreSettings(etcd=etcd))


async def opened(settings: Settings) -> Store:
    if settings.store.etcd is not None:
        return (await open_shared(settings.store.etcd))[0]
    return SqliteStore.open(Path(settings.state_dir) / "store.db", SystemClock())


async def fill(store: Store, count: int = 250) -> None:
    for number in range(count):
        await store.commit(Transaction(puts=(Put(f"row/{number:04}", b"%d" % number),)))
    await store.commit(Transaction(puts=(Put("decision/1", b"outside"), Put("row/large", LARGE))))


async def rows(store: Store) -> dict[str, bytes]:
    found, after = dict[str, bytes](), None
    while True:
        page = await store.range("", after=after)
        found |= {item.key: item.value for item in page.items}
        after = page.next_after
        if after is None:
            return found


@pytest.fixture(params=["embedded", "etcd"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    return embedded(tmp_path) if request.param == "embedded" else on_etcd(tmp_path, tmp_path.name)


async def test_a_backup_is_of_one_moment_and_comes_back(settings: Settings, tmp_path: Path) -> None:
    """Two rows change together again and again while it is taken: in the backup they are alike."""
    store = await opened(settings)
    await fill(store)
    going = True

    async def write() -> None:
        number = 0
        while going:
            number += 1
            value = b"%d" % number
            await store.commit(Transaction(puts=(Put("a-first", value), Put("z-last", value))))

    writing = asyncio.create_task(write())
    await asyncio.sleep(0.05)
    file = tmp_path / "backup"
    header, trailer = await back_up(settings, file)
    going = False
    await writing
    kept = {row.key: row.value for row in backup.rows_of(file)}
    assert kept["a-first"] == kept["z-last"]
    assert kept["row/large"] == LARGE
    assert trailer.rows == len(kept) == 254
    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(Invalid, match="is there already"):
        await back_up(settings, file)

    before = store.incarnation
    await store.commit(Transaction(puts=(Put("row/later", b"x"),), deletes=("row/0001",)))
    if isinstance(store, SqliteStore):
        with pytest.raises(Unavailable, match="in use"):
            await restore(settings, file, replace=True)
    await store.close()
    with pytest.raises(Conflict, match="--replace"):
        await restore(settings, file)
    _, incarnation = await restore(settings, file, replace=True)
    again = await opened(settings)
    found = await rows(again)
    assert again.incarnation == incarnation not in (before, header.incarnation)
    assert found.pop(f"flag/{FLAG}")
    assert {key: value for key, value in found.items() if not key.startswith("leader")} == kept
    await again.close()


async def test_an_embedded_store_moves_to_etcd(tmp_path: Path) -> None:
    store = await opened(embedded(tmp_path))
    await fill(store, 3)
    kept = await rows(store)
    await store.close()
    await back_up(embedded(tmp_path), tmp_path / "backup")
    target = on_etcd(tmp_path, f"{tmp_path.name}-moved", "other")
    await restore(target, tmp_path / "backup")
    moved = await opened(target)
    assert (await rows(moved)).items() >= kept.items()
    await moved.close()


async def test_a_store_moves_to_etcd_and_back_and_keeps_its_bucket(tmp_path: Path) -> None:
    s3 = settings_for(tmp_path, shared_server())
    first, last = (
        Settings(state_dir=str(tmp_path / name), store=StoreSettings(s3=s3)) for name in ("1", "3")
    )
    etcd = EtcdSettings(
        endpoints=shared_cluster().endpoints, prefix=f"/{s3.prefix}", term_s=2.0, margin_s=0.5
    )
    between = Settings(state_dir=str(tmp_path / "2"), store=StoreSettings(etcd=etcd, s3=s3))
    store = await opened(first)
    digest = (await open_bucket(store, s3, tmp_path / "scratch")).put(b"work directory")
    await fill(store, 3)
    await store.close()
    await back_up(first, tmp_path / "backup-1")
    await restore(between, tmp_path / "backup-1")
    shared, blobs = await open_shared(etcd, s3, tmp_path / "scratch")
    assert blobs.get(digest) == b"work directory"
    assert LINEAGE not in await rows(shared), "etcd has a place of its own for the name"
    await shared.close()
    await back_up(between, tmp_path / "backup-2")
    await restore(last, tmp_path / "backup-2")
    again = await opened(last)
    assert (await open_bucket(again, s3, tmp_path / "scratch")).get(digest) == b"work directory"
    assert (await rows(again))["row/large"] == LARGE
    await again.close()


async def test_a_new_cluster_takes_the_name_of_the_old_one_and_its_folder(tmp_path: Path) -> None:
    """After the loss of a cluster the folder is still there, and belongs to the store that was."""
    old = on_etcd(tmp_path, f"{tmp_path.name}-old")
    store = await opened(old)
    await fill(store, 3)
    await store.close()
    await back_up(old, tmp_path / "backup")
    new = on_etcd(tmp_path, f"{tmp_path.name}-new")
    with pytest.raises(Invalid, match="does not belong to this store"):
        await opened(new)
    await restore(new, tmp_path / "backup")
    again = await opened(new)
    assert (await rows(again))["row/large"] == LARGE
    await again.close()


async def test_a_restore_that_was_cut_short_is_told_and_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = on_etcd(tmp_path, f"{tmp_path.name}-cut")
    store = await opened(settings)
    await fill(store)
    await store.close()
    await back_up(settings, tmp_path / "backup")
    with monkeypatch.context() as patch:
        patch.setattr(backup, "rows_of", lambda path: iter([backup.Row("row/0", b"x"), _die()]))
        with pytest.raises(RuntimeError):
            await restore(settings, tmp_path / "backup", replace=True)
    with pytest.raises(Invalid, match=r"not all of it is there .*restore again"):
        await opened(settings)
    await restore(settings, tmp_path / "backup")
    again = await opened(settings)
    assert len(await rows(again)) > 250
    await again.close()


async def test_a_restore_that_fails_before_it_removes_anything_leaves_the_store_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not so where an earlier one was cut short: the store stays half restored."""
    settings = on_etcd(tmp_path, f"{tmp_path.name}-own", "own")
    kept = dict[str, bytes]()
    for name in ("other", "own"):
        each = on_etcd(tmp_path, f"{tmp_path.name}-{name}", name)
        store = await opened(each)
        await fill(store, 3)
        kept = await rows(store)
        await store.close()
        await back_up(each, tmp_path / f"backup-{name}")
    with pytest.raises(Invalid, match="does not belong to this store"):
        await restore(settings, tmp_path / "backup-other", replace=True)

    def unreadable(store: Store) -> None:
        raise Unavailable("the bucket does not answer")

    with monkeypatch.context() as patch:
        patch.setattr("federator.backups._keys", unreadable)
        with pytest.raises(Unavailable, match="the bucket"):
            await restore(settings, tmp_path / "backup-own", replace=True)
    again = await opened(settings)
    assert (await rows(again)).items() >= kept.items()
    await again.close()
    with monkeypatch.context() as patch:
        patch.setattr(backup, "rows_of", lambda path: (_die() for _ in range(1)))
        with pytest.raises(RuntimeError):
            await restore(settings, tmp_path / "backup-own", replace=True)
        patch.setattr("federator.backups._keys", unreadable)
        with pytest.raises(Unavailable, match="the bucket"):
            await restore(settings, tmp_path / "backup-own")
    with pytest.raises(Invalid, match="not all of it is there"):
        await opened(settings)


def _die() -> backup.Row:
    raise RuntimeError("the machine has failed")


async def test_an_embedded_restore_that_was_cut_short_leaves_the_store_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = embedded(tmp_path)
    store = await opened(settings)
    await fill(store, 3)
    kept = await rows(store)
    await store.close()
    await back_up(settings, tmp_path / "backup")
    with monkeypatch.context() as patch:
        patch.setattr(backup, "rows_of", lambda path: (_die() for _ in range(1)))
        with pytest.raises(RuntimeError):
            await restore(settings, tmp_path / "backup", replace=True)
    again = await opened(settings)
    assert await rows(again) == kept
    await again.close()
    await restore(settings, tmp_path / "backup", replace=True)
    assert list(tmp_path.glob("store.db.replaced-*Z")), "the old file is put aside"


@pytest.mark.parametrize("step", range(4))
async def test_an_embedded_restore_that_is_cut_short_between_two_files_is_told_and_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Of a store whose dispatcher was killed: its last rows are in the log only, and are in the file that is put aside."""
    settings = embedded(tmp_path / "store")
    store = await opened(settings)
    await fill(store, 3)
    kept = await rows(store)
    for name in ("store.db", "store.db-wal"):
        shutil.copy(tmp_path / "store" / name, tmp_path / name)
    await store.close()
    await back_up(settings, tmp_path / "backup")
    settings = embedded(tmp_path)
    rename, left = Path.rename, [step]

    def cut_short(path: Path, target: Path) -> Path:
        left[0] -= 1
        return rename(path, target) if left[0] >= 0 else _die_instead()

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", cut_short)
        with pytest.raises(RuntimeError):
            await restore(settings, tmp_path / "backup", replace=True)
    with pytest.raises(Permanent, match="restore again"):
        await opened(settings)
    for refused in (adopt_store(settings), back_up(settings, tmp_path / "later")):
        with pytest.raises((Permanent, NotFound), match=r"restore"):
            await refused
    await restore(settings, tmp_path / "backup")
    again = await opened(settings)
    assert (await rows(again)).items() >= kept.items()
    await again.close()
    (aside,) = tmp_path.glob("store.db.replaced-*Z*")
    old = SqliteStore.open(aside, SystemClock())
    assert await rows(old) == kept
    await old.close()


def _die_instead() -> Path:
    raise RuntimeError("the machine has failed")


async def test_what_is_no_whole_backup_is_refused_before_anything_changes(tmp_path: Path) -> None:
    settings = embedded(tmp_path)
    with pytest.raises(NotFound):
        await back_up(settings, tmp_path / "backup")
    store = await opened(settings)
    await fill(store)
    await store.close()
    file = tmp_path / "backup"
    await back_up(settings, file)
    whole = gzip.decompress(file.read_bytes())
    line, _, rest = whole.partition(b"\n")
    newer = msgspec.json.encode(msgspec.json.decode(line) | {"format": 2})
    wrong = {
        "cut off": file.read_bytes()[: file.stat().st_size // 2],
        "is cut off": gzip.compress(whole[: len(whole) // 2]),
        "is not what was written": gzip.compress(whole.replace(b"outside", b"0utside")),
        "impossible size": gzip.compress(line + b"\n" + b"\xff" * 100),
        "is not a backup": b"nothing of the kind",
        "in a format that this version does not know": gzip.compress(newer + b"\n" + rest),
    }
    before = (tmp_path / "store.db").read_bytes()
    for said, data in wrong.items():
        (tmp_path / "wrong").write_bytes(data)
        with pytest.raises(Permanent if "format" in said else Damaged, match=said):
            await restore(settings, tmp_path / "wrong", replace=True)
    with pytest.raises(Invalid, match="cannot be read"):
        await restore(settings, tmp_path / "nowhere", replace=True)
    with pytest.raises(Conflict, match="is of the federation federation"):
        await restore(msgspec.structs.replace(settings, federation="other"), file, replace=True)
    assert (tmp_path / "store.db").read_bytes() == before
