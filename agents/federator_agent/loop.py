"""The only part that sleeps: tells the core what happened, and carries out what it says.

Everything runs in one event loop; what takes long (staging, collecting, fetching) is a task that reports back by an event. What
the core wants persisted is on disk before anything that follows from it is done.
"""

import asyncio
import contextlib
import logging
import re
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from federator.kernel.clock import Clock, parse_clock
from federator.kernel.errors import FederatorError, Permanent
from federator.model.jobs import JobSpec
from federator.wire.link import Desired, DesiredAck, Report, StatusAck, Statuses, Welcome
from federator_agent import archives
from federator_agent.config import AgentSettings
from federator_agent.core import events as ev
from federator_agent.core import instructions as do
from federator_agent.core.machine import next_wake_boot_s, step
from federator_agent.core.state import Phase, Record, State, restore, whole
from federator_agent.environment import Where, rank_environment, setup_environment
from federator_agent.link import Bulk, Link
from federator_agent.logs import LogUploads
from federator_agent.runtimes.local import traces
from federator_agent.runtimes.local.ranks import Found, LocalRanks
from federator_agent.spool import Identity, Spool
from federator_agent.staging import Staging, StagingError, free_port

LOOK_S = 1.0
"""Longest real sleep: so soon is a pause seen."""
ADDRESS = "127.0.0.1"
"""Where the ranks of a gang find each other: all ranks of a placement are on this host."""
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
log = logging.getLogger("federator_agent")


