"""The dispatchers of a federation, of which one leads: who is dialled now, and who is next."""


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
