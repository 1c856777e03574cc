"""Bytes by content hash, and growing logs, in files (`FileBlobs`) or in memory (`MemoryBlobs`).

Why files: workdirs, outputs and logs are too large for the store, and nothing asks for them in order. A blob appears
under its name only when it is whole and on disk. Logs are not synced: what a loss of power takes from the end of one, its
agent is asked for again, or it shows as a gap.
"""

import contextlib
import hashlib
import io
import os
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, BinaryIO

from federator.kernel.errors import Damaged, Invalid, TooLarge
from federator.kernel.files import sync
from federator.kernel.ids import content_hash
from federator.ports import Usage
from federator.store.drafts import FileDraft, MemoryDraft, explained

LARGEST_LOG_BYTES = 2**36
LONGEST_NAME = 200
PART_BYTES = 2**20
"""So much of a blob is in memory while its hash is compared."""
ABANDONED_S = 86400.0
"""Nobody takes so long to write one blob."""
_NAME = re.compile(r"[a-z0-9-]+(/[a-z0-9-]+)*")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def check_append(name: str, offset: int, data: bytes) -> None:
    """Raise `Invalid` or `TooLarge` for a write that no log may take."""
    check_log_name(name)
    if offset < 0:
        raise Invalid(f"offset {offset} of log {name} is negative")
    if offset + len(data) > LARGEST_LOG_BYTES:
        raise TooLarge(f"log {name} would be longer than {LARGEST_LOG_BYTES} bytes")


def check_log_name(name: str) -> None:
    """Raise `Invalid` for anything but short segments of a-z, 0-9 and `-`, joined by `/`: names become paths."""
    if len(name) > LONGEST_NAME or not _NAME.fullmatch(name):
        raise Invalid(
            f"{name[:LONGEST_NAME]!r} is not a log name",
            remedy=f"write segments of a-z, 0-9 and '-' joined by '/', at most {LONGEST_NAME} characters",
        )


def is_digest(text: str) -> bool:
    """Whether this is the name of some bytes, and nothing that could lead elsewhere."""
    return _DIGEST.fullmatch(text) is not None


def gap_line(gap_bytes: int) -> bytes:
    """What stands at the start of a gap; the rest of it is zero bytes, so that later offsets stay what they are.

    A gap too short for the sentence is a line of as many tildes as it has room for.
    """
    line = f"\n[{gap_bytes} bytes of this log were lost]\n".encode()
    return line if len(line) <= gap_bytes else b"~" * (gap_bytes - 1) + b"\n"


