"""What happened, line by line, in the order in which it did: the same seed writes the same bytes."""

import asyncio
from collections import deque
from collections.abc import Callable

LAST = 60
"""Lines that a failure is shown with."""


class Journal:
    """Takes lines; the last are always kept, and all go to `tell` if it is given."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tell: Callable[[str], None] | None = None) -> None:
        self._time = loop.time
        self._tell = tell
        self._last: deque[tuple[float, str, str]] = deque(maxlen=LAST)
        self.lines = 0

    def note(self, who: str, what: str) -> None:
        """`who` did or met `what`, now."""
        self.lines += 1
        self._last.append((self._time(), who, what))
        if self._tell is not None:
            self._tell(_line(self._time(), who, what))

    def last(self) -> tuple[str, ...]:
        """The newest lines, oldest first."""
        return tuple(_line(*each) for each in self._last)


def _line(at_s: float, who: str, what: str) -> str:
    return f"{at_s:12.3f}  {who:<12} {what}"
