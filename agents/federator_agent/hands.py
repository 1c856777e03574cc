"""Carries out what the core asks for on this host: staging, starting, signalling, collecting, tidying.

What takes long is a task that reports back by an event; the loop never waits for it. Whatever goes wrong in a task, an event
comes back: nothing may stay in limbo.
"""

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from federator.kernel.clock import Clock
from federator.kernel.errors import Permanent
from federator.model.jobs import JobSpec
from federator.model.placements import Cause
from federator_agent import archives
from federator_agent.core import events as ev
from federator_agent.core import instructions as do
from federator_agent.core.state import Record
from federator_agent.environment import Where, rank_environment, setup_environment
from federator_agent.link import Bulk
from federator_agent.local import traces
from federator_agent.local.ranks import Found, LocalRanks
from federator_agent.local.watchdog import Fence
from federator_agent.logs import LogUploads
from federator_agent.spool import Spool
from federator_agent.staging import Staging, StagingError, free_port

ADDRESS = "127.0.0.1"
"""Where the ranks of a gang find each other when all of them are on this host."""
log = logging.getLogger("federator_agent")


class Surroundings(NamedTuple):
    """What the hands work with."""

    site: str
    environment: dict[str, str]
    clock: Clock
    spool: Spool
    bulk: Bulk


