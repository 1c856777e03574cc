"""Archives of work directories that an agent has fetched from the dispatcher, kept for later placements."""

import asyncio
from pathlib import Path

from federator_agent import job_folders
from federator_agent.bulk import Bulk

KEEP = 50
"""So many are kept; the least recently used go."""


class WorkArchives:
    """Those under an agent's state directory."""

    def __init__(self, state_dir: Path, bulk: Bulk) -> None:
        self._folder = state_dir / "blobs"
        self._bulk = bulk
        self._fetching: dict[str, asyncio.Lock] = {}

    def drop_old(self) -> None:
        """Remove the least recently used. At the start of the agent: nobody reads any then."""
        self._folder.mkdir(exist_ok=True)
        keep_newest(self._folder)

    async def fetch(self, digest: str) -> Path:
        """The archive of that hash, from the dispatcher where it is not here yet. Raises `Permanent` and `OSError`."""
        archive = self._folder / digest
        async with self._fetching.setdefault(digest, asyncio.Lock()):
            if not archive.exists():
                self._folder.mkdir(exist_ok=True)
                await self._bulk.blob(digest, archive)
        archive.touch()
        return archive


def keep_newest(folder: Path) -> None:
    """Remove all but the most recently used of what is in a folder."""
    for path in sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)[:-KEEP]:
        job_folders.remove(path) if path.is_dir() else path.unlink()
