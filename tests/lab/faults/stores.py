"""The store that dispatchers share, and the way of each to it, which may be slow, fail, or leave them in doubt.

The disk is the reference store of the contract. A handle is one dispatcher's client: what it has sent is carried out even if its sender is dead by then,
like a request that is on the wire; and of what fails it may not be known whether it was done, or it is done later.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from federator.control.record.leadership import LEADER_KEY
from federator.kernel.errors import FederatorError, OutcomeUnknown, StoreConflict, Unavailable
from federator.ports import Item, Page, Transaction
from federator.store.memory import MemoryStore
from tests.lab.faults.fault_profile import FaultProfile, Trouble
from tests.lab.faults.plan import COMMIT
from tests.lab.faults.processes import FaultLoop, coming_to

T = TypeVar("T")
PATIENCE_S = 6.0
"""After so long without an answer a request has failed."""
SHORTEST_S, USUAL_S = 0.0005, 0.004


class Disk:
    """What is durable, whoever is alive. `written` is told of every transaction that was carried out."""

    def __init__(self, store: MemoryStore, written: Callable[[Transaction], None]) -> None:
        self.store = store
        self._written = written

    def commit(self, transaction: Transaction) -> int:
        """Carry it out. Raises what the store does."""
        revision = at_once(self.store.commit(transaction))
        self._written(transaction)
        return revision


class StoreHandle:
    """`federator.ports.Store` as one process reaches it."""

    def __init__(
        self, disk: Disk, loop: FaultLoop, profile: FaultProfile, chance: random.Random, who: str
    ) -> None:
        self.MAX_OPERATIONS = disk.store.MAX_OPERATIONS
        self._disk = disk
        self._loop = loop
        self._profile = profile
        self._chance = chance
        self._who = who

    @property
    def incarnation(self) -> str:
        """The disk's."""
        return self._disk.store.incarnation

    async def get(self, key: str) -> Item | None:
        """As the store; it may take long, or fail."""
        return await self._read(lambda: at_once(self._disk.store.get(key)))

    async def range(self, prefix: str, *, after: str | None = None, limit: int = 1000) -> Page:
        """As the store; it may take long, or fail."""
        return await self._read(lambda: at_once(self._disk.store.range(prefix, after=after, limit=limit)))

    async def commit(self, transaction: Transaction) -> int:
        """As the store; it may fail with nothing done, or nobody knows with what."""
        coming_to(COMMIT)
        fate = self._profile.draw(
            self._chance, self._who, Trouble.STORE_REFUSES, Trouble.STORE_DOUBTS, Trouble.STORE_CONFLICTS
        )
        if fate is Trouble.STORE_REFUSES:
            await asyncio.sleep(self._way_s())
            raise Unavailable(f"the store does not answer {self._who}")
        if fate is Trouble.STORE_CONFLICTS:
            await asyncio.sleep(self._way_s())
            keys = [compare.key for compare in transaction.compares if compare.key != LEADER_KEY]
            if keys:
                raise StoreConflict(self._chance.choice(keys))
        if fate is Trouble.STORE_DOUBTS:
            self._in_doubt(transaction)
            await asyncio.sleep(PATIENCE_S)
            raise OutcomeUnknown(f"the store has not answered {self._who}")
        return await self._ask(lambda: self._disk.commit(transaction))

    def refuse_if_full(self) -> None:
        """There is room."""

    async def close(self) -> None:
        """The disk stays."""

    async def _read(self, read: Callable[[], T]) -> T:
        if self._profile.draw(self._chance, self._who, Trouble.STORE_REFUSES):
            await asyncio.sleep(self._way_s())
            raise Unavailable(f"the store does not answer {self._who}")
        return await self._ask(read)

    async def _ask(self, what: Callable[[], T]) -> T:
        """There, done, and back."""
        answered: asyncio.Future[T] = self._loop.create_future()

        def do() -> None:
            try:
                answer = what()
            except FederatorError as error:
                self._loop.later(self._way_s(), _fail, answered, error)
            else:
                self._loop.later(self._way_s(), _answer, answered, answer)

        self._loop.later(self._way_s(), do)
        return await answered

    def _in_doubt(self, transaction: Transaction) -> None:
        """It is done now, later, or never."""
        if self._chance.random() < 0.6:
            late_s = self._way_s() if self._chance.random() < 0.5 else self._chance.uniform(0.0, 20.0)
            self._loop.later(late_s, self._do_if_it_holds, transaction)

    def _do_if_it_holds(self, transaction: Transaction) -> None:
        try:
            self._disk.commit(transaction)
        except StoreConflict:
            return

    def _way_s(self) -> float:
        if self._profile.draw(self._chance, self._who, Trouble.STORE_SLOW):
            return self._chance.uniform(0.05, 3.0)
        return self._chance.uniform(SHORTEST_S, USUAL_S)


def at_once(doing: Coroutine[Any, Any, T]) -> T:
    """What a coroutine that waits for nothing returns, or raises."""
    try:
        doing.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    raise AssertionError("the store in memory waits for something")


def _answer(future: "asyncio.Future[T]", answer: T) -> None:
    if not future.done():
        future.set_result(answer)


def _fail(future: "asyncio.Future[Any]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
