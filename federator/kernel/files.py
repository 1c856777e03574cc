"""Files that are whole after a crash, and locks that the kernel drops with the process that holds them."""

import fcntl
import os
from pathlib import Path


def sync(path: Path) -> None:
    """Have a file's content, or a folder's entries, on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace a file so that a crash leaves the old or the new, whole. Nothing is written through a link that somebody has put there."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.rename(path)
    sync(path.parent)


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Take a file's lock if it is free; closing the file gives it back."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
