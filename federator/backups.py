"""What an operator does to a store beside its dispatchers: back it up, restore it, and take a restored one for the present one.

A backup is taken while a dispatcher runs, of one moment. A restore needs that none does. It gives the store another incarnation and a phase in which
first everybody is heard (`control.maintenance.reconciliation`): a store that is older than the world may act on nothing that it remembers.
"""

import asyncio
import math
import os
import secrets
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path

import msgspec

from federator import __version__
from federator.control.maintenance.reconciliation import FLAG as RECONCILING
from federator.control.record.leadership import ALIVE_KEY, LEADER_KEY, Reign
from federator.control.record.records import Flag, row_key
from federator.kernel.clock import SystemClock, parse_clock
from federator.kernel.errors import Conflict, Invalid, NotFound
from federator.kernel.tasks import cancel_and_wait
from federator.ports import Blobs, Put, Store, Transaction
from federator.settings import EtcdSettings, Settings
from federator.store import backup
from federator.store.backup import Header, Row
from federator.store.blobs import FileBlobs
from federator.store.shared import LINEAGE, beside_in, name_of, open_shared, open_to_restore
from federator.store.sqlite import SqliteStore
from federator.store.sqlite_file import adopt, half_replaced, lock, put_in_place, rows_at_once

BATCH_ROWS = 100
"""In one transaction; stores take 120."""
LEADERS = (LEADER_KEY, ALIVE_KEY)
"""Who leads is not restored: terms only grow."""
PIECE_BYTES = 2**18
SCRATCH = "restoring"


async def back_up(settings: Settings, path: Path) -> tuple[Header, backup.Trailer]:
    """Write all rows, as they are at one moment, to a new file, and read it again. Raises `NotFound` where there is no store, `Unavailable` where it does not answer."""
    if settings.store.etcd is None:
        header, rows = await asyncio.to_thread(_embedded, settings)
        await backup.write(path, header, _stepwise(rows))
    else:
        store, blobs = await open_shared(
            settings.store.etcd, settings.store.s3, _state_dir(settings) / SCRATCH
        )
        try:
            revision = await store.revision()
            header = _header(settings, store.incarnation, store.lineage, revision)
            await backup.write(path, header, _rows_at(store.rows_at(revision)))
        finally:
            await store.close()
            await asyncio.to_thread(blobs.close)
    return await asyncio.to_thread(backup.check, path)


async def restore(settings: Settings, path: Path, *, replace: bool = False) -> tuple[Header, str]:
    """Put the rows of a backup in place of all that the store has, and adopt it; what it was of, and the new incarnation.

    Before anything is written the whole file is checked. Raises `Conflict` or `Unavailable` while a dispatcher uses the store, `Conflict` where
    it has rows and `replace` is not said, and what `backup.check` does.
    """
    header, _ = await asyncio.to_thread(backup.check, path)
    if header.federation != settings.federation:
        raise Conflict(
            f"the backup is of the federation {header.federation}, and the settings are of {settings.federation}",
            remedy="give --config with the settings of that federation",
        )
    if settings.store.etcd is None:
        incarnation = await _restore_embedded(settings, header, path, replace=replace)
    else:
        incarnation = await _restore_etcd(settings, settings.store.etcd, header, path, replace=replace)
    return header, incarnation


async def adopt_store(settings: Settings) -> str:
    """Take a restored store for the present one: another incarnation, which is returned, and a phase in which first everybody is heard.

    Raises `Conflict` or `Unavailable` while a dispatcher uses it, `NotFound` when there is none.
    """
    if settings.store.etcd is None:
        path = _existing(settings)
        embedded = SqliteStore.open(path, SystemClock())
        await embedded.commit(_marked(settings))
        await embedded.close()
        return adopt(path)
    store, blobs = await open_shared(settings.store.etcd, settings.store.s3, _state_dir(settings) / SCRATCH)
    try:
        await _nobody_leads(store, settings.store.etcd.term_s)
        await store.commit(_marked(settings))
        return await store.adopt()
    finally:
        await store.close()
        await asyncio.to_thread(blobs.close)


