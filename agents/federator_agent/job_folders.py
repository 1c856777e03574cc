"""Folders that jobs have written: removing them, and looking through them.

A job may nest folders deeper than a recursive walk can follow, or than a path can name. Nothing here recurses, follows a link, or holds more than two folders open.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MOST_LEVELS = 256
"""Folders nested deeper are not looked through."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


@dataclass(frozen=True)
class Level:
    """One folder: `at` is its descriptor, open until the next one is asked for; `path` leads to it from where the walk began. `files` are all that is no folder, links too."""

    at: int
    path: Path
    folders: list[str]
    files: list[str]


def remove(folder: Path, *, strict: bool = False) -> None:
    """Remove a folder and all in it; one that is not there is removed. Raises the first `OSError` after all else is removed, if `strict`."""
    try:
        empty(folder)
        folder.rmdir()
    except FileNotFoundError:
        return
    except OSError:
        if strict:
            raise


def empty(folder: Path) -> None:
    """Remove all in a folder. Raises the first `OSError` after all else is removed; `FileNotFoundError` where there is no such folder."""
    top = os.open(folder, _FOLDER)
    try:
        failed = _Emptying(top).run()
    finally:
        os.close(top)
    if failed is not None:
        raise failed


class _Emptying:
    """Every folder that is not empty is moved to the top, under a number. So no path gets long, and two numbers are all there is to keep."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._prefix = f".removed-{secrets.token_hex(8)}-"
        self._moved = 0
        self._failed: OSError | None = None

    def run(self) -> OSError | None:
        """The first failure, if any."""
        self._clear(self._top)
        done = 0
        while done < self._moved:
            self._clear_moved(f"{self._prefix}{done}")
            done += 1
        return self._failed

    def _clear_moved(self, name: str) -> None:
        try:
            at = os.open(name, _FOLDER, dir_fd=self._top)
            try:
                self._clear(at)
            finally:
                os.close(at)
            os.rmdir(name, dir_fd=self._top)
        except FileNotFoundError:
            return  # somebody else may be removing the same
        except OSError as error:
            self._failed = self._failed or error

    def _clear(self, at: int) -> None:
        with os.scandir(at) as entries:
            for entry in entries:
                if at == self._top and entry.name.startswith(self._prefix):
                    continue
                try:
                    self._drop(at, entry)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    self._failed = self._failed or error

    def _drop(self, at: int, entry: os.DirEntry[str]) -> None:
        if not entry.is_dir(follow_symlinks=False):
            os.unlink(entry.name, dir_fd=at)
            return
        try:
            os.rmdir(entry.name, dir_fd=at)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            os.rename(entry.name, f"{self._prefix}{self._moved}", src_dir_fd=at, dst_dir_fd=self._top)
            self._moved += 1


def walk(folder: Path) -> Iterator[Level]:
    """A folder and all folders in it, each before those in it. What vanishes meanwhile, or may not be read, is passed over. Raises `OSError`, also for more than `MOST_LEVELS` levels."""
    left = [Path()]
    while left:
        path = left.pop()
        if len(path.parts) > MOST_LEVELS:
            raise OSError(
                errno.ENAMETOOLONG,
                f"folders are nested more than {MOST_LEVELS} deep; nest them less, or pack them",
                str(folder),
            )
        try:
            at = _open(folder, path)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue
        try:
            folders: list[str] = []
            files: list[str] = []
            with os.scandir(at) as entries:
                for entry in entries:
                    (folders if entry.is_dir(follow_symlinks=False) else files).append(entry.name)
            yield Level(at, path, folders, files)
        finally:
            os.close(at)
        left += [path / name for name in folders]


def give(folder: Path, uid: int, gid: int) -> None:
    """Have a folder and all in it belong to a user. Follows no link, whoever puts one there meanwhile. Raises `OSError`."""
    os.chown(folder, uid, gid, follow_symlinks=False)
    for level in walk(folder):
        for name in (*level.folders, *level.files):
            try:
                os.chown(name, uid, gid, dir_fd=level.at, follow_symlinks=False)
            except FileNotFoundError:
                continue


def let_read(folder: Path) -> None:
    """Have everybody read what the agent has brought, and not what a link there leads to. The folder itself last, so that an unfinished walk is done again. Raises `OSError`."""
    if folder.stat().st_mode & 0o005 == 0o005:
        return
    for level in walk(folder):
        for name in level.folders:
            os.chmod(name, 0o755, dir_fd=level.at)  # noqa: S103 - no other user passes the state directory
        for name in level.files:
            mode = os.stat(name, dir_fd=level.at, follow_symlinks=False).st_mode
            if stat.S_ISREG(mode):
                os.chmod(name, 0o755 if mode & 0o100 else 0o644, dir_fd=level.at)
    folder.chmod(0o755)


def _open(folder: Path, path: Path) -> int:
    """Step by step, so that no link is followed below `folder`, which itself may be one."""
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for part in path.parts:
        try:
            below = os.open(part, _FOLDER, dir_fd=at)
        finally:
            os.close(at)
        at = below
    return at
