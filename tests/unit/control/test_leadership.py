"""A term: taken when nobody has one, renewed, and never acted in beyond its end; on a clock that the test moves."""

import asyncio

import pytest

from federator.control.record.leadership import ALIVE_KEY, LEADER_KEY, LedProvider, Reign
from federator.control.record.records import Changes, Records
from federator.kernel.clock import ManualClock
from federator.kernel.errors import NotLeading, OutcomeUnknown, StoreConflict, Unavailable
from federator.kernel.ids import IdSource, made_at
from federator.model.capacity import LaunchRequest
from federator.model.sites import Site, SiteKind
from federator.ports import Compare, Item, Put, Transaction
from federator.store.memory import MemoryStore
from federator_providers.fake import FakeProvider
from tests.support.dispatch import OFFER

TERM_S = 10.0
MARGIN_S = 2.0


class Pair:
    """Two dispatchers on one store and one clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.a, self.b = self.reign("a"), self.reign("b")

    def reign(self, name: str) -> Reign:
        return Reign(
            self.store,
            self.clock,
            leader=name,
            address=f"http://{name}",
            term_s=TERM_S,
            margin_s=MARGIN_S,
        )


WRITE = Transaction(puts=(Put("row", b"value"),))


async def test_one_leads_and_the_other_knows_who() -> None:
    pair = Pair()
    assert await pair.a.attempt()
    assert not await pair.b.attempt()
    assert pair.a.holds
    assert not pair.b.holds
    assert pair.b.other is not None
    assert pair.b.other.address == "http://a"
    with pytest.raises(NotLeading):
        await pair.b.commit(WRITE)


async def test_of_many_at_once_one_leads() -> None:
    pair = Pair()
    reigns = [pair.reign(str(number)) for number in range(20)]
    assert sum(await asyncio.gather(*(reign.attempt() for reign in reigns))) == 1


async def test_a_term_is_over_for_its_leader_before_another_may_begin() -> None:
    """Second by second: at no time do both hold, and in between there is a time in which none does."""
    pair = Pair()
    await pair.a.attempt()
    gap = 0
    for _ in range(100):
        if await pair.b.attempt():
            break
        gap += not pair.a.holds
        pair.clock.advance(0.25)
    assert pair.b.holds
    assert not pair.a.holds
    assert gap >= MARGIN_S / 0.25
    assert pair.b.number == pair.a.number + 1


async def test_a_renewal_that_comes_late_and_counts_keeps_a_successor_out() -> None:
    """It was sent in time and took long: the key was gone for a moment, and is there again when the successor writes."""
    pair = Pair()
    await pair.a.attempt()
    get = pair.store.get

    async def look(key: str) -> Item | None:
        item = await get(key)
        if key == ALIVE_KEY:
            pair.clock.boot_s -= TERM_S  # as it was when the renewal was sent
            pair.a.hold(pair.clock.boot())
            await pair.a.renew()
        return item

    pair.clock.advance(TERM_S)
    pair.store.get = look  # type: ignore[method-assign]
    assert not await pair.b.attempt()
    assert pair.a.holds
    assert not pair.b.holds


async def test_renewing_goes_on_and_changes_nothing_that_writes_compare() -> None:
    pair = Pair()
    await pair.a.attempt()
    for _ in range(10):
        pair.clock.advance(TERM_S - MARGIN_S - 0.5)
        await pair.a.renew()
        assert not await pair.b.attempt()
    assert await pair.a.commit(WRITE)


async def test_a_leader_whose_term_ran_out_writes_nothing_though_nobody_has_taken_over() -> None:
    pair = Pair()
    await pair.a.attempt()
    pair.clock.advance(TERM_S - MARGIN_S)
    with pytest.raises(NotLeading, match="no longer leads"):
        await pair.a.commit(WRITE)
    assert await pair.store.get("row") is None


async def test_a_renewal_counts_from_when_it_was_sent() -> None:
    """The store may have taken it then; that it was answered late proves nothing later."""
    pair = Pair()
    await pair.a.attempt()
    commit = pair.store.commit

    async def slow(transaction: Transaction) -> int:
        revision = await commit(transaction)
        pair.clock.advance(5.0)
        return revision

    pair.store.commit = slow  # type: ignore[method-assign]
    await pair.a.renew()
    pair.store.commit = commit  # type: ignore[method-assign]
    pair.clock.advance(TERM_S - MARGIN_S - 5.0)
    assert not pair.a.holds


async def test_one_who_is_replaced_behind_its_back_finds_out_by_its_next_write() -> None:
    """Its clock has stood still, say: the store refuses the write, and from then on nothing is done at all."""
    pair = Pair()
    await pair.a.attempt()
    usurper = Put(LEADER_KEY, b'{"number":9,"leader":"other","since_at":0.0}')
    await pair.store.commit(Transaction(puts=(usurper,)))
    with pytest.raises(NotLeading, match="another dispatcher has taken over"):
        await pair.a.commit(WRITE)
    assert not pair.a.holds
    assert await pair.store.get("row") is None
    async with asyncio.timeout(60):
        await pair.a.lost()


async def test_a_lost_race_over_a_row_is_no_loss_of_the_term() -> None:
    pair = Pair()
    await pair.a.attempt()
    with pytest.raises(StoreConflict):
        await pair.a.commit(Transaction(compares=(Compare("row", 7),), puts=(Put("row", b""),)))
    assert pair.a.holds


async def test_a_write_that_nobody_knows_the_outcome_of_ends_the_term() -> None:
    """What is known of the records may be wrong by now; the next leader, which may be the same process, reads them."""
    pair = Pair()
    await pair.a.attempt()
    records = Records(pair.store)
    records.lead(pair.a)

    async def unanswered(transaction: Transaction) -> int:
        raise OutcomeUnknown("no member answers")

    pair.store.commit = unanswered  # type: ignore[method-assign]
    changes = Changes()
    changes.put(Site(name="north", kind=SiteKind.EDGE))
    with pytest.raises(OutcomeUnknown):
        await records.transact(lambda: changes)
    assert not pair.a.holds
    assert records.sites == {}


async def test_a_renewal_that_fails_is_tried_again_while_there_is_time() -> None:
    pair = Pair()
    await pair.a.attempt()
    commit, failures = pair.store.commit, 3

    async def failing(transaction: Transaction) -> int:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise Unavailable("not now")
        return await commit(transaction)

    pair.store.commit = failing  # type: ignore[method-assign]
    for _ in range(4):
        pair.clock.advance(1.9)
        await pair.a.renew()
    pair.clock.advance(7.0)
    assert pair.a.holds


async def test_keeping_ends_with_the_term_and_says_why() -> None:
    pair = Pair()
    await pair.a.attempt()

    async def down(transaction: Transaction) -> int:
        pair.clock.advance(3.0)
        raise Unavailable("not now")

    pair.store.commit = down  # type: ignore[method-assign]
    pair.a.term_s = 0.02  # so often, in real time, does it try
    pair.a.margin_s = 0.0
    async with asyncio.timeout(60):
        await pair.a.keep()
    assert pair.a.over_because == "its term could not be renewed"


async def test_one_who_resigns_is_succeeded_at_once() -> None:
    pair = Pair()
    await pair.a.attempt()
    await pair.a.resign()
    assert not pair.a.holds
    assert await pair.b.attempt()
    with pytest.raises(NotLeading):
        await pair.a.commit(WRITE)


@pytest.mark.parametrize("term_s", [TERM_S, None])
async def test_ids_of_a_later_reign_sort_after_those_before_whatever_its_clock_says(
    term_s: float | None,
) -> None:
    """Events are in the order of their ids, and clocks of dispatchers need not agree."""
    store, ahead, behind = MemoryStore(ManualClock()), ManualClock(), ManualClock()
    behind.at -= 7200.0
    made: list[str] = []
    for clock in (ahead, behind, behind, ahead):
        ids, reign = IdSource(clock), Reign(store, clock, leader="one", term_s=term_s, margin_s=MARGIN_S)
        assert await reign.attempt()
        await reign.order(ids)
        made += [ids.new("ev"), ids.new("ev")]
        clock.advance(5.0)
        await reign.renew()
        clock.advance(TERM_S - 1.0)  # killed just before the next renewal counts
        made += [ids.new("ev"), ids.new("ev")]
        await store.commit(Transaction(deletes=(ALIVE_KEY,)))
    assert made == sorted(made)
    assert len(set(made)) == len(made)
    assert made_at(made[-1]) < ahead.now() + TERM_S, "ids do not run away from the time"


async def test_without_expiry_a_term_lasts_and_the_next_start_takes_it() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    first, second = Reign(store, clock, leader="a"), Reign(store, clock, leader="b")
    await first.begin()
    clock.advance(1e9)
    assert first.holds
    await second.begin()
    assert second.number == 2
    assert await store.get(ALIVE_KEY) is None
    with pytest.raises(NotLeading):
        await first.commit(WRITE)


async def test_providers_are_asked_for_nothing_outside_the_term() -> None:
    pair = Pair()
    await pair.a.attempt()
    fake = FakeProvider("cloudy", pair.clock, [OFFER])
    provider = LedProvider(fake, pair.a)
    request = LaunchRequest(name="lease-1", offer=OFFER, federation="f", tags={}, user_data="")
    await provider.launch(request)
    pair.clock.advance(TERM_S)
    with pytest.raises(NotLeading):
        await provider.launch(request)
    with pytest.raises(NotLeading):
        await provider.terminate("lease-1")
    assert [instance.name for instance in await provider.instances("f")] == ["lease-1"]
