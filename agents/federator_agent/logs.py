"""Brings the logs of ranks to the dispatcher, chunk by chunk, from wherever the dispatcher's copy ends.

The length that the dispatcher answers is the truth: after a cut, a restart of either side, or a copy that lost its tail, the
next chunk begins there. Of a log that is over the dispatcher's limit the beginning is sent while it grows, and the end once it is over, with a
line in between that says how much is left out. Files stay on disk until the placement is acknowledged; when all of them together outgrow the limit,
the oldest of ended placements go first.
"""

import asyncio
import logging
import os
from pathlib import Path

from federator.kernel.errors import FederatorError
from federator_agent.link import Bulk
from federator_agent.opening import opened

CHUNK_BYTES = 2**20
HEAD = 3 / 4
"""Part of the limit that is for the beginning of a log; the rest is for its end."""
LOOK_EVERY_S = 0.25
"""How often (real seconds) growing logs are looked at while anything runs."""
KEEP_BYTES = 4 * 2**30
"""Most that logs of ended placements may take before the oldest are dropped."""
MAX_STALLS = 3
"""Chunks after which the dispatcher's copy may fail to grow before no more is sent."""
log = logging.getLogger("federator_agent.logs")

Key = tuple[str, int]


class Upload:
    """One rank's log, `rank-N/log` of its placement's directory. `sent` is the length of the dispatcher's copy; None: to be asked."""

    def __init__(self, path: Path, sent: int | None) -> None:
        self.path = path
        self.sent = sent
        self.most = 0
        """How much the dispatcher keeps, in bytes; 0: it has not said."""
        self.over = False
        """Whether it grows no more."""
        self.refused = False
        self.stalls = 0
        self.lock = asyncio.Lock()

    def pending(self) -> bool:
        """Whether the dispatcher's copy is shorter than the file, or may be."""
        if self.refused or not self.path.exists():
            return False
        return self.sent is None or self.sent < self._wanted(self.path.stat().st_size)

    def chunk(self) -> bytes:
        """What comes next in the dispatcher's copy. Of a log that is over and too long, its end follows its beginning."""
        at = self.sent or 0
        with opened(self.path.parents[1], self.path) as file:
            size = file.seek(0, os.SEEK_END)
            end, skipped = min(at + CHUNK_BYTES, self._wanted(size)), 0
            if self.over and 0 < self.most < size:
                if at < self._head:
                    end = min(end, self._head)
                else:
                    skipped = size - self.most
                    said = f"\n[… {skipped / 2**20:.1f} MiB of this log left out …]\n".encode()
                    if at < self._head + len(said):
                        return said[at - self._head :]
            file.seek(at + skipped)
            return file.read(max(0, end - at))

    def _wanted(self, size: int) -> int:
        """How long the dispatcher's copy is to be for now."""
        if not self.most:
            return size
        return min(size, self.most if self.over else self._head)

    @property
    def _head(self) -> int:
        return int(self.most * HEAD)


class LogUploads:
    """All logs that are on their way."""

    def __init__(self, bulk: Bulk) -> None:
        self._bulk = bulk
        self._uploads: dict[Key, Upload] = {}
        self._any = asyncio.Event()

    def follow(self, placement: str, rank: int, path: Path, *, fresh: bool) -> None:
        """Upload this file as it grows. `fresh`: nothing of it has been sent before."""
        self._uploads.setdefault((placement, rank), Upload(path, 0 if fresh else None))
        self._any.set()

    def ask_again(self) -> None:
        """A new session: the dispatcher's copies may have lost what was not yet on its disk."""
        for upload in self._uploads.values():
            upload.sent = None

    async def run(self) -> None:
        """Upload what grows, for ever. Waits without waking while nothing is followed."""
        while True:
            await self._any.wait()
            for key, upload in list(self._uploads.items()):
                if upload.pending() and not upload.lock.locked():
                    await self._send(key, upload, once=True)
            if not self._uploads:
                self._any.clear()
            await asyncio.sleep(LOOK_EVERY_S)

    async def finish(self, placement: str) -> str:
        """Upload the rest of a placement's logs, which no longer grow, however long that takes; what was not kept, in words."""
        notes = []
        for key in [key for key in self._uploads if key[0] == placement]:
            upload = self._uploads[key]
            upload.over = True
            await self._send(key, upload, once=False)
            if upload.refused or not upload.path.exists():
                notes.append(f"the log of rank {key[1]} is incomplete")
            del self._uploads[key]
        return "; ".join(notes)

    async def _send(self, key: Key, upload: Upload, *, once: bool) -> None:
        async with upload.lock:
            while upload.pending():
                try:
                    await self._send_chunk(key, upload)
                except (FederatorError, OSError) as error:
                    log.warning("log of %s rank %d: %s", *key, error)
                    upload.refused = True
                if once:
                    return

    async def _send_chunk(self, key: Key, upload: Upload) -> None:
        """Send the next chunk, or nothing when only the length is asked for."""
        data = b""
        if upload.sent is not None:
            data = upload.chunk()
        copy = await self._bulk.put_log(*key, upload.sent or 0, data)
        if data and copy.length <= (upload.sent or 0):
            upload.stalls += 1
            upload.refused = upload.stalls > MAX_STALLS
        upload.sent, upload.most = copy.length, copy.most

    def drop_oldest(self, ended: list[Path]) -> None:
        """Keep the logs of ended placements within the limit: the oldest are cut to nothing. `ended`: their directories."""
        files = [file for path in ended for file in path.glob("rank-*/log")]
        sizes = sorted((file.stat().st_mtime, file.stat().st_size, file) for file in files)
        over = sum(size for _, size, _ in sizes) - KEEP_BYTES
        for _, size, file in sizes:
            if over <= 0:
                return
            log.warning("dropping %s: logs that could not be sent take over %d GiB", file, KEEP_BYTES >> 30)
            file.unlink(missing_ok=True)
            over -= size
