"""Carries out what the core asks for: specs, staging, starting, signalling, collecting, tidying; through the runtime that the site file names.

What takes long is a task that reports back by an event; the loop never waits for it. Whatever goes wrong in a task, an event
comes back: nothing may stay in limbo.
"""

import asyncio
import logging
from pathlib import Path

import msgspec

from federator.kernel.errors import Permanent
from federator.model.jobs import JobSpec
from federator.model.placements import Cause
from federator.wire.jsontext import read
from federator_agent import job_folders
from federator_agent.core import events as ev
from federator_agent.core import instructions as do
from federator_agent.core.state import Phase, PlacementRecord
from federator_agent.data.carrier import load_of
from federator_agent.local import traces
from federator_agent.logs import LogUploads
from federator_agent.runtime import Runtime, Surroundings
from federator_agent.staging_errors import StagingError

log = logging.getLogger("federator_agent")


class InstructionExecutor:
    """Does what the instructions say, and tells what came of it."""

    def __init__(self, around: Surroundings, runtime: Runtime) -> None:
        self._around = around
        self._runtime = runtime
        self._tell = around.tell
        self._spawn = around.tasks.spawn
        self._staging: dict[str, asyncio.Task[None]] = {}
        self._saving: dict[str, asyncio.Task[None]] = {}
        self._fetching: set[str] = set()
        self.logs = LogUploads(around.bulk, around.bulk.use)

    def carry_out(self, instruction: do.Instruction) -> None:  # noqa: C901 - a flat list of cases
        """Do, or begin to do, what an instruction asks for."""
        match instruction:
            case do.KeepRenewal(boot_s):
                self._keep_renewal(boot_s)
            case do.FetchSpec(spec_hash):
                self._fetch_spec(spec_hash)
            case do.FindPort(placement):
                self._tell(ev.PortFound(placement, self._runtime.find_port()))
            case do.Stage(record, spec):
                self._stage(record, spec)
            case do.StopStaging(placement):
                self._spawn(self._stop_staging(placement))
            case do.StartRanks(record, spec, ranks):
                self._runtime.start(record, spec, ranks)
                self._save(record, spec)
            case do.FindRanks(record, ranks):
                for rank in ranks:
                    self._runtime.find(record, rank)
            case do.SignalRanks(placement, ranks, signal):
                log.info("%s is sent %s", placement, signal)
                self._runtime.signal(placement, ranks, signal)
            case do.Collect(record, spec):
                self._spawn(self._collect(record, spec))
            case do.Withhold(placement):
                self.logs.withhold(placement)
            case do.Release(placement):
                self.logs.release(placement)
            case do.Discard(placement, checkpoints_of):
                self._spawn(self._discard(placement, checkpoints_of))

    def begin(self, records: list[PlacementRecord]) -> None:
        """At the start, with all records: take up what is not over, and go on with its logs."""
        self._runtime.resume(records)
        for record in records:
            if record.phase in (Phase.RUNNING, Phase.STOPPING, Phase.COLLECTING):
                self._follow_logs(record, fresh=False)
            if record.phase is Phase.RUNNING and (spec := self._around.spool.spec(record.entry.spec_hash)):
                self._save(record, spec)
        self._spawn(self.logs.run())
        self._spawn(self.logs.bound())
        self._spawn(self._runtime.observe())

    def _keep_renewal(self, boot_s: float) -> None:
        """Should the disk not take it, cut-off work ends earlier than it had to."""
        try:
            self._around.spool.keep_renewal(traces.boot_id(), self._around.clock.real_delay_s(boot_s))
        except OSError:
            log.exception("the renewal cannot be kept")

    def _fetch_spec(self, spec_hash: str) -> None:
        spec = self._around.spool.spec(spec_hash)
        if spec is not None:
            self._tell(ev.SpecArrived(spec_hash, spec))
        elif spec_hash not in self._fetching:
            self._fetching.add(spec_hash)
            self._spawn(self._get_spec(spec_hash))

    async def _get_spec(self, spec_hash: str) -> None:
        try:
            data = await self._around.bulk.spec(spec_hash)
            spec = read(data, JobSpec)
            self._around.spool.keep_spec(spec_hash, data)
            self._tell(ev.SpecArrived(spec_hash, spec))
        except Permanent as error:
            self._tell(ev.SpecUnknown(spec_hash, f"the spec cannot be had: {error.describe()}"))
        except msgspec.MsgspecError as error:
            detail = f"the spec says what this agent does not know ({error}); a newer federator-agent may"
            self._tell(ev.SpecUnknown(spec_hash, detail))
        finally:
            self._fetching.discard(spec_hash)

    def _stage(self, record: PlacementRecord, spec: JobSpec) -> None:
        placement = record.entry.placement
        first = self._around.log_file(placement, record.slots[0].rank)
        self._follow_logs(record, fresh=not first.exists())
        task = self._spawn(self._prepare(record, spec))
        self._staging[placement] = task
        task.add_done_callback(lambda _: self._staging.pop(placement, None))

    async def _prepare(self, record: PlacementRecord, spec: JobSpec) -> None:
        placement = record.entry.placement
        try:
            prepared = await self._runtime.prepare(record, spec, lambda: self._tell(ev.SettingUp(placement)))
        except StagingError as error:
            failure = ev.StagingFailed(placement, error.cause, error.message, error.exit_code, error.status)
            self._tell(failure)
        except Exception as error:
            log.exception("staging %s failed", placement)
            self._tell(ev.StagingFailed(placement, Cause.STAGING, f"the agent failed at it: {error!r}"))
        else:
            self._tell(ev.Staged(placement, prepared.master_port, dict(prepared.hosts)))

    def _save(self, record: PlacementRecord, spec: JobSpec) -> None:
        """See to its checkpoints for as long as it runs, where the agent reaches them; once for all its ranks."""
        placement, folder = record.entry.placement, self._runtime.checkpoints(record)
        if folder is not None and placement not in self._saving:
            task = self._spawn(self._around.carrier.save(load_of(record, spec), folder))
            self._saving[placement] = task
            task.add_done_callback(lambda _: self._saving.pop(placement, None))

    async def _stop_saving(self, record: PlacementRecord, spec: JobSpec) -> str:
        """Nothing of it runs any more: the last word goes out."""
        task = self._saving.get(record.entry.placement)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        return await self._runtime.push_last(record, spec)

    async def _stop_staging(self, placement: str) -> None:
        task = self._staging.get(placement)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        await self._runtime.unprepare(placement)
        self._tell(ev.StagingStopped(placement))

    async def _collect(self, record: PlacementRecord, spec: JobSpec) -> None:
        """Logs first: they are what a person waits for. Whatever goes wrong, the end is told."""
        placement = record.entry.placement
        notes, unkept = [], ""
        try:
            await self._runtime.finish_logs(record)
            await self.logs.until_released(placement)
            notes.append(await self.logs.finish(placement))
            unkept = await self._stop_saving(record, spec)
            archive = self._around.spool.placements / placement / "outputs.tar.gz"
            if archive.exists() or await self._pack(record, spec, archive):
                digest = await self._around.bulk.put_outputs(placement, archive)
                await self._around.carrier.keep_outputs(archive, digest)
        except Exception as error:
            log.exception("collecting %s failed", placement)
            notes.append(f"logs or outputs could not be kept: {error}")
        detail = "; ".join(note for note in (*notes, unkept) if note)
        self._tell(ev.Collected(placement, detail, unkept=bool(unkept) and self._runtime.keeps))

    async def _pack(self, record: PlacementRecord, spec: JobSpec, archive: Path) -> bool:
        """Under another name until it is whole: an agent that is started again goes on with the upload of one that is."""
        part = archive.with_suffix(".part")
        packed = await self._runtime.pack_outputs(record, spec, part)
        if packed:
            part.rename(archive)
        return packed

    async def _discard(self, placement: str, checkpoints_of: str | None) -> None:
        """Removing is for tidiness: it may fail, and is done again when the placement is forgotten."""
        await self._runtime.discard(placement, checkpoints_of)
        doomed = [self._around.spool.placements / placement]
        if checkpoints_of:
            self._around.carrier.forget(checkpoints_of)
            doomed.append(self._around.spool.checkpoints / checkpoints_of)
        for directory in doomed:
            if directory.exists():
                await asyncio.to_thread(job_folders.remove, directory)

    def _follow_logs(self, record: PlacementRecord, *, fresh: bool) -> None:
        placement = record.entry.placement
        for slot in record.slots:
            self.logs.follow(placement, slot.rank, self._around.log_file(placement, slot.rank), fresh=fresh)

    async def let_go(self) -> None:
        """End all tasks. What runs for jobs goes on."""
        await self._around.tasks.end_all()
        self._runtime.close()
