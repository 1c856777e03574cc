"""Log lines about what strangers do: the first of a kind at once, the rest counted and told once a minute.

Anybody can make a thousand such things happen in a second; a line for each would fill the disk and hide everything else.
"""

from collections.abc import Callable
from dataclasses import dataclass

EVERY_S = 60.0
MOST_KEYS = 1000
OTHERS = "others"
"""What more than so many are counted as."""


@dataclass
class _Count:
    since_s: float
    untold: int = 0


class Tally:
    """Counts by key, such as an address. `say` is called with a key and how often it has happened since it was last told."""

    def __init__(self, say: Callable[[str, int], None]) -> None:
        self._say = say
        self._counts: dict[str, _Count] = {}

    def note(self, key: str, now_s: float) -> None:
        """It has happened once more."""
        if key not in self._counts and len(self._counts) >= MOST_KEYS:
            key = OTHERS
        count = self._counts.get(key)
        if count is not None:
            count.untold += 1
            return
        self._counts[key] = _Count(now_s)
        self._say(key, 1)

    def look(self, now_s: float) -> None:
        """Tell what a minute has brought; what has not happened again in it is forgotten."""
        for key, count in tuple(self._counts.items()):
            if now_s - count.since_s < EVERY_S:
                continue
            if count.untold:
                self._say(key, count.untold)
                self._counts[key] = _Count(now_s)
            else:
                del self._counts[key]
