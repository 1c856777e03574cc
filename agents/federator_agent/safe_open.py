"""Files where jobs write, opened so that nothing a job puts there leads anywhere else, or keeps the agent waiting.

The agent may be another user than the job, even root. A link would have it read what the job may not, and show that as a log or an output; a pipe would have it wait
for ever. So what is not a regular file, reached through no link, is not there.
"""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

_NO_FILE = frozenset({errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EISDIR})
"""What the system says of a link, of one on the way, of a socket, and of a folder that is to be changed."""


def opened(root: Path, path: Path, *, writable: bool = False) -> BinaryIO:
    """A plain file below a directory, to be read, or changed too. `root` itself may be a link. Raises `FileNotFoundError` for anything else that may be there, and `OSError`."""
    try:
        file = _opened(root, path.relative_to(root).parts, os.O_RDWR if writable else os.O_RDONLY)
    except ValueError:
        raise FileNotFoundError(errno.ENOENT, f"is not below {root}", str(path)) from None
    except OSError as error:
        if error.errno in _NO_FILE:
            raise FileNotFoundError(errno.ENOENT, "is not a regular file", str(path)) from None
        raise
    if stat.S_ISREG(os.fstat(file).st_mode):
        return os.fdopen(file, "r+b" if writable else "rb")
    os.close(file)
    raise FileNotFoundError(errno.ENOENT, "is not a regular file", str(path))


def read(root: Path, path: Path, most_bytes: int) -> bytes:
    """The beginning of such a file. Raises as `opened`."""
    with opened(root, path) as file:
        return file.read(most_bytes)


def _opened(root: Path, parts: tuple[str, ...], access: int) -> int:
    if ".." in parts or not parts:
        raise ValueError(parts)
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    for number, part in enumerate(parts, 1):
        # Opening a pipe would wait for who writes to it.
        kind = os.O_RDONLY | os.O_DIRECTORY if number < len(parts) else access | os.O_NONBLOCK
        try:
            below = os.open(part, os.O_NOFOLLOW | kind, dir_fd=at)
        finally:
            os.close(at)
        at = below
    return at
