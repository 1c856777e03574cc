"""The one thread that writes to the embedded store, and how its transactions share a sync to disk.

Why so: a durable commit costs one wait for the disk, whatever it holds. While the thread waits for one batch, the next
gathers in its queue, so that many callers share each wait and a lone caller waits for nobody. Within a batch the
transactions run in the order they came, each seeing those before it; a failed comparison is found before anything of
that transaction is written, so nothing ever has to be undone for one of them alone.
"""

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from federator.kernel.errors import FederatorError, StoreConflict, Unavailable
from federator.ports import Put, Transaction
from federator.store.expiry import Deadlines
from federator.store.sqlite_file import QUERIES, describe

MAX_BATCH = 500
"""Transactions that share one sync."""

MAX_WAITING = 20_000
"""Transactions in the queue before further ones are turned away."""

PART_LENGTHS = (128, 16, 4, 1)
"""Rows in one statement."""

_VALUES = "(?, ?, ?, ?)"
_Row = tuple[str, bytes, int, float | None]
T = TypeVar("T")


@dataclass(eq=False, slots=True)
class QueuedWrite:
    """A transaction on its way through the thread; `outcome` is its revision or what went wrong."""

    transaction: Transaction
    answer: asyncio.Future[int]
    outcome: int | FederatorError = 0


class Writer:
    """Owns the writing connection and the deadlines of expiring keys."""

    def __init__(self, connection: sqlite3.Connection, path: Path, deadlines: Deadlines) -> None:
        self.connection = connection
        self._path = path
        self._deadlines = deadlines
        self.waiting: queue.SimpleQueue[QueuedWrite | None] = queue.SimpleQueue()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    async def commit(self, transaction: Transaction) -> int:
        """Queue it and wait for its outcome. A caller that is cancelled does not take the transaction back."""
        if self._closing:
            raise Unavailable("the store was closed")
        if self.waiting.qsize() >= MAX_WAITING:
            raise Unavailable(f"{MAX_WAITING} transactions are waiting for the disk already")
        waiting = QueuedWrite(transaction, asyncio.get_running_loop().create_future())
        self.waiting.put(waiting)
        return await waiting.answer

    async def close(self) -> None:
        """Finish what is queued and end the thread."""
        self._closing = True
        self.waiting.put(None)
        await asyncio.to_thread(self._thread.join)
        self.connection.close()

    def _run(self) -> None:
        while batch := self._take():
            self.commit_batch(batch)
            # All callers of one store live on one loop. A loop that is gone has nobody left to answer.
            with contextlib.suppress(RuntimeError):
                batch[0].answer.get_loop().call_soon_threadsafe(self._answer, batch)

    def _take(self) -> list[QueuedWrite]:
        """Wait for a transaction, then take what else has come. Empty: the end."""
        first = self.waiting.get()
        if first is None:
            return []
        batch = [first]
        with contextlib.suppress(queue.Empty):
            while len(batch) < MAX_BATCH:
                more = self.waiting.get_nowait()
                if more is None:
                    self.waiting.put(None)
                    break
                batch.append(more)
        return batch

    def _answer(self, batch: list[QueuedWrite]) -> None:
        for waiting in batch:
            if waiting.answer.done():
                continue
            if isinstance(waiting.outcome, FederatorError):
                waiting.answer.set_exception(waiting.outcome)
            else:
                waiting.answer.set_result(waiting.outcome)

    def commit_batch(self, batch: list[QueuedWrite]) -> None:
        """Write the batch and set its outcomes; on an error of the database, none of it was acknowledged."""
        work = _Batch(self.connection)
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            work.begin(self._deadlines.due(), [waiting.transaction for waiting in batch])
            for waiting in batch:
                waiting.outcome = work.apply(waiting.transaction)
            work.finish()
            self.connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - a thread that died would leave every later caller waiting for ever
            with contextlib.suppress(sqlite3.Error):
                self.connection.rollback()
            for waiting in batch:
                waiting.outcome = describe(error, self._path)
            return
        # Armed after the sync: a key lives too long rather than too short.
        for key, expires_in_s in work.expiries.items():
            self._deadlines.renew(key, expires_in_s)


class _Batch:
    """One SQL transaction and what it is about to change.

    Comparisons are made against what was read at the start and what the batch itself has written since, and rows go to the database at the end,
    many in a statement: each statement gives up Python's lock and has to win it back from an event loop that is busy just then.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute
        self._revision = 0
        self._first_revision = 0
        self._revisions: dict[str, int] = {}
        """By key, of what is there now."""
        self._rows: dict[str, _Row | None] = {}
        """To be written by key; None: to be deleted."""
        self.expiries: dict[str, float | None] = {}

    def begin(self, due: list[str], transactions: Sequence[Transaction]) -> None:
        """Read where the store stands, and delete the keys that are due."""
        (self._revision,) = self._execute(QUERIES["get_revision"]).fetchone()
        self._first_revision = self._revision
        keys = {compare.key for each in transactions for compare in each.compares}
        keys.update(due, *(each.deletes for each in transactions))
        for part in _parts(sorted(keys)):
            query = QUERIES["list_revisions"].replace("(?)", f"({_list('?', part)})")
            self._revisions.update(self._execute(query, part).fetchall())
        self._write((), due)

    def apply(self, transaction: Transaction) -> int | StoreConflict:
        """Compare, then write. Returns the revision, or the conflict with nothing written."""
        for compare in transaction.compares:
            if self._revisions.get(compare.key, 0) != compare.revision:
                return StoreConflict(compare.key)
        self._write(transaction.puts, transaction.deletes)
        return self._revision

    def finish(self) -> None:
        """Write the rows, in the order of their keys, and the revision reached."""
        if self._revision == self._first_revision:
            return
        rows = sorted(self._rows.items())
        for gone in _parts([key for key, row in rows if row is None]):
            self._execute(QUERIES["delete_item"].replace("(?)", f"({_list('?', gone)})"), gone)
        for put in _parts([row for _, row in rows if row is not None]):
            query = QUERIES["put_item"].replace(_VALUES, _list(_VALUES, put))
            self._execute(query, [value for row in put for value in row])
        self._execute(QUERIES["set_revision"], {"revision": self._revision})

    def _write(self, puts: Sequence[Put], deletes: Sequence[str]) -> None:
        revision = self._revision + 1
        deleted = [key for key in deletes if self._revisions.pop(key, 0)]
        for key in deleted:
            self._rows[key] = None
            self.expiries[key] = None
        for put in puts:
            self._rows[put.key] = (put.key, put.value, revision, put.expires_in_s)
            self._revisions[put.key] = revision
            self.expiries[put.key] = put.expires_in_s
        if deleted or puts:
            self._revision = revision


def _list(element: str, parts: Sequence[object]) -> str:
    """So many of one element of SQL, with commas between."""
    return ", ".join([element] * len(parts))


def _parts(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """All of them, in parts of few different lengths: each length is a statement that the database has to read once."""
    start = 0
    for length in PART_LENGTHS:
        while len(rows) - start >= length:
            yield rows[start : start + length]
            start += length
