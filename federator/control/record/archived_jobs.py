"""Reading the archive: which files count, and how much of one whose jobs are just leaving the store.

A job is either in the store or in the archive for whoever asks. While the rows of a file's jobs are dropped, in the order of their ids, of that file
only those below the first that is still in the store count.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import TypeVar
from weakref import WeakValueDictionary

import msgspec

from federator.control.record.holders import Held, Holder, holders_of
from federator.control.record.past import Summary
from federator.control.record.records import Records
from federator.control.record.rows import ClientKey
from federator.model.archive import (
    ArchiveFile,
    ArchiveFilter,
    ArchivePage,
    Column,
    FilePart,
    StoredJob,
    UsageSum,
)
from federator.model.jobs import Job
from federator.ports import Archive

AT_ONCE = 2
"""Questions that are under way at once, one of each who asks; others wait."""
ASKING: ContextVar[str] = ContextVar("asking", default="")
"""On whose behalf something is asked: a person or an agent, as the API knows them. Empty: the dispatcher itself."""
MOST = 20_000
"""Jobs whose records are read for one question: as many as are kept decoded."""
PORTION = 1000
"""Jobs that are read at once where many are."""
T = TypeVar("T")


class ArchivedJobs:
    """Answers about jobs in the archive. Where there is none, nothing is found."""

    def __init__(self, records: Records, archive: Archive | None) -> None:
        self.records = records
        self.archive = archive
        self.below: dict[str, str] = {}
        """Of each file whose jobs are leaving the store, below which id they are out of it,"""
        self.void: dict[str, list[str]] = {}
        """and which stay there, because they have changed."""
        self.summary: Summary = lambda _array: (b"", b"")
        """How an array is described; set where the dispatcher is put together."""
        self.unread: set[str] = set()
        """Files that could not be read: they are left out until they can be."""
        self._room = asyncio.Semaphore(AT_ONCE)
        self.turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Of each who asks now: of the questions of one, one at a time may wait for room."""

    def files(self) -> list[ArchiveFile]:
        """All that can be read; where the archive is off, none."""
        files = self.records.archive_files.values() if self.archive is not None else ()
        return [file for file in files if file.id not in self.unread]

    def parts(self) -> list[FilePart]:
        """What counts at this moment. With what memory has at the same moment it is every job once."""
        return [self._part(file) for file in self.files()]

    def _part(self, file: ArchiveFile) -> FilePart:
        if file.moved:
            return FilePart(file.digest, void=file.void, last=file.last)
        return FilePart(file.digest, self.below.get(file.id, file.first), tuple(self.void.get(file.id, ())))

    async def page(
        self, parts: Sequence[FilePart], where: ArchiveFilter, page: ArchivePage
    ) -> tuple[list[tuple[float | str, str]], int]:
        """A page of what is asked for, as places in the order, and how many there are in all."""
        return await self._ask(lambda archive: archive.page(parts, where, page), ([], 0))

    async def jobs(
        self,
        where: ArchiveFilter,
        *,
        limit: int = MOST,
        events: bool = False,
        parts: Sequence[FilePart] | None = None,
    ) -> list[Job]:
        """The newest jobs that are asked for, the oldest first; their other records are at hand then."""
        of = self.parts() if parts is None else parts
        nothing: list[StoredJob] = []
        stored = await self._ask(lambda archive: archive.jobs(of, where, limit=limit, events=events), nothing)
        found: list[Job] = []
        for number, each in enumerate(stored, 1):
            found.append(self.records.past.keep(each))
            if number % 500 == 0:
                await asyncio.sleep(0)
        return found

    async def runs(self, parts: Sequence[FilePart], each: int, most: int) -> list[Job]:
        """Jobs that succeeded, the newest first: of every queue and name so many, and at most so many in all."""
        nothing: list[str] = []
        ids = await self._ask(lambda archive: archive.runs(parts, each, most), nothing)
        found: list[Job] = []
        for start in range(0, len(ids), PORTION):
            found += await self.jobs(ArchiveFilter(ids=tuple(ids[start : start + PORTION])), parts=parts)
        return sorted(found, key=lambda job: job.finished_at or 0.0, reverse=True)

    async def arrays(self, names: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Of these arrays, as a line of a list and all tasks added up, as JSON."""
        parts = self.parts()
        return await self._ask(lambda archive: archive.arrays(parts, names), {}) if names else {}

    async def usage(
        self, parts: Sequence[FilePart], where: ArchiveFilter, by: Sequence[Column], most: int
    ) -> list[UsageSum]:
        """Jobs added up by some keys, at most so many groups."""
        nothing: list[UsageSum] = []
        return await self._ask(lambda archive: archive.usage(parts, where, by, most), nothing)

    async def recall_client(self, key: str) -> None:
        """Have at hand what was submitted under a client id (`OWNER/ID`), if that is in the archive."""
        past, parts = self.records.past, self.parts()
        if past.client_keys.get(key) is None and past.may_know(key):
            nothing: list[str] = []
            for row in await self._ask(lambda archive: archive.client_keys(parts, key), nothing):
                past.client_keys.put(key, msgspec.json.decode(row, type=ClientKey))

    def count(self) -> None:
        """Note how many jobs each person and team has in the archive."""
        counts: Counter[Holder] = Counter()
        for file in self.files():
            for share in file.shares:
                for holder in holders_of(share.owner, share.team):
                    counts[holder] += share.jobs
        self.records.held_counts.measured(Held.ARCHIVED, counts)

    @property
    def total(self) -> int:
        """How many jobs are in the archive."""
        return sum(file.jobs for file in self.files())

    async def _ask(self, ask: Callable[[Archive], T], nothing: T) -> T:
        archive = self.archive
        if archive is None or not self.records.archive_files:
            return nothing
        turn = self.turns.setdefault(ASKING.get(), asyncio.Lock())
        async with turn, self._room:
            return await asyncio.to_thread(ask, archive)
