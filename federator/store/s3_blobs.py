"""Bytes by content hash, and growing logs, in a bucket: for dispatchers that share no folder, and for hosts whose disks may go away.

A blob is an object under its hash. It is uploaded from a file of this host, where it was put together and hashed, and fetched into one, where its hash is
compared: no part of the system ever holds it in memory. When it was last used is the time of a second, empty object: a bucket has no such note,
and writing a large object anew for it would be dear.
"""

import os
import tempfile
import threading
import time
from collections.abc import Collection
from pathlib import Path
from typing import BinaryIO, cast

from federator.kernel.errors import Damaged
from federator.kernel.ids import content_hash
from federator.ports import Usage
from federator.store.blobs import hash_of, is_digest
from federator.store.bucket import Bucket
from federator.store.drafts import FileDraft, explained
from federator.store.segments import SegmentedLogs

OBJECTS, USES = "objects/", "uses/"
NOTED_S = 60.0
"""A use is noted in the bucket when the last note is older than this; real seconds. Nothing is dropped that was unused for so short a time."""
REMEMBERED = 100_000
"""Hashes whose last use is remembered here."""
SMALL_BYTES = 2**20
"""Blobs up to this size are fetched without a file."""


class S3Blobs:
    """`federator.ports.Blobs` in a bucket. Safe to call from several threads, and to be used by several dispatchers; each log is written by one at a time.

    `folder` is on this host, for what is on its way.
    """

    GATHERS_LOGS = True

    def __init__(self, bucket: Bucket, folder: Path, logs: SegmentedLogs | None = None) -> None:
        self._bucket = bucket
        self._folder = folder
        self._logs = logs or SegmentedLogs(bucket)
        self._used: dict[str, tuple[float, float]] = {}
        """Of each hash, when a use was last noted in the bucket, and when it was last used, by the monotonic clock."""
        self._turn = threading.Condition()
        self._going: set[str] = set()
        """What is being dropped: whoever wants to use it waits until it is gone."""
        with explained():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for left_over in folder.iterdir():
                left_over.unlink(missing_ok=True)

    def put(self, data: bytes) -> str:
        """Keep the bytes durably and return their hash."""
        digest = content_hash(data)
        if not self.has(digest):
            self._bucket.put(OBJECTS + digest, data)
            self._note(digest)
        return digest

    def draft(self) -> FileDraft:
        """Begin to keep bytes that come in parts."""
        return FileDraft(self._folder, self._take)

    def open(self, digest: str) -> BinaryIO | None:
        """The bytes, to be read in parts; None: they are not here. Raises `Damaged` when they are not what was put."""
        if not is_digest(digest):
            return None
        with explained():
            file = tempfile.SpooledTemporaryFile(SMALL_BYTES, dir=str(self._folder))  # noqa: SIM115 - the caller closes it
            try:
                if not self._bucket.fetch(OBJECTS + digest, file):
                    file.close()
                    return None
                file.seek(0)
                found = hash_of(file)
            except BaseException:
                file.close()
                raise
        if found != digest:
            file.close()
            raise Damaged(
                f"blob {digest} is damaged in {self._bucket.name}",
                remedy="delete its object and upload it again",
            )
        return cast(BinaryIO, file)

    def get(self, digest: str) -> bytes | None:
        """The bytes, or None. Raises `Damaged` when they are not what was put."""
        file = self.open(digest)
        if file is None:
            return None
        with explained(), file:
            return file.read()

    def has(self, digest: str) -> bool:
        """Whether `get` would find it. Of what was used a moment ago the bucket is not asked again."""
        if not is_digest(digest):
            return False
        with self._turn:
            self._turn.wait_for(lambda: digest not in self._going)
            noted_s, now_s = self._used.get(digest, (float("-inf"), 0.0))[0], time.monotonic()
            # Before the bucket is asked: what is about to be used is not dropped meanwhile.
            self._remember(digest, noted_s, now_s)
            if now_s - noted_s < NOTED_S:
                return True
        if self._bucket.look(OBJECTS + digest) is None:
            return False
        self._bucket.put(USES + digest, b"")
        self._note(digest)
        return True

    def append_log(self, name: str, offset: int, data: bytes) -> int:
        """Write `data` at `offset` of a log and return its length."""
        return self._logs.append(name, offset, data)

    def read_log(self, name: str, offset: int, limit: int) -> bytes:
        """At most `limit` bytes from `offset`."""
        return self._logs.read(name, offset, limit)

    def log_length(self, name: str) -> int:
        """Length in bytes; 0 for an unknown log."""
        return self._logs.length(name)

    def keep_logs(self, names: Collection[str]) -> None:
        """Write what has gathered of them to the bucket."""
        self._logs.keep(names)

    def unused(self, for_s: float) -> list[str]:
        """The hashes of all bytes that nobody has used for so many seconds."""
        noted = {each.key.removeprefix(USES): each.age_s for each in self._bucket.all(USES)}
        found = []
        for each in self._bucket.all(OBJECTS):
            digest = each.key.removeprefix(OBJECTS)
            age_s = min(each.age_s, noted.get(digest, each.age_s), self._unused_here_s(digest))
            if is_digest(digest) and age_s >= for_s:
                found.append(digest)
        return found

    def drop(self, digest: str, unused_for_s: float) -> bool:
        """Forget the bytes, unless they have been used again meanwhile."""
        if not is_digest(digest):
            return True
        with self._turn:
            if self._unused_here_s(digest) < unused_for_s or digest in self._going:
                return False
            self._going.add(digest)
            self._used.pop(digest, None)
        try:
            keys = (OBJECTS + digest, USES + digest)
            if any(each and each.age_s < unused_for_s for each in map(self._bucket.look, keys)):
                return False
            self._bucket.delete(keys)
        finally:
            with self._turn:
                self._going.discard(digest)
                self._turn.notify_all()
        return True

    def drop_logs(self, name: str) -> None:
        """Forget the log of that name and all below it."""
        self._logs.drop(name)

    def free_bytes(self) -> int:
        """What this host's disk has left for what is on its way: a bucket does not say how much room it has."""
        with explained():
            disk = os.statvfs(self._folder)
            return disk.f_bavail * disk.f_frsize

    def usage(self) -> Usage:
        """How much is kept now. Lists the whole bucket below the prefix."""
        sizes = {each.key.removeprefix(OBJECTS): each.size for each in self._bucket.all(OBJECTS)}
        return Usage(sizes, self._logs.usage())

    def close(self) -> None:
        """Write what has gathered of logs, and end all connections."""
        self._logs.close()
        self._bucket.close()

    def _take(self, draft: Path, digest: str) -> None:
        """Upload a finished file, unless the bytes are there already."""
        if not self.has(digest):
            self._bucket.put_file(OBJECTS + digest, draft)
            self._note(digest)

    def _unused_here_s(self, digest: str) -> float:
        return time.monotonic() - self._used.get(digest, (0.0, float("-inf")))[1]

    def _note(self, digest: str) -> None:
        """It was used now, and the bucket knows."""
        with self._turn:
            self._remember(digest, time.monotonic(), time.monotonic())

    def _remember(self, digest: str, noted_s: float, used_s: float) -> None:
        self._used.pop(digest, None)
        self._used[digest] = (noted_s, used_s)
        while len(self._used) > REMEMBERED:
            self._used.pop(next(iter(self._used)))
