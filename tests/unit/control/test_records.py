"""The records and the store never disagree, whatever runs between reading a row and writing it."""

import asyncio

import msgspec
import pytest

from federator.control.record.records import Changes, Records, Spec
from federator.kernel.clock import ManualClock
from federator.kernel.errors import Permanent
from federator.model.jobs import JobStatus
from federator.model.sites import Site, SiteKind
from federator.ports import Put, Transaction
from federator.store.memory import MemoryStore
from tests.support.dispatch import make_world


async def records() -> Records:
    return Records(MemoryStore(ManualClock()))


def labelled(rows: Records, key: str) -> Changes:
    """Add a label to the site, from what is known of it now."""
    changes = Changes()
    site = rows.sites.get("north", Site(name="north", kind=SiteKind.EDGE))
    changes.put(msgspec.structs.replace(site, labels={**site.labels, key: "yes"}))
    return changes


async def test_of_many_who_change_one_row_at_once_none_is_lost() -> None:
    """A change computed before another was applied, and written after it, must be computed again."""
    rows = await records()
    await rows.transact(lambda: labelled(rows, "first"))
    await asyncio.gather(*(rows.transact(lambda n=n: labelled(rows, f"l{n}")) for n in range(30)))  # type: ignore[misc]
    assert set(rows.sites["north"].labels) == {"first", *(f"l{n}" for n in range(30))}
    again = Records(rows.store)
    await again.load()
    assert again.sites == rows.sites


async def test_a_caller_that_is_cancelled_leaves_memory_as_the_store_is() -> None:
    rows = await records()
    gate = asyncio.Event()
    commit = rows.store.commit

    async def slow(transaction: Transaction) -> int:
        await gate.wait()
        return await commit(transaction)

    rows.store.commit = slow  # type: ignore[method-assign]
    writing = asyncio.create_task(rows.transact(lambda: labelled(rows, "kept")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    writing.cancel()
    gate.set()
    await asyncio.gather(writing, return_exceptions=True)
    await rows.transact(lambda: labelled(rows, "after"))
    assert set(rows.sites["north"].labels) == {"kept", "after"}


async def test_a_row_that_somebody_relies_on_is_not_in_use_no_more_than_until_it_is_written() -> None:
    """Of a submission on its way and a sweep of unused specs, only one order may happen at a time."""
    rows = await records()
    spec = Changes()
    spec.put(Spec("abc", b"{}"))
    await rows.transact(lambda: spec)
    assert rows.unused_specs() == ["abc"]
    leaning = labelled(rows, "leaning")
    leaning.relies_on.append("spec/abc")
    writing = asyncio.create_task(rows.transact(lambda: leaning))
    await asyncio.sleep(0)
    assert rows.unused_specs() == []
    await writing
    assert rows.unused_specs() == ["abc"]


async def test_what_relies_on_a_row_that_is_gone_is_computed_again() -> None:
    rows = await records()
    spec = Changes()
    spec.put(Spec("abc", b"{}"))
    await rows.transact(lambda: spec)
    tries: list[list[str]] = []

    def compute() -> Changes:
        changes = labelled(rows, "x")
        changes.relies_on += [] if tries else ["spec/abc"]
        tries.append(changes.relies_on)
        return changes

    dropping = asyncio.create_task(rows.transact(lambda: Changes(deletes=["spec/abc"])))
    await asyncio.gather(dropping, rows.transact(compute))
    assert tries == [["spec/abc"], []]


async def test_a_row_that_is_just_being_dropped_is_written_again_whatever_comes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both are on their way, and a store such as etcd takes the later one first."""
    rows = await records()
    spec = Changes()
    spec.put(Spec("abc", b"{}"))
    await rows.transact(lambda: spec)
    real, late = MemoryStore.commit, asyncio.Event()

    async def commit(store: MemoryStore, transaction: Transaction) -> int:
        if transaction.deletes:
            await late.wait()
        return await real(store, transaction)

    monkeypatch.setattr(MemoryStore, "commit", commit)
    unused = iter([["spec/abc"], []])
    dropping = asyncio.create_task(rows.transact(lambda: Changes(deletes=next(unused))))
    await asyncio.sleep(0)
    assert not rows.has_spec("abc")
    await rows.transact(lambda: spec)
    late.set()
    await dropping
    assert rows.has_spec("abc")
    assert await rows.store.get("spec/abc") is not None


@pytest.mark.parametrize("value", [b"\x00garbage", b'{"name":', b'{"name":"north","kind":"moon"}'])
async def test_a_row_that_cannot_be_read_is_named_and_nothing_starts(value: bytes) -> None:
    store = MemoryStore(ManualClock())
    await store.commit(Transaction(puts=(Put("site/north", value),)))
    with pytest.raises(Permanent, match=r"row site/north of the store cannot be read.*backup"):
        await Records(store).load()


async def test_a_waiting_job_whose_row_is_written_again_as_it_was_starts_all_the_same() -> None:
    """What a turn keeps of it names the row's revision, which is a new one then: else its plans are stale for ever."""
    world = await make_world()
    job = await world.submit()
    await world.turn()
    waits = world.job(job)
    await world.put(waits)
    assert world.job(job) is waits
    await world.add_site("lab")
    await world.turn()
    assert world.job(job).status is JobStatus.RUNNING
