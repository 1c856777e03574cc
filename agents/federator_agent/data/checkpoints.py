"""Checkpoints that outlive their site: what a job saves goes to the place that it names, and comes back wherever it runs next.

What is kept at `checkpoint.uri`, below the job's id: archives, each named by the attempt that made it, and a pointer to the newest whole one. The archive is
there before the pointer, so whoever reads the pointer finds a whole checkpoint. Each attempt has a pointer of its own, and the latest attempt's counts: one that comes late, from
a site that was cut off, takes nothing back.
A directory that changes while it is packed is packed again: half a checkpoint is none. Only the last push, when nothing of the job runs any more, takes it as it is.

A site knows from its own note which attempt the directory on its disk comes from. It is replaced only when a later attempt, elsewhere, has pushed.
"""

import asyncio
import contextlib
import hashlib
import math
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

import msgspec

from federator.kernel.errors import Damaged, NotFound, Unavailable
from federator.kernel.files import write_durably
from federator.kernel.quantities import format_bytes
from federator.wire.jsontext import read
from federator_agent import archives, job_folders
from federator_agent.data.patience import fetch_patiently, patiently, until_it_may_move
from federator_agent.data.sources import Sources

_POINTER = re.compile(r"latest-(\d{6,12})-(\d{1,6})\.json")
_ARCHIVE = re.compile(r"\d{6,12}-\d{6,12}-\d{1,6}\.tar\.gz")
KEEP = 2
"""Archives that stay at the place: a reader of the pointer may still be fetching the one before."""
TRIES_WHILE_IT_WRITES = 3

Files = tuple[tuple[str, int, int], ...]
"""Path, size and time of change of each file: by it one looks whether anything has changed."""


class Pointer(msgspec.Struct, frozen=True):
    """The newest checkpoint of one part of a gang. `epoch` orders the job's attempts, `number` the pushes of one."""

    epoch: int
    number: int
    archive: str
    size_bytes: int
    sha256: str


class CheckpointRecord(msgspec.Struct, frozen=True):
    """What a site remembers of a job's directory: from which attempt and push it comes, and what was in it then."""

    epoch: int
    number: int = 0
    files: Files = ()


class JobCheckpoints:
    """A job's checkpoints at its place, as one placement sees them. `part`: its first rank at this site."""

    def __init__(self, sources: Sources, uri: str, job: str, part: int) -> None:
        self._sources, self._base, self._part = sources, f"{uri.rstrip('/')}/{job}", part

    def at(self, name: str) -> str:
        """The address of something of this job."""
        return f"{self._base}/{name}"

    async def pointers(self) -> list[Pointer]:
        """Those of the latest attempt that has pushed, of all its parts."""
        source = self._sources.of(self._base)
        try:
            names = [item.name for item in await source.items(self._base)]
        except NotFound:
            return []
        found = [(int(match[1]), name) for name in names if (match := _POINTER.fullmatch(name))]
        latest = max((epoch for epoch, _ in found), default=0)
        return [await self._pointer(name) for epoch, name in found if epoch == latest]

    async def _pointer(self, name: str) -> Pointer:
        try:
            pointer = read(await self._sources.of(self._base).read(self.at(name)), Pointer)
        except NotFound:
            raise Unavailable(f"{self.at(name)} has just been replaced") from None
        except msgspec.MsgspecError as error:
            raise Damaged(f"{self.at(name)} is not what an agent writes: {error}") from None
        if not _ARCHIVE.fullmatch(pointer.archive):
            raise Damaged(f"{self.at(name)} names {pointer.archive[:80]!r}, which no agent writes")
        return pointer

    async def fetch(self, pointer: Pointer, into: Path, note: Callable[[str], None]) -> None:
        """Its archive. Raises `Damaged` when it is not what was pushed."""
        source = self._sources.of(self._base)
        address = self.at(pointer.archive)
        items = await source.items(address)
        if [item.name for item in items] != [""]:
            raise Damaged(f"{address} is a folder, and not the checkpoint that was pushed there")
        await fetch_patiently(source, address, items[0], into, lambda: lambda _: None, note)
        digest, _ = await asyncio.to_thread(_digest, into)
        if digest != pointer.sha256:
            raise Damaged(f"{address} is not the checkpoint that was pushed there")

    async def until_it_may_move(self, size: int, note: Callable[[str], None]) -> None:
        """Wait for the hours of so much."""
        await until_it_may_move(self._sources.of(self._base), self._base, size, note)

    async def push(self, archive: Path, epoch: int, number: int) -> None:
        """The archive, then the pointer to it; then older ones of this part go. A later attempt's pointer stays."""
        source = self._sources.of(self._base)
        name = f"{epoch:06d}-{number:06d}-{self._part}.tar.gz"
        digest, size = await asyncio.to_thread(_digest, archive)
        await source.put(archive, self.at(name))
        pointer = Pointer(epoch, number, name, size, digest)
        small = archive.with_suffix(".json")
        write_durably(small, msgspec.json.encode(pointer))
        await source.put(small, self.at(f"latest-{epoch:06d}-{self._part}.json"))
        names = sorted(item.name for item in await source.items(self._base))
        mine = [each for each in names if each.endswith(f"-{self._part}.tar.gz") and each <= name]
        told = [each for each in names if each.endswith(f"-{self._part}.json") and _epoch_of(each) < epoch]
        for old in (*mine[:-KEEP], *told):
            await source.remove(self.at(old))


def _epoch_of(name: str) -> int:
    """Of a pointer; what is none is newer than all."""
    match = _POINTER.fullmatch(name)
    return int(match[1]) if match else 2**63


