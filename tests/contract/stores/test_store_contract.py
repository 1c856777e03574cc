"""The contract of `federator.ports.Store`, held against every store there is."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from federator.kernel.errors import Bug, StoreConflict, TooLarge
from federator.ports import Compare, Item, Put, Store, Transaction
from tests.contract.stores.factories import FACTORIES, World


@pytest_asyncio.fixture(params=sorted(FACTORIES))
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    async with FACTORIES[request.param](tmp_path) as world:
        yield world


@pytest.fixture
def store(world: World) -> Store:
    return world.store


async def put(store: Store, key: str, value: bytes = b"v", expires_in_s: float | None = None) -> int:
    return await store.commit(Transaction(puts=(Put(key, value, expires_in_s),)))


async def keys(store: Store, prefix: str) -> list[str]:
    return [item.key for item in (await store.range(prefix)).items]


# ---------------------------------------------------------------------------------------------- reading and writing


async def test_a_value_is_read_back_with_the_revision_that_wrote_it(store: Store) -> None:
    revision = await put(store, "a", b"\x00\xff")
    assert await store.get("a") == Item("a", b"\x00\xff", revision)
    assert await store.get("b") is None


async def test_an_empty_value_is_a_value(store: Store) -> None:
    revision = await put(store, "a", b"")
    assert await store.get("a") == Item("a", b"", revision)


async def test_overwriting_gives_the_key_a_higher_revision(store: Store) -> None:
    first = await put(store, "a", b"1")
    second = await put(store, "a", b"2")
    assert second > first
    assert await store.get("a") == Item("a", b"2", second)


async def test_a_deleted_key_is_gone(store: Store) -> None:
    await put(store, "a")
    await store.commit(Transaction(deletes=("a",)))
    assert await store.get("a") is None
    assert await keys(store, "") == []


async def test_each_writing_transaction_gets_exactly_the_next_revision(store: Store) -> None:
    first = await store.commit(Transaction(puts=(Put("a", b""), Put("b", b""))))
    assert await put(store, "c") == first + 1
    assert await store.commit(Transaction(deletes=("a",))) == first + 2
    assert (await store.range("")).revision == first + 2


async def test_a_transaction_that_writes_nothing_returns_the_present_revision(store: Store) -> None:
    revision = await put(store, "a")
    assert await store.commit(Transaction()) == revision
    assert await store.commit(Transaction(compares=(Compare("a", revision),))) == revision
    assert await store.commit(Transaction(deletes=("never-there",))) == revision
    assert await put(store, "b") == revision + 1


async def test_all_puts_of_one_transaction_share_its_revision(store: Store) -> None:
    revision = await store.commit(Transaction(puts=(Put("a", b"1"), Put("b", b"2"))))
    assert {item.revision for item in (await store.range("")).items} == {revision}


async def test_the_incarnation_stays_and_has_a_name(store: Store) -> None:
    before = store.incarnation
    await put(store, "a")
    assert before
    assert store.incarnation == before


# ------------------------------------------------------------------------------------------------------ comparisons


async def test_revision_zero_means_that_the_key_must_not_exist(store: Store) -> None:
    create = Transaction(compares=(Compare("a", 0),), puts=(Put("a", b"first"),))
    await store.commit(create)
    with pytest.raises(StoreConflict):
        await store.commit(create)
    await store.commit(Transaction(deletes=("a",)))
    await store.commit(create)


async def test_a_stale_revision_writes_nothing_at_all(store: Store) -> None:
    old = await put(store, "a", b"1")
    new = await put(store, "a", b"2")
    await put(store, "doomed")
    before = await store.range("")
    with pytest.raises(StoreConflict):
        await store.commit(
            Transaction(compares=(Compare("a", old),), puts=(Put("b", b""),), deletes=("doomed",))
        )
    assert await store.range("") == before
    await store.commit(Transaction(compares=(Compare("a", new),), puts=(Put("a", b"3"),)))


async def test_a_revision_of_a_key_that_is_gone_conflicts(store: Store) -> None:
    revision = await put(store, "a")
    await store.commit(Transaction(deletes=("a",)))
    with pytest.raises(StoreConflict):
        await store.commit(Transaction(compares=(Compare("a", revision),)))


async def test_a_conflict_names_the_first_comparison_that_failed(store: Store) -> None:
    revision = await put(store, "held")
    compares = (Compare("held", revision), Compare("second", 7), Compare("first", 9))
    with pytest.raises(StoreConflict) as caught:
        await store.commit(Transaction(compares=compares))
    assert caught.value.key == "second"


async def test_comparisons_look_at_the_state_before_the_writes(store: Store) -> None:
    await store.commit(
        Transaction(compares=(Compare("a", 0), Compare("b", 0)), puts=(Put("a", b""), Put("b", b"")))
    )
    assert await keys(store, "") == ["a", "b"]


# ------------------------------------------------------------------------------------------------- what is refused


async def test_the_largest_transaction_passes_and_one_more_is_too_large(store: Store) -> None:
    puts = tuple(Put(f"k{number:04}", b"v") for number in range(store.MAX_OPERATIONS - 1))
    await put(store, "old")
    await store.commit(Transaction(puts=puts, deletes=("old",)))
    assert len((await store.range("")).items) == store.MAX_OPERATIONS - 1
    with pytest.raises(TooLarge, match=str(store.MAX_OPERATIONS)):
        await store.commit(Transaction(puts=(*puts, Put("x", b"")), deletes=("old",)))


@pytest.mark.parametrize("key", ["", "schlüssel"])
async def test_keys_that_some_store_could_not_hold_are_refused(store: Store, key: str) -> None:
    for transaction in (
        Transaction(puts=(Put(key, b""),)),
        Transaction(deletes=(key,)),
        Transaction(compares=(Compare(key, 0),)),
    ):
        with pytest.raises(Bug):
            await store.commit(transaction)
    with pytest.raises(Bug):
        await store.get(key)


async def test_a_key_written_twice_in_one_transaction_is_refused(store: Store) -> None:
    with pytest.raises(Bug, match="twice"):
        await store.commit(Transaction(puts=(Put("a", b"1"), Put("a", b"2"))))
    with pytest.raises(Bug, match="twice"):
        await store.commit(Transaction(puts=(Put("a", b"1"),), deletes=("a",)))
    assert await store.get("a") is None


@pytest.mark.parametrize("expires_in_s", [0.0, -1.0, float("nan")])
async def test_an_expiry_that_is_over_before_it_began_is_refused(store: Store, expires_in_s: float) -> None:
    with pytest.raises(Bug, match="expire"):
        await put(store, "a", expires_in_s=expires_in_s)


# ---------------------------------------------------------------------------------------------------------- ranges


async def test_a_prefix_takes_its_keys_in_code_point_order_and_no_neighbours(store: Store) -> None:
    inside = ["job/", "job/\x00", "job/ ", "job/A", "job/a", "job/a/b", "job/~", "job/\x7f", "job/\x7f\x7f"]
    for key in ["job", "job.", "job0", "joa/z", "k", *reversed(inside)]:
        await put(store, key)
    assert await keys(store, "job/") == sorted(inside)
    assert await keys(store, "job/\x7f") == ["job/\x7f", "job/\x7f\x7f"]
    assert await keys(store, "job/a/b") == ["job/a/b"]
    assert await keys(store, "nothing") == []


async def test_the_empty_prefix_is_every_key(store: Store) -> None:
    await put(store, "a")
    await put(store, "\x7f")
    assert await keys(store, "") == ["a", "\x7f"]


async def test_characters_that_are_wildcards_elsewhere_are_ordinary(store: Store) -> None:
    for key in ["a%", "ab", "a_", "A%", "a*", "a[b]"]:
        await put(store, key)
    assert await keys(store, "a%") == ["a%"]
    assert await keys(store, "a_") == ["a_"]
    assert await keys(store, "a[") == ["a[b]"]


async def test_pages_follow_one_another_without_gap_or_repeat(store: Store) -> None:
    expected = [f"p/{number:02}" for number in range(7)]
    await store.commit(Transaction(puts=tuple(Put(key, b"") for key in [*expected, "q"])))
    seen: list[str] = []
    sizes = []
    after = None
    while True:
        page = await store.range("p/", after=after, limit=3)
        seen += [item.key for item in page.items]
        sizes.append(len(page.items))
        if page.next_after is None:
            break
        after = page.next_after
    assert seen == expected
    assert sizes == [3, 3, 1]


async def test_a_page_that_ends_with_the_range_is_the_last(store: Store) -> None:
    for key in ("p/1", "p/2", "q"):
        await put(store, key)
    assert (await store.range("p/", limit=2)).next_after is None
    assert (await store.range("p/", limit=1)).next_after == "p/1"
    assert (await store.range("none/")).next_after is None


async def test_after_need_not_be_a_key_of_the_range(store: Store) -> None:
    for key in ("p/1", "p/3"):
        await put(store, key)
    assert [item.key for item in (await store.range("p/", after="p/2")).items] == ["p/3"]
    assert [item.key for item in (await store.range("p/", after="a")).items] == ["p/1", "p/3"]
    assert (await store.range("p/", after="z")).items == ()


async def test_a_page_of_no_keys_is_refused(store: Store) -> None:
    with pytest.raises(Bug):
        await store.range("", limit=0)


async def test_a_range_is_of_one_moment(store: Store) -> None:
    """Pairs are always written together; a page must never show one half newer than the other."""
    done = False

    async def write() -> None:
        nonlocal done
        for number in range(60):
            value = b"%d" % number
            await store.commit(Transaction(puts=(Put("pair/a", value), Put("pair/b", value))))
        done = True

    async with asyncio.TaskGroup() as group:
        group.create_task(write())
        while not done:
            page = await store.range("pair/")
            assert len({item.value for item in page.items}) <= 1
            assert all(item.revision <= page.revision for item in page.items)
            await asyncio.sleep(0)


# ---------------------------------------------------------------------------------------------------- expiring keys


async def test_a_key_expires_when_its_time_is_over_and_not_before(world: World) -> None:
    await put(world.store, "lock", expires_in_s=10.0)
    await world.pass_time(9.0)
    assert await world.store.get("lock") is not None or world.overslept("lock")
    await world.pass_time(2.0)
    assert await world.store.get("lock") is None


async def test_a_key_does_not_go_with_another_that_expires_a_moment_earlier(world: World) -> None:
    await put(world.store, "first", expires_in_s=10.0)
    await put(world.store, "second", expires_in_s=11.0)
    await world.pass_time(10.5)
    assert await keys(world.store, "") == ["second"] or world.overslept("second")
    await world.pass_time(1.0)
    assert await keys(world.store, "") == []


async def test_an_expired_key_is_gone_from_ranges_and_comparisons(world: World) -> None:
    store = world.store
    revision = await put(store, "lock", expires_in_s=10.0)
    await put(store, "other")
    await world.pass_time(11.0)
    with pytest.raises(StoreConflict):
        await store.commit(Transaction(compares=(Compare("lock", revision),), puts=(Put("late", b""),)))
    assert await keys(store, "") == ["other"]
    await store.commit(Transaction(compares=(Compare("lock", 0),), puts=(Put("lock", b"taken over"),)))


async def test_writing_again_renews_an_expiring_key(world: World) -> None:
    for _ in range(3):
        await put(world.store, "lock", expires_in_s=10.0)
        await world.pass_time(7.0)
    assert await world.store.get("lock") is not None or world.overslept("lock")
    await world.pass_time(4.0)
    assert await world.store.get("lock") is None


async def test_writing_without_an_expiry_makes_a_key_stay(world: World) -> None:
    await put(world.store, "lock", expires_in_s=10.0)
    await put(world.store, "lock")
    await world.pass_time(100.0)
    assert await world.store.get("lock") is not None


async def test_a_key_deleted_and_written_again_does_not_inherit_the_old_expiry(world: World) -> None:
    await put(world.store, "lock", expires_in_s=10.0)
    await world.store.commit(Transaction(deletes=("lock",)))
    await put(world.store, "lock")
    await world.pass_time(100.0)
    assert await world.store.get("lock") is not None


async def test_expiry_is_a_change_with_a_revision_of_its_own(world: World) -> None:
    written = await put(world.store, "lock", expires_in_s=10.0)
    await world.pass_time(11.0)
    assert await world.store.get("lock") is None
    assert (await world.store.range("")).revision == written + 1


# ------------------------------------------------------------------------------------------------------ concurrency


async def test_of_many_that_compare_the_same_revision_exactly_one_wins(store: Store) -> None:
    base = await put(store, "counter", b"0")

    async def attempt(number: int) -> bool:
        value = b"%d" % number
        try:
            await store.commit(
                Transaction(compares=(Compare("counter", base),), puts=(Put("counter", value),))
            )
        except StoreConflict:
            return False
        return True

    results = await asyncio.gather(*(attempt(number) for number in range(64)))
    assert sum(results) == 1
    winner = await store.get("counter")
    assert winner is not None
    assert winner.value == b"%d" % results.index(True)


async def test_concurrent_increments_with_retries_lose_none(store: Store) -> None:
    await put(store, "counter", b"0")

    async def increment() -> None:
        while True:
            item = await store.get("counter")
            assert item is not None
            following = Put("counter", b"%d" % (int(item.value) + 1))
            try:
                await store.commit(
                    Transaction(compares=(Compare("counter", item.revision),), puts=(following,))
                )
            except StoreConflict:
                continue
            return

    await asyncio.gather(*(increment() for _ in range(24)))
    final = await store.get("counter")
    assert final is not None
    assert final.value == b"24"


async def test_many_writers_each_get_the_revision_of_what_they_wrote(store: Store) -> None:
    before = await put(store, "before")
    revisions = await asyncio.gather(*(put(store, f"k{number:03}") for number in range(200)))
    assert min(revisions) > before
    assert await put(store, "after") > max(revisions)
    assert {item.key: item.revision for item in (await store.range("k")).items} == {
        f"k{number:03}": revision for number, revision in enumerate(revisions)
    }


async def test_of_writers_that_rely_on_each_others_keys_one_wins(store: Store) -> None:
    """Each writes its key if the other's is absent: whatever is shared on the way, they are not judged as if each were alone."""
    for number in range(20):
        here, there = f"a{number}", f"b{number}"
        pairs = ((here, there), (there, here))
        writes = [
            store.commit(Transaction(compares=(Compare(other, 0),), puts=(Put(mine, b""),)))
            for mine, other in pairs
        ]
        rest = [put(store, f"c{number}-{each}") for each in range(10)]
        answers = await asyncio.gather(*rest, *writes, return_exceptions=True)
        conflicts = [each for each in answers if isinstance(each, StoreConflict)]
        assert len(conflicts) == 1, answers


async def test_a_failing_neighbour_does_not_take_others_down(store: Store) -> None:
    """Transactions may share a wait for the disk; their outcomes stay their own."""

    async def attempt(number: int) -> bool:
        compares = (Compare("absent", 99),) if number % 2 else ()
        try:
            await store.commit(Transaction(compares=compares, puts=(Put(f"k{number:02}", b""),)))
        except StoreConflict:
            return False
        return True

    results = await asyncio.gather(*(attempt(number) for number in range(40)))
    assert results == [number % 2 == 0 for number in range(40)]
    assert await keys(store, "k") == [f"k{number:02}" for number in range(0, 40, 2)]


async def test_a_caller_that_gives_up_does_not_disturb_the_others(store: Store) -> None:
    tasks = [asyncio.create_task(put(store, f"k{number}")) for number in range(10)]
    await asyncio.sleep(0)
    tasks[3].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, int) for number, result in enumerate(results) if number != 3)
    assert len(await keys(store, "k")) >= 9
