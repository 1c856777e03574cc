"""The stores under contract. Another store joins by adding one factory to `FACTORIES`, and passes every test there is."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from aetcd import rpc

from federator.kernel.clock import ManualClock
from federator.ports import Compare, Item, Page, Put, Store, Transaction
from federator.settings import EtcdSettings
from federator.store.blobs import MemoryBlobs
from federator.store.etcd import EtcdStore
from federator.store.memory import MemoryStore
from federator.store.sqlite import SqliteStore
from tests.testbeds.etcd import shared_cluster

LATE_S = 60.0
"""Real seconds that a key may stay beyond its time."""


class World(Protocol):
    """A store, and ways to let time go by for it."""

    @property
    def store(self) -> Store: ...

    async def pass_time(self, seconds: float) -> None:
        """Let time pass for expiring keys."""

    def overslept(self, key: str) -> bool:
        """Whether its time is over already, because the machine kept this test waiting: then it may be gone."""


@dataclass
class ManualWorld:
    """A store on a clock that the test moves. A store with a clock of its own gets a world that waits in real time."""

    store: Store
    clock: ManualClock

    async def pass_time(self, seconds: float) -> None:
        """Let time pass for expiring keys."""
        self.clock.advance(seconds)

    def overslept(self, key: str) -> bool:
        """Never: the clock waits for the test."""
        return False


@contextlib.asynccontextmanager
async def memory_world(folder: Path) -> AsyncIterator[ManualWorld]:
    clock = ManualClock()
    store = MemoryStore(clock)
    yield ManualWorld(store, clock)
    await store.close()


@contextlib.asynccontextmanager
async def sqlite_world(folder: Path) -> AsyncIterator[ManualWorld]:
    clock = ManualClock()
    store = SqliteStore.open(folder / "store.db", clock)
    yield ManualWorld(store, clock)
    await store.close()


class FreshEtcd:
    """An `EtcdStore` whose revisions begin at 0, as those of a store of its own do; and the time its keys were given passes in a fifth.

    Keys with an expiry are remembered, because a cluster may be late: who lets time pass waits until what must be gone is.
    """

    MAX_OPERATIONS = EtcdStore.MAX_OPERATIONS
    PACE = 0.19

    def __init__(self, store: EtcdStore, base: int) -> None:
        self.inner = store
        self._base = base
        self.due_s: dict[str, float] = {}
        self.ends_s: dict[str, float] = {}
        """Until when each key has to be there, at least: its time from before it was written."""
        self.last_due_s = 0.0

    @property
    def incarnation(self) -> str:
        return self.inner.incarnation

    async def get(self, key: str) -> Item | None:
        item = await self.inner.get(key)
        return self._shifted(item) if item else None

    async def range(self, prefix: str, *, after: str | None = None, limit: int = 1000) -> Page:
        page = await self.inner.range(prefix, after=after, limit=limit)
        return Page(tuple(map(self._shifted, page.items)), page.revision - self._base, page.next_after)

    async def commit(self, transaction: Transaction) -> int:
        base, asked_s = self._base, time.monotonic()
        compares = tuple(
            Compare(each.key, each.revision + base if each.revision else 0) for each in transaction.compares
        )
        puts = tuple(
            Put(each.key, each.value, each.expires_in_s and each.expires_in_s * self.PACE)
            for each in transaction.puts
        )
        revision = await self.inner.commit(Transaction(compares, puts, transaction.deletes)) - base
        for key in transaction.deletes:
            self.due_s.pop(key, None)
        for put in puts:
            self.due_s.pop(put.key, None)
            if put.expires_in_s is not None:
                self.ends_s[put.key] = asked_s + put.expires_in_s
                self.due_s[put.key] = time.monotonic() + put.expires_in_s
                self.last_due_s = max(self.last_due_s, self.due_s[put.key])
        return revision

    def refuse_if_full(self) -> None:
        self.inner.refuse_if_full()

    async def close(self) -> None:
        await self.inner.close()

    def _shifted(self, item: Item) -> Item:
        return Item(item.key, item.value, item.revision - self._base)


@dataclass
class EtcdWorld:
    """A store in a real cluster, whose time cannot be moved."""

    store: FreshEtcd

    async def pass_time(self, seconds: float) -> None:
        """Wait; then for what must be gone by now. What comes after the last expiry there ever was need not be waited for."""
        store = self.store
        until_s = min(time.monotonic() + seconds * store.PACE, store.last_due_s + 1.0)
        for key in sorted(store.due_s, key=lambda key: store.due_s[key]):
            if store.due_s[key] > until_s:
                break
            await asyncio.sleep(store.due_s[key] - time.monotonic())
            del store.due_s[key]
            async with asyncio.timeout(LATE_S):
                while await store.get(key) is not None:
                    await asyncio.sleep(0.02)
        await asyncio.sleep(until_s - time.monotonic())

    def overslept(self, key: str) -> bool:
        """By the real clock."""
        return time.monotonic() >= self.store.ends_s[key]


@contextlib.asynccontextmanager
async def etcd_world(folder: Path) -> AsyncIterator[EtcdWorld]:
    """Below a prefix of its own, in a cluster that all tests share."""
    settings = EtcdSettings(
        endpoints=shared_cluster().endpoints, shared_dir="", prefix=f"/{secrets.token_hex(4)}"
    )
    store = await EtcdStore.open(settings, MemoryBlobs(), outside={"a/": -1})
    yield EtcdWorld(FreshEtcd(store, (await store.range("")).revision))
    # What would expire later would count in the revisions of the next test.
    everything = rpc.DeleteRangeRequest(key=store.data, range_end=store.data + b"\xff")
    await store.link.call(lambda member: member.kv.DeleteRange, everything)
    await store.close()


Factory = Callable[[Path], contextlib.AbstractAsyncContextManager[World]]
FACTORIES: dict[str, Factory] = {"memory": memory_world, "sqlite": sqlite_world, "etcd": etcd_world}
