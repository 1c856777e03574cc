"""Who leads: a term, what counts within it, and what ends it.

Two things keep a former leader from doing harm, and each is enough for what it is for. **Writes**: every transaction also compares the leader's key, so the
store itself refuses those of a leader who has been replaced, whatever its clock believes. **Acts** – answering agents and people, asking providers –
cannot be refused by a store, so they are done only while the term holds by the leader's own boot clock. The term is a key that expires, renewed all
the time. The leader counts from before it sent the last renewal that was confirmed, and stops a margin early; the store counts from when it took the renewal, and
a successor starts only when the key is gone. So the two never overlap while clocks drift by less than the margin.

With the embedded store there is one candidate, because its file is locked, and a term does not expire.

Ids begin with the time and order events, and wall clocks need not agree. So the leader keeps a bound in the store that its ids of the next moments sort
before, and a successor's ids sort after it, whatever its clock says.
"""

import asyncio
import contextlib
import logging
import math

import msgspec

from federator.kernel.clock import Clock
from federator.kernel.errors import NotLeading, OutcomeUnknown, StoreConflict, Transient
from federator.kernel.ids import IdSource
from federator.model.capacity import Instance, LaunchRequest, Offer
from federator.ports import Compare, Provider, Put, Store, Transaction
from federator.telemetry import METRICS

LEADER_KEY = "leader"
ALIVE_KEY = "leader-alive"
"""Is there while somebody leads; it expires. Apart from the leader's key, whose revision guards all writes and stays for the whole term."""
IDS_KEY = "leader-ids"
"""What all ids so far, and those of the next moments, sort before."""
BOUND_S = 10.0
"""Real seconds between two writes of that where a term does not expire."""
RENEWALS = 4
"""Renewals in the time that one holds: some may be late."""
LOOK_S = 0.5
"""Real seconds, at most, between two looks of a dispatcher that stands by."""
log = logging.getLogger(__name__)


class Term(msgspec.Struct, frozen=True):
    """A reign: its number, who reigns since when, and where it is reached."""

    number: int
    leader: str
    since_at: float
    address: str = ""