class MemoryBlobs:
    """`federator.ports.Blobs` in memory, for tests and the simulator."""

    GATHERS_LOGS = False

    def __init__(self) -> None:
        self.free = 2**50
        self._blobs: dict[str, bytes] = {}
        self._used: dict[str, float] = {}
        self._logs: dict[str, bytearray] = {}

    def put(self, data: bytes) -> str:
        """Keep the bytes and return their hash."""
        digest = content_hash(data)
        self._blobs[digest] = data
        self._used[digest] = time.monotonic()
        return digest

    def draft(self) -> MemoryDraft:
        """Begin to keep bytes that come in parts."""
        return MemoryDraft(self.put)

    def open(self, digest: str) -> BinaryIO | None:
        """The bytes, to be read in parts."""
        data = self._blobs.get(digest)
        return None if data is None else io.BytesIO(data)

    def get(self, digest: str) -> bytes | None:
        """The bytes, or None."""
        return self._blobs.get(digest)

    def has(self, digest: str) -> bool:
        """Whether `get` would find it."""
        if digest in self._blobs:
            self._used[digest] = time.monotonic()
        return digest in self._blobs

    def append_log(self, name: str, offset: int, data: bytes) -> int:
        """Write `data` at `offset` of a log and return its length."""
        check_append(name, offset, data)
        log = self._logs.setdefault(name, bytearray())
        if data and offset > len(log):
            log += gap_line(offset - len(log))
            log += bytes(offset - len(log))
        log += data[len(log) - offset :]
        return len(log)

    def read_log(self, name: str, offset: int, limit: int) -> bytes:
        """At most `limit` bytes from `offset`."""
        check_log_name(name)
        return bytes(self._logs.get(name, b"")[max(offset, 0) :][: max(limit, 0)])

    def log_length(self, name: str) -> int:
        """Length in bytes; 0 for an unknown log."""
        check_log_name(name)
        return len(self._logs.get(name, b""))

    def keep_logs(self, names: Collection[str]) -> None:
        """Nothing waits."""

    def unused(self, for_s: float) -> list[str]:
        """The hashes of all bytes that nobody has used for so many seconds."""
        before = time.monotonic() - for_s
        return [digest for digest, used in self._used.items() if used <= before]

    def drop(self, digest: str, unused_for_s: float) -> bool:
        """Forget the bytes, unless they have been used again meanwhile."""
        if self._used.get(digest, float("-inf")) > time.monotonic() - unused_for_s:
            return False
        self._blobs.pop(digest, None)
        self._used.pop(digest, None)
        return True

    def drop_logs(self, name: str) -> None:
        """Forget the log of that name and all below it."""
        check_log_name(name)
        for log in [log for log in self._logs if log == name or log.startswith(f"{name}/")]:
            del self._logs[log]

    def free_bytes(self) -> int:
        """As much as anybody wants to try."""
        return self.free

    def usage(self) -> Usage:
        """How much is kept now."""
        logs: Counter[str] = Counter()
        for name, log in self._logs.items():
            logs[name.partition("/")[0]] += len(log)
        return Usage({digest: len(data) for digest, data in self._blobs.items()}, logs)

    def close(self) -> None:
        """Nothing is held."""


