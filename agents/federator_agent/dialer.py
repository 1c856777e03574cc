"""Dialling: which of the dispatchers of a federation is next, and after what pause. One of them leads; the others say so."""

from federator.retry import Backoff

DIALLING = Backoff(0.5, 15.0, spread=1.0)
"""A thousand agents may lose their dispatcher in one moment, so a pause is anything from zero to a bound that doubles."""
TRANSFERS = Backoff(0.5, 15.0)
"""Between requests beside a session."""


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
