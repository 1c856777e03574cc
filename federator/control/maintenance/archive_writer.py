"""Moving jobs that have ended from the store to the archive, and keeping the archive's files few and within their limits.

A file is written and durable before it is on record, and on record before the first row of its jobs goes. After a crash in between the rest of them
goes on the next start, by the file itself: it has the ids of all that belongs to a job. A job that has changed meanwhile stays, and its row in the
file does not count.
"""

import asyncio
import logging
import math
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from federator.control.record.archived_jobs import ArchivedJobs
from federator.control.record.holders import Holder, holders_of
from federator.control.record.past import hashes_of
from federator.control.record.records import Changes, Records
from federator.control.record.rows import Outputs
from federator.kernel.errors import Damaged, NotFound, Unavailable
from federator.kernel.ids import IdSource
from federator.model.archive import ArchivedJob, ArchivedShare, ArchiveFile, FilePart, text_bytes
from federator.model.arrays import Archived
from federator.model.jobs import Job, JobStatus
from federator.ports import Archive, Blobs, Usage, Written, every_item

log = logging.getLogger(__name__)

FILE_JOBS = 10_000
"""Jobs of one new file; more where an array is larger."""
FILE_BYTES = 64 * 2**20
"""Text of one new file: of jobs with long texts fewer are in one, and an array is in several."""
PIECE_BYTES = 4 * 2**20
"""Text of rows that is in memory at once, beside one row more."""
TOGETHER = 8
"""So many files of about one size become one."""
LARGEST = 1_000_000
"""Jobs of a file that is not put with others any more."""
MOST_EVENTS = 500
"""Of a longer timeline the newest are kept."""
STEP = 100
"""Rows that are made before they are written."""
Group = Sequence[Job]
"""A job, or all tasks of an array."""


