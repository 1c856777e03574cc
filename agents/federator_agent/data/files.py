"""`file:///…`: what the site's own file system holds. Inputs are used where they lie; checkpoints are copied there.

Others may write where a checkpoint lies. So the folder of a job is opened first, and all is done by way of it: it is no link, where it lies is what the site allows at that very
moment, and below it no link is followed either. Only plain files are read: a pipe would keep a thread for ever.
"""

import asyncio
import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from federator.kernel.errors import FederatorError, Forbidden, Invalid, NotFound, Unavailable
from federator_agent import job_folders
from federator_agent.data.sources import READ_BYTES, FolderCheck, Item, Moved, in_thread, listed
from federator_agent.safe_open import opened

CHUNK_BYTES = 2**22


def path_of(uri: str) -> Path:
    """The path that a `file` address names."""
    return Path(unquote(urlsplit(uri).path))


async def look(uri: str) -> None:
    """Whether it is there, for who reads it where it lies: nobody counts what is in it. Raises `NotFound`, `Forbidden`, `Unavailable`."""
    with _named(uri):
        await asyncio.to_thread(path_of(uri).stat)


class FileSource:
    """Checkpoints on the agent's host, or on a file system that it mounts: an address is the folder of a job, or a file in it."""

    link = None

    def __init__(self, check: FolderCheck) -> None:
        """`check`: whether what is named may lie where it does; raises what refuses it."""
        self._check = check

    async def items(self, uri: str) -> list[Item]:
        """The file, or all plain files below the directory, as deep as the agent looks through folders."""
        return await asyncio.to_thread(self._items, path_of(uri), uri)

    async def fetch(self, uri: str, item: Item, into: Path, moved: Moved) -> None:
        """A copy."""
        path = path_of(uri)
        folder, name = (path, Path(item.name)) if item.name else (path.parent, Path(path.name))

        def copy(progress: Moved) -> None:
            with (
                self._held(folder, uri) as held,
                opened(held, held / name) as reader,
                into.open("wb") as writer,
            ):
                _copy(reader, writer, progress)

        await in_thread(copy, moved)

    async def put(self, file: Path, uri: str) -> None:
        """Beside the target first, then in its place, so that a reader sees the old or the new."""

        def replace(progress: Moved) -> None:
            with self._held(path_of(uri).parent, uri, make=True) as held:
                _replace(file, held, path_of(uri).name, progress)

        await in_thread(replace, lambda _: None)

    async def read(self, uri: str) -> bytes:
        """The content."""
        return await asyncio.to_thread(self._read, path_of(uri), uri)

    async def remove(self, uri: str) -> None:
        """The file."""
        await asyncio.to_thread(self._remove, path_of(uri), uri)

    def _items(self, path: Path, uri: str) -> list[Item]:
        with _named(uri), self._parent(path) as above:
            facts = os.stat(path.name, dir_fd=above, follow_symlinks=False)
            if stat.S_ISREG(facts.st_mode):
                return [_item("", facts)]
        with self._held(path, uri) as held:
            return listed(uri, _below(held))

    def _read(self, path: Path, uri: str) -> bytes:
        with self._held(path.parent, uri) as held, opened(held, held / path.name) as file:
            content = file.read(READ_BYTES + 1)
        if len(content) > READ_BYTES:
            raise Invalid(f"{uri} is longer than {READ_BYTES} bytes")
        return content

    def _remove(self, path: Path, uri: str) -> None:
        with self._held(path.parent, uri) as held:
            (held / path.name).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _held(self, folder: Path, uri: str, *, make: bool = False) -> Iterator[Path]:
        """The folder of a job, by a path that leads to it whatever is put in its place. Raises what `_named` raises, `Forbidden` for a link."""
        with _named(uri), self._parent(folder, make=make) as above:
            at = _below_at(above, folder, make=make)
            try:
                yield Path(f"/proc/self/fd/{at}")
            finally:
                os.close(at)

    @contextlib.contextmanager
    def _parent(self, folder: Path, *, make: bool = False) -> Iterator[int]:
        """Where it lies, open. Links may lead there, as far as what they lead to may be named."""
        at, lacking = _nearest(folder.parent, make=make)
        there = folder.parents[len(lacking)]
        try:
            self._check(folder.parent, Path(f"/proc/self/fd/{at}").readlink().joinpath(*lacking))
            for name in lacking:
                there /= name
                below = _below_at(at, there, make=True)
                os.close(at)
                at = below
            yield at
        finally:
            os.close(at)


def _nearest(folder: Path, *, make: bool) -> tuple[int, tuple[str, ...]]:
    """A folder, open, or where it is to be made the nearest one above it that is there; and the names that lack."""
    for number, each in enumerate((folder, *folder.parents)):
        with contextlib.suppress(*((FileNotFoundError,) if make else ())):
            return os.open(each, os.O_RDONLY | os.O_DIRECTORY), folder.parts[len(folder.parts) - number :]
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))


def _below_at(at: int, path: Path, *, make: bool) -> int:
    """A folder by its name in another; it is no link."""
    if make:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path.name, dir_fd=at)
    try:
        return os.open(path.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(at, path.name):
            raise Forbidden(
                f"{path} is a link: no checkpoint is read or written through it", remedy="remove the link"
            ) from None
        raise


def _is_link(at: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _named(what: object) -> Iterator[None]:
    """What the system says, as the error that tells whether trying again may help."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise NotFound(
            f"{what}: {error.strerror}", remedy="check the path, and that the site has it"
        ) from None
    except PermissionError:
        raise Forbidden(
            f"{what}: the agent may not read or write it", remedy="give its user the right to"
        ) from None
    except OSError as error:
        raise _trouble(what, error) from None


def _trouble(what: object, error: OSError) -> FederatorError:
    if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
        return Invalid(f"{what}: {error.strerror}")
    return Unavailable(f"{what}: {error.strerror or error}")


def _below(folder: Path) -> Iterator[Item]:
    for level in job_folders.walk(folder):
        for name in level.files:
            with contextlib.suppress(FileNotFoundError):
                facts = os.stat(name, dir_fd=level.at, follow_symlinks=False)
                if stat.S_ISREG(facts.st_mode):
                    yield _item(str(level.path / name), facts)


def _item(name: str, facts: os.stat_result) -> Item:
    return Item(name, facts.st_size, str(facts.st_mtime_ns))


def _copy(reader: BinaryIO, writer: BinaryIO, progress: Moved) -> None:
    while chunk := reader.read(CHUNK_BYTES):
        writer.write(chunk)
        progress(len(chunk))
    writer.flush()
    os.fsync(writer.fileno())


def _replace(file: Path, folder: Path, name: str, progress: Moved) -> None:
    beside = folder / f".{name}.{secrets.token_hex(6)}.new"
    try:
        with file.open("rb") as reader, beside.open("xb") as writer:
            _copy(reader, writer, progress)
        beside.rename(folder / name)
    finally:
        beside.unlink(missing_ok=True)