class Hands:
    """Does what the instructions say, and tells what came of it."""

    def __init__(self, around: Surroundings, tell: Callable[[ev.Event], None]) -> None:
        self._around = around
        self._tell = tell
        self._ranks = LocalRanks(around.clock)
        self._staging = Staging(around.spool.directory, around.bulk, self._ranks)
        self._staging_tasks: dict[str, asyncio.Task[None]] = {}
        self._fetching: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.logs = LogUploads(around.bulk)

    def carry_out(self, instruction: do.Instruction) -> None:  # noqa: C901 - a flat list of cases
        """Do, or begin to do, what an instruction asks for on this host."""
        match instruction:
            case do.KeepRenewal(boot_s):
                self._keep_renewal(boot_s)
            case do.FetchSpec(spec_hash):
                self._fetch_spec(spec_hash)
            case do.FindPort(placement):
                self._tell(ev.PortFound(placement, free_port()))
            case do.Stage(record, spec):
                self._stage(record, spec)
            case do.StopStaging(placement):
                self.spawn(self._stop_staging(placement))
            case do.StartRanks(record, spec, ranks):
                self._start_ranks(record, spec, ranks)
            case do.FindRanks(record, ranks):
                for rank in ranks:
                    self.spawn(self._find_rank(record, rank))
            case do.SignalRanks(placement, ranks, signal):
                log.info("%s is sent %s", placement, signal)
                for rank in ranks:
                    self._ranks.signal(self._rank_directory(placement, rank), signal)
            case do.Collect(record, spec):
                self.spawn(self._collect(record, spec))
            case do.Discard(placement, checkpoints_of):
                self._discard(placement, checkpoints_of)

    def _keep_renewal(self, boot_s: float) -> None:
        """Should the disk not take it, cut-off work ends earlier than it had to."""
        try:
            self._around.spool.keep_renewal(traces.boot_id(), self._around.clock.real_delay_s(boot_s))
        except OSError:
            log.exception("the renewal cannot be kept")

    def _fence(self, record: Record, spec: JobSpec) -> Fence | None:
        """What its watchdog has to know, in real seconds."""
        if not spec.stop_within_s:
            return None
        real_s = self._around.clock.real_delay_s
        stop_within_s, grace_s = real_s(spec.stop_within_s), real_s(record.entry.grace_s)
        return Fence(str(self._around.spool.renewals), stop_within_s, grace_s, record.entry.signal)

    def resume(self, records: list[Record]) -> None:
        """After a restart: end what nobody waits for any more, and go on with the logs of what is not over."""
        self._staging.clear()
        for record in records:
            self._follow_logs(record, fresh=False)

    def _fetch_spec(self, spec_hash: str) -> None:
        spec = self._around.spool.spec(spec_hash)
        if spec is not None:
            self._tell(ev.SpecArrived(spec_hash, spec))
        elif spec_hash not in self._fetching:
            self._fetching.add(spec_hash)
            self.spawn(self._get_spec(spec_hash))

    async def _get_spec(self, spec_hash: str) -> None:
        try:
            data = await self._around.bulk.spec(spec_hash)
            spec = msgspec.json.decode(data, type=JobSpec)
            self._around.spool.keep_spec(spec_hash, data)
            self._tell(ev.SpecArrived(spec_hash, spec))
        except Permanent as error:
            self._tell(ev.SpecUnknown(spec_hash, f"the spec cannot be had: {error.describe()}"))
        except msgspec.MsgspecError as error:
            detail = f"the spec says what this agent does not know ({error}); a newer federator-agent may"
            self._tell(ev.SpecUnknown(spec_hash, detail))
        finally:
            self._fetching.discard(spec_hash)

    def _stage(self, record: Record, spec: JobSpec) -> None:
        placement = record.entry.placement
        task = self.spawn(self._prepare(record, spec))
        self._staging_tasks[placement] = task
        task.add_done_callback(lambda _: self._staging_tasks.pop(placement, None))

    async def _prepare(self, record: Record, spec: JobSpec) -> None:
        placement = record.entry.placement
        first = record.slots[0].rank
        log_file = self._rank_directory(placement, first) / "log"
        self._follow_logs(record, fresh=not log_file.exists())
        environment = setup_environment(self._around.environment, spec, self._where(record))
        try:
            await self._staging.prepare(
                spec,
                self._work(placement),
                log_file,
                environment,
                lambda: self._tell(ev.SettingUp(placement)),
                self._fence(record, spec),
            )
        except StagingError as error:
            self._tell(ev.StagingFailed(placement, error.cause, error.message, error.exit_code))
        except Exception as error:
            log.exception("staging %s failed", placement)
            self._tell(ev.StagingFailed(placement, Cause.STAGING, f"the agent failed at it: {error!r}"))
        else:
            self._tell(ev.Staged(placement, free_port()))

    async def _stop_staging(self, placement: str) -> None:
        task = self._staging_tasks.get(placement)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._tell(ev.StagingStopped(placement))

    def _start_ranks(self, record: Record, spec: JobSpec, ranks: tuple[int, ...]) -> None:
        placement = record.entry.placement
        where = self._where(record)
        where.checkpoints.mkdir(parents=True, exist_ok=True)
        hosts = ", ".join(f"{slot.host} gpus {list(slot.gpus)}" for slot in record.slots)
        log.info("%s of job %s starts on %s", placement, record.entry.job, hosts)
        command = list(spec.command) if spec.command else ["/bin/sh", "-c", spec.run or ""]
        for slot in record.slots:
            if slot.rank not in ranks:
                continue
            now = self._around.clock.now()
            environment = rank_environment(self._around.environment, record, spec, slot, where)
            directory = self._rank_directory(placement, slot.rank)
            try:
                self._ranks.start(
                    directory,
                    self._work(placement),
                    command,
                    environment,
                    self._on_end(placement, slot.rank),
                    self._fence(record, spec),
                )
            except (OSError, ValueError) as error:
                detail = f"it could not be started: {error}"
                self._tell(ev.RankEnded(placement, slot.rank, self._around.clock.now(), None, detail))
            else:
                self._tell(ev.RankStarted(placement, slot.rank, now))

    def _on_end(self, placement: str, rank: int) -> Callable[[float, int | None, str], None]:
        return lambda at, code, detail: self._tell(ev.RankEnded(placement, rank, at, code, detail))

    async def _find_rank(self, record: Record, rank: int) -> None:
        placement = record.entry.placement
        directory = self._rank_directory(placement, rank)
        found = await self._ranks.find(directory, self._on_end(placement, rank))
        if found is Found.ABSENT:
            self._tell(ev.RankAbsent(placement, rank))
        else:
            self._tell(ev.RankStarted(placement, rank, self._ranks.started_at(directory)))

    async def _collect(self, record: Record, spec: JobSpec) -> None:
        """Logs first: they are what a person waits for. Whatever goes wrong, the end is told."""
        placement = record.entry.placement
        notes = []
        try:
            notes.append(await self.logs.finish(placement))
            if spec.outputs and record.ranks:
                await self._collect_outputs(placement, spec.outputs)
        except Exception as error:
            log.exception("collecting %s failed", placement)
            notes.append(f"logs or outputs could not be kept: {error}")
        self._tell(ev.Collected(placement, "; ".join(note for note in notes if note)))

    async def _collect_outputs(self, placement: str, patterns: tuple[str, ...]) -> None:
        archive = self._placement_directory(placement) / "outputs.tar.gz"
        if await asyncio.to_thread(archives.pack, self._work(placement), patterns, archive):
            await self._around.bulk.put_outputs(placement, archive)

    def _discard(self, placement: str, checkpoints_of: str | None) -> None:
        """Removing is for tidiness: it may fail, and is done again when the placement is forgotten."""
        doomed = [self._placement_directory(placement)]
        doomed += [self._around.spool.checkpoints / checkpoints_of] if checkpoints_of else []
        for directory in doomed:
            if directory.exists():
                self.spawn(asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True))

    def _placement_directory(self, placement: str) -> Path:
        return self._around.spool.placements / placement

    def _rank_directory(self, placement: str, rank: int) -> Path:
        return self._placement_directory(placement) / f"rank-{rank}"

    def _work(self, placement: str) -> Path:
        return self._placement_directory(placement) / "work"

    def _where(self, record: Record) -> Where:
        return Where(self._around.site, ADDRESS, self._around.spool.checkpoints / record.entry.job)

    def _follow_logs(self, record: Record, *, fresh: bool) -> None:
        for slot in record.slots:
            path = self._rank_directory(record.entry.placement, slot.rank) / "log"
            self.logs.follow(record.entry.placement, slot.rank, path, fresh=fresh)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something beside the loop; its failure is logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("a task of the agent failed", exc_info=error)

    async def let_go(self) -> None:
        """End all tasks. What runs for jobs goes on."""
        for task in list(self._tasks):
            task.cancel()
        self._ranks.close()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*self._tasks, return_exceptions=True)
