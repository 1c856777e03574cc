"""Brings the logs of ranks to the dispatcher, chunk by chunk, from wherever the dispatcher's copy ends.

The length that the dispatcher answers is the truth: after a cut, a restart of either side, or a copy that lost its tail, the
next chunk begins there. Of a log that is over the dispatcher's limit the beginning is sent while it grows, and the end once it is over, with a
line in between that says how much is left out. What is not sent does not stay on the disk either. Files stay until the placement is acknowledged; when all
of them together outgrow the limit, the oldest of ended placements go first.
"""

import asyncio
import logging
from contextlib import suppress
from pathlib import Path

from federator.kernel.errors import FederatorError
from federator.wire.log_times import LogTime, within
from federator_agent.bulk import Bulk
from federator_agent.excerpts import BLOCK_BYTES, MOST_BYTES, Excerpt
from federator_agent.link_use import LinkUse

FIRST_BYTES = 2**16
"""Most that is sent at once before the dispatcher has said how much it keeps, and where the link has a budget."""
LOOK_EVERY_S = 0.25
"""How often (real seconds) growing logs are looked at while anything runs."""
LOOK_SELDOM_S = 10.0
"""The same where the link has a budget: each look may cost a request."""
SHORTEN_EVERY_S = 1.0
"""How often (real seconds) it is looked how much disk they take."""
KEEP_BYTES = 4 * 2**30
"""Most that logs of ended placements may take before the oldest are dropped."""
KEEP_TIMES = 1000
"""Most times of one log that wait to be sent; of more, every second one is dropped."""
MAX_STALLS = 3
"""Chunks after which the dispatcher's copy may fail to grow before no more is sent."""
log = logging.getLogger("federator_agent.logs")

Key = tuple[str, int]


class Upload:
    """One rank's log, `rank-N/log` of its placement's directory. `sent` is the length of the dispatcher's copy; None: to be asked."""

    def __init__(self, path: Path, sent: int | None) -> None:
        self.path = path
        self.sent = sent
        self.excerpt = Excerpt(path.parents[1], path)
        """What of it is sent, and stays on the disk."""
        self.told = False
        """Whether the dispatcher has said how much of it is kept."""
        self.refused = False
        self.whole = False
        """Whether its middle cannot be given back."""
        self.stalls = 0
        self.times: list[LogTime] = []
        """Which of its bytes, by their offset in the file, were seen first when."""
        self._seen = 0
        self.lock = asyncio.Lock()

    def pending(self) -> bool:
        """Whether the dispatcher's copy is shorter than it is to be, or may be. Raises `OSError`."""
        if self.refused or not self.path.exists():
            return False
        return self.sent is None or self.sent < self.excerpt.length()

    def look(self) -> None:
        """Note when it has grown, if it has. What was written before anybody looked has the time of its last byte. Raises `OSError`."""
        found = self.path.stat()
        if found.st_size <= self._seen:
            return
        self.times.append(LogTime(self._seen, found.st_mtime))
        self._seen = found.st_size
        if len(self.times) > KEEP_TIMES:
            self.times = self.times[::2]

    def times_within(self, data: bytes) -> list[LogTime]:
        """When this chunk was written, which is the next that is sent; the times of what is sent are forgotten."""
        begin = self.sent or 0
        self.times = within(self.times, begin, self._seen)
        in_text = [LogTime(self.excerpt.place(each.offset), each.at) for each in self.times]
        return within(in_text, begin, begin + len(data))