async def upload(settings: Settings, folder: Path) -> tuple[int, int]:
    """Bring blobs and logs from a folder to the bucket of the settings, and mark that as the store's; how many of each.

    To be run again when it was cut short: what is there is passed over. Raises as `adopt_store`, and `Invalid` where the bucket is another store's.
    """
    s3, etcd = settings.store.s3, settings.store.etcd
    if s3 is None:
        raise Invalid("is missing", field="$.store.s3", remedy="name the bucket there")
    scratch = _state_dir(settings) / SCRATCH
    store: Store
    if etcd is None:
        store = SqliteStore.open(_existing(settings), SystemClock())
        beside, name = await asyncio.to_thread(beside_in, s3, scratch), await name_of(store)
    else:
        shared, beside = await open_to_restore(etcd, s3, scratch)
        store, name = shared, shared.lineage
    try:
        if etcd is not None:
            await _nobody_leads(store, etcd.term_s)
        if await asyncio.to_thread(beside.read_mark):
            await asyncio.to_thread(beside.claim, name)
        parts = [(folder, beside.blobs)]
        if etcd is not None:
            parts = [(folder / "blobs", beside.blobs), (folder / "values", beside.values)]
        counts = [await asyncio.to_thread(_copy, *part) for part in parts]
        await asyncio.to_thread(beside.claim, name)
        return sum(blobs for blobs, _ in counts), sum(logs for _, logs in counts)
    finally:
        await store.close()
        await asyncio.to_thread(beside.close)


def _copy(folder: Path, target: Blobs) -> tuple[int, int]:
    if not (folder / "objects").is_dir():
        raise NotFound(
            f"{folder} holds no blobs", remedy="name STATE_DIR/blobs, or the folder of store.etcd.shared_dir"
        )
    source = FileBlobs(folder, shared=True)
    digests = source.usage().blobs
    for digest in digests:
        file = None if target.has(digest) else source.open(digest)
        if file is not None:
            draft = target.draft()
            with file:
                while part := file.read(PIECE_BYTES):
                    draft.write(part)
            draft.keep()
            draft.discard()
    root = folder / "logs"
    names = [str(path.relative_to(root)).removesuffix(".log") for path in root.rglob("*.log")]
    for name in names:
        while part := source.read_log(name, offset := target.log_length(name), PIECE_BYTES):
            target.append_log(name, offset, part)
        target.keep_logs((name,))
    return len(digests), len(names)


# ------------------------------------------------------------------------------------------------------------ embedded


def _embedded(settings: Settings) -> tuple[Header, Iterator[Row]]:
    path = _existing(settings)
    incarnation, lineage, revision, rows = rows_at_once(path, LINEAGE)
    return _header(settings, incarnation, lineage, revision), (
        Row(*row) for row in rows if row[0] != ALIVE_KEY
    )


async def _restore_embedded(settings: Settings, header: Header, path: Path, *, replace: bool) -> str:
    """Into a new file, which takes the place of the old one when it is whole."""
    present = _state_dir(settings) / "store.db"
    descriptor = lock(present)
    try:
        if present.exists() and not (replace or half_replaced(present).exists()):
            raise Conflict(f"there is a store {present}", remedy="say --replace: it is put aside")
        made = present.with_name("store.db.restoring")
        for name in (made.name, f"{made.name}-wal", f"{made.name}-shm"):
            present.with_name(name).unlink(missing_ok=True)
        store = SqliteStore.open(made, SystemClock())
        try:
            for batch in _batches(backup.rows_of(path), skip=()):
                await store.commit(Transaction(puts=batch))
            if header.lineage:
                # What is in a bucket knows it by that name.
                await store.commit(Transaction(puts=(Put(LINEAGE, header.lineage.encode()),)))
            await store.commit(_marked(settings))
        finally:
            await store.close()
        incarnation = adopt(made)
        made.with_name(f"{made.name}.lock").unlink(missing_ok=True)
        put_in_place(present, made, time.strftime("replaced-%Y%m%dT%H%M%SZ", time.gmtime()))
        return incarnation
    finally:
        os.close(descriptor)


# ---------------------------------------------------------------------------------------------------------------- etcd


