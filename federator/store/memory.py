"""The store as the contract has it, in a dictionary: the reference that the others are compared with.

The simulator and most tests run on it. It is as durable as its process.
"""

import secrets
from bisect import bisect_left, bisect_right, insort

from federator.kernel.clock import Clock
from federator.kernel.errors import StoreConflict
from federator.ports import Item, Page, Transaction
from federator.store.expiry import Deadlines
from federator.store.transactions import MAX_OPERATIONS, check_key, check_range, check_transaction


class MemoryStore:
    """`federator.ports.Store` in memory. `clock` times expiring keys and is to run in real time, not scaled."""

    MAX_OPERATIONS = MAX_OPERATIONS

    def __init__(self, clock: Clock, *, incarnation: str | None = None) -> None:
        self._incarnation = incarnation or secrets.token_hex(8)
        self.items: dict[str, Item] = {}
        self.keys: list[str] = []
        self.revision = 0
        self._deadlines = Deadlines(clock)

    @property
    def incarnation(self) -> str:
        """A random name, unless one was given."""
        return self._incarnation

    async def get(self, key: str) -> Item | None:
        """The key's present value, or None."""
        check_key(key)
        await self._expire()
        return self.items.get(key)

    async def range(self, prefix: str, *, after: str | None = None, limit: int = 1000) -> Page:
        """Keys that start with `prefix`, strictly after `after`, in order, at most `limit`."""
        check_range(prefix, after, limit)
        await self._expire()
        start = bisect_left(self.keys, prefix)
        if after is not None:
            start = max(start, bisect_right(self.keys, after))
        # One more than asked for tells whether this is the last page. Keys are ASCII: all that begin with the prefix are before this.
        stop = bisect_left(self.keys, prefix + "\x80", lo=start)
        keys = self.keys[start : min(stop, start + limit + 1)]
        items = tuple(self.items[key] for key in keys[:limit])
        return Page(
            items=items, revision=self.revision, next_after=items[-1].key if len(keys) > limit else None
        )

    async def commit(self, transaction: Transaction) -> int:
        """Do it and return its revision. Raises `StoreConflict` when a comparison fails."""
        check_transaction(transaction)
        await self._expire()
        for compare in transaction.compares:
            item = self.items.get(compare.key)
            if (item.revision if item else 0) != compare.revision:
                raise StoreConflict(compare.key)
        return self._write(transaction)

    def refuse_if_full(self) -> None:
        """It has room as long as its process has."""

    async def close(self) -> None:
        """Nothing is held."""

    def _write(self, transaction: Transaction) -> int:
        deletes = [key for key in transaction.deletes if key in self.items]
        if not deletes and not transaction.puts:
            return self.revision
        self.revision += 1
        for key in deletes:
            del self.items[key]
            del self.keys[bisect_left(self.keys, key)]
            self._deadlines.renew(key, None)
        for put in transaction.puts:
            if put.key not in self.items:
                insort(self.keys, put.key)
            self.items[put.key] = Item(put.key, put.value, self.revision)
            self._deadlines.renew(put.key, put.expires_in_s)
        return self.revision

    async def _expire(self) -> None:
        self._write(Transaction(deletes=tuple(self._deadlines.due())))
