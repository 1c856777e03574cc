"""Retention: what is dropped, when, and when there is no room for more.

A finished job has one life: its record, placements, events, logs, outputs and client id go together, an array as a whole. It ends by age
(`jobs_s`), or earlier when a limit by number or size is passed, its series' own among them – but never before `promised_s`. Where the limits and that promise cannot both be
kept, the promise is, and `refuse_if_full` turns new submissions away with the limit that is full. The ledger is kept in the same way; recorded
decisions have limits and no promise.

Never dropped at any age: jobs that are not over; what an open job must follow; what a site has still to be told to stop; leases, because caps on
money count them; jobs whose data was moved for money, as long as it is in a present period of such a cap; policies, because decisions were made
by them.

Where there is an archive, a finished job is not dropped but moves there: early with all that is kept of it, when there are more than `recent_jobs`;
later, when it would have been dropped, without its logs and outputs. What is in the archive goes by files (`archive_retention`).

Bytes go before the rows that name them, so that a crash in between leaves rows without bytes, which the next sweep drops, and no bytes that
nobody knows. Bytes that no row names yet – a work directory that was just uploaded – are kept for `unused_blob_s` after their last use.
"""

import asyncio
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import msgspec

from federator.control.accounts.money import jobs_with_counted_moves
from federator.control.maintenance.archive_retention import ArchiveRetention
from federator.control.maintenance.archive_writer import ArchiveWriter, Group
from federator.control.maintenance.blob_retention import BlobRetention
from federator.control.maintenance.blob_usage import measure
from federator.control.maintenance.ledger_retention import RecentLines, drop_oldest
from federator.control.maintenance.series_retention import surplus_runs, without_forgotten
from federator.control.maintenance.unfinished_uploads import UnfinishedUploads
from federator.control.record.chain import LEDGER, Chain
from federator.control.record.decisions import DecisionLog
from federator.control.record.holders import Held, Holder, holders_of
from federator.control.record.records import Changes, Records
from federator.control.record.shares import Limit, Shares
from federator.kernel.clock import Clock
from federator.kernel.errors import NoRoom, TooMany, Transient
from federator.model.capacity import LEASE_ENDED
from federator.model.events import LedgerEntry
from federator.model.identity import JoinToken
from federator.model.jobs import TERMINAL, Job
from federator.model.sites import Member, SiteStatus
from federator.ports import Blobs, Usage, every_item
from federator.settings import RetentionSettings
from federator.telemetry import METRICS

BATCH = 100
"""Keys deleted in one transaction; stores take 120."""
LOW_WATER = 0.95
"""To how much of a limit is dropped once it is passed, so that the next job does not pass it again."""
SETTLED_S = 600.0
"""A job that has ended more recently does not move to the archive: its last reports, mails and bills may still come."""
RECENT_LOW_WATER = 0.8
"""To how much of `recent_jobs` is moved, so that files are not many and small."""
MOST_PIECES = 5_000
"""Ranges of tasks in the archive that did not succeed, or that have outputs, of an array that is not over: they are one row."""
MIB = 2**20


class _Line(msgspec.Struct):
    """Of a line of the ledger, what is counted."""

    at: float
    who: str


