"""The audit ledger's hash chain: lines are sealed a moment after they are written, so that a change shows (`federator.model.ledger`).

Only the leader does, in transactions of its term that compare the chain's state: of two that believe to lead one wins, and the other's seal is not written.
Lines that were committed when a leader fell are found by its successor, near the end of the ledger. What is sealed is what was committed, not what the store
has by then: the leader remembers each line until it is sealed, and notes it beside the store (`journal`), so one that is removed or changed meanwhile is found.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

import msgspec

from federator.control.record.journal import JournalEntry
from federator.control.record.records import Changes, Records
from federator.control.record.signer import Signer
from federator.kernel.clock import Clock
from federator.model.events import LedgerEntry
from federator.model.ledger import FRESH_S, Head, LedgerState, Part, Seal, SealedLine, head_of, line_hash
from federator.ports import every_item

log = logging.getLogger(__name__)

LINES = 200
"""Most lines of one seal."""
EVERY_S = 1.0
"""Real seconds between two seals while lines are written."""
LOOKED_THROUGH = 1000
"""Seals in which a line that was noted and not known to be sealed is looked for, at most: a successor seals those first."""
LEDGER = "ledger/"


class Chain:
    """The ledger's chain, as its leader knows it."""

    def __init__(self, records: Records, clock: Clock, signer: Signer) -> None:
        self._records, self._clock, self.signer = records, clock, signer
        self._pending: dict[str, SealedLine] = {}
        self._written = asyncio.Event()
        self._begins: tuple[str, int] = ("", 0)
        self.begun = False
        self.missing: list[Head] = []
        """Heads that were signed here, of ledgers that were gone when a dispatcher began; until a person removes their files."""

    @property
    def state(self) -> LedgerState:
        """How far it goes."""
        return self._records.ledger_state.get("", LedgerState())

    async def begin(self) -> None:
        """Find what is not in it yet. Called once, by who leads, when all is read and before anything is written."""
        signed, state = self.signer.last, self.state
        notes = await asyncio.to_thread(self.signer.journal.read)
        if signed is not None and signed.number > state.number:
            await asyncio.to_thread(self.signer.set_aside)
            notes = []  # their end is missing with the seals before them: the head that is put aside tells of it
            log.error(
                "the ledger ends at seal %d, and this dispatcher has signed seal %d: it was rolled back or its end was removed",
                state.number,
                signed.number,
            )
        self.missing = await asyncio.to_thread(self.signer.aside)
        self._pending = await self._noted(notes)
        if state.number == 0:
            self._begins = await self._all_there_is()
        else:
            await self._find_unsealed(state)
        await asyncio.to_thread(self.signer.journal.renew, state.number, self._pending.values())
        self._records.subscribe(self._hear)
        self.begun = True

    async def run(self) -> None:
        """Seal what comes, until cancelled."""
        while True:
            if not self._pending:
                self._written.clear()
                await self._written.wait()
            await asyncio.sleep(EVERY_S)  # so that one seal takes in what is written together
            await self.seal()

    async def seal(self) -> None:
        """Take all that is written into the chain."""
        while self._pending:
            lines = tuple(self._pending.values())[:LINES]
            changes = await self._records.transact(partial(self._sealed, lines))
            for line in lines:
                self._pending.pop(line.id, None)
            for row in changes.rows.values():
                if isinstance(row, Seal):
                    await asyncio.to_thread(self.signer.keep, Head(row.number, row.head))
            self.signer.journal.shorten(self.state.number, self._pending.values())

    def signed(self, state: LedgerState) -> LedgerState:
        """A state in which more is dropped, with our word for it."""
        key = self.signer.public
        return msgspec.structs.replace(state, key=key, signature=self.signer.sign(state.cut))

    def _sealed(self, lines: tuple[SealedLine, ...]) -> Changes:
        state, changes = self.state, Changes()
        before, before_lines = self._begins if state.number == 0 else ("", 0)
        seal = Seal(
            number=state.number + 1,
            previous=state.head,
            at=self._clock.now(),
            lines=lines,
            head="",
            key=self.signer.public,
            signature="",
            before=before,
            before_lines=before_lines,
        )
        head = head_of(seal)
        highest = max(state.highest, *(line.id for line in lines))
        changes.put(
            msgspec.structs.replace(seal, head=head, signature=self.signer.sign(head.encode())),
            msgspec.structs.replace(
                state, number=seal.number, head=head, highest=highest, before=state.before or before
            ),
        )
        return changes

    def _hear(self, changes: Changes) -> None:
        written = [
            _named(msgspec.to_builtins(row)) for row in changes.rows.values() if isinstance(row, LedgerEntry)
        ]
        if written:
            self._pending |= {line.id: line for line in written}
            self._written.set()
            self.signer.journal.add(self.state.number, written)

    async def _noted(self, notes: Sequence[JournalEntry]) -> dict[str, SealedLine]:
        """Lines that this dispatcher has written and nobody has sealed. Whether the store still has them does not matter: what is missing there is sealed as it was."""
        left = {line.id: line for note in notes for line in note.lines}
        if not left:
            return left
        state, first = self.state, min(note.number for note in notes) + 1
        if first < state.first:
            log.error(
                "%d lines were noted before the ledger's beginning was dropped; they are not compared",
                len(left),
            )
            return {}
        for number in range(first, min(state.number, first + LOOKED_THROUGH) + 1):
            seal = await self.seal_of(number)
            for line in seal.lines if seal is not None else ():
                left.pop(line.id, None)
            if not left:
                break
        return left

    async def _all_there_is(self) -> tuple[str, int]:
        """The last line there is that nobody has noted, and how many: they are from before there was a chain. The others come into it."""
        last, count, first = "", 0, min(self._pending, default="")
        async for line in self._lines(None):
            if first and line["id"] >= first:
                self._find(line)
            else:
                last, count = line["id"], count + 1
        return last, count

    def _find(self, line: dict[str, Any]) -> None:
        """A line in the store that is not sealed. Where it is noted, the note counts."""
        found = _named(line)
        self._pending.setdefault(found.id, found)

    async def _find_unsealed(self, state: LedgerState) -> None:
        """Lines that were committed and not sealed, among those that are young enough."""
        sealed: set[str] = set()
        number, since = state.number, float("inf")
        while number >= state.first:
            seal = await self.seal_of(number)
            if seal is None:
                break
            if since == float("inf"):
                since = seal.at - FRESH_S
            sealed.update(line.id for line in seal.lines)
            if seal.at < since - FRESH_S:
                break
            number -= 1
        first = min(sealed, default=None)
        async for line in self._lines(f"{LEDGER}{first}" if first else None):
            if line["id"] not in sealed and line["id"] > state.before:
                self._find(line)

    async def seal_of(self, number: int) -> Seal | None:
        """The seal of that number, if it is in the store."""
        item = await self._records.store.get(f"seal/{number:012d}")
        return None if item is None else msgspec.json.decode(item.value, type=Seal)

    async def _lines(self, after: str | None) -> AsyncIterator[dict[str, Any]]:
        async for item in every_item(self._records.store, LEDGER, after=after):
            yield msgspec.json.decode(item.value)

    async def parts_of(self, seal: Seal, *, begins: bool) -> AsyncIterator[Part]:
        """The lines of a seal that are kept, then the seal. Where an export begins, first where that is: lines from before the chain are not in it."""
        if begins:
            dropped = seal.before_lines if seal.number == 1 else self.state.before_dropped
            yield Part(
                state=self.signed(
                    msgspec.structs.replace(self.state, number=0, head="", highest="", before_dropped=dropped)
                )
            )
        wanted = {line.id for line in seal.lines}
        first, last = min(wanted, default=""), max(wanted, default="")
        found = {}
        async for line in self._lines(f"{LEDGER}{first[:-1]}"):
            if line["id"] in wanted:
                found[line["id"]] = line
            if line["id"] >= last:
                break
        for each in seal.lines:
            if each.id in found:
                yield Part(line=found[each.id])
        yield Part(seal=seal)

    async def export(self) -> AsyncIterator[Part]:
        """The whole ledger that is kept: lines in the order of the chain, each seal after its lines, then what is not sealed yet."""
        signed = self.signer.signed()
        state = self.state
        yield Part(state=state)
        for head in signed:
            yield Part(signed=head)
        ahead = _Ahead(self._lines(None))
        async for line in ahead.until(state.before):
            yield Part(line=line)
        for number in range(state.first, state.number + 1):
            seal = await self.seal_of(number)
            if seal is not None:
                async for line in ahead.of(seal):
                    yield Part(line=line)
                yield Part(seal=seal)
        async for line in ahead.rest():
            yield Part(line=line)


