"""Expiry of keys in the embedded stores: which keys' time to live is over.

Why so: deadlines are kept in memory, on the boot clock, because wall clocks jump and a key that went early would let a
second leader in. A store that is opened again therefore gives each of its expiring keys its whole time once more: later
than promised is safe, earlier is not.
"""

import heapq
import math

from federator.kernel.clock import Clock


class Deadlines:
    """The expiring keys of one store. One thread changes it; others may only ask `any_due`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due_at: dict[str, float] = {}
        # Renewed keys leave stale entries behind; they are dropped when they come up.
        self._heap: list[tuple[float, str]] = []
        self._next_at = math.inf

    def renew(self, key: str, expires_in_s: float | None) -> None:
        """The key was written just now, to live for `expires_in_s`; None: for ever, or it was deleted."""
        if expires_in_s is None:
            if self._due_at.pop(key, None) is None:
                return
        else:
            due_at = self._clock.boot() + expires_in_s
            self._due_at[key] = due_at
            heapq.heappush(self._heap, (due_at, key))
        while self._heap and self._due_at.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        self._next_at = self._heap[0][0] if self._heap else math.inf

    def any_due(self) -> bool:
        """Whether `due` would name a key."""
        return self._next_at <= self._clock.boot()

    def due(self) -> list[str]:
        """The keys whose time is up, in order. They stay until they are renewed with None."""
        if not self.any_due():
            return []
        now = self._clock.boot()
        return sorted(key for key, due_at in self._due_at.items() if due_at <= now)
