"""What a job reads of the outputs of others: fetched from the dispatcher, unpacked into a folder of this placement alone.

Archives are kept as inputs are, each content once for all placements that read it, in the agent's own folder, which no job sees: another person's job at the same
site finds nothing. What a job sees is its own copy. So a task of an array of thousands costs an unpacking, and no second transfer. What was made here
is kept in the same way, and not fetched at all as long as there is room for it.
"""

import asyncio
import os
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from federator.kernel.errors import NotFound
from federator.kernel.tars import MAX_BYTES, TooMuch
from federator.model.datasets import LEAST_OUTPUTS_BYTES
from federator.model.jobs import InputFrom
from federator.wire.link import OutputArchive
from federator.wire.nearest import nearest
from federator_agent import archives, job_folders
from federator_agent.data.inputs import SPARE_BYTES, Inputs, NoRoom
from federator_agent.data.sources import Item, Moved, Readable, Sources

MADE_HERE = "outputs made here"
"""What an archive is called that was not fetched."""
NAMED = 10
"""Files that a message names,"""
LOOKED_AT = 1000
"""and of each archive so many are looked at for that."""


class OutputBulk(Protocol):
    """What is asked of the dispatcher."""

    async def inputs(self, placement: str) -> tuple[tuple[OutputArchive, ...], ...]:
        """Of each of the placement's `inputs_from` the archives. Raises `Permanent`."""
        ...

    async def input(self, placement: str, job: str, digest: str, into: Path) -> None:
        """Fetch one of them into a file, checked against its name. Raises `Permanent`."""
        ...


class JobOutputs:
    """Outputs of other jobs, for the placements of one agent."""

    def __init__(self, directory: Path, bulk: OutputBulk, sources: Sources, limit_bytes: int | None) -> None:
        """`directory`: where archives are kept; `limit_bytes`: no more than that, None: than a share of the disk."""
        self._directory, self._bulk = directory, bulk
        self._archives = Inputs(directory, sources, limit_bytes)
        self._in_use: Counter[Path] = Counter()

    async def bring(
        self, placement: str, wanted: Sequence[InputFrom], into: Path, note: Callable[[str], None]
    ) -> None:
        """Have all of it below `into`, under its names. Raises `NoRoom`, `Permanent`, `Transient`, `OSError`."""
        self._directory.mkdir(parents=True, exist_ok=True)
        for each, found in zip(wanted, await self._bulk.inputs(placement), strict=True):
            await self._bring(placement, each, found, into, note)

    async def keep(self, archive: Path, digest: str) -> None:
        """Keep what was made here. Raises `NoRoom`, `OSError`."""
        size = await asyncio.to_thread(os.path.getsize, archive)
        if size >= LEAST_OUTPUTS_BYTES:
            self._directory.mkdir(parents=True, exist_ok=True)
            source, in_use = _MadeHere(archive, _item(size, digest)), lambda: set(+self._in_use)
            await self._archives.bring_from(source, MADE_HERE, in_use, lambda _: None, lambda _: None)

    async def _bring(
        self,
        placement: str,
        wanted: InputFrom,
        found: Sequence[OutputArchive],
        into: Path,
        note: Callable[[str], None],
    ) -> None:
        held: list[Path] = []

        def keep(data: Path) -> None:
            held.append(data.parent)
            self._in_use[data.parent] += 1

        called = found[0].label.partition("[")[0] if found[0].below else found[0].label
        source = _DispatcherSource(self._bulk, self._archives, placement, found)
        try:
            data = await self._archives.bring_from(
                source, f"outputs of {called}", lambda: set(+self._in_use), note, keep
            )
            await asyncio.to_thread(_unpack, data, wanted, found, into)
        finally:
            for entry in held:
                self._in_use[entry] -= 1