class FileBlobs:
    """`federator.ports.Blobs` under one folder. Safe to call from several threads.

    No other process may write to the folder, unless it is `shared`: then bytes may be put by several, and logs are written by one at a time.
    """

    GATHERS_LOGS = False

    def __init__(self, root: Path, *, shared: bool = False) -> None:
        self._objects = root / "objects"
        self._logs = root / "logs"
        self._unfinished = root / "unfinished"
        self._appending = threading.Lock()
        self._dropping = threading.Lock()
        with explained():
            for folder in (self._objects, self._logs, self._unfinished):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for left_over, kept in _files(self._unfinished):
                # What is new in a shared folder may be what another process is writing.
                if not shared or kept.st_mtime < time.time() - ABANDONED_S:
                    left_over.unlink(missing_ok=True)

    def put(self, data: bytes) -> str:
        """Keep the bytes durably and return their hash."""
        digest = content_hash(data)
        with explained():
            if self._use(self._path(digest)):
                self._sync(self._path(digest))
                return digest
        draft = self.draft()
        try:
            draft.write(data)
            return draft.keep()
        finally:
            draft.discard()

    def draft(self) -> FileDraft:
        """Begin to keep bytes that come in parts."""
        return FileDraft(self._unfinished, self._take)

    def open(self, digest: str) -> BinaryIO | None:
        """The bytes, to be read in parts; None: they are not here. Raises `Damaged` when the disk has damaged them."""
        if not is_digest(digest):
            return None
        with explained():
            try:
                file = self._path(digest).open("rb")
            except FileNotFoundError:
                return None
            found = hash_of(file)
        if found != digest:
            file.close()
            raise Damaged(f"blob {digest} is damaged on disk", remedy="remove its file and upload it again")
        return file

    def get(self, digest: str) -> bytes | None:
        """The bytes, or None. Raises `Damaged` when the disk has damaged them."""
        file = self.open(digest)
        if file is None:
            return None
        with explained(), file:
            return file.read()

    def has(self, digest: str) -> bool:
        """Whether `get` would find it."""
        with explained():
            return is_digest(digest) and self._use(self._path(digest))

    def append_log(self, name: str, offset: int, data: bytes) -> int:
        """Write `data` at `offset` of a log and return its length."""
        check_append(name, offset, data)
        path = self._log_path(name)
        # Two connections of one agent may overlap for a moment; both may then repeat the same bytes.
        with self._appending, explained():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                return _append(descriptor, offset, data)
            finally:
                os.close(descriptor)

    def read_log(self, name: str, offset: int, limit: int) -> bytes:
        """At most `limit` bytes from `offset`."""
        path = self._log_path(name)
        with explained(), contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            file.seek(max(offset, 0))
            return file.read(max(limit, 0))
        return b""

    def log_length(self, name: str) -> int:
        """Length in bytes; 0 for an unknown log."""
        path = self._log_path(name)
        with explained(), contextlib.suppress(FileNotFoundError):
            return path.stat().st_size
        return 0

    def keep_logs(self, names: Collection[str]) -> None:
        """What was appended is with the system, and outlives this process."""

    def unused(self, for_s: float) -> list[str]:
        """The hashes of all bytes that nobody has used for so many seconds."""
        before = time.time() - for_s
        with explained():
            return [path.name for path, kept in _files(self._objects) if kept.st_mtime <= before]

    def drop(self, digest: str, unused_for_s: float) -> bool:
        """Forget the bytes, unless they have been used again meanwhile."""
        if not is_digest(digest):
            return True
        path = self._path(digest)
        with self._dropping, explained(), contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime > time.time() - unused_for_s:
                return False
            path.unlink()
        return True

    def drop_logs(self, name: str) -> None:
        """Forget the log of that name and all below it."""
        path = self._log_path(name)
        with self._appending, explained():
            path.unlink(missing_ok=True)
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(path.with_suffix(""))

    def free_bytes(self) -> int:
        """What the disk has left for those who are not root."""
        with explained():
            disk = os.statvfs(self._objects)
            return disk.f_bavail * disk.f_frsize

    def usage(self) -> Usage:
        """How much is kept now. Looks at every file; what it takes on disk counts, not the length of a gap."""
        with explained():
            logs: Counter[str] = Counter()
            for path, kept in _files(self._logs):
                logs[path.relative_to(self._logs).parts[0].removesuffix(".log")] += kept.st_blocks * 512
            return Usage({path.name: kept.st_size for path, kept in _files(self._objects)}, logs)

    def close(self) -> None:
        """Nothing is held."""

    def _use(self, path: Path) -> bool:
        """Whether it is there; if so, it is used now. The file's own time is the note: it outlives a restart, and needs no room."""
        with self._dropping, contextlib.suppress(FileNotFoundError):
            os.utime(path)
            return True
        return False

    def _take(self, draft: Path, digest: str) -> None:
        """Give a finished file its name, unless the bytes are here already."""
        path = self._path(digest)
        if self._use(path):
            draft.unlink()
        else:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            draft.rename(path)
        self._sync(path)

    def _sync(self, path: Path) -> None:
        """Also when it was there: whoever put it may have been stopped before this."""
        sync(path.parent)
        sync(self._objects)

    def _path(self, digest: str) -> Path:
        return self._objects / digest[:2] / digest

    def _log_path(self, name: str) -> Path:
        check_log_name(name)
        # Segments have no dots, so the file `a.log` never meets the folder of `a/b`.
        return self._logs / f"{name}.log"


def hash_of(file: IO[bytes]) -> str:
    """The hash of all of it, and back to its start. Closes it when it cannot be read."""
    found = hashlib.sha256()
    try:
        while part := file.read(PART_BYTES):
            found.update(part)
        file.seek(0)
    except OSError:
        file.close()
        raise
    return found.hexdigest()


def _files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Every file below; one that goes away meanwhile is passed over."""
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            with contextlib.suppress(FileNotFoundError):
                yield path, path.stat()


def _append(descriptor: int, offset: int, data: bytes) -> int:
    length = os.fstat(descriptor).st_size
    if data and offset > length:
        # What is between the line and the data is a hole in the file. Were the process killed between the two writes,
        # the rest of the gap would be found and told next time.
        _write_all(descriptor, gap_line(offset - length), length)
        length = offset
    return length + _write_all(descriptor, data[length - offset :], length)


def _write_all(descriptor: int, data: bytes, offset: int) -> int:
    written = 0
    while written < len(data):
        written += os.pwrite(descriptor, data[written:], offset + written)
    return written