class ArchiveWriter:
    """The archive's only writer."""

    def __init__(self, records: Records, archived: ArchivedJobs, blobs: Blobs, ids: IdSource) -> None:
        self._records = records
        self.archived = archived
        self._blobs = blobs
        self._ids = ids
        self._named: dict[str, tuple[tuple[str, ...], array[int]]] = {}
        """Of each file: without whose jobs, and the beginnings of the hashes that it names."""
        self._batch: frozenset[str] = frozenset()
        """Jobs that are leaving the store in the transaction on its way, and of which file."""
        self._moving = ""
        self._retired: list[str] = []
        """Files that are replaced, and may still be read by who has asked before."""
        records.subscribe(self._note)

    @property
    def on(self) -> bool:
        """Whether there is an archive."""
        return self.archived.archive is not None

    @property
    def _archive(self) -> Archive:
        assert self.archived.archive is not None
        return self.archived.archive

    async def begin(self) -> None:
        """After the records were read: finish what a crash cut short, and learn which client ids there are."""
        if self.on:
            await self.finish()
        elif files := len(self._records.archive_files):
            log.warning(
                "the archive is off, but has %d files: their jobs are not found, and no outputs or work directories are "
                "dropped until it is on (retention.recent_jobs above 0, pip install federator[archive])",
                files,
            )

    async def finish(self) -> None:
        """Go on with the moves that an error or a crash cut short: until then their jobs may not be chosen for another file. Try to read what could not be."""
        for file in list(self._records.archive_files.values()):
            if (file.id not in self._records.past.clients and not await self._known(file)) or file.moved:
                continue
            await self._move(file)
        self.archived.count()

    async def _known(self, file: ArchiveFile) -> bool:
        """Learn which client ids a file has, if it can be read. One that cannot must not keep all others from work."""
        try:
            keys = await self._column(file, "client_key")
        except (NotFound, Damaged, Unavailable) as error:
            if file.id not in self.archived.unread:
                self.archived.unread.add(file.id)
                log.error(  # noqa: TRY400 - the text of the error says all
                    "file %s of the archive is left out: its %d jobs are not found, and no outputs or work directories "
                    "are dropped until it can be read or is older than retention.jobs_s: %s",
                    file.digest,
                    file.jobs,
                    error,
                )
            return False
        self._records.past.clients[file.id] = hashes_of(keys)
        self.archived.unread.discard(file.id)
        return True

    async def write(
        self, groups: Iterable[Group], placements: Mapping[str, list[str]], usage: Usage | None
    ) -> None:
        """Move these jobs, arrays as a whole, to new files. `usage`: what is kept of them beside their rows; None: nothing any more."""
        for batch in _files_of(groups):
            left, told = sorted(batch, key=lambda job: job.id), set[str]()
            while left:
                rows = _Rows(self, left, placements, usage or Usage({}, {}), told, asyncio.get_running_loop())
                written = await asyncio.to_thread(self._archive.write, rows)
                jobs, left = left[: written.rows], left[written.rows :]
                await self._keep(jobs, rows, written, bare=usage is None)

    async def _keep(self, jobs: Sequence[Job], rows: "_Rows", written: Written, *, bare: bool) -> None:
        """Put a file on record that is written, and drop the rows of its jobs."""
        file = ArchiveFile(
            id=self._ids.new("archive"),
            digest=written.digest,
            size_bytes=written.size_bytes,
            jobs=len(jobs),
            first=jobs[0].id,
            last=jobs[-1].id,
            finished_from=min(job.finished_at or 0.0 for job in jobs),
            finished_until=max(job.finished_at or 0.0 for job in jobs),
            shares=rows.shares(),
            bare=bare,
        )
        self._records.past.clients[file.id] = hashes_of(rows.client_keys)
        await self._records.transact(partial(_put, file))
        await self._move(file)
        self.archived.count()

    async def tidy(self) -> None:
        """Make few files of many, the smallest first; at most once a sweep."""
        for digest in self._retired:
            await asyncio.to_thread(self._archive.forget, digest)
        self._retired = []
        alike: dict[object, list[ArchiveFile]] = {}
        for file in self.archived.files():
            if file.moved and file.jobs < LARGEST:
                size = int(math.log(max(1.0, file.jobs / FILE_JOBS), TOGETHER))
                alike.setdefault((size, file.bare, file.bare_for), []).append(file)
        for files in alike.values():
            if len(files) >= TOGETHER:
                await self.replace(files[:TOGETHER])
                return

    async def replace(self, files: Sequence[ArchiveFile], without: Sequence[str] = ()) -> None:
        """Write these files as one, without the jobs of some people."""
        parts = [FilePart(file.digest, void=file.void) for file in files]
        written = await asyncio.to_thread(self._archive.merge, parts, without)
        shares: dict[tuple[str, str, str], ArchivedShare] = {}
        for each in (share for file in files for share in file.shares if share.owner not in without):
            key = (each.owner, each.team, each.queue)
            before = shares.get(key, ArchivedShare(*key, jobs=0))
            shares[key] = replace(
                before,
                jobs=before.jobs + each.jobs,
                log_bytes=before.log_bytes + each.log_bytes,
                blob_bytes=before.blob_bytes + each.blob_bytes,
            )
        merged = replace(
            files[0],
            id=self._ids.new("archive"),
            digest=written.digest,
            size_bytes=written.size_bytes,
            jobs=written.rows,
            first=min(file.first for file in files),
            last=max(file.last for file in files),
            finished_from=min(file.finished_from for file in files),
            finished_until=max(file.finished_until for file in files),
            shares=tuple(shares.values()),
            void=(),
            bare_for=tuple(each for each in files[0].bare_for if each not in without),
        )
        clients = [self._records.past.clients.get(file.id, array("Q")) for file in files]
        self._records.past.clients[merged.id] = array("Q", sorted(each for some in clients for each in some))
        changes = Changes(deletes=[f"archive/{file.id}" for file in files], quiet=True)
        if written.rows:
            changes.put(merged)
        await self._records.transact(lambda: changes)
        self._forget(files)

    async def drop(self, files: Sequence[ArchiveFile]) -> None:
        """Forget these files with the jobs in them."""
        for file in files:
            if not file.bare:
                await self.strip(file)
            await self._records.transact(partial(Changes, deletes=[f"archive/{file.id}"], quiet=True))
            self._forget([file])

    async def strip(self, file: ArchiveFile, owners: Sequence[str] = ()) -> None:
        """Drop the logs of a file's jobs, or of some people's; their outputs are named no more and go with the next sweep of blobs."""
        parts = [FilePart(file.digest, void=file.void)] if file.id not in self.archived.unread else []
        rows = self._archive.rows(parts, ["owner", "attempts"])
        while (some := await asyncio.to_thread(next, rows, None)) is not None:
            names = [name for owner, attempts in some if not owners or owner in owners for name in attempts]
            await asyncio.to_thread(_drop_logs, self._blobs, names)
        bare_for = (*file.bare_for, *(each for each in owners if each not in file.bare_for))
        gone = {share.owner for share in file.shares} <= set(bare_for) if owners else True
        shares = tuple(
            replace(share, log_bytes=0, blob_bytes=0) if gone or share.owner in bare_for else share
            for share in file.shares
        )
        new = replace(file, bare=gone, bare_for=() if gone else bare_for, shares=shares)
        await self._records.transact(partial(_put, new))

    async def named(self) -> "Named":
        """What of the blobs the archive names, its own files among them."""
        files = self._records.archive_files
        for name in [name for name in self._named if name not in files or files[name].bare]:
            del self._named[name]
        unread = False
        for file in list(files.values()):
            if not self.on or file.id in self.archived.unread:
                unread = unread or not file.bare
            elif not file.bare and self._named.get(file.id, (None,))[0] != file.bare_for:
                part = FilePart(file.digest, void=file.void)
                hashes = await asyncio.to_thread(self._archive.blobs, [part], file.bare_for)
                self._named[file.id] = (file.bare_for, hashes)
        own = {file.digest for file in files.values()}
        return Named(own, [hashes for _, hashes in self._named.values()], unread=unread)

    def measure(self, logs: Counter[Holder], blobs: Counter[Holder]) -> int:
        """Add what is kept of archived jobs to what people have; returns the bytes of the archive's own files."""
        for file in self._records.archive_files.values():
            for share in file.shares:
                for holder in holders_of(share.owner, share.team):
                    logs[holder] += share.log_bytes
                    blobs[holder] += share.blob_bytes
        return sum(file.size_bytes for file in self._records.archive_files.values())

    def _forget(self, files: Sequence[ArchiveFile]) -> None:
        for file in files:
            self._records.past.clients.pop(file.id, None)
            self._retired.append(file.digest)
        self.archived.count()

    # ---------------------------------------------------------------------------------------------------------- moving

    async def _move(self, file: ArchiveFile) -> None:
        """Drop the rows of a file's jobs, in the order of their ids."""
        self._moving = file.id
        void = self.archived.void.setdefault(file.id, [])
        columns = [
            "id",
            "job_json",
            "placements_json",
            "outputs_json",
            "attempts",
            "events_json",
            "client_key",
        ]
        rows = self._archive.rows([FilePart(file.digest)], columns)
        try:
            while (some := await asyncio.to_thread(next, rows, None)) is not None:
                left = [row for row in some if row[0] in self._records.jobs]
                while left:
                    left = left[await self._move_some(file, left, void) :]
                self._reach(file.id, some[-1][0])
            moved = replace(file, moved=True, void=tuple(void))
            await self._records.transact(partial(_put, moved))
        finally:
            self._moving = ""
        # Only now: after an error these still say where each of the jobs is.
        self.archived.below.pop(file.id, None)
        self.archived.void.pop(file.id, None)

    def _reach(self, file: str, job: str) -> None:
        """Of this file all jobs up to that one are out of the store."""
        self.archived.below[file] = max(self.archived.below.get(file, ""), _after(job))

    async def _move_some(self, file: ArchiveFile, rows: Sequence[tuple[Any, ...]], void: list[str]) -> int:
        """As many as go into one transaction; returns how many."""
        keys: list[str] = []
        done = 0
        gone: set[str] = set()
        arrays: set[str | None] = set()
        """Large arrays that these are tasks of: each has a row that changes with them."""
        for job_id, job_json, placements_json, outputs_json, attempts, events_json, client_key in rows:
            known = job_id in void  # by a try before this one
            if known or self._texts(job_id, attempts) != (job_json, placements_json, outputs_json):
                if not gone:
                    void += [] if known else [job_id]
                    self._reach(file.id, job_id)
                    return 1
                break
            events = await self._event_keys(job_id, events_json)
            own = [f"placement/{name}" for name in attempts] + [f"client/{client_key}"] * bool(client_key)
            own += [f"outputs/{job_id}"] * (job_id in self._records.outputs)
            own.append(f"job/{job_id}")
            most = self._records.store.MAX_OPERATIONS - 2 - len(own)
            while len(events) > most:  # of a long timeline, first what does not fit beside the job's own rows
                await self._delete(events[:most])
                events = events[most:]
            arrays |= {self._records.jobs[job_id].array} & self._records.job_arrays.keys()
            if (
                gone
                and len(keys) + len(events) + len(own) + len(arrays) >= self._records.store.MAX_OPERATIONS
            ):
                break
            keys += events + own
            gone.add(job_id)
            done += 1
        self._batch = frozenset(gone)
        await self._records.transact(partial(self._without, keys, gone))
        return done

    def _without(self, keys: Sequence[str], jobs: Collection[str]) -> Changes:
        """The store without these rows. What has become of tasks whose array is not over stays with that; of one that is over nothing does."""
        changes, ended = Changes(deletes=list(keys), quiet=True), dict[str, list[Job]]()
        records = self._records
        for job in (records.jobs[name] for name in sorted(jobs) if name in records.jobs):
            if job.array in records.job_arrays:
                ended.setdefault(job.array, []).append(job)
        for name, tasks in ended.items():
            row = records.job_arrays[name]
            if len(tasks) == len(records.arrays[name]):
                changes.deletes.append(f"array/{name}")
                continue
            past = row.archived or Archived()
            archived = past.with_tasks(tasks, row.indices, records.outputs.__contains__)
            changes.put(replace(row, archived=archived))
        return changes

    async def _event_keys(self, job_id: str, events_json: str) -> list[str]:
        found = [f"event/{job_id}/{each.id}" for each in msgspec.json.decode(events_json, type=list[_Id])]
        if len(found) < MOST_EVENTS:
            return found
        return [item.key async for item in every_item(self._records.store, f"event/{job_id}/")]

    def _texts(self, job_id: str, attempts: Sequence[str]) -> tuple[str, str, str | None]:
        """A job's rows as they are now, as the file has them."""
        placements = [self._records.placements[name] for name in attempts if name in self._records.placements]
        outputs = self._records.outputs.get(job_id)
        return (
            msgspec.json.encode(self._records.jobs[job_id]).decode(),
            msgspec.json.encode(placements).decode(),
            msgspec.json.encode(outputs).decode() if outputs is not None else None,
        )

    async def _delete(self, keys: list[str]) -> None:
        await self._records.transact(lambda: Changes(deletes=list(keys), quiet=True))

    def _note(self, changes: Changes) -> None:
        """Who asks from here on finds in the archive what has just left the store."""
        if self._moving and self._batch:
            gone = [key.removeprefix("job/") for key in changes.deletes if key.startswith("job/")]
            if not self._batch.isdisjoint(gone):
                self._reach(self._moving, max(gone))
                self._batch = frozenset()

    async def _column(self, file: ArchiveFile, column: str) -> list[str]:
        found: list[str] = []
        rows = self._archive.rows([FilePart(file.digest, void=file.void)], [column])
        while (some := await asyncio.to_thread(next, rows, None)) is not None:
            found += [row[0] for row in some if row[0] is not None]
        return found

    # --------------------------------------------------------------------------------------------------------- writing

    async def rows(
        self, jobs: Sequence[Job], placements: Mapping[str, list[str]], told: set[str]
    ) -> list[ArchivedJob]:
        """Rows of the first of these jobs, as many as are in memory at once. `told`: arrays that are described already."""
        rows: list[ArchivedJob] = []
        size = 0
        for job in jobs[:STEP]:
            rows_of = every_item(self._records.store, f"event/{job.id}/")
            events = [item.value async for item in rows_of]
            summary = None
            if job.array is not None and job.array not in told and self._records.is_over(job.array):
                told.add(job.array)
                summary = self.archived.summary(job.array)
            rows.append(self._row(job, placements.get(job.id, ()), events[-MOST_EVENTS:], summary))
            size += text_bytes(rows[-1])
            if size >= PIECE_BYTES:
                break
        return rows

    def _row(
        self, job: Job, names: Sequence[str], events: Sequence[bytes], summary: tuple[bytes, bytes] | None
    ) -> ArchivedJob:
        records = self._records
        attempts = sorted((records.placements[name] for name in names), key=lambda each: each.epoch)
        last, outputs = records.placements.get(job.placement or ""), records.outputs.get(job.id)
        spec, told = records.spec(job.spec_hash), job.first_forecast
        key = f"{job.owner}/{job.client_id}"
        client = records.client_keys.get(key) if job.client_id is not None else None
        if client is not None and client.jobs[0] != job.id:
            client = None
        finished_at, began_at = job.finished_at or 0.0, job.started_at
        succeeded = told is not None and job.status is JobStatus.SUCCEEDED
        parts = outputs.parts if outputs is not None else ()
        return ArchivedJob(
            id=job.id,
            name=job.name,
            owner=job.owner,
            team=job.team,
            queue=job.queue,
            status=str(job.status),
            array=job.array,
            array_index=job.array_index,
            series=job.series,
            site=last.site if last is not None else "",
            model=last.model if last is not None else "",
            submitted_at=job.submitted_at,
            started_at=began_at,
            finished_at=finished_at,
            deadline_at=job.deadline_at,
            priority=job.priority,
            gpus=spec.nodes * spec.resources.gpus.total,
            gpu_s=job.gpu_s,
            spent_usd=job.spent_usd,
            reason=str(type(job.reason).__struct_config__.tag) if job.reason is not None else "",
            labels=[f"{key}={value}" for key, value in spec.labels.items()],
            missed_deadline=job.outcome.missed_deadline if job.outcome else None,
            start_kept=told.start_kept(began_at) if told is not None and began_at is not None else None,
            finish_kept=told.finish_kept(finished_at) if told is not None and succeeded else None,
            cost_kept=told.cost_kept(job.spent_usd) if told is not None and succeeded else None,
            attempts=[each.id for each in attempts],
            blobs=[*filter(None, (spec.workdir,)), *(part.digest for part in parts)],
            job_json=msgspec.json.encode(job).decode(),
            spec_json=records.spec_bytes(job.spec_hash).decode(),
            placements_json=msgspec.json.encode(attempts).decode(),
            outputs_json=msgspec.json.encode(outputs).decode() if outputs is not None else None,
            events_json=f"[{b','.join(events).decode()}]",
            client_key=key if client is not None else None,
            client_json=msgspec.json.encode(client).decode() if client is not None else None,
            line_json=summary[0].decode() if summary is not None else None,
            sum_json=summary[1].decode() if summary is not None else None,
        )


