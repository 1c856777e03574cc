"""A file that sealed lines are appended to. It is opened for each seal, so it may be moved away and begun anew at any time."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from federator.kernel.errors import Unavailable
from federator.kernel.files import sync

LOOK_BACK = 64 * 1024


class FileTarget:
    """See `federator.ports.LedgerTarget`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def append(self, name: str, lines: Sequence[bytes]) -> None:  # noqa: ARG002 - a file needs no names
        """Write and sync them. A line that a crash left half written is cut off first."""
        try:
            await asyncio.to_thread(self._append, b"".join(line + b"\n" for line in lines))
        except OSError as error:
            raise Unavailable(f"{self._path}: {error.strerror or error}") from error

    def _append(self, data: bytes) -> None:
        is_new = not self._path.exists()
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            end = _whole(descriptor)
            if end < os.fstat(descriptor).st_size:
                os.ftruncate(descriptor, end)
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
                os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, end)
                raise
        finally:
            os.close(descriptor)
        if is_new:
            sync(self._path.parent)


def _whole(descriptor: int) -> int:
    """Where the last whole line ends."""
    end = os.fstat(descriptor).st_size
    while end:
        start = max(0, end - LOOK_BACK)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
