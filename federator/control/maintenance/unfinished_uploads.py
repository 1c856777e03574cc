"""Archives that people have begun to upload: what has come of them waits for the rest, a few of each person, and for a while."""

import hashlib
from collections import defaultdict
from collections.abc import Mapping

from federator.ports import Blobs

FOLDER = "upload-"
"""How their logs begin; no placement's id does."""
MOST_EACH = 4


class UnfinishedUploads:
    """Which there are, as far as this process has seen them begin or stand still. Calls may block on disk."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._of: defaultdict[str, dict[str, None]] = defaultdict(dict)
        """The folders of each person, the one that was used longest ago first."""
        self._seen: dict[str, tuple[int, float]] = {}
        """How large each was when it was seen to grow last, and when."""

    def folder(self, person: str, digest: str) -> str:
        """Where what has come of it is kept; the oldest of that person makes room."""
        name = FOLDER + hashlib.sha256(f"{person}/{digest}".encode()).hexdigest()[:32]
        known = self._of[person]
        known.pop(name, None)
        known[name] = None
        while len(known) > MOST_EACH:
            oldest = next(iter(known))
            del known[oldest]
            self._blobs.drop_logs(oldest)
        return name

    def over(self, person: str, folder: str) -> None:
        """That one is whole and kept."""
        self._of[person].pop(folder, None)
        if not self._of[person]:
            del self._of[person]

    def sweep(self, logs: Mapping[str, int], now: float, unused_s: float) -> None:
        """Drop those of which nothing more has come for so long. `logs`: the bytes of each folder."""
        seen: dict[str, tuple[int, float]] = {}
        for name, size in logs.items():
            if name.startswith(FOLDER):
                known = self._seen.get(name)
                seen[name] = (size, now) if known is None or known[0] != size else known
                if now - seen[name][1] >= unused_s:
                    self._blobs.drop_logs(name)
                    del seen[name]
        self._seen = seen
