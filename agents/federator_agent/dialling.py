"""Dialling: which of the dispatchers of a federation is next, and after what pause. One of them leads; the others say so."""

import random

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 15.0
ASKED_SPREAD = 0.5
"""Where the dispatcher asks for a pause it asks many: each adds up to this share of it."""


class Addresses:
    """URLs, given with commas in between. A dispatcher that has answered is dialled again; after one that did not, the next."""

    def __init__(self, given: str) -> None:
        self._all = [each.strip().rstrip("/") for each in given.split(",") if each.strip()]
        self._present = 0
        self._failed = 0

    @property
    def present(self) -> str:
        """Who is dialled now."""
        return self._all[self._present]

    def worked(self) -> None:
        """It answered as the one who leads."""
        self._failed = 0

    def failed(self) -> bool:
        """It did not: the next is dialled from now on. Whether all have failed since one worked, or since that was last asked."""
        self._present = (self._present + 1) % len(self._all)
        self._failed = (self._failed + 1) % len(self._all)
        return self._failed == 0


class Backoff:
    """Pauses between attempts, in real seconds: each anywhere between nothing and a bound that doubles."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._bound_s = FIRST_PAUSE_S

    def next_s(self, asked_s: float = 0.0) -> float:
        """The next pause; `asked_s` is the least that the dispatcher asked for."""
        pause_s = asked_s * self._chance.uniform(1.0, 1.0 + ASKED_SPREAD)
        pause_s += self._chance.uniform(0.0, self._bound_s)
        self._bound_s = min(LONGEST_PAUSE_S, self._bound_s * 2)
        return pause_s

    def reset(self) -> None:
        """It has gone well."""
        self._bound_s = FIRST_PAUSE_S
