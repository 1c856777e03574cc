"""The fault profile: which kinds of trouble there are at this moment, for whom, and how often they strike.

Spells come and go at the times that the plan says. Whatever can go wrong asks here, at the moment when it would.
"""

import random
from enum import StrEnum

import msgspec

from tests.lab.faults.processes import FaultLoop


class Trouble(StrEnum):
    """What can go wrong again and again while a spell lasts. Whom it befalls is the name of a spell."""

    LOSE = "lose messages"
    REPEAT = "repeat messages"
    DELAY = "delay messages"
    STORE_SLOW = "slow store"
    STORE_REFUSES = "store that refuses"
    STORE_DOUBTS = "store that leaves in doubt"
    STORE_CONFLICTS = "store with conflicts"
    THROTTLE = "provider that throttles"
    REPLY_LOST = "provider whose replies get lost"
    STALE = "stale listings"
    SOLD_OUT = "sold out"
    LIES = "reports of capacity that is not there"
    STAGING_FAILS = "staging that fails"
    TEAR = "transfers that are torn"
    DAMAGE = "transfers that are damaged"
    CLUSTER_BUSY = "cluster that starts jobs late"
    CLUSTER_REFUSES = "cluster whose quota is used up"
    CLUSTER_SILENT = "cluster that does not answer"


class Spell(msgspec.Struct, frozen=True):
    """So often (a share of all occasions) between two times, for `who`."""

    trouble: Trouble
    who: str
    begins_s: float
    ends_s: float
    share: float


class FaultProfile:
    """The present spells."""

    def __init__(self, loop: FaultLoop) -> None:
        self._loop = loop
        self._present: dict[tuple[Trouble, str], float] = {}
        self._settled = False

    def expect(self, spell: Spell) -> None:
        """It will come, and go."""
        key = (spell.trouble, spell.who)
        self._loop.later(spell.begins_s, self._begin, key, spell.share)
        self._loop.later(spell.ends_s, self._end, key)

    def settle(self) -> None:
        """From now on nothing goes wrong any more."""
        self._settled = True
        self._present.clear()

    def draw(self, chance: random.Random, who: str, *troubles: Trouble) -> Trouble | None:
        """The first of these that strikes now; None: none does."""
        if not self._present:
            return None
        for trouble in troubles:
            share = self._present.get((trouble, who))
            if share is not None and chance.random() < share:
                return trouble
        return None

    def strikes(self, chance: random.Random, trouble: Trouble, *who: str) -> bool:
        """Whether it befalls any of these now."""
        return any(self.draw(chance, each, trouble) is not None for each in who)

    def _begin(self, key: tuple[Trouble, str], share: float) -> None:
        if not self._settled:
            self._present[key] = share

    def _end(self, key: tuple[Trouble, str]) -> None:
        self._present.pop(key, None)
