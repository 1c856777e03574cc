"""`file:///…`: what the site's own file system holds. Inputs are used where they lie; checkpoints are copied there.

Others may write where a checkpoint lies. So no link is followed there below the folder that is named, and only plain files are read: a pipe would keep a thread for ever.
"""

import asyncio
import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from federator.kernel.errors import FederatorError, Forbidden, Invalid, NotFound, Unavailable
from federator_agent import clearing
from federator_agent.data.sources import READ_BYTES, Item, Moved, in_thread, listed
from federator_agent.opening import opened

CHUNK_BYTES = 2**22


def path_of(uri: str) -> Path:
    """The path that a `file` address names."""
    return Path(unquote(urlsplit(uri).path))


async def look(uri: str) -> None:
    """Whether it is there, for who reads it where it lies: nobody counts what is in it. Raises `NotFound`, `Forbidden`, `Unavailable`."""
    with _named(uri):
        await asyncio.to_thread(path_of(uri).stat)


class FileSource:
    """Files of the agent's host, or of a file system that it mounts."""

    async def items(self, uri: str) -> list[Item]:
        """The file, or all plain files below the directory, as deep as the agent looks through folders."""
        return await asyncio.to_thread(_items, path_of(uri), uri)

    async def fetch(self, uri: str, item: Item, into: Path, moved: Moved) -> None:
        """A copy."""
        source = path_of(uri) / item.name if item.name else path_of(uri)
        await in_thread(lambda progress: _copy(source, into, progress), moved)

    async def put(self, file: Path, uri: str) -> None:
        """Beside the target first, then in its place, so that a reader sees the old or the new."""
        await in_thread(lambda progress: _replace(file, path_of(uri), progress), lambda _: None)

    async def read(self, uri: str) -> bytes:
        """The content."""
        return await asyncio.to_thread(_read, path_of(uri), uri)

    async def remove(self, uri: str) -> None:
        """The file."""
        with _named(uri):
            await asyncio.to_thread(path_of(uri).unlink, missing_ok=True)


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


def _items(path: Path, uri: str) -> list[Item]:
    with _named(uri):
        facts = path.stat()
        return listed(uri, _below(path)) if stat.S_ISDIR(facts.st_mode) else [_item("", facts)]


def _below(folder: Path) -> Iterator[Item]:
    for level in clearing.walk(folder):
        for name in level.files:
            with contextlib.suppress(FileNotFoundError):
                facts = os.stat(name, dir_fd=level.at, follow_symlinks=False)
                if stat.S_ISREG(facts.st_mode):
                    yield _item(str(level.path / name), facts)


def _item(name: str, facts: os.stat_result) -> Item:
    return Item(name, facts.st_size, str(facts.st_mtime_ns))


def _read(path: Path, uri: str) -> bytes:
    with _named(uri), opened(path.parent, path) as file:
        content = file.read(READ_BYTES + 1)
    if len(content) > READ_BYTES:
        raise Invalid(f"{uri} is longer than {READ_BYTES} bytes")
    return content


def _copy(source: Path, into: Path, progress: Moved) -> None:
    with _named(source), opened(source.parent, source) as reader, into.open("wb") as writer:
        while chunk := reader.read(CHUNK_BYTES):
            writer.write(chunk)
            progress(len(chunk))
        writer.flush()
        os.fsync(writer.fileno())


def _replace(file: Path, target: Path, progress: Moved) -> None:
    with _named(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".{target.name}.{secrets.token_hex(6)}.new")
        try:
            _copy(file, beside, progress)
            shutil.move(beside, target)
        finally:
            beside.unlink(missing_ok=True)