class Agent:
    """An agent at work. One task runs `serve`; everything else is told through `tell`."""

    def __init__(
        self, settings: AgentSettings, identity: Identity, spool: Spool, key: Ed25519PrivateKey
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._spool = spool
        self._clock: Clock = parse_clock(settings.clock)
        self._state = State(site=settings.site)
        self._events: asyncio.Queue[ev.Event] = asyncio.Queue()
        self._ranks = LocalRanks(self._clock)
        self._tasks: set[asyncio.Task[None]] = set()
        self._staging_tasks: dict[str, asyncio.Task[None]] = {}
        self._fetching: set[str] = set()
        self._report_every_s = settings.report_every_s or 5.0
        self._link = Link(identity, key, traces.boot_id(), self)
        self._bulk: Bulk
        self._logs: LogUploads
        self._staging: Staging

    # What the link tells -------------------------------------------------------------------------------------------

    def link_up(self, welcome: Welcome) -> None:
        """A session stands."""
        self._report_every_s = self._settings.report_every_s or welcome.report_every_s
        self._logs.ask_again()
        self.tell(ev.LinkUp(welcome.incarnation, welcome.term))

    def link_down(self) -> None:
        """It is over."""
        self.tell(ev.LinkDown())

    def said(self, message: Desired | StatusAck) -> None:
        """The dispatcher said something. Names that could lead out of the state directory are not acted on."""
        if isinstance(message, StatusAck):
            self.tell(ev.Acknowledged(message.seq))
            return
        names = {name for entry in message.entries for name in (entry.placement, entry.job, entry.spec_hash)}
        if bad := [name for name in names if not _SAFE.fullmatch(name)]:
            log.error("a desired set with the impossible name %r is ignored", bad[0])
            return
        self.tell(ev.DesiredChanged(message))

    def acceptable(self, incarnation: str, term: int | None) -> bool:
        """Not a store that was left, and within the present one no older leader."""
        state = self._state
        if incarnation in state.left:
            return False
        return incarnation != state.incarnation or term is None or term >= state.term

    # The loop ------------------------------------------------------------------------------------------------------

    def tell(self, event: ev.Event) -> None:
        """Something happened."""
        self._events.put_nowait(event)

    async def serve(self) -> None:
        """Run until cancelled. What runs here goes on without the agent."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=60)
        async with aiohttp.ClientSession(timeout=timeout) as http:
            self._bulk = Bulk(self._link, http, self._identity.dispatcher)
            self._logs = LogUploads(self._bulk)
            self._staging = Staging(self._spool.directory, self._bulk, self._ranks)
            self._begin()
            self._spawn(self._logs.run())
            self._spawn(self._link.run(http))
            try:
                await self._turn_for_ever()
            finally:
                await self._end()

    def _begin(self) -> None:
        """Remember, and look at what is left of the life before."""
        state = restore(self._state, self._spool.load())
        hashes = {
            record.entry.spec_hash for record in state.records.values() if record.phase is not Phase.ENDED
        }
        specs = {name: spec for name in hashes if (spec := self._spool.spec(name))}
        self._state = msgspec.structs.replace(state, specs=specs, paused=self._spool.paused)
        self._tidy()
        self._staging.clear()
        for record in state.records.values():
            if record.phase in (Phase.RUNNING, Phase.STOPPING, Phase.COLLECTING):
                self._follow_logs(record, fresh=False)
        self._handle(ev.Awake(traces.boot_id()))

    async def _turn_for_ever(self) -> None:
        report_at_boot_s = self._clock.boot()
        while True:
            event = await self._next_event(report_at_boot_s)
            if event is not None:
                self._handle(event)
                continue
            if self._spool.paused != self._state.paused:
                self._handle(ev.Paused(self._spool.paused))
            if self._clock.boot() >= report_at_boot_s:
                report_at_boot_s = self._clock.boot() + self._report_every_s
                self._handle(ev.ReportDue())
                self._logs.drop_oldest(self._collecting())
            wake = next_wake_boot_s(self._state)
            if wake is not None and wake <= self._clock.boot():
                self._handle(ev.Tick())

    async def _next_event(self, report_at_boot_s: float) -> ev.Event | None:
        """The next event, or None when it is time to look at the clock."""
        if not self._events.empty():
            return self._events.get_nowait()
        wake = min(report_at_boot_s, next_wake_boot_s(self._state) or report_at_boot_s)
        sleep_s = min(LOOK_S, self._clock.real_delay_s(wake - self._clock.boot()))
        try:
            async with asyncio.timeout(max(sleep_s, 0.001)):
                return await self._events.get()
        except TimeoutError:
            return None

    def _handle(self, event: ev.Event) -> None:
        now = ev.Now(self._clock.now(), self._clock.boot())
        self._state, instructions = step(self._state, event, now)
        for instruction in instructions:
            self._carry_out(instruction)
        if self._spool.long:
            self._spool.rewrite(whole(self._state))
            self._tidy()

    def _carry_out(self, instruction: do.Instruction) -> None:  # noqa: C901 - a flat dispatch
        match instruction:
            case do.Persist(changes):
                self._spool.append(changes)
            case do.SendStatuses(reports):
                self._link.say(Statuses(reports))
            case do.SendReport(report):
                self._link.say(Report(report))
            case do.SendDesiredAck(generation, digest):
                self._link.say(DesiredAck(generation, digest))
            case do.FetchSpec(spec_hash):
                self._fetch_spec(spec_hash)
            case do.Stage(record, spec):
                self._stage(record, spec)
            case do.StopStaging(placement):
                self._spawn(self._stop_staging(placement))
            case do.StartRanks(record, spec, ranks):
                self._start_ranks(record, spec, ranks)
            case do.FindRanks(record, ranks):
                for rank in ranks:
                    self._spawn(self._find_rank(record, rank))
            case do.SignalRanks(placement, ranks, signal):
                for rank in ranks:
                    self._ranks.signal(self._rank_directory(placement, rank), signal)
            case do.Collect(record, spec):
                self._spawn(self._collect(record, spec))
            case do.Discard(placement, checkpoints_of):
                self._discard(placement, checkpoints_of)

    def _tidy(self) -> None:
        """Drop what no placement needs: specs, and checkpoints that nobody came back to."""
        entries = [record.entry for record in self._state.records.values()] + list(
            self._state.desired.values()
        )
        self._spool.drop_specs({entry.spec_hash for entry in entries})
        self._spool.drop_checkpoints({entry.job for entry in entries})

    # What the core asks for ----------------------------------------------------------------------------------------

    def _fetch_spec(self, spec_hash: str) -> None:
        spec = self._spool.spec(spec_hash)
        if spec is not None:
            self.tell(ev.SpecArrived(spec_hash, spec))
        elif spec_hash not in self._fetching:
            self._fetching.add(spec_hash)
            self._spawn(self._get_spec(spec_hash))

    async def _get_spec(self, spec_hash: str) -> None:
        try:
            data = await self._bulk.spec(spec_hash)
            spec = msgspec.json.decode(data, type=JobSpec)
            self._spool.keep_spec(spec_hash, data)
            self.tell(ev.SpecArrived(spec_hash, spec))
        except Permanent as error:
            self.tell(ev.SpecUnknown(spec_hash, f"the spec cannot be had: {error.describe()}"))
        except msgspec.MsgspecError as error:
            detail = f"the spec says what this agent does not know ({error}); a newer federator-agent may"
            self.tell(ev.SpecUnknown(spec_hash, detail))
        finally:
            self._fetching.discard(spec_hash)

    def _stage(self, record: Record, spec: JobSpec) -> None:
        placement = record.entry.placement
        task = self._spawn(self._prepare(record, spec))
        self._staging_tasks[placement] = task
        task.add_done_callback(lambda _: self._staging_tasks.pop(placement, None))

    async def _prepare(self, record: Record, spec: JobSpec) -> None:
        placement = record.entry.placement
        first = record.slots[0].rank
        log_file = self._rank_directory(placement, first) / "log"
        self._follow_logs(record, fresh=not log_file.exists())
        environment = setup_environment(self._settings.environment, spec, self._where(record))
        try:
            await self._staging.prepare(
                spec, self._work(placement), log_file, environment, lambda: self.tell(ev.SettingUp(placement))
            )
        except StagingError as error:
            self.tell(ev.StagingFailed(placement, error.cause, error.message, error.exit_code))
        else:
            self.tell(ev.Staged(placement, free_port()))

    async def _stop_staging(self, placement: str) -> None:
        task = self._staging_tasks.get(placement)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self.tell(ev.StagingStopped(placement))

    def _start_ranks(self, record: Record, spec: JobSpec, ranks: tuple[int, ...]) -> None:
        placement = record.entry.placement
        where = self._where(record)
        where.checkpoints.mkdir(parents=True, exist_ok=True)
        command = list(spec.command) if spec.command else ["/bin/sh", "-c", spec.run or ""]
        for slot in record.slots:
            if slot.rank not in ranks:
                continue
            now = self._clock.now()
            environment = rank_environment(self._settings.environment, record, spec, slot, where)
            directory = self._rank_directory(placement, slot.rank)
            try:
                self._ranks.start(
                    directory, self._work(placement), command, environment, self._on_end(placement, slot.rank)
                )
            except (OSError, ValueError) as error:
                detail = f"it could not be started: {error}"
                self.tell(ev.RankEnded(placement, slot.rank, self._clock.now(), None, detail))
            else:
                self.tell(ev.RankStarted(placement, slot.rank, now))

    def _on_end(self, placement: str, rank: int) -> Callable[[float, int | None, str], None]:
        return lambda at, code, detail: self.tell(ev.RankEnded(placement, rank, at, code, detail))

    async def _find_rank(self, record: Record, rank: int) -> None:
        placement = record.entry.placement
        directory = self._rank_directory(placement, rank)
        found = await self._ranks.find(directory, self._on_end(placement, rank))
        if found is Found.ABSENT:
            self.tell(ev.RankAbsent(placement, rank))
        else:
            self.tell(ev.RankStarted(placement, rank, self._ranks.started_at(directory)))

    async def _collect(self, record: Record, spec: JobSpec) -> None:
        """Logs first: they are what a person waits for. Outputs of what never ran do not exist."""
        placement = record.entry.placement
        notes = [await self._logs.finish(placement)]
        if spec.outputs and record.ranks:
            archive = self._placement_directory(placement) / "outputs.tar.gz"
            try:
                if await asyncio.to_thread(archives.pack, self._work(placement), spec.outputs, archive):
                    await self._bulk.put_outputs(placement, archive)
            except (FederatorError, OSError) as error:
                notes.append(f"the outputs could not be kept: {error}")
        self.tell(ev.Collected(placement, "; ".join(note for note in notes if note)))

    def _discard(self, placement: str, checkpoints_of: str | None) -> None:
        """Removing is for tidiness: it may fail, and is done again when the placement is forgotten."""
        doomed = [self._placement_directory(placement)]
        doomed += [self._checkpoints(checkpoints_of)] if checkpoints_of else []
        for directory in doomed:
            if directory.exists():
                self._spawn(asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True))

    # Where things are ----------------------------------------------------------------------------------------------

    def _placement_directory(self, placement: str) -> Path:
        return self._spool.directory / "placements" / placement

    def _rank_directory(self, placement: str, rank: int) -> Path:
        return self._placement_directory(placement) / f"rank-{rank}"

    def _work(self, placement: str) -> Path:
        return self._placement_directory(placement) / "work"

    def _checkpoints(self, job: str) -> Path:
        return self._spool.checkpoints / job

    def _where(self, record: Record) -> Where:
        return Where(self._identity.site, ADDRESS, self._checkpoints(record.entry.job))

    def _follow_logs(self, record: Record, *, fresh: bool) -> None:
        for slot in record.slots:
            path = self._rank_directory(record.entry.placement, slot.rank) / "log"
            self._logs.follow(record.entry.placement, slot.rank, path, fresh=fresh)

    def _collecting(self) -> dict[str, Path]:
        records = self._state.records.items()
        return {
            name: self._placement_directory(name)
            for name, record in records
            if record.phase is Phase.COLLECTING
        }

    # Tasks ---------------------------------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("a task of the agent failed", exc_info=error)

    async def _end(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        self._ranks.close()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*self._tasks, return_exceptions=True)
        self._spool.close()
