"""What is in the archive goes by files: first the logs and outputs of their jobs, later the files. Where one person has more than their share, theirs alone go."""

from collections.abc import Iterator, Sequence

from federator.control.maintenance.archive_writer import ArchiveWriter
from federator.control.record.holders import Held
from federator.control.record.records import Records
from federator.control.record.shares import Limit, Shares
from federator.model.archive import ArchiveFile
from federator.settings import RetentionSettings

PERSON = "user"


class ArchiveRetention:
    """Drops what of the archive has outlived its promise."""

    def __init__(self, records: Records, archive: ArchiveWriter, shares: Shares) -> None:
        self._records = records
        self._archive = archive
        self._shares = shares

    async def sweep(
        self, now: float, settings: RetentionSettings, in_bytes: Sequence[Limit], *, full: bool
    ) -> None:
        """One look. `in_bytes`: the limits on logs and outputs; `full`: whether one is passed."""
        for file in self._oldest(now - settings.archive_s):
            await self._archive.drop([file])
        promised = now - settings.promised_s
        while self._archive.archived.total >= settings.archive_jobs and (
            old := next(self._oldest(promised, unread=False), None)
        ):
            await self._archive.drop([old])
        for file in self._oldest(now - settings.jobs_s):
            if not file.bare:
                await self._archive.strip(file)
        await self._strip_some(promised, in_bytes, full=full)
        most = Limit(Held.ARCHIVED, settings.archive_jobs, "", "")
        if greedy := self._over(most):
            for file in self._oldest(promised, unread=False):
                theirs = sorted({share.owner for share in file.shares} & {*greedy})
                if theirs:
                    if not file.bare:  # the file alone says which logs are theirs
                        await self._archive.strip(file, theirs)
                    await self._archive.replace([self._records.archive_files[file.id]], theirs)
                    break
        await self._archive.tidy()

    async def _strip_some(self, promised: float, in_bytes: Sequence[Limit], *, full: bool) -> None:
        """Make room in steps of a file: of bytes it is not known before how much goes with one."""
        greedy = sorted({owner for limit in in_bytes for owner in self._over(limit)})
        for file in self._oldest(promised, unread=False):
            if full and not file.bare:
                await self._archive.strip(file)
                return
            theirs = [
                share.owner
                for share in file.shares
                if share.owner in greedy and share.log_bytes + share.blob_bytes > 0
            ]
            if theirs:
                await self._archive.strip(file, theirs)
                return

    def _over(self, limit: Limit) -> list[str]:
        """Who has as much as their share."""
        held = self._records.held_counts.all(limit.what)
        return sorted(
            holder.name
            for holder, amount in held
            if holder.kind == PERSON and amount >= self._shares.most(holder, limit)
        )

    def _oldest(self, before: float, *, unread: bool = True) -> Iterator[ArchiveFile]:
        """Files all of whose jobs ended before then, the oldest first; with those that cannot be read, or without."""
        archived = self._archive.archived
        some = self._records.archive_files.values() if unread else archived.files()
        files = sorted(some, key=lambda file: file.finished_until)
        return (file for file in files if file.moved and file.finished_until < before)
