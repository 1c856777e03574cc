"""Whose writes count: the leader's term.

Every transaction of the leader also compares the term's key, so that a deposed leader's writes are refused by the store itself,
whatever its clock believes. The single-node stores are locked by their file and have one candidate; the replicated store adds expiry
and succession behind the same key.
"""

import msgspec

from federator.control.records import LEADER_KEY
from federator.kernel.clock import Clock
from federator.ports import Compare, Put, Store, Transaction


class Term(msgspec.Struct, frozen=True):
    """A reign: its number, and who reigns since when."""

    number: int
    leader: str
    since_at: float


async def take_over(store: Store, *, leader: str, clock: Clock) -> tuple[Term, Compare]:
    """Begin the next term; returns it and the comparison that guards every write of it. Raises `StoreConflict` if another is quicker."""
    item = await store.get(LEADER_KEY)
    last = msgspec.json.decode(item.value, type=Term).number if item else 0
    term = Term(number=last + 1, leader=leader, since_at=clock.now())
    revision = await store.commit(
        Transaction(
            compares=(Compare(LEADER_KEY, item.revision if item else 0),),
            puts=(Put(LEADER_KEY, msgspec.json.encode(term)),),
        )
    )
    return term, Compare(LEADER_KEY, revision)
