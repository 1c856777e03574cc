"""Archives that people have begun to upload: what has come of them waits for the rest, a few of each person, and for a while."""

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Mapping

from federator.kernel.errors import TooMany
from federator.ports import Blobs

FOLDER = "upload-"
"""How their logs begin; no placement's id does."""
MOST_EACH = 4


class UnfinishedUploads:
    """Which there are, as far as this process has seen them begin or stand still."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._of: defaultdict[str, dict[str, int]] = defaultdict(dict)
        """The folders of each person with what their archives will have in bytes, the one that was used longest ago first."""
        self._seen: dict[str, tuple[int, float]] = {}
        """How large each was when it was seen to grow last, and when."""

    def others(self, person: str, digest: str) -> int:
        """How many bytes that person's other archives will have."""
        own = _folder(person, digest)
        return sum(size for name, size in self._of.get(person, {}).items() if name != own)

    async def folder(self, person: str, digest: str, size: int) -> str:
        """Where what has come of an archive of so many bytes is kept; the oldest of that person makes room."""
        name = _folder(person, digest)
        known = self._of[person]
        known.pop(name, None)
        known[name] = size
        while len(known) > MOST_EACH:
            oldest = next(iter(known))
            del known[oldest]
            await asyncio.to_thread(self._blobs.drop_logs, oldest)
        return name

    def refuse_dropped(self, person: str, folder: str) -> None:
        """Raise `TooMany` where others of that person took its place meanwhile: what still came would be counted as nobody's."""
        if folder not in self._of.get(person, {}):
            raise TooMany(
                f"you have begun {MOST_EACH} other archives meanwhile, or the same is whole",
                remedy="send it again, and fewer at once",
            )

    def over(self, person: str, folder: str) -> None:
        """That one is whole and kept."""
        self._of[person].pop(folder, None)

    def sweep(self, logs: Mapping[str, int], now: float, unused_s: float) -> None:
        """Drop those of which nothing more has come for so long. `logs`: the bytes of each folder. Blocks on disk."""
        seen: dict[str, tuple[int, float]] = {}
        for name, size in logs.items():
            if name.startswith(FOLDER):
                known = self._seen.get(name)
                seen[name] = (size, now) if known is None or known[0] != size else known
                if now - seen[name][1] >= unused_s:
                    self._blobs.drop_logs(name)
                    del seen[name]
                    for of_person in self._of.values():
                        of_person.pop(name, None)
        self._seen = seen


def _folder(person: str, digest: str) -> str:
    return FOLDER + hashlib.sha256(f"{person}/{digest}".encode()).hexdigest()[:32]
