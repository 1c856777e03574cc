"""`file:///…`: what the site's own file system holds. Inputs are used where they lie; checkpoints are copied there."""

import asyncio
import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from federator.kernel.errors import Forbidden, NotFound, Transient, Unavailable
from federator_agent.data.sources import Item, Moved, in_thread

CHUNK_BYTES = 2**22


def path_of(uri: str) -> Path:
    """The path that a `file` address names."""
    return Path(unquote(urlsplit(uri).path))


class FileSource:
    """Files of the agent's host, or of a file system that it mounts."""

    async def items(self, uri: str) -> list[Item]:
        """The file, or all files below the directory."""
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
        with _named(uri):
            return await asyncio.to_thread(path_of(uri).read_bytes)

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


def _trouble(what: object, error: OSError) -> Transient:
    return Unavailable(f"{what}: {error.strerror or error}")


def _items(path: Path, uri: str) -> list[Item]:
    with _named(uri):
        if not path.is_dir():
            return [_item("", path)]
        found = [Path(top) / name for top, _, names in os.walk(path) for name in names]
        return sorted(
            (_item(str(file.relative_to(path)), file) for file in found if file.is_file()),
            key=lambda item: item.name,
        )


def _item(name: str, path: Path) -> Item:
    facts = path.stat()
    return Item(name, facts.st_size, str(facts.st_mtime_ns))


def _copy(source: Path, into: Path, progress: Moved) -> None:
    with _named(source), source.open("rb") as reader, into.open("wb") as writer:
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
