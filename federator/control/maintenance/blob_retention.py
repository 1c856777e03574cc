"""Garbage collection of blobs: those that no record names any more are deleted after a grace period."""

import asyncio
from functools import partial

from federator.control.maintenance.archive_writer import ArchiveWriter
from federator.control.maintenance.series_retention import folders_of_series
from federator.control.record.blob_owners import disowned
from federator.control.record.records import Records
from federator.ports import Blobs


class BlobRetention:
    """Drops work directories and outputs that no record names, with the notes of who owns them."""

    def __init__(self, records: Records, blobs: Blobs, archive: ArchiveWriter) -> None:
        self._archive = archive
        self._records = records
        self._blobs = blobs
        self._workdirs: dict[str, str | None] = {}
        """What each spec names, by the spec's hash."""

    async def sweep(self, now: float, unused_for_s: float, unused_real_s: float) -> None:
        """Drop what nobody has used for so many clock seconds, which are so many real ones."""
        unused = await asyncio.to_thread(self._blobs.unused, unused_real_s)
        if not unused:
            return
        # Whoever names one from here on has used it first, and `drop` looks again.
        archived = await self._archive.named()
        named = await self._named()
        going = {digest for digest in unused if digest not in named and digest not in archived}
        # Notes of who owns them go first: bytes that nobody owns are found by the next sweep, a note without bytes would not be.
        while await self._records.transact(partial(disowned, self._records, going, now - unused_for_s)):
            pass
        owned = {each.digest for each in self._records.blob_owners.values()}
        for digest in going - owned:
            await asyncio.to_thread(self._blobs.drop, digest, unused_real_s)

    async def _named(self) -> set[str | None]:
        """The bytes that a record names. Specs are decoded once, and with pauses: there may be very many."""
        records = self._records
        specs = {job.spec_hash for job in records.jobs.values()}
        self._workdirs = {digest: each for digest, each in self._workdirs.items() if digest in specs}
        for number, digest in enumerate(specs - self._workdirs.keys(), 1):
            self._workdirs[digest] = records.spec(digest).workdir
            if number % 500 == 0:
                await asyncio.sleep(0)
        parts = {part.digest for outputs in records.outputs.values() for part in outputs.parts}
        return {*self._workdirs.values(), *parts, *folders_of_series(records)}
