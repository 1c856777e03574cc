"""Whatever a turn has to write, each transaction is one that every store takes, and only what no store takes whole is left out.

The sizes are drawn; the stores are the memory store, SQLite, and what `EtcdStore` would send, measured against the limits that etcd has by default.
"""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from federator.control.record.batches import write_each
from federator.control.record.leadership import Reign
from federator.control.record.records import Changes, Records, Spec
from federator.kernel.clock import ManualClock
from federator.kernel.errors import Bug, TooLarge, Unavailable
from federator.model.events import LedgerEntry, LedgerKind
from federator.ports import Compare, Put, Store, Transaction
from federator.settings import EtcdSettings
from federator.store.blobs import MemoryBlobs
from federator.store.etcd import INLINE_BYTES, EtcdStore
from federator.store.etcd_link import EtcdLink
from federator.store.memory import MemoryStore
from federator.store.sqlite import SqliteStore
from federator.store.transactions import MAX_KEY_BYTES, MAX_OPERATIONS, check_transaction

ETCD_OPERATIONS = 128
"""etcd's `--max-txn-ops`: of comparisons, of writes, and of what is looked up when a comparison fails, each."""
ETCD_BYTES = 1_572_864
"""etcd's `--max-request-bytes`."""


class Work(NamedTuple):
    """A piece of a turn: rows that are kept, lines that are only written, and rows that must not move meanwhile. Does writing it fail?"""

    kept: int
    lines: int
    relied_on: int
    value_bytes: int
    fails: bool

    @property
    def fits(self) -> bool:
        return self.kept + self.lines <= MAX_OPERATIONS and self.kept + self.relied_on < MAX_OPERATIONS


WORK = st.builds(
    Work,
    st.integers(0, 140),
    st.one_of(st.integers(0, 5), st.integers(0, 140)),
    st.one_of(st.just(0), st.integers(0, 140)),
    st.sampled_from([10, 6000, 20_000]),
    st.sampled_from([False] * 9 + [True]),
)


class _Etcd:
    """Encodes what is committed as it would be sent to etcd, and refuses what etcd would."""

    def __init__(self) -> None:
        link = EtcdLink(["127.0.0.1:1"], None, 1.0)
        self.store = EtcdStore(
            link, EtcdSettings(endpoints=("http://127.0.0.1:1",), shared_dir="unused"), MemoryBlobs(), {}
        )
        self.largest = 0

    async def take(self, transaction: Transaction) -> None:
        check_transaction(transaction)
        request = await self.store.request_of(transaction)
        assert max(len(request.compare), len(request.success), len(request.failure)) <= ETCD_OPERATIONS
        self.largest = max(self.largest, request.ByteSize())
        assert request.ByteSize() < ETCD_BYTES


async def _written(store: Store, works: list[Work]) -> None:
    """Write these and look at what was left out, and at each transaction."""
    etcd, commit = _Etcd(), store.commit

    async def watched(transaction: Transaction) -> int:
        await etcd.take(transaction)
        return await commit(transaction)

    store.commit = watched  # type: ignore[method-assign]
    records = Records(store)
    reign = Reign(store, ManualClock(), leader="test")
    await reign.begin()
    await records.load()
    records.lead(reign)

    def write(changes: Changes, number: int) -> None:
        work = works[number]
        text = "x" * work.value_bytes
        for row in range(work.kept):
            changes.put(Spec(f"{number}-{row}", text.encode()))
        if work.fails:
            raise Bug("planted")
        for row in range(work.lines):
            changes.put(LedgerEntry(id=f"{number}-{row}", at=0.0, kind=LedgerKind.ACT, who="test", what=text))
        changes.relies_on += [f"spec/none-{number}-{row}" for row in range(work.relied_on)]

    refused = await write_each(records, range(len(works)), write)
    left_out = {each.piece: type(each.error) for each in refused}
    for number, work in enumerate(works):
        expected = Bug if work.fails else None if work.fits else TooLarge
        assert left_out.get(number) is expected, work
        there = [records.has_spec(f"{number}-{row}") for row in range(work.kept)]
        assert all(there) if expected is None else not any(there)
        if work.lines and work.fits:
            line = await store.get(f"ledger/{number}-0")
            assert (line is not None) == (expected is None)
    await etcd.store.link.close()


@given(st.lists(WORK, max_size=25))
@example([Work(0, 0, 1, 10, fails=False), Work(119, 0, 0, 10, fails=False)])
def test_a_turn_of_any_size_is_written_in_memory_and_as_etcd_takes_it(works: list[Work]) -> None:
    asyncio.run(_written(MemoryStore(ManualClock()), works))


@given(st.lists(WORK, max_size=6))
def test_a_turn_of_any_size_is_written_in_sqlite(works: list[Work]) -> None:
    async def play(folder: str) -> None:
        store = SqliteStore.open(Path(folder) / "state.db", ManualClock())
        try:
            await _written(store, works)
        finally:
            await store.close()

    with TemporaryDirectory() as folder:
        asyncio.run(play(folder))


@pytest.mark.parametrize("value_bytes", [INLINE_BYTES, INLINE_BYTES + 1, 100_000])
async def test_the_heaviest_transaction_that_is_allowed_is_lighter_than_etcd_takes(value_bytes: int) -> None:
    """Longest keys, largest values that stay inside, comparisons on as many other keys."""
    etcd, value = _Etcd(), b"x" * value_bytes
    keys = [f"{number:04}".ljust(MAX_KEY_BYTES, "k") for number in range(2 * MAX_OPERATIONS)]
    puts = tuple(Put(key, value) for key in keys[:MAX_OPERATIONS])
    compares = tuple(Compare(key, 2**62) for key in keys[MAX_OPERATIONS:])
    await etcd.take(Transaction(compares, puts))
    if value_bytes == INLINE_BYTES:
        assert etcd.largest > ETCD_BYTES * 3 / 4, "else the limit would be needlessly narrow"
    with pytest.raises(Bug, match="1024"):
        check_transaction(Transaction(puts=(Put(keys[0] + "k", b""),)))
    await etcd.store.link.close()


async def test_what_is_no_piece_s_fault_is_raised_and_refuses_none() -> None:
    store, tries = MemoryStore(ManualClock()), list[int]()
    records = Records(store)

    async def away(_transaction: Transaction) -> int:
        raise Unavailable("not now")

    def write(changes: Changes, number: int) -> None:
        tries.append(number)
        changes.put(Spec(str(number), b""))

    commit = store.commit
    store.commit = away  # type: ignore[method-assign,assignment]
    with pytest.raises(Unavailable):
        await write_each(records, range(3), write)
    assert tries == [0, 1, 2]
    store.commit = commit  # type: ignore[method-assign]
    assert await write_each(records, range(3), write) == []
    assert records.has_spec("2")