async def _restore_etcd(
    settings: Settings, etcd: EtcdSettings, header: Header, path: Path, *, replace: bool
) -> str:
    """Within a term of our own: no dispatcher leads meanwhile. A restore that was cut short is told to whoever opens the store."""
    store, beside = await open_to_restore(etcd, settings.store.s3, _state_dir(settings) / SCRATCH)
    try:
        await _nobody_leads(store, etcd.term_s)
        page = await store.range("", limit=len(LEADERS) + 1)
        full = any(item.key not in LEADERS for item in page.items)
        if full and not (replace or store.half_restored):
            raise Conflict(
                f"{beside.name} and its store hold records", remedy="say --replace: they are removed"
            )
        name = f"restore:{os.getpid()}:{secrets.token_hex(4)}"
        reign = Reign(store, SystemClock(), leader=name, term_s=etcd.term_s, margin_s=etcd.margin_s)
        await reign.begin()
        keeping = asyncio.create_task(reign.keep())
        try:
            # What is refused is refused before anything is written.
            await asyncio.to_thread(beside.claim, header.lineage or store.lineage)
            changed = store.half_restored
            try:
                await store.begin_restore()
                reign.require()
                async for keys in _keys(store):
                    changed = True
                    await reign.commit(Transaction(deletes=keys))
            except BaseException:
                if not changed:
                    await store.call_off_restore()
                raise
            for batch in _batches(backup.rows_of(path), skip=(*LEADERS, LINEAGE)):
                await reign.commit(Transaction(puts=batch))
            await reign.commit(_marked(settings))
            return await store.end_restore(header.lineage)
        finally:
            await cancel_and_wait(keeping)
            await reign.resign()
    finally:
        await store.close()
        await asyncio.to_thread(beside.close)


async def _keys(store: Store) -> AsyncIterator[tuple[str, ...]]:
    after: str | None = None
    while True:
        page = await store.range("", after=after, limit=BATCH_ROWS)
        keys = tuple(item.key for item in page.items if item.key not in LEADERS)
        if keys:
            yield keys
        after = page.next_after
        if after is None:
            return


async def _nobody_leads(store: Store, term_s: float) -> None:
    """Wait for the end of a term, which a restored cluster counts from its start, and for a moment in which a dispatcher that stands by would take over. Raises `Conflict` if somebody leads."""
    item = await store.get(ALIVE_KEY)
    free = 0
    for _ in range(math.ceil(2 * term_s) + 5):
        present = await store.get(ALIVE_KEY)
        free = 0 if present else free + 1
        if free > 1:
            return
        if present is not None and (item is None or present.revision != item.revision):
            break
        await asyncio.sleep(1.0)
    raise Conflict("a dispatcher leads on this store", remedy="stop all dispatchers first")


# ------------------------------------------------------------------------------------------------------------- helpers


def _marked(settings: Settings) -> Transaction:
    flag = Flag(RECONCILING, on=True, who="store adopt", at=parse_clock(settings.clock).now())
    return Transaction(puts=(Put(row_key(flag), msgspec.json.encode(flag)),))


def _header(settings: Settings, incarnation: str, lineage: str, revision: int) -> Header:
    now = parse_clock(settings.clock).now()
    return Header(backup.FORMAT, __version__, settings.federation, incarnation, lineage, revision, now)


def _batches(rows: Iterable[Row], skip: tuple[str, ...]) -> Iterator[tuple[Put, ...]]:
    batch: list[Put] = []
    for key, value in rows:
        if key not in skip:
            batch.append(Put(key, value))
        if len(batch) == BATCH_ROWS:
            yield tuple(batch)
            batch.clear()
    if batch:
        yield tuple(batch)


async def _stepwise(rows: Iterable[Row]) -> AsyncIterator[Row]:
    for row in rows:
        yield row


async def _rows_at(items: AsyncIterator[tuple[str, bytes]]) -> AsyncIterator[Row]:
    async for key, value in items:
        if key not in LEADERS:
            yield Row(key, value)


def _state_dir(settings: Settings) -> Path:
    state_dir = Path(settings.state_dir).expanduser()
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    return state_dir


def _existing(settings: Settings) -> Path:
    path = _state_dir(settings) / "store.db"
    if not path.exists():
        raise NotFound(f"there is no store {path}", remedy="restore it there first, or give --config")
    return path