class LogUploads:
    """All logs that are on their way."""

    def __init__(self, bulk: Bulk, use: LinkUse) -> None:
        self._bulk = bulk
        self._use = use
        self.uploads: dict[Key, Upload] = {}
        self._any = asyncio.Event()
        self._withheld: dict[str, asyncio.Event] = {}
        """Placements that the dispatcher does not know: set once it does."""

    def follow(self, placement: str, rank: int, path: Path, *, fresh: bool) -> None:
        """Upload this file as it grows. `fresh`: nothing of it has been sent before."""
        self.uploads.setdefault((placement, rank), Upload(path, 0 if fresh else None))
        self._any.set()

    def withhold(self, placement: str) -> None:
        """Send nothing of this placement for now: the dispatcher would refuse it for good."""
        self._withheld.setdefault(placement, asyncio.Event())

    def release(self, placement: str) -> None:
        """Send it now."""
        known = self._withheld.pop(placement, None)
        if known is not None:
            known.set()

    async def until_released(self, placement: str) -> None:
        """Wait until it may be sent, however long that takes."""
        known = self._withheld.get(placement)
        if known is not None:
            await known.wait()

    def ask_again(self) -> None:
        """A new session: the dispatcher's copies may have lost what was not yet on its disk."""
        for upload in self.uploads.values():
            upload.sent = None

    async def run(self) -> None:
        """Upload what grows, for ever. Waits without waking while nothing is followed."""
        while True:
            await self._any.wait()
            for key, upload in list(self.uploads.items()):
                if not upload.lock.locked() and key[0] not in self._withheld:
                    await self.send(key, upload, once=True)
            if not self.uploads:
                self._any.clear()
            await asyncio.sleep(LOOK_EVERY_S if self._use.log_bytes is None else LOOK_SELDOM_S)

    async def bound(self) -> None:
        """Give back the middle of logs that grow without end, and note when they grow, for ever. Beside `run`, which waits for the dispatcher while that is away."""
        while True:
            await self._any.wait()
            for upload in self.uploads.values():
                with suppress(OSError):
                    upload.look()
            await asyncio.to_thread(_shorten, list(self.uploads.items()))
            await asyncio.sleep(SHORTEN_EVERY_S)

    async def finish(self, placement: str) -> str:
        """Upload the rest of a placement's logs, which no longer grow, however long that takes; what was not kept, in words."""
        notes = []
        for key in [key for key in self.uploads if key[0] == placement]:
            upload = self.uploads[key]
            await asyncio.to_thread(_shorten, [(key, upload)])
            upload.excerpt.over = True
            await self.send(key, upload, once=False)
            if upload.refused or not upload.path.exists():
                notes.append(f"the log of rank {key[1]} is incomplete")
            del self.uploads[key]
        return "; ".join(notes)

    async def send(self, key: Key, upload: Upload, *, once: bool) -> None:
        """Send what a rank has written and the dispatcher does not have yet; with `once`, one chunk of it."""
        async with upload.lock:
            try:
                while upload.pending():
                    await self._send_chunk(key, upload)
                    if once:
                        return
            except BlockingIOError as error:
                # A job holds a lease of its log. It has none once it is over.
                log.info("log of %s rank %d: %s", *key, error)
                upload.refused = not once
            except (FederatorError, OSError) as error:
                log.warning("log of %s rank %d: %s", *key, error)
                upload.refused = True

    async def _send_chunk(self, key: Key, upload: Upload) -> None:
        """Send the next chunk, or nothing when only the length is asked for."""
        data = b""
        if upload.sent is not None:
            data = upload.excerpt.chunk(upload.sent)
            data = data if upload.told and self._use.log_bytes is None else data[:FIRST_BYTES]
            upload.look()
        copy = await self._bulk.put_log(*key, upload.sent or 0, data, upload.times_within(data))
        if data and copy.length <= (upload.sent or 0):
            upload.stalls += 1
            upload.refused = upload.stalls > MAX_STALLS
        upload.sent, upload.told = copy.length, True
        upload.excerpt.most = min(copy.most or MOST_BYTES, self._use.log_bytes or MOST_BYTES)

    def drop_oldest(self, ended: list[Path]) -> None:
        """Keep the logs of ended placements within the limit: the oldest are cut to nothing. `ended`: their directories."""
        files = [file for path in ended for file in path.glob("rank-*/log")]
        found = ((file.stat(), file) for file in files)
        sizes = sorted((each.st_mtime, each.st_blocks * BLOCK_BYTES, file) for each, file in found)
        over = sum(size for _, size, _ in sizes) - KEEP_BYTES
        for _, size, file in sizes:
            if over <= 0:
                return
            log.warning("dropping %s: logs that could not be sent take over %d GiB", file, KEEP_BYTES >> 30)
            file.unlink(missing_ok=True)
            over -= size


def _shorten(uploads: list[tuple[Key, Upload]]) -> None:
    for key, upload in uploads:
        try:
            if not upload.whole:
                upload.excerpt.shorten()
        except FileNotFoundError:
            continue
        except OSError as error:
            log.warning("log of %s rank %d takes as much disk as the job writes: %s", *key, error)
            upload.whole = True
