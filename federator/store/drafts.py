"""Blobs that are still coming: nobody sees anything of them before they are kept."""

import contextlib
import errno
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from federator.kernel.errors import NoRoom, Unavailable
from federator.kernel.ids import content_hash


class MemoryDraft:
    """`federator.ports.BlobUpload` in memory."""

    def __init__(self, keep: Callable[[bytes], str]) -> None:
        self._keep = keep
        self._data = bytearray()

    @property
    def length(self) -> int:
        """How many bytes have come."""
        return len(self._data)

    @property
    def digest(self) -> str:
        """The hash of what has come."""
        return content_hash(bytes(self._data))

    def write(self, part: bytes) -> None:
        """Add to the end."""
        self._data += part

    def keep(self) -> str:
        """Keep what has come."""
        return self._keep(bytes(self._data))

    def discard(self) -> None:
        """Nothing to forget."""


WRITE_OUT_BYTES = 2**20
"""Bytes of a draft after which the disk is told to begin with them: a commit of the store waits for what is on its way there, and without this for all of a large upload."""


class FileDraft:
    """`federator.ports.BlobUpload` in a file that has no name among the blobs yet."""

    def __init__(self, folder: Path, take: Callable[[Path, str], None]) -> None:
        """Begin it in `folder`; `take` is given the file and the hash of what is to be kept. Raises `NoRoom`, `Unavailable`."""
        with explained():
            file = tempfile.NamedTemporaryFile(dir=folder, delete=False)  # noqa: SIM115 - closed by whoever keeps or discards it
        self._file: IO[bytes] = file
        self._path = Path(file.name)
        self._take = take
        self._hash = hashlib.sha256()
        self.length = 0

    @property
    def digest(self) -> str:
        """The hash of what has come."""
        return self._hash.hexdigest()

    def write(self, part: bytes) -> None:
        """Add to the end."""
        with explained():
            self._file.write(part)
            if self.length // WRITE_OUT_BYTES != (self.length + len(part)) // WRITE_OUT_BYTES:
                self._file.flush()
                os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        self._hash.update(part)
        self.length += len(part)

    def keep(self) -> str:
        """Keep what has come, durably."""
        with explained():
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._take(self._path, self.digest)
        return self.digest

    def discard(self) -> None:
        """Remove the file: on a full disk it would take the room of what comes next."""
        with contextlib.suppress(OSError):
            self._file.close()
        self._path.unlink(missing_ok=True)


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turn errors of the disk into situations. A missing file is the caller's own to handle."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise NoRoom("the blobs' disk is full", retry_after_s=10.0, remedy="free space on it") from error
        raise Unavailable(
            f"the blobs' disk fails: {error.strerror}", remedy="look at its health and rights"
        ) from error