class Reign:
    """One dispatcher's term: sought with `begin`, kept with `keep`, over with `lose` or `resign`. Never begun twice.

    `term_s` None: it does not expire. `clock` is to run in real time, not scaled.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        leader: str,
        address: str = "",
        term_s: float | None = None,
        margin_s: float = 0.0,
    ) -> None:
        self._store = store
        self._clock = clock
        self._leader = leader
        self._address = address
        self.term_s = term_s
        self.margin_s = margin_s
        self._guard: Compare | None = None
        self._until_boot_s = -math.inf
        self._over = asyncio.Event()
        self._ids: IdSource | None = None
        self.number = 0
        self.over_because = ""
        self.other: Term | None = None
        """Who led when this dispatcher last looked."""

    @property
    def holds(self) -> bool:
        """Whether this dispatcher leads now, by its own clock: to be asked right before each act."""
        return self._guard is not None and not self._over.is_set() and self._clock.boot() < self._until_boot_s

    def require(self) -> None:
        """Raise `NotLeading` unless the term holds."""
        if not self.holds:
            raise NotLeading(
                f"this dispatcher no longer leads: {self.over_because or 'its term is over'}",
                remedy="ask the dispatcher that does",
            )

    async def begin(self) -> None:
        """Return when this dispatcher leads; until then look again and again. Raises what the store does."""
        while not await self.attempt():  # noqa: ASYNC110 - nothing here knows when another's key expires
            await asyncio.sleep(min(LOOK_S, (self.term_s or LOOK_S) / 10))
        METRICS.set("federator_leading", 1)

    async def attempt(self) -> bool:
        """Take over if nobody leads; whether it came about."""
        item = await self._store.get(LEADER_KEY)
        last = msgspec.json.decode(item.value, type=Term) if item else None
        if self.term_s is not None and await self._store.get(ALIVE_KEY) is not None:
            self.other = last
            return False
        number = last.number + 1 if last else 1
        term = Term(number, self._leader, self._clock.now(), self._address)
        compares = [Compare(LEADER_KEY, item.revision if item else 0)]
        if self.term_s is not None:
            compares.append(Compare(ALIVE_KEY, 0))
        asked_boot_s = self._clock.boot()
        puts = (Put(LEADER_KEY, msgspec.json.encode(term)), *self._alive())
        try:
            revision = await self._store.commit(Transaction(tuple(compares), puts))
        except StoreConflict:
            return False
        self._guard, self.number = Compare(LEADER_KEY, revision), number
        self.hold(asked_boot_s)
        return True

    async def order(self, ids: IdSource) -> None:
        """Ids of this source sort after those of all reigns before, and those of later reigns after them. Raises what the store does."""
        bound = await self._store.get(IDS_KEY)
        if bound is not None:
            ids.continue_after(int(bound.value))
        self._ids = ids
        await self.commit(Transaction(puts=self._bound()))

    async def commit(self, transaction: Transaction) -> int:
        """Write within this term; returns the revision. Raises `NotLeading`, with nothing written, when it is over, and what the store does.

        A write of unknown outcome ends the term: what is known of the records may be wrong by now, and whoever leads next reads them all.
        """
        self.require()
        assert self._guard is not None
        compares = (self._guard, *transaction.compares)
        try:
            return await self._store.commit(msgspec.structs.replace(transaction, compares=compares))
        except StoreConflict as conflict:
            if conflict.key != LEADER_KEY:
                raise
            self.lose("another dispatcher has taken over")
            self.require()
            raise
        except OutcomeUnknown as error:
            self.lose(f"it is not known whether a write succeeded: {error.message}")
            raise

    async def keep(self) -> None:
        """Renew the term until it is lost; returns then."""
        while self.holds:
            await self._pause()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._left_s()):
                    await self.renew()
        self.lose("its term could not be renewed")

    async def renew(self) -> None:
        """Hold the term anew from now on; a failure leaves it as it was."""
        puts = (*self._alive(), *self._bound())
        if not puts:
            return
        asked_boot_s = self._clock.boot()
        try:
            await self.commit(Transaction(puts=puts))
        except Transient as error:
            log.warning("the term is not renewed: %s", error)
        else:
            self.hold(asked_boot_s)

    def lose(self, why: str) -> None:
        """It is over, from this moment on. The first reason counts."""
        if not self._over.is_set():
            self.over_because = why
            self._over.set()
            METRICS.set("federator_leading", 0)
            log.error("term %d is over: %s", self.number, why)

    async def lost(self) -> None:
        """Return when it is over."""
        await self._over.wait()

    async def resign(self) -> None:
        """Let a successor start at once. Called when nothing is done any more in this term."""
        if self.term_s is not None and self.holds:
            with contextlib.suppress(Transient, TimeoutError):
                async with asyncio.timeout(self._left_s()):
                    await self.commit(Transaction(deletes=(ALIVE_KEY,)))
        self._over.set()
        METRICS.set("federator_leading", 0)

    def _alive(self) -> tuple[Put, ...]:
        if self.term_s is None:
            return ()
        return (Put(ALIVE_KEY, self._leader.encode(), self.term_s),)

    def _bound(self) -> tuple[Put, ...]:
        if self._ids is None:
            return ()
        within_s = 2 * BOUND_S if self.term_s is None else self.term_s
        return (Put(IDS_KEY, str(self._ids.bound(within_s)).encode()),)

    def hold(self, asked_boot_s: float) -> None:
        """Lead for a term from that moment, in seconds of the boot clock, less the margin."""
        self._until_boot_s = math.inf if self.term_s is None else asked_boot_s + self.term_s - self.margin_s

    def _left_s(self) -> float:
        return max(0.0, min(self._until_boot_s - self._clock.boot(), 1e6))

    async def _pause(self) -> None:
        """Until the next renewal is due, or the term is lost."""
        pause_s = BOUND_S if self._ids is not None else None
        if self.term_s is not None:
            pause_s = (self.term_s - self.margin_s) / RENEWALS
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._over.wait()


class LedProvider:
    """A provider of which only the leader asks something to be done. Innermost of its wrappers: what waited its turn is still checked last."""

    def __init__(self, inner: Provider, reign: Reign) -> None:
        self._inner = inner
        self._reign = reign
        self.name = inner.name

    async def offers(self) -> "list[Offer]":
        """As the provider."""
        return list(await self._inner.offers())

    async def launch(self, request: LaunchRequest) -> Instance:
        """As the provider, within the term. Raises `NotLeading`."""
        self._reign.require()
        return await self._inner.launch(request)

    async def instances(self, federation: str) -> "list[Instance]":
        """As the provider."""
        return list(await self._inner.instances(federation))

    async def terminate(self, name: str) -> None:
        """As the provider, within the term. Raises `NotLeading`."""
        self._reign.require()
        await self._inner.terminate(name)

    async def close(self) -> None:
        """As the provider."""
        await self._inner.close()
