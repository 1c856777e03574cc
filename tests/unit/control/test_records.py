"""The one way to change records: memory and store stay the same, whatever happens to the caller."""

import asyncio

import pytest

from federator.control.records import Changes, Flag, Records
from federator.kernel.clock import ManualClock
from federator.ports import Transaction
from federator.store.memory import MemoryStore


class SlowStore(MemoryStore):
    """Takes every transaction at once and answers when told to."""

    def __init__(self) -> None:
        super().__init__(ManualClock(0.0))
        self.may_answer = asyncio.Event()
        self.taken = asyncio.Event()

    async def commit(self, transaction: Transaction) -> int:
        revision = await super().commit(transaction)
        self.taken.set()
        await self.may_answer.wait()
        return revision


def put(flag: Flag) -> Changes:
    changes = Changes()
    changes.put(flag)
    return changes


async def test_what_is_durable_is_applied_even_when_the_caller_is_cancelled() -> None:
    """An agent's connection breaks while its status is being written: the row must not be out of reach for ever."""
    store = SlowStore()
    records = Records(store)
    heard: list[Changes] = []
    records.subscribe(heard.append)
    caller = asyncio.create_task(
        records.transact(lambda: put(Flag("burst-paused", on=True, who="ada", at=1.0)))
    )
    await store.taken.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    store.may_answer.set()
    await asyncio.sleep(0.01)

    assert records.flags["burst-paused"].on
    assert len(heard) == 1
    await records.transact(lambda: put(Flag("burst-paused", on=False, who="ada", at=2.0)))
    assert not records.flags["burst-paused"].on
