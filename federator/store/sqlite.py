"""The embedded store: one SQLite file, for one dispatcher, with nothing to install.

Ideal semantics: those of `federator.ports.Store`. Departure: each expiring key gets its whole time again when the
store is opened.

Reads have a connection and a thread of their own: in WAL mode they neither wait for the writer nor hold it up, and a slow
disk does not stop the event loop.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from federator.kernel.clock import Clock
from federator.kernel.errors import Unavailable
from federator.ports import Item, Page, Transaction
from federator.store.expiry import Deadlines
from federator.store.sqlite_file import QUERIES, describe, lock, open_reading, open_writing
from federator.store.sqlite_writer import Writer
from federator.store.transactions import MAX_OPERATIONS, check_key, check_range, check_transaction

T = TypeVar("T")

AFTER_ASCII = "\x80"
"""Sorts behind every key character: `prefix + AFTER_ASCII` is the end of the prefix's range."""


class SqliteStore:
    """`federator.ports.Store` in one file. Made by `open`; used from one event loop."""

    MAX_OPERATIONS = MAX_OPERATIONS

    def __init__(
        self,
        path: Path,
        writing: sqlite3.Connection,
        reading: sqlite3.Connection,
        lock_descriptor: int,
        clock: Clock,
    ) -> None:
        incarnation, _ = reading.execute(QUERIES["get_store"]).fetchone()
        self._incarnation: str = incarnation
        self._deadlines = Deadlines(clock)
        for key, expires_in_s in reading.execute(QUERIES["list_expiring"]):
            self._deadlines.renew(key, expires_in_s)
        self._path = path
        self._lock_descriptor = lock_descriptor
        self._reading = reading
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store-reader")
        self.writer = Writer(writing, path, self._deadlines)

    @classmethod
    def open(cls, path: Path, clock: Clock) -> "SqliteStore":
        """Open the file, or make it. `clock` times expiring keys and is to run in real time, not scaled.

        Raises `Unavailable` when another process has it or the disk fails, `Permanent` when the file is damaged, another
        program's, or of a newer version.
        """
        lock_descriptor = lock(path)
        connections: list[sqlite3.Connection] = []
        try:
            connections.append(open_writing(path))
            connections.append(open_reading(path))
            return cls(path, connections[0], connections[1], lock_descriptor, clock)
        except Exception as error:
            for connection in connections:
                connection.close()
            os.close(lock_descriptor)
            if isinstance(error, sqlite3.Error):
                raise describe(error, path) from error
            if isinstance(error, OSError):
                raise Unavailable(f"the store {path} cannot be opened: {error.strerror}") from error
            raise

    @property
    def incarnation(self) -> str:
        """The random name made with the file."""
        return self._incarnation

    async def get(self, key: str) -> Item | None:
        """The key's present value, or None."""
        check_key(key)
        await self._expire()
        return await self._read(lambda: self._get(key))

    async def range(self, prefix: str, *, after: str | None = None, limit: int = 1000) -> Page:
        """Keys that start with `prefix`, strictly after `after`, in order, at most `limit`."""
        check_range(prefix, after, limit)
        await self._expire()
        return await self._read(lambda: self._range(prefix, after or "", limit))

    async def commit(self, transaction: Transaction) -> int:
        """Do it atomically and durably; return its revision. Raises `StoreConflict` when a comparison fails."""
        check_transaction(transaction)
        return await self.writer.commit(transaction)

    def refuse_if_full(self) -> None:
        """A full disk shows in the commit itself."""

    async def close(self) -> None:
        """Finish what is queued, release the file."""
        await self.writer.close()
        await asyncio.to_thread(self._reader.shutdown)
        self._reading.close()
        os.close(self._lock_descriptor)

    async def _expire(self) -> None:
        # The writer deletes what is due ahead of every batch; an empty transaction is enough to make it look.
        if self._deadlines.any_due():
            await self.writer.commit(Transaction())

    async def _read(self, query: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reader, query)
        except sqlite3.Error as error:
            raise describe(error, self._path) from error

    def _get(self, key: str) -> Item | None:
        row = self._reading.execute(QUERIES["get_item"], {"key": key}).fetchone()
        return Item(*row) if row else None

    def _range(self, prefix: str, after: str, limit: int) -> Page:
        bounds = {"prefix": prefix, "end": prefix + AFTER_ASCII, "after": after, "limit": limit + 1}
        # One SQL transaction, so that the revision is that of the items.
        self._reading.execute("BEGIN")
        try:
            (revision,) = self._reading.execute(QUERIES["get_revision"]).fetchone()
            rows = self._reading.execute(QUERIES["list_items"], bounds).fetchall()
        finally:
            self._reading.rollback()
        items = tuple(Item(*row) for row in rows[:limit])
        return Page(items=items, revision=revision, next_after=items[-1].key if len(rows) > limit else None)
