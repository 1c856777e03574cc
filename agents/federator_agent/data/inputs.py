"""The inputs of jobs, kept on the site's disk: each content once, for all jobs that read it.

An entry's name is the hash of the address and of what it listed there, so new content is another entry and never changes under a job that reads the old. Files
arrive under another name and are renamed when whole; an entry gets its own name when all its files are there. So a transfer that is cut off, by whatever, goes on
where it was. When there is no room, what nobody has read for longest goes first; what a placement reads stays.
Several processes may share one directory, as the pods of a node do: whoever fetches an entry, or is about to link to it, holds its lock.
"""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path, PurePosixPath

import msgspec

from federator.kernel.errors import FederatorError, Invalid, Permanent
from federator.kernel.files import try_lock
from federator.kernel.ids import content_hash
from federator.kernel.quantities import format_bytes
from federator.wire.inputs import name_of
from federator_agent import job_folders
from federator_agent.data.files import look, path_of
from federator_agent.data.patience import fetch_patiently, patiently
from federator_agent.data.sources import ANY_PUBLIC, Item, Moved, Readable, Sources, WebRules, scheme_of

SIDE_BY_SIDE = 8
"""Files of one input that are fetched at once."""
SHARE_OF_DISK = 0.5
"""Of the file system that holds them, inputs take no more when the site does not say how much they may."""
SPARE_BYTES = 2**30
"""Stays free on the disk for everything else."""
UNANNOUNCED_BYTES = 2**30
"""Room is made for so much of what announces no length, or for a quarter of the cache where that is less. More of it is taken as long as there is room."""
LOOK_AGAIN_S = 0.1
"""Between two looks at a lock that somebody else has."""


class NoRoom(Permanent):
    """The site's disk cannot hold it, even with nothing else kept: another site may."""


