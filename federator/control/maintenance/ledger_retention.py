"""Dropping the oldest lines of the ledger, so that what is left can still be verified: what goes is named and signed in the state of the chain. And who has added those that may not go yet."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from federator.control.record.chain import LEDGER, Chain
from federator.control.record.holders import Holder
from federator.control.record.records import Changes, Records
from federator.model.ledger import LedgerState, Seal

BATCH = 100
"""Lines dropped in one transaction, beside the chain's state and a seal."""
MayGo = Callable[[int, float], bool]
"""Whether the line at that place, counted from the first one that is kept, and of that age may be dropped."""


class _Line(msgspec.Struct):
    """Of a line, what is looked at."""

    id: str
    at: float


SLICES = 7
"""In which the time of lines that are promised is cut: a line may count for a seventh of it longer."""


class RecentLines:
    """How many lines each person has added in the time for which every line is promised (seconds): those cannot be dropped to make room for others'."""

    def __init__(self, promised_s: float) -> None:
        self._slice_s = max(1.0, promised_s / SLICES)
        self._slices: dict[int, Counter[Holder]] = {}

    def add(self, who: str, at: float) -> Holder | None:
        """Count a line; None: it is no person's own."""
        kind, _, name = who.partition(":")
        if kind != "user":
            return None
        holder = Holder(kind, name)
        self._slices.setdefault(int(at // self._slice_s), Counter())[holder] += 1
        return holder

    def counts(self, now: float) -> Counter[Holder]:
        """What counts now, by person."""
        oldest = int(now // self._slice_s) - SLICES
        self._slices = {number: counts for number, counts in self._slices.items() if number >= oldest}
        return sum(self._slices.values(), Counter[Holder]())


async def drop_oldest(records: Records, chain: Chain, may_go: MayGo) -> None:
    """Drop lines from the beginning on, up to the first one that may not go."""
    gone = 0
    while True:
        dropped = await _some(records, chain, lambda number, at, gone=gone: may_go(gone + number, at))  # type: ignore[misc]
        gone += dropped
        if dropped == 0:
            return


async def _some(records: Records, chain: Chain, may_go: MayGo) -> int:
    state = chain.state
    page = await records.store.range(LEDGER, limit=BATCH)
    lines = [msgspec.json.decode(item.value, type=_Line) for item in page.items]
    unchained = [line for line in lines if not chain.begun or state.number == 0 or line.id <= state.before]
    if unchained:
        ids = [line.id for number, line in enumerate(unchained) if may_go(number, line.at)]
        moved = msgspec.structs.replace(state, before_dropped=state.before_dropped + len(ids))
        return await _drop(records, chain, ids, state, moved)
    item = await records.store.get(f"seal/{state.first:012d}")
    if item is None:
        return 0
    seal = msgspec.json.decode(item.value, type=Seal)
    left = seal.lines[state.dropped :][:BATCH]
    ids = [line.id for number, line in enumerate(left) if may_go(number, line.at)]
    if len(ids) < len(left) and ids != [line.id for line in left[: len(ids)]]:
        ids = []  # one that may stay stands before one that may go: all wait for it
    moved = msgspec.structs.replace(state, dropped=state.dropped + len(ids))
    over = ""
    if moved.dropped == len(seal.lines) and seal.number < state.number:
        moved = msgspec.structs.replace(moved, first=seal.number + 1, dropped=0, first_previous=seal.head)
        over = f"seal/{seal.number:012d}"
    return await _drop(records, chain, ids, state, moved, over)


async def _drop(
    records: Records, chain: Chain, ids: Sequence[str], state: LedgerState, moved: LedgerState, over: str = ""
) -> int:
    """Drop these lines, and say so in the chain's state, if there is one; how many."""
    if not ids:
        return 0
    changes = await records.transact(partial(_dropped, chain, ids, state, moved, over))
    return len(ids) if changes else 0


def _dropped(chain: Chain, ids: Sequence[str], state: LedgerState, moved: LedgerState, over: str) -> Changes:
    changes = Changes(deletes=[LEDGER + each for each in ids] + ([over] if over else []))
    if chain.begun and state.number:
        now = chain.state
        cut = {
            name: getattr(moved, name) for name in ("before_dropped", "first", "dropped", "first_previous")
        }
        changes.put(chain.signed(msgspec.structs.replace(now, **cut)))
    return changes
