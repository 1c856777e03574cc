"""The last changes of a store, and the watches that read them.

Why so: watches hold a position, not a queue of their own. A slow watcher then costs nothing, and one that falls behind
the bounded history is told so (`Conflict`) in place of being fed with holes. All of it belongs to the event loop.
"""

import asyncio
import contextlib
from bisect import bisect_left
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

from federator.kernel.errors import Conflict, Unavailable
from federator.ports import Change

HISTORY_LIMIT = 10_000
"""Changes kept for watches, unless the store is told otherwise."""

SHORTEST_WAIT_S = 0.05
# Clocks of tests say that no wait takes any time; a watch that believed them would spin.


class History:
    """Changes in the order of their revisions; the oldest are forgotten beyond `limit`."""

    def __init__(self, revision: int, limit: int) -> None:
        self._forgotten = revision
        self._limit = limit
        self.changes: list[Change] = []
        self._grown = asyncio.Event()
        self._closed = False

    def extend(self, changes: Iterable[Change]) -> None:
        """Add committed changes and wake the watches."""
        self.changes.extend(changes)
        # Cut in large pieces: deleting from the front of a list moves the rest.
        if len(self.changes) > 2 * self._limit:
            excess = len(self.changes) - self._limit
            self._forgotten = self.changes[excess - 1].revision
            del self.changes[:excess]
        self._wake()

    def since(self, revision: int) -> list[Change]:
        """All changes with at least this revision. Raises `Conflict` when some are forgotten, `Unavailable` once closed."""
        if self._closed:
            raise Unavailable("the store was closed")
        if self._forgotten and revision <= self._forgotten:
            raise Conflict(
                f"changes up to revision {self._forgotten} are compacted, revision {revision} was asked for",
                remedy="read the range again and watch from its revision + 1",
            )
        return self.changes[bisect_left(self.changes, revision, key=lambda change: change.revision) :]

    async def watch(
        self, prefix: str, from_revision: int, expire: Callable[[], Awaitable[float | None]]
    ) -> AsyncIterator[Change]:
        """The changes under `prefix`, for ever. `expire` removes due keys and returns the seconds until the next one is due."""
        position = from_revision
        while True:
            wait_s = await expire()
            changes = self.since(position)
            for change in changes:
                if change.key.startswith(prefix):
                    yield change
            if changes:
                position = changes[-1].revision + 1
            else:
                await self._wait(wait_s)

    def close(self) -> None:
        """End all watches with `Unavailable`."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()

    async def _wait(self, wait_s: float | None) -> None:
        timeout_s = None if wait_s is None else max(wait_s, SHORTEST_WAIT_S)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._grown.wait(), timeout_s)