class Checkpoints:
    """What one agent knows of its jobs' directories, under its state directory."""

    def __init__(self, directory: Path, sources: Sources) -> None:
        self._directory = directory
        self._sources = sources
        self._begun: dict[tuple[str, int], int] = {}
        """Pushes begun, by job and attempt: one that was given up may still be under way in its thread."""

    def of(self, uri: str, job: str, part: int) -> JobCheckpoints:
        """A job's checkpoints at the place that it names."""
        return JobCheckpoints(self._sources, uri, job, part)

    async def bring(
        self, kept: JobCheckpoints, job: str, epoch: int, folder: Path, note: Callable[[str], None]
    ) -> None:
        """Before it runs: make the directory what the latest attempt has pushed, unless that was here. Raises `Permanent`, `Transient`."""
        known = self._known(job)
        pointers = await patiently(kept.pointers, note)
        if pointers and (known is None or pointers[0].epoch > known.epoch):
            size = sum(pointer.size_bytes for pointer in pointers)
            note(f"checkpoint: bringing {format_bytes(size)} of attempt {pointers[0].epoch}\n")
            await self._replace(kept, pointers, folder, note)
        self._remember(job, CheckpointRecord(epoch, files=await asyncio.to_thread(files_in, folder)))

    def came(self, job: str, epoch: int) -> bool:
        """Whether its directory has been made ready for that attempt."""
        known = self._known(job)
        return known is not None and known.epoch == epoch

    async def _replace(
        self, kept: JobCheckpoints, pointers: list[Pointer], folder: Path, note: Callable[[str], None]
    ) -> None:
        """What is there stays until all of the other is here. Cut off in between, it is done again: what is remembered is the one before."""
        beside = folder.with_name(f".{folder.name}.arriving")
        try:
            for number, pointer in enumerate(pointers):
                await self._unpack(kept, pointer, beside, number, note)
            await asyncio.to_thread(_exchange, folder, beside)
        finally:
            await asyncio.to_thread(job_folders.remove, beside)

    async def _unpack(
        self, kept: JobCheckpoints, pointer: Pointer, beside: Path, number: int, note: Callable[[str], None]
    ) -> None:
        """The first makes the directory; the others are of other ranks, and lie in it beside."""
        archive = self._directory / f".{pointer.archive}.arriving"
        more = beside.with_name(f"{beside.name}-more")
        try:
            await patiently(lambda: kept.fetch(pointer, archive, note), note)
            target = more if number else beside
            await asyncio.to_thread(archives.unpack, archive, target, most_bytes=math.inf)
            if number:
                await asyncio.to_thread(_merge, more, beside)
        finally:
            archive.unlink(missing_ok=True)
            await asyncio.to_thread(job_folders.remove, more)

    async def until_it_may_move(
        self, kept: JobCheckpoints, job: str, folder: Path, note: Callable[[str], None]
    ) -> None:
        """Wait for the hours of what has changed, if anything has. Before it is packed: what is pushed then is as new as it can be."""
        known, files = self._known(job), await asyncio.to_thread(files_in, folder)
        if files and (known is None or files != known.files):
            await kept.until_it_may_move(sum(size for _, size, _ in files), note)

    async def push(self, kept: JobCheckpoints, job: str, epoch: int, folder: Path, *, last: bool) -> bool:
        """Push what has changed; whether anything was. Unless it is the `last`, only what stood still. Raises `Permanent`, `Transient`."""
        known = self._known(job) or CheckpointRecord(epoch)
        for _ in range(1 if last else TRIES_WHILE_IT_WRITES):
            files = await asyncio.to_thread(files_in, folder)
            if files == known.files or not files:
                return False
            archive = (
                self._directory
                / f".{job}-{epoch}-{len(self._begun)}-{self._begun.get((job, epoch), 0)}.leaving"
            )
            try:
                await asyncio.to_thread(archives.pack, folder, ("**",), archive, math.inf)
                if not last and await asyncio.to_thread(files_in, folder) != files:
                    continue
                number = (
                    max(known.number if known.epoch == epoch else 0, self._begun.get((job, epoch), 0)) + 1
                )
                self._begun[job, epoch] = number
                await kept.push(archive, epoch, number)
                self._remember(job, CheckpointRecord(epoch, number, files))
            finally:
                archive.unlink(missing_ok=True)
                archive.with_suffix(".json").unlink(missing_ok=True)
            return True
        return False

    def forget(self, job: str) -> None:
        """Its directory goes."""
        (self._directory / f"{job}.json").unlink(missing_ok=True)

    def _known(self, job: str) -> CheckpointRecord | None:
        try:
            return read((self._directory / f"{job}.json").read_bytes(), CheckpointRecord)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    def _remember(self, job: str, note: CheckpointRecord) -> None:
        write_durably(self._directory / f"{job}.json", msgspec.json.encode(note))


def files_in(folder: Path) -> Files:
    """What is there now, by path. Raises `OSError`, also for folders nested too deep."""
    found = []
    for level in job_folders.walk(folder):
        for name in level.files:
            with contextlib.suppress(FileNotFoundError):
                facts = os.stat(name, dir_fd=level.at)
                if not stat.S_ISDIR(facts.st_mode):
                    found.append((str(level.path / name), facts.st_size, facts.st_mtime_ns))
    return tuple(sorted(found))


def _digest(path: Path) -> tuple[str, int]:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), os.fstat(file.fileno()).st_size


def _exchange(folder: Path, beside: Path) -> None:
    """The content, and not the directory, which a pod may have mounted."""
    folder.mkdir(parents=True, exist_ok=True)
    job_folders.empty(folder)
    for new in beside.iterdir():
        new.rename(folder / new.name)


def _merge(beside: Path, folder: Path) -> None:
    for level in job_folders.walk(beside):
        for name in level.files:
            path = beside / level.path / name
            target = folder / level.path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)