class _Rows:
    """The rows of one file: they are made in the dispatcher's loop, a few at a time, while a thread writes them."""

    def __init__(
        self,
        writer: ArchiveWriter,
        jobs: Sequence[Job],
        placements: Mapping[str, list[str]],
        usage: Usage,
        told: set[str],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._writer, self._jobs, self._placements = writer, jobs, placements
        self._usage, self._told, self._loop = usage, told, loop
        self.client_keys: list[str] = []
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._logs: Counter[tuple[str, str, str]] = Counter()
        self._blobs: Counter[tuple[str, str, str]] = Counter()

    def __iter__(self) -> Iterator[ArchivedJob]:
        """In a thread: as many as fit into a file, at least one."""
        done = size = 0
        while done < len(self._jobs) and size < FILE_BYTES:
            more = self._writer.rows(self._jobs[done : done + STEP], self._placements, self._told)
            rows = asyncio.run_coroutine_threadsafe(more, self._loop).result()
            for row in rows:
                size += text_bytes(row)
                self._add(row)
                yield row
            done += len(rows)

    def _add(self, row: ArchivedJob) -> None:
        key = (row.owner, row.team, row.queue)
        self._counts[key] += 1
        self._logs[key] += sum(self._usage.logs.get(name, 0) for name in row.attempts)
        if row.outputs_json is not None:
            parts = msgspec.json.decode(row.outputs_json, type=Outputs).parts
            self._blobs[key] += sum(self._usage.blobs.get(part.digest, 0) for part in parts)
        if row.client_key:
            self.client_keys.append(row.client_key)

    def shares(self) -> tuple[ArchivedShare, ...]:
        """Whose the jobs are, and how much is kept of them beside their rows."""
        return tuple(
            ArchivedShare(*key, jobs, self._logs[key], self._blobs[key]) for key, jobs in self._counts.items()
        )


@dataclass(frozen=True)
class Named:
    """Blobs that the archive names."""

    files: set[str]
    """Its own files,"""
    hashes: Sequence["array[int]"]
    """and the beginnings of the hashes of what its jobs name."""
    unread: bool = False
    """Whether it may name more: then it is taken to name all."""

    def __contains__(self, digest: str) -> bool:
        """Whether it names that blob; of many millions, none is taken for another."""
        if self.unread or digest in self.files:
            return True
        wanted = int(digest[:16], 16)
        places = ((each, bisect_left(each, wanted)) for each in self.hashes)
        return any(place < len(each) and each[place] == wanted for each, place in places)


class _Id(msgspec.Struct):
    """Of an event, its id."""

    id: str


def _put(file: ArchiveFile) -> Changes:
    changes = Changes(quiet=True)
    changes.put(file)
    return changes


def _after(job: str) -> str:
    """What sorts right after an id."""
    return job + "~"


def _files_of(groups: Iterable[Group]) -> Iterator[list[Job]]:
    """Groups for one file after the other."""
    batch: list[Job] = []
    for group in groups:
        if batch and len(batch) + len(group) > FILE_JOBS:
            yield batch
            batch = []
        batch += group
    if batch:
        yield batch


def _drop_logs(blobs: Blobs, names: Sequence[str]) -> None:
    for name in names:
        blobs.drop_logs(name)
