"""The beginning and the end of a file that a job writes to without end; the blocks in between are given back to the disk.

Why holes: the file keeps its length, so whoever appends to it goes on and every offset stays what it was. A pipe through a process that drops the middle would cost
a process for each rank and end the job with it. The file itself says where its hole is, so nothing has to be remembered over a restart of the agent.
A file system without holes (NFS before 4.2) keeps all of the file: `shorten` says so, and a quota has to do it there.
"""

import ctypes
import errno
import os
import tempfile
from pathlib import Path
from typing import BinaryIO, NamedTuple

from federator_agent import safe_open

MOST_BYTES = 2**28
"""Kept of a file for which nobody has named another length."""
HEAD = 3 / 4
"""Part of that for the beginning; the rest is for the end."""
SLACK_BYTES = 2**24
"""So much more may lie on the disk before the middle is given back."""
CHUNK_BYTES = 2**20
BLOCK_BYTES = 512
"""What `st_blocks` counts in."""
KEEP_SIZE, PUNCH_HOLE = 0x01, 0x02
_UNABLE = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENODEV})
"""What a file system without holes answers."""


class KeptBytes(NamedTuple):
    """Which bytes of a file are kept: those before `head`, and those from `rest` on."""

    head: int
    rest: int


class Excerpt:
    """What is kept of one file below `root`, as one text: its beginning, a line that says how much is left out, and, once it is `over`, its end."""

    def __init__(self, root: Path, path: Path, most: int = MOST_BYTES) -> None:
        self.root = root
        self.path = path
        self.most = most
        self.over = False
        """Whether the file grows no more."""
        self._hole = MOST_BYTES << 32
        """Where a hole has been seen to begin: after a change of `most` it may be before the head's end."""

        self._last = KeptBytes(0, 0)
        """As the last chunk was taken."""

    def place(self, at: int) -> int:
        """Where in the text the file's byte at that offset is, as the last chunk was taken; of one that is left out, where it is left out."""
        return at if at <= self._last.head else self._last.head + max(0, at - self._last.rest)

    def length(self) -> int:
        """How long the text is for now, in bytes. Raises `OSError`."""
        if not self.over:
            return min(self.path.stat().st_size, self._head, self._hole)
        with safe_open.opened(self.root, self.path) as file:
            size = file.seek(0, os.SEEK_END)
            kept = self._kept(file, size)
        return size - (kept.rest - kept.head)

    def chunk(self, at: int) -> bytes:
        """The next part of the text. Raises `FileNotFoundError` for what is not a regular file, and `OSError`."""
        with safe_open.opened(self.root, self.path) as file:
            size = file.seek(0, os.SEEK_END)
            head, rest = self._last = self._kept(file, size)
            if at < head:
                file.seek(at)
                return file.read(min(CHUNK_BYTES, head - at))
            if not self.over:
                return b""
            skipped = rest - head
            if skipped:
                said = f"\n[… {skipped / 2**20:.1f} MiB of this log left out …]\n".encode()
                if at < head + len(said):
                    return said[at - head :]
            file.seek(at + skipped)
            return file.read(CHUNK_BYTES)

    def shorten(self) -> None:
        """Give back what lies on the disk between beginning and end. Raises `OSError`: with `EOPNOTSUPP` where the file system cannot."""
        if self.path.stat().st_blocks * BLOCK_BYTES <= self.most + SLACK_BYTES:
            return
        with safe_open.opened(self.root, self.path, writable=True) as file:
            found = os.fstat(file.fileno())
            # A second name may be that of a file of somebody else.
            if found.st_nlink != 1:
                raise FileNotFoundError(errno.ENOENT, "has a second name", str(self.path))
            begin = -(-self._head // found.st_blksize) * found.st_blksize
            end = (found.st_size - (self.most - self._head)) // found.st_blksize * found.st_blksize
            if begin < end:
                punch(file.fileno(), begin, end - begin)

    def _kept(self, file: BinaryIO, size: int) -> KeptBytes:
        """Of a file of this length, its hole counted."""
        head, rest = (size, 0) if size <= self.most else (self._head, size - (self.most - self._head))
        if not self.over:
            head = min(head, self._head)
        hole = os.lseek(file.fileno(), 0, os.SEEK_HOLE) if size else 0
        if hole < size:
            self._hole = hole
            head, rest = min(head, hole), max(rest, _data_from(file, hole, size))
        return KeptBytes(head, max(head, rest))

    @property
    def _head(self) -> int:
        return int(self.most * HEAD)


def punch(file: int, begin: int, count: int) -> None:
    """Give the blocks of these bytes back; they read as zeros, and the file keeps its length. Raises `OSError`."""
    c = ctypes.CDLL(None, use_errno=True)
    if c.fallocate(file, KEEP_SIZE | PUNCH_HOLE, ctypes.c_int64(begin), ctypes.c_int64(count)) == 0:
        return
    number = ctypes.get_errno()
    if number in _UNABLE:
        raise OSError(errno.EOPNOTSUPP, "the file system cannot give back a part of a file")
    raise OSError(number, os.strerror(number))


def lacking(folder: Path) -> str:
    """Why the output of jobs below a folder is not bounded; empty: it is."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(4096))
            file.flush()
            punch(file.fileno(), 0, 4096)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _data_from(file: BinaryIO, hole: int, size: int) -> int:
    """Where a hole ends."""
    try:
        return os.lseek(file.fileno(), hole, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return size
        raise