class Retention:
    """Drops what has outlived its promise, and knows what is full."""

    def __init__(  # noqa: PLR0913, PLR0917 - what it joins
        self,
        records: Records,
        blobs: Blobs,
        decisions: DecisionLog,
        clock: Clock,
        settings: RetentionSettings,
        chain: Chain,
        shares: Shares,
        archive: ArchiveWriter,
    ) -> None:
        self._chain = chain
        self.archive = archive
        self._records = records
        self._blobs = blobs
        self._decisions = decisions
        self._clock = clock
        self.shares = shares
        self.configure(settings)
        self._bytes_kept = {Held.BLOB_BYTES: 0, Held.LOG_BYTES: 0}
        self._usage = Usage({}, {})
        self.blobs = BlobRetention(records, blobs, archive)
        self.unfinished = UnfinishedUploads(blobs)
        self._of_archive = ArchiveRetention(records, archive, shares)
        self._ledger_lines: int | None = None
        """None: not counted yet."""
        self._recent_lines = RecentLines(settings.promised_s)
        records.subscribe(self._count)

    async def sweep(self) -> int:
        """Drop what may go; returns how many jobs did."""
        await self._measure()
        if self.archive.on:
            await self.archive.finish()
        dropped = await self._drop_jobs() + await self._move_older()
        if self.archive.on:
            now, full = self._clock.now(), self._too_many_bytes()
            await self._of_archive.sweep(now, self.settings, self._limits_in_bytes(), full=full)
        await self._drop_specs()
        await self.blobs.sweep(
            self._clock.now(),
            self.settings.unused_blob_s,
            self._clock.real_delay_s(self.settings.unused_blob_s),
        )
        await self._drop_ledger()
        await self._decisions.drop_before(self._clock.now() - self.settings.decisions_s)
        await self._drop_credentials()
        if dropped:
            await self._measure()
        METRICS.set("federator_disk_free_bytes", self._blobs.free_bytes())
        METRICS.set("federator_retained_bytes", self._bytes_kept[Held.BLOB_BYTES], kind="blobs")
        METRICS.set("federator_retained_bytes", self._bytes_kept[Held.LOG_BYTES], kind="logs")
        return dropped

    async def _measure(self) -> None:
        usage = self._usage = await asyncio.to_thread(self._blobs.usage)
        await asyncio.to_thread(
            self.unfinished.sweep, usage.logs, self._clock.now(), self.settings.unused_blob_s
        )
        of_archive = measure(self._records, usage, self.archive)
        self._bytes_kept = {
            Held.BLOB_BYTES: usage.blobs_bytes - of_archive,
            Held.LOG_BYTES: usage.logs_bytes,
        }

    def configure(self, settings: RetentionSettings) -> None:
        """Keep by these settings from now on. The limits are made here: each submission is held to all of them."""
        self.settings = settings
        promised = f"wait until they are {settings.promised_s / 86400:g} days old"
        older = "wait until older ones are dropped"
        self._ended = (
            Limit(Held.FINISHED, settings.jobs, "retention.jobs", promised),
            Limit(Held.BLOB_BYTES, settings.blobs_mib * MIB, "retention.blobs_mib", older),
            Limit(Held.LOG_BYTES, settings.logs_mib * MIB, "retention.logs_mib", older),
        )
        self._archived = Limit(Held.ARCHIVED, settings.archive_jobs, "retention.archive_jobs", promised)
        self._lines = Limit(Held.LEDGER_LINES, settings.ledger_lines, "retention.ledger_lines", promised)

    def refuse_over_share(self, holders: Iterable[Holder]) -> None:
        """Raise `TooMany` when one of them has as much of what has ended as one may: others are still taken in."""
        people = tuple(holders)
        for limit in (*self._ended, self._archived, self._lines):
            self.shares.refuse_over(limit, people)

    def refuse_line(self, owner: str) -> None:
        """Raise `TooMany` when the ledger has no room for another act of that person. What ends work, and what administrators do, is not asked for."""
        self.shares.refuse_over(self._lines, holders_of(owner))
        if full := self._full_ledger():
            raise self._full(full)

    def _full_ledger(self) -> str:
        most = self.settings.ledger_lines
        return f"{most} lines of the ledger" if (self._ledger_lines or 0) >= most else ""

    def refuse_bytes_over_share(self, owner: str, more: int = 0) -> None:
        """Raise `TooMany` when that person has as many work directories and outputs as one may, by bytes."""
        self.shares.refuse_over(self._ended[1], holders_of(owner), more)

    def refuse_if_full(self) -> None:
        """Raise `TooMany` when one more submission could only be kept by dropping what is younger than its promise."""
        settings = self.settings
        full = self._full_ledger()
        if self._finished() >= settings.jobs:
            full = f"{settings.jobs} finished jobs"
        elif self.archive.archived.total >= settings.archive_jobs:
            full = f"{settings.archive_jobs} jobs in the archive"
        elif self._bytes_kept[Held.LOG_BYTES] >= settings.logs_mib * MIB:
            full = f"{settings.logs_mib} MiB of logs"
        if full:
            raise self._full(full)
        self.refuse_bytes_if_full()

    def refuse_bytes_if_full(self) -> None:
        """Raise `TooMany` when there is no room for another work directory, `Unavailable` when the store itself is nearly full, `NoRoom` when the disk is."""
        self._records.store.refuse_if_full()
        if not self.has_room():
            raise NoRoom(
                f"the dispatcher's disk has under {self.shares.limits.reserve_mib} MiB left, which are for ending what runs",
                retry_after_s=max(1.0, self._clock.real_delay_s(self.settings.sweep_s)),
                remedy="free room on the disk with the dispatcher's state (limits.reserve_mib)",
            )
        if self._bytes_kept[Held.BLOB_BYTES] >= self.settings.blobs_mib * MIB:
            raise self._full(f"{self.settings.blobs_mib} MiB of work directories and outputs")

    def has_room(self) -> bool:
        """Whether more of the disk is free than what is kept for ending what runs."""
        return self._blobs.free_bytes() >= self.shares.limits.reserve_mib * MIB

    def refuses(self) -> str:
        """Why nothing new is taken from anybody, or an empty text."""
        try:
            self.refuse_if_full()
        except Transient as error:
            return error.message
        return ""

    def _full(self, what: str) -> TooMany:
        return TooMany(
            f"{what} are kept, which is the limit, and none is older than what is promised",
            retry_after_s=max(1.0, self._clock.real_delay_s(self.settings.sweep_s)),
            remedy="wait, or raise the limit under `retention` in the settings",
        )

    def _finished(self) -> int:
        return len(self._records.jobs) - len(self._records.open_jobs)

    # ------------------------------------------------------------------------------------------------------------ jobs

    async def _drop_jobs(self) -> int:
        now, settings = self._clock.now(), self.settings
        unkept, excess = surplus_runs(self._records), self._excess()
        if not (unkept or excess or self._over_a_limit() or self._any_older_than(now - settings.jobs_s)):
            return 0
        groups = sorted(self._droppable(now - settings.promised_s), key=_finished_at)
        first, rest = _those_of(groups, excess)
        surplus = self._surplus(sum(len(group) for group in groups))
        chosen: list[Group] = []
        dropped = 0
        for number, group in enumerate((*first, *rest)):
            old = number < len(first) or _finished_at(group) <= now - settings.jobs_s or dropped < surplus
            if old or (group[0].array or group[0].id) in unkept:
                chosen.append(group)
                dropped += len(group)
        placements = self._placements_by_job() if chosen else {}
        for group in chosen:
            await self._drop_logs(group, placements)
            if not self.archive.on:
                await self._drop_rows(group, placements)
        if self.archive.on:
            await self.archive.write(chosen, placements, None)
        return dropped

    async def _move_older(self) -> int:
        """Move jobs to the archive that are more than what is kept in memory, the oldest first; how many."""
        most = self.settings.recent_jobs
        if not self.archive.on or self._finished() <= most:
            return 0
        needed = {name for series in self._records.series.values() for name in series.last}
        for lease in self._records.leases.values():
            needed |= {lease.payer, lease.evidence.job if lease.evidence is not None else ""}
        settled = self._droppable(self._clock.now() - SETTLED_S, parts=True)
        groups = [
            group
            for group in settled
            if group and group[0].array not in needed and needed.isdisjoint(job.id for job in group)
        ]
        chosen: list[Group] = []
        moved, surplus = 0, self._finished() - math.floor(most * RECENT_LOW_WATER)
        for group in sorted(groups, key=_finished_at):
            if moved >= surplus:
                break
            chosen.append(group)
            moved += len(group)
        await self.archive.write(chosen, self._placements_by_job(), self._usage)
        return moved

    def _limits_in_bytes(self) -> tuple[Limit, ...]:
        return self._ended[1:]

    def _excess(self) -> dict[Holder, int]:
        """How many finished jobs of those are to go who have more than their share: theirs go before anybody else's."""
        held_counts, found = self._records.held_counts, dict[Holder, int]()
        for limit in self._ended:
            for holder, amount in held_counts.all(limit.what):
                most = self.shares.most(holder, limit)
                if amount >= most:
                    finished = held_counts.of(Held.FINISHED, holder)
                    over = 1 - most * LOW_WATER / amount
                    found[holder] = max(found.get(holder, 0), math.ceil(finished * over))
        return found

    def _over_a_limit(self) -> bool:
        return self._finished() >= self.settings.jobs or self._too_many_bytes()

    def _too_many_bytes(self) -> bool:
        kept, settings = self._bytes_kept, self.settings
        return (
            kept[Held.LOG_BYTES] >= settings.logs_mib * MIB
            or kept[Held.BLOB_BYTES] >= settings.blobs_mib * MIB
        )

    def _any_older_than(self, before: float) -> bool:
        jobs = self._records.jobs
        ended = self._records.index.of_cells(lambda cell: cell[2] in TERMINAL)
        return any((jobs[name].finished_at or 0.0) < before for name in ended.ids())

    def _surplus(self, droppable: int) -> int:
        """How many jobs are to go for the limits' sake. Of bytes it is not known whose they are: a part goes, and the next sweep looks again."""
        settings = self.settings
        surplus = 0
        if self._finished() >= settings.jobs:
            surplus = self._finished() - math.floor(settings.jobs * LOW_WATER)
        if self._too_many_bytes():
            surplus = max(surplus, math.ceil(droppable * (1 - LOW_WATER)))
        return surplus

    def _droppable(self, before: float, *, parts: bool = False) -> Iterator[Group]:
        """The finished jobs, by array, that ended before then and that nothing needs any more; with `parts` also tasks of large arrays that are not over."""
        groups: dict[str, list[Job]] = {}
        for job in self._records.jobs.values():
            groups.setdefault(job.array or job.id, []).append(job)
        needed = {name for job in self._records.open_jobs.values() for name in job.after}
        needed |= {
            name for array in self._records.job_arrays.values() if array.left for name in array.template.after
        }
        needed |= {placement.job for placement in self._records.open_placements.values()}
        needed |= jobs_with_counted_moves(self._records, self._clock.now())

        def may_go(job: Job) -> bool:
            return job.terminal and (job.finished_at or 0.0) < before and job.id not in needed

        for array, group in groups.items():
            row = self._records.job_arrays.get(array)
            if all(map(may_go, group)) and array not in needed and (row is None or not row.left):
                yield group
            elif parts and row is not None and (row.archived is None or row.archived.pieces < MOST_PIECES):
                # One stays, by which the array is known.
                yield [job for job in group[1:] if may_go(job)]

    def _placements_by_job(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for placement in self._records.placements.values():
            found.setdefault(placement.job, []).append(placement.id)
        return found

    async def _drop_logs(self, group: Group, placements: Mapping[str, list[str]]) -> None:
        for job in group:
            for name in placements.get(job.id, ()):
                await asyncio.to_thread(self._blobs.drop_logs, name)

    async def _drop_rows(self, group: Group, placements: Mapping[str, list[str]]) -> None:
        """The client id goes first, or a client that repeats itself would be given back half an array; the jobs' rows go last."""
        keys = list({f"client/{job.owner}/{job.client_id}" for job in group if job.client_id is not None})
        keys += [f"array/{group[0].array}"] if group[0].array in self._records.job_arrays else []
        for job in group:
            keys += [item.key async for item in every_item(self._records.store, f"event/{job.id}/")]
            keys += [f"placement/{name}" for name in placements.get(job.id, ())]
            keys += [f"outputs/{job.id}"] if job.id in self._records.outputs else []
        await self._delete([*keys, *(f"job/{job.id}" for job in group)])

    async def _drop_specs(self) -> None:
        unused = self._records.unused_specs()
        for start in range(0, len(unused), BATCH):
            batch = unused[start : start + BATCH]
            await self._records.transact(partial(self._without_specs, batch))

    def _without_specs(self, digests: Sequence[str]) -> Changes:
        still = set(self._records.unused_specs())
        return Changes(deletes=[f"spec/{digest}" for digest in digests if digest in still])

    # ---------------------------------------------------------------------------------------------------------- ledger

    def _count(self, changes: Changes) -> None:
        if self._ledger_lines is not None:
            for row in changes.rows.values():
                if isinstance(row, LedgerEntry):
                    self._ledger_lines += 1
                    holder = self._recent_lines.add(row.who, row.at)
                    if holder is not None:
                        self._records.held_counts.add(Held.LEDGER_LINES, holder, 1)
            self._ledger_lines -= sum(key.startswith(LEDGER) for key in changes.deletes)

    async def _drop_ledger(self) -> None:
        """The ledger is in order of time: whatever may go stands first."""
        if self._ledger_lines is None:
            self._ledger_lines = await self._counted()
        now, settings = self._clock.now(), self.settings
        self._records.held_counts.measured(Held.LEDGER_LINES, self._recent_lines.counts(now))
        surplus = 0
        if self._ledger_lines >= settings.ledger_lines:
            surplus = self._ledger_lines - math.floor(settings.ledger_lines * LOW_WATER)

        def may_go(number: int, at: float) -> bool:
            return at < now - (settings.promised_s if number < surplus else settings.ledger_s)

        await drop_oldest(self._records, self._chain, may_go)

    async def _counted(self) -> int:
        lines, decoder = 0, msgspec.json.Decoder(_Line)
        since = self._clock.now() - self.settings.promised_s
        async for item in every_item(self._records.store, LEDGER, limit=5000):
            lines += 1
            line = decoder.decode(item.value)
            if line.at >= since:
                self._recent_lines.add(line.who, line.at)
        return lines

    # ----------------------------------------------------------------------------------------------------- credentials

    async def _drop_credentials(self) -> None:
        """Join tokens that nobody can use any more, people's tokens that have long expired, members of machines given back, series without runs."""
        old = self._clock.now() - self.settings.promised_s
        keys = [
            f"join/{token.digest}" for token in self._records.join_tokens.values() if self._spent(token, old)
        ]
        keys += [
            f"token/{token.digest}"
            for token in self._records.tokens.values()
            if token.expires_at is not None and token.expires_at < old
        ]
        busy = {name for placement in self._records.open_placements.values() for name in placement.members}
        keys += [
            f"member/{member.id}"
            for member in self._records.members.values()
            if member.id not in busy and self._returned(member, old)
        ]
        await self._delete(keys)
        await self._records.transact(partial(without_forgotten, self._records, old))

    def _spent(self, token: JoinToken, old: float) -> bool:
        """Expired long ago, and bound to no agent that is still there: one that is may ask again under its token."""
        member = self._records.members.get(token.member or "") if token.public_key is not None else None
        return token.expires_at < old and (member is None or member.status is SiteStatus.GONE)

    def _returned(self, member: Member, old: float) -> bool:
        lease = self._records.leases.get(member.lease or "")
        return (
            lease is not None
            and lease.status in LEASE_ENDED
            and member.status is SiteStatus.GONE
            and (lease.ended_at or lease.requested_at) < old
        )

    async def _delete(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), BATCH):
            await self._records.transact(partial(Changes, deletes=list(keys[start : start + BATCH])))


def _those_of(groups: Sequence[Group], excess: dict[Holder, int]) -> tuple[list[Group], list[Group]]:
    """So many jobs of those who have too many, the oldest first; and all others."""
    first: list[Group] = []
    rest: list[Group] = []
    left = dict(excess)
    for group in groups:
        holders = [each for each in holders_of(group[0].owner, group[0].team) if left.get(each, 0) > 0]
        (first if holders else rest).append(group)
        for holder in holders:
            left[holder] -= len(group)
    return first, rest


def _finished_at(group: Group) -> float:
    return max(job.finished_at or 0.0 for job in group)
