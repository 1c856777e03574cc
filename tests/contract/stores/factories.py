"""The stores under contract. Another store joins by adding one factory to `FACTORIES`, and passes every test there is."""

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from federator.kernel.clock import ManualClock
from federator.ports import Put, Store, Transaction
from federator.store.memory import MemoryStore
from federator.store.sqlite import SqliteStore

HISTORY_LIMIT = 100


@dataclass
class ManualWorld:
    """A store on a clock that the test moves. A store with a clock of its own gets a world that waits in real time."""

    store: Store
    clock: ManualClock

    async def pass_time(self, seconds: float) -> None:
        """Let time pass for expiring keys."""
        self.clock.advance(seconds)

    async def forget_history(self) -> None:
        """Make every revision up to now a compacted one."""
        for number in range(2 * HISTORY_LIMIT + 2):
            await self.store.commit(Transaction(puts=(Put("zz-filler", b"%d" % number),)))


@contextlib.asynccontextmanager
async def memory_world(folder: Path) -> AsyncIterator[ManualWorld]:
    clock = ManualClock()
    store = MemoryStore(clock, history_limit=HISTORY_LIMIT)
    yield ManualWorld(store, clock)
    await store.close()


@contextlib.asynccontextmanager
async def sqlite_world(folder: Path) -> AsyncIterator[ManualWorld]:
    clock = ManualClock()
    store = SqliteStore.open(folder / "store.db", clock, history_limit=HISTORY_LIMIT)
    yield ManualWorld(store, clock)
    await store.close()


World = ManualWorld
Factory = Callable[[Path], contextlib.AbstractAsyncContextManager[World]]
FACTORIES: dict[str, Factory] = {"memory": memory_world, "sqlite": sqlite_world}