class _MadeHere(Readable):
    """An archive that an agent has packed itself."""

    link = None

    def __init__(self, archive: Path, item: Item) -> None:
        self._archive, self._item = archive, item

    async def items(self, uri: str) -> list[Item]:
        """It alone."""
        del uri
        return [self._item]

    async def fetch(self, uri: str, item: Item, into: Path, moved: Moved) -> None:
        """A second name for the same file."""
        del uri
        _link(self._archive, into)
        moved(item.size)


class _DispatcherSource(Readable):
    """The archives of one input. `placement`: on whose behalf."""

    link = None

    def __init__(
        self, bulk: OutputBulk, archives: Inputs, placement: str, found: Sequence[OutputArchive]
    ) -> None:
        self._bulk, self._archives, self._placement = bulk, archives, placement
        self._found = {_file(number): each for number, each in enumerate(found)}

    async def items(self, uri: str) -> list[Item]:
        """As the dispatcher has told."""
        del uri
        return [Item(name, each.size_bytes, each.digest) for name, each in self._found.items()]

    async def fetch(self, uri: str, item: Item, into: Path, moved: Moved) -> None:
        """Each is whole or not there; one that was made here is here."""
        del uri
        found = self._found[item.name]
        made = self._archives.entry(MADE_HERE, [_item(found.size_bytes, found.digest)])
        try:
            _link(made / "data" / _file(0), into)
            os.utime(made)
        except OSError:
            await self._bulk.input(self._placement, found.job, found.digest, into)
        moved(item.size)


def _item(size: int, digest: str) -> Item:
    return Item(_file(0), size, digest)


def _link(file: Path, into: Path) -> None:
    into.unlink(missing_ok=True)
    into.hardlink_to(file)


def _file(number: int) -> str:
    return f"{number}.tar.gz"


def _unpack(data: Path, wanted: InputFrom, found: Sequence[OutputArchive], into: Path) -> None:
    """Of files that several hosts of a gang have, the first one's. Raises `NotFound`, `NoRoom`, `Invalid`, `OSError`."""
    into.mkdir(parents=True, exist_ok=True)
    target, part = into / wanted.name, into / f".{wanted.name}.part"
    for path in (target, part):
        job_folders.remove(path) if path.is_dir() else path.unlink(missing_ok=True)
    part.mkdir(mode=0o700)
    for number, each in reversed(list(enumerate(found))):
        _unpack_one(data / _file(number), part / each.below, wanted.output, shutil.disk_usage(part).free)
    whole = any(each.below for each in found)
    brought = part if whole or not wanted.output else part / wanted.output
    if not any(path.is_file() for path in (brought, *brought.rglob("*"))):
        raise _missing(data, wanted, found)
    job_folders.let_read(part)  # the job may have a user of its own
    brought.rename(target)
    if part.exists():
        job_folders.remove(part)


def _unpack_one(archive: Path, target: Path, only: str, free_bytes: int) -> None:
    most_bytes = min(MAX_BYTES, max(0, free_bytes - SPARE_BYTES))
    try:
        # What is moved to its own name afterwards would take its links to somewhere else.
        archives.unpack(archive, target, most_bytes=most_bytes, only=only, fresh=False, links=False)
    except TooMuch as error:
        if most_bytes == MAX_BYTES:
            raise
        raise NoRoom(f"it needs more room than there is: {error.message}", remedy="free its disk") from None


def _missing(data: Path, wanted: InputFrom, found: Sequence[OutputArchive]) -> NotFound:
    """What to tell of an output that is not there: which there are."""
    some_archives = (data / _file(number) for number in range(min(len(found), NAMED)))
    names = sorted({name for archive in some_archives for name in archives.names(archive, LOOKED_AT)})
    near = nearest(wanted.output, names)
    some = ", ".join(names[:NAMED]) + (", …" if len(names) > NAMED else "")
    meant = f"did you mean {near}? " if near else ""
    return NotFound(
        f"{found[0].label} ({wanted.job}) has collected no {wanted.output or 'file'}: {f'it has {some}' if some else 'its outputs matched nothing'}",
        remedy=f"{meant}name one of these as output, or have that job write it and name it under outputs",
    )