class Inputs:
    """What is kept under one directory. `limit_bytes` None: a share of the disk."""

    def __init__(self, directory: Path, sources: Sources, limit_bytes: int | None) -> None:
        self._directory = directory
        self._sources = sources
        self._limit_bytes = limit_bytes
        self._arriving: dict[str, int] = {}
        """Bytes still to come, by entry."""
        self._unannounced: dict[str, int] = {}
        """Bytes that have arrived of what nobody has announced, by address."""
        self._spare_bytes = 0
        """Room that was left when it was last looked for, with what is announced taken off."""
        self._gone = 0

    async def bring(
        self,
        uri: str,
        in_use: Callable[[], set[Path]],
        note: Callable[[str], None],
        keep: Callable[[Path], None] = lambda _: None,
        web: WebRules = ANY_PUBLIC,
    ) -> Path:
        """Have it here; the file or directory to read.

        `in_use`: entries that must stay. `keep`: puts this one among them; until it has, nobody removes it. Raises `NoRoom`, `Permanent`, `Transient`.
        """
        if scheme_of(uri) == "file":
            await patiently(lambda: look(uri), note)
            note(f"{uri}: is at this site\n")
            keep(path_of(uri))
            return path_of(uri)
        return await self.bring_from(self._sources.of(uri, web), uri, in_use, note, keep)

    async def bring_from(
        self,
        source: Readable,
        uri: str,
        in_use: Callable[[], set[Path]],
        note: Callable[[str], None],
        keep: Callable[[Path], None],
    ) -> Path:
        """The same, from a source that is given. `uri`: what it is called."""
        items = await patiently(lambda: source.items(uri), note)
        for item in items:
            _check_name(uri, item)
        key, size = _key(uri, items), sum(max(0, item.size) for item in items)
        entry = self._directory / key
        data = entry / "data"
        found = data / name_of(uri) if len(items) == 1 and not items[0].name else data
        async with _locked(self._lock(key)):
            if entry.exists():
                os.utime(entry)
                note(f"{uri}: {format_bytes(size)} are here already\n")
            else:
                await self._fetch(source, uri, items, key, in_use, note)
            keep(found)
        return found

    def entry(self, uri: str, items: list[Item]) -> Path:
        """Where such content is, if it is here."""
        return self._directory / _key(uri, items)

    async def _fetch(
        self,
        source: Readable,
        uri: str,
        items: list[Item],
        key: str,
        in_use: Callable[[], set[Path]],
        note: Callable[[str], None],
    ) -> None:
        part = self._directory / f".{key}.part"
        data = part / "data"
        data.mkdir(parents=True, exist_ok=True)
        files = {item: data / (item.name or name_of(uri)) for item in items}
        left = [item for item in items if not files[item].exists()]
        size = sum(max(0, item.size) for item in left)
        self._arriving[key] = size
        try:
            await self._make_room(in_use, unannounced=any(item.size < 0 for item in left))
            progress = TransferProgress(uri, size, note)

            def moved(count: int) -> None:
                self._arriving[key] = max(0, self._arriving[key] - count)
                progress.moved(count)

            await self._fetch_all(source, uri, [(item, files[item]) for item in left], moved, note)
        except (NoRoom, Invalid):
            # What is longer than was said would take the room until somebody else needs it.
            await asyncio.to_thread(job_folders.remove, part)
            raise
        finally:
            del self._arriving[key]
            self._unannounced.pop(key, None)
        part.rename(self._directory / key)
        note(f"{uri}: {format_bytes(progress.done)} brought\n")

    async def _fetch_all(
        self,
        source: Readable,
        uri: str,
        files: list[tuple[Item, Path]],
        moved: Moved,
        note: Callable[[str], None],
    ) -> None:
        left = iter(files)

        async def fetch(item: Item, file: Path) -> None:
            file.parent.mkdir(parents=True, exist_ok=True)
            arriving = file.with_name(f".{content_hash(file.name.encode())[:16]}.arriving")
            await fetch_patiently(source, uri, item, arriving, self._counted(uri, item, moved), note)
            if item.size >= 0 and arriving.stat().st_size != item.size:
                raise Invalid(
                    f"{uri}: {item.name or 'it'} has changed while it was fetched", remedy="try again"
                )
            arriving.rename(file)

        async def fetch_more() -> None:
            for item, file in left:
                await fetch(item, file)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(SIDE_BY_SIDE):
                    group.create_task(fetch_more())
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    def _counted(self, uri: str, item: Item, moved: Moved) -> Callable[[], Moved]:
        """What makes, for each attempt, what counts its bytes: no more than was announced, and of what nobody announced no more than there is room for. `moved` hears of each byte once."""
        key, most = f"{uri}\0{item.name}", 0

        def attempt() -> Moved:
            got = 0

            def count(arrived: int) -> None:
                nonlocal got, most
                got += arrived
                if 0 <= item.size < got:
                    raise Invalid(
                        f"{uri}: {item.name or 'it'} is longer than the {item.size} bytes that were announced"
                    )
                if item.size < 0:
                    self._unannounced[key] = got
                    if sum(self._unannounced.values()) > self._spare_bytes:
                        raise NoRoom(
                            f"{uri} does not say how long it is, and the site has no room for more than {format_bytes(got - arrived)} of it",
                            remedy="raise inputs_cache in the site file, or have its server announce the length",
                        )
                moved(max(0, got - most))
                most = max(most, got)

            return count

        return attempt

    async def _make_room(self, in_use: Callable[[], set[Path]], *, unannounced: bool) -> None:
        """Drop what is not in use, least recently used first, until what arrives fits, and something of which nobody says how much it is. Raises `NoRoom`, and drops nothing then."""
        async with _locked(self._directory / ".clearing.lock"):
            sizes = await asyncio.to_thread(self._sizes)
            disk = shutil.disk_usage(self._directory)
            limit = self._limit_bytes if self._limit_bytes is not None else int(disk.total * SHARE_OF_DISK)
            need, free, used = sum(self._arriving.values()), disk.free - SPARE_BYTES, sum(sizes.values())
            wish = need + min(UNANNOUNCED_BYTES, limit // 4) * unannounced
            stay, doomed = in_use(), []
            for path in sizes:
                if wish <= free and used + wish <= limit:
                    break
                if path not in stay and not self._is_held(path):
                    doomed.append(path)
                    free, used = free + sizes[path], used - sizes[path]
            if need > free or used + need > limit:
                here = min(max(free, 0), max(limit - used, 0))
                raise NoRoom(
                    f"its inputs need {format_bytes(need)} more, and the site has room for {format_bytes(here)}",
                    remedy="raise inputs_cache in the site file, or free its disk",
                )
            self._spare_bytes = min(free, limit - used) - need + sum(self._unannounced.values())
            # Nobody finds them from here on, whatever becomes of the removal.
            gone = [self._put_aside(path) for path in doomed]
            for path in gone:
                await asyncio.to_thread(job_folders.remove, path)

    def _put_aside(self, path: Path) -> Path:
        self._gone += 1
        aside = self._directory / f".gone-{os.getpid()}-{self._gone}"
        with contextlib.suppress(FileNotFoundError):
            path.rename(aside)
        return aside

    def _sizes(self) -> dict[Path, int]:
        """What is here, the least recently used first; what was to be removed before all."""
        here = [path for path in self._directory.iterdir() if path.is_dir()]
        here.sort(key=lambda path: (not path.name.startswith(".gone-"), path.stat().st_mtime))
        return {path: _size(path) for path in here}

    def _lock(self, key: str) -> Path:
        """Of an entry, and now and then of another: so there is an end to their number."""
        return self._directory / f".{key[:3]}.lock"

    def _is_held(self, path: Path) -> bool:
        """Whether somebody fetches it, or is about to link to it."""
        if path.name.startswith(".gone-"):
            return False
        with self._lock(path.name.removeprefix(".")).open("ab") as file:
            return not try_lock(file.fileno())


class TransferProgress:
    """Says at every tenth of the way how far a transfer has come."""

    def __init__(self, uri: str, size: int, note: Callable[[str], None]) -> None:
        self._uri, self._size, self._note = uri, size, note
        self.done = 0
        note(f"{uri}: bringing {format_bytes(size)}\n")

    def moved(self, count: int) -> None:
        """So many bytes more have arrived."""
        before, self.done = self.done, self.done + count
        if (
            self._size
            and self.done < self._size
            and 10 * before // self._size != 10 * self.done // self._size
        ):
            self._note(f"{self._uri}: {format_bytes(self.done)} of {format_bytes(self._size)}\n")


@contextlib.asynccontextmanager
async def _locked(path: Path) -> AsyncIterator[None]:
    """Hold a lock that is a file's, against all others in this process and in others."""
    with path.open("ab") as file:
        while not try_lock(file.fileno()):  # noqa: ASYNC110 - the other may be another process
            await asyncio.sleep(LOOK_AGAIN_S)
        yield


def _key(uri: str, items: list[Item]) -> str:
    return content_hash(msgspec.json.encode([uri, items]))


def _check_name(uri: str, item: Item) -> None:
    """Keys are written by anybody: none may lead out of its directory."""
    path = PurePosixPath(item.name)
    if path.is_absolute() or ".." in path.parts or "\0" in item.name:
        raise Invalid(
            f"{uri} holds something of the name {item.name!r}, which no directory can",
            remedy="rename it there",
        )


def _size(directory: Path) -> int:
    total = 0
    for level in job_folders.walk(directory):
        for name in level.files:
            try:
                total += os.stat(name, dir_fd=level.at, follow_symlinks=False).st_size
            except FileNotFoundError:
                continue
    return total


def fault_of(error: FederatorError) -> str:
    """What to tell of an input that cannot be had."""
    return f"input {error.describe()}"