def _named(line: dict[str, Any]) -> SealedLine:
    """As a seal names it."""
    return SealedLine(line["id"], line_hash(line), line["at"])


class _Ahead:
    """Lines in the order of their ids, read ahead as far as seals want them, which name them in the order of their commits."""

    def __init__(self, lines: AsyncIterator[dict[str, Any]]) -> None:
        self._lines = lines
        self._read: dict[str, dict[str, Any]] = {}
        self._furthest = ""

    async def until(self, last: str) -> AsyncIterator[dict[str, Any]]:
        """Those with ids up to that one."""
        await self._go(last)
        for name in [name for name in self._read if name <= last]:
            yield self._read.pop(name)

    async def of(self, seal: Seal) -> AsyncIterator[dict[str, Any]]:
        """Those of a seal that are there, in its order."""
        await self._go(max((line.id for line in seal.lines), default=""))
        for sealed in seal.lines:
            if sealed.id in self._read:
                yield self._read.pop(sealed.id)

    async def rest(self) -> AsyncIterator[dict[str, Any]]:
        """All others."""
        for line in self._read.values():
            yield line
        async for line in self._lines:
            yield line

    async def _go(self, to: str) -> None:
        while self._furthest < to:
            line = await anext(self._lines, None)
            if line is None:
                return
            self._furthest = line["id"]
            self._read[line["id"]] = line
