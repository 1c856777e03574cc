"""How many large bodies are on their way at once: in all, and for each who sends or fetches them.

Each holds a file, a thread now and then, and room on the disk that nobody has counted yet.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from federator.kernel.errors import TooMany

AGAIN_S = 2.0


class Transfers:
    """Places for large bodies."""

    def __init__(self, most: int, most_each: int) -> None:
        self._most = most
        self._most_each = most_each
        self._present: Counter[str] = Counter()

    @property
    def present(self) -> int:
        """How many are under way."""
        return self._present.total()

    @contextmanager
    def place(self, who: str) -> Iterator[None]:
        """Hold a place. Raises `TooMany`."""
        if self._present[who] >= self._most_each:
            raise TooMany(
                f"{who} has {self._most_each} uploads and downloads under way",
                retry_after_s=AGAIN_S,
                remedy="wait for one to end, or have limits.transfers_each raised",
            )
        if self._present.total() >= self._most:
            raise TooMany(
                f"{self._most} uploads and downloads are under way",
                retry_after_s=AGAIN_S,
                remedy="try again soon, or have limits.transfers raised",
            )
        self._present[who] += 1
        try:
            yield
        finally:
            self._present[who] -= 1
            if not self._present[who]:
                del self._present[who]


TRANSFERS = web.AppKey("transfers", Transfers)
"""Where the application keeps them."""
