"""The `slurm` runtime: a placement is one job of a Slurm cluster, which waits on its nodes at a gate until the core lets it begin.

Everything that the agent must find again is in files: the intent on its own disk, the rest in a directory that it shares with the nodes. Slurm is asked through its commands.
"""

import asyncio
import contextlib
import logging
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from federator.kernel.errors import Invalid
from federator.kernel.files import write_durably
from federator.model.jobs import JobSpec
from federator.model.placements import Cause
from federator.retry import retried
from federator.wire.tunnel import Exec, Forward
from federator_agent import archives, images, job_folders, ownership, secrets
from federator_agent.core import events as ev
from federator_agent.core.state import Phase, PlacementRecord
from federator_agent.data.carrier import Folders, load_of, writing_to
from federator_agent.environment import Where, command_of, rank_environment, setup_environment
from federator_agent.gpus import Gpu
from federator_agent.local.ranks import LocalRanks
from federator_agent.runtime import Channel, Prepared, Surroundings
from federator_agent.safe_open import opened
from federator_agent.slurm import steps, usage, users
from federator_agent.slurm.allocation import Allocation
from federator_agent.slurm.cluster import SlurmCluster
from federator_agent.slurm.commands import BACKOFF, Rejected, Unreachable
from federator_agent.slurm.fates import FORGOTTEN, fate
from federator_agent.slurm.folder import Folder
from federator_agent.slurm.rank_watch import RankWatch
from federator_agent.slurm.script import command_script, container_script, shards_per_node
from federator_agent.slurm.settings import SlurmSettings
from federator_agent.staging import Staging, free_port
from federator_agent.staging_errors import StagingError
from federator_agent.usage import Readings

HERE = "127.0.0.1"
FIRST_PORT, PORTS = 20_000, 12_000
"""Where rank 0 may listen: below the ports that systems hand out by themselves, and another for each job of a node."""
RANKS_STEP = 0
"""The step of a job in which its ranks run: the first and only one that the batch script starts."""
AT_ONCE_S = 3.0
"""So long killed ranks may take to be gone before their whole job is cancelled."""
PRIVATE, PASSABLE = 0o700, 0o711
"""Who may look into a directory of the shared one: nobody else; nobody, but whoever has a directory in it may pass."""
_MODES = {
    "blobs": PRIVATE,
    "setups": PRIVATE,
    "placements": PASSABLE,
    "checkpoints": PASSABLE,
    "inputs": PASSABLE,
}
log = logging.getLogger("federator_agent.slurm")


class SlurmRuntime:
    """The `slurm` runtime."""

    keeps = True

    def __init__(self, settings: SlurmSettings, around: Surroundings) -> None:
        """Raises `Invalid` when the shared directory is not there, or another agent's."""
        shared = settings.shared_dir
        _take(shared, around)
        self._around = around
        self._settings = settings
        self.cluster = SlurmCluster(settings, _for_jobs(around.environment))
        self.allocating = Allocation(self.cluster, around.clock)
        self._ranks = LocalRanks(around.clock)
        self._placements = shared / "placements"
        self._staging = Staging(shared, around.bulk, self._ranks)
        self._intents = around.spool.directory / "slurm"
        self._intents.mkdir(exist_ok=True)
        self.watches: dict[str, RankWatch] = {}
        self._killing: set[str] = set()
        self._noting = asyncio.Lock()
        self._admitting: dict[str, asyncio.Lock] = {}

    def resume(self, records: Sequence[PlacementRecord]) -> None:
        """What no record tells of is cancelled and removed; set-ups whose result nobody would learn are ended."""
        self._staging.clear()
        known = {record.entry.placement for record in records}
        left = {
            path.name for folder in (self._intents, self._placements) for path in folder.iterdir()
        } - known
        for placement in left:
            if not placement.startswith("."):
                self._around.tasks.spawn(self.discard(placement, None))

    async def observe(self) -> None:
        """Look at nodes, partitions and jobs, for ever."""
        await self.cluster.observe(self._ours, lambda seen: self._around.tell(ev.CapacitySeen(seen)))

    def _ours(self) -> Iterable[str]:
        return [path.name for path in self._intents.iterdir()]

    def find_port(self) -> int:
        """One that is free on this host: a gang over several members has no use for it."""
        return free_port()

    # Up to the gate ------------------------------------------------------------------------------------------------

    async def prepare(
        self, record: PlacementRecord, spec: JobSpec, setting_up: Callable[[], None]
    ) -> Prepared:
        """Stage it into the shared directory, submit its job, and wait for its ranks at the gate."""
        placement = record.entry.placement
        folder = self.folder(placement)
        secrets.check(self._around.secrets, spec, record.entry.whose)
        self._around.carrier.check(spec, record.entry.whose)
        images.refuse(self._around.images, spec)
        users.refuse_nobodys(self._settings, record)
        users.refuse_setup(self._settings, record, spec)
        if folder.intent is None:
            await self._stage(record, spec, folder, setting_up)
            await self.allocating.submit(record, spec, folder)
        slurm_job, nodes = await self.allocating.at_gate(record, folder)
        return Prepared(FIRST_PORT + int(slurm_job) % PORTS, nodes)

    async def _stage(
        self, record: PlacementRecord, spec: JobSpec, folder: Folder, setting_up: Callable[[], None]
    ) -> None:
        placement = record.entry.placement
        log_file = self._around.log_file(placement, record.slots[0].rank)
        try:
            if users.other_user(self._settings, record):
                # Of a life before there may be one that is that user's already: nothing of ours is written there.
                await asyncio.to_thread(job_folders.remove, folder.path)
            ranks = tuple(slot.rank for slot in record.slots)
            await asyncio.to_thread(folder.make, ranks, self._link(placement))
            self.checkpoints(record).mkdir(mode=PRIVATE, exist_ok=True)
        except OSError as error:
            raise StagingError(Cause.STAGING, f"the shared directory cannot be written: {error}") from None
        await self._around.carrier.bring_all(record, spec, self._folders(record), writing_to(log_file))
        environment = setup_environment(self._around.environment, spec, self._around.site)
        await self._staging.prepare(spec, folder.work, log_file, environment, setting_up)
        await users.give(self._settings, record, folder.path, self.checkpoints(record))

    async def unprepare(self, placement: str) -> None:
        """Cancel its job, if there may be one."""
        await self.allocating.submitted(placement)
        if self.folder(placement).intent is not None:
            await self.cluster.cancel(placement)

    # Beyond it -----------------------------------------------------------------------------------------------------

    def start(self, record: PlacementRecord, spec: JobSpec, ranks: tuple[int, ...]) -> None:
        """Open the gate."""
        self._around.tasks.spawn(self._start(record, spec, ranks))

    async def _start(self, record: PlacementRecord, spec: JobSpec, ranks: tuple[int, ...]) -> None:
        placement = record.entry.placement
        folder = self.folder(placement)
        try:
            # After a restart each rank is asked for by itself: the first opens the gate for all.
            async with self._admitting.setdefault(placement, asyncio.Lock()):
                if not folder.admitted:
                    await self._admit(record, spec, folder)
        except (OSError, StagingError) as error:
            log.exception("%s cannot be started", placement)
            await self.cluster.cancel(placement)
            for rank in ranks:
                self._tell_lost(placement, rank, f"it could not be started: {error}", Cause.NODE_LOST)
        else:
            self._watch(placement, folder, ranks)

    async def _admit(self, record: PlacementRecord, spec: JobSpec, folder: Folder) -> None:
        intent = folder.intent
        if intent is None:
            raise StagingError(Cause.STAGING, "the agent does not remember its job")
        resumes = self._around.carrier.resumes(load_of(record, spec), self.checkpoints(record))
        address, command, commands = await self._address(record), command_of(spec), {}
        for slot in record.slots:
            environment = self._environment(record, spec, slot.rank, address, resumes=resumes)
            contained = self._contained(record, spec, slot.rank, folder)
            if contained is None or self._around.images is None:
                commands[slot.rank] = command_script(command, environment)
            else:
                text = images.script(self._around.images, contained)
                commands[slot.rank] = container_script(text, environment)
        log.info(
            "%s of job %s starts as Slurm's job %s",
            record.entry.placement,
            record.entry.job,
            intent.slurm_job,
        )
        await asyncio.to_thread(folder.write_commands, commands)
        await users.give(self._settings, record, folder.path)
        await asyncio.to_thread(folder.admit, intent.slurm_job)

    def _environment(
        self, record: PlacementRecord, spec: JobSpec, rank: int, address: str, *, resumes: bool
    ) -> dict[str, str]:
        """What a rank sees beyond what Slurm gives it. Raises `StagingError` for a secret that cannot be had."""
        folders = self._folders(record)
        secret = self._around.gang_secret(record, spec)
        where = Where(
            self._around.site, address, str(folders.checkpoints), str(folders.inputs), resumes, secret
        )
        hidden = secrets.variables(self._around.secrets, spec)
        return rank_environment(record, spec, rank, where) | hidden

    async def _address(self, record: PlacementRecord) -> str:
        """Of rank 0, for the others."""
        first = min(record.slots, key=lambda slot: slot.rank)
        return HERE if len(record.slots) == 1 else await self.cluster.address(first.host)

    def _contained(
        self, record: PlacementRecord, spec: JobSpec, rank: int, folder: Folder
    ) -> images.Contained | None:
        """A rank in the image that its job names; None: it names none."""
        if spec.image is msgspec.UNSET:
            return None
        folders = self._folders(record)
        return images.Contained(
            name=f"federator-{record.entry.placement}-{rank}",
            image=spec.image,
            command=command_of(spec),
            work=folder.work,
            writable=(folders.checkpoints,),
            readable=_readable(folders, spec),
            gpus=bool(spec.resources.gpus.count),
            shm_mib=spec.resources.shm_mib,
        )

    def find(self, record: PlacementRecord, rank: int) -> None:
        """Look at the gate, and at the marks behind it."""
        self._around.tasks.spawn(self._find(record, rank))

    async def _find(self, record: PlacementRecord, rank: int) -> None:
        """Behind an open gate, marks tell. Before a shut one nothing has begun: it can be opened while the job waits there."""
        placement = record.entry.placement
        folder = self.folder(placement)
        killed = record.stop is not None and record.stop.killed
        if folder.admitted:
            self._watch(placement, folder, (rank,), killed=killed)
            return
        if record.phase is Phase.STOPPING:
            await self.cluster.cancel(placement)
            self._around.tell(ev.RankAbsent(placement, rank))
            return
        jobs = (await self.cluster.look()).get(placement, ())
        if any(not job.over for job in jobs):
            self._around.tell(ev.RankAbsent(placement, rank))
        else:
            how = fate(None, jobs[0].state if jobs else FORGOTTEN, killed=False)
            self._tell_lost(placement, rank, f"before it began: {how.detail}", how.cause or Cause.NODE_LOST)

    def _tell_lost(self, placement: str, rank: int, detail: str, cause: Cause) -> None:
        now = self._around.clock.now()
        self._around.tell(ev.RankEnded(placement, rank, now, None, detail, cause))

    def _watch(self, placement: str, folder: Folder, ranks: tuple[int, ...], *, killed: bool = False) -> None:
        watch = self.watches.get(placement)
        if watch is None:
            watch = RankWatch(
                self.cluster, folder, placement, folder.admitted, self._around.clock, self._around.tell
            )
            self.watches[placement] = watch
            watch.add(ranks)
            self._around.tasks.spawn(self._run_watch(placement, watch))
        else:
            watch.add(ranks)
        watch.killed = watch.killed or killed

    async def _run_watch(self, placement: str, watch: RankWatch) -> None:
        """Also when a file system fails for a while: nothing may stay untold."""
        try:
            await retried(
                watch.run,
                BACKOFF,
                on=(OSError, ValueError),
                failed=lambda error: log.error(
                    "what became of %s cannot be read; trying again", placement, exc_info=error
                ),
            )
        finally:
            del self.watches[placement]

    def signal(self, placement: str, ranks: tuple[int, ...], signal: str) -> None:
        """To all ranks that still run: Slurm passes it on to each, and each to its command."""
        del ranks
        watch = self.watches.get(placement)
        if watch is None:
            return
        watch.hurry()
        if signal == "KILL":
            watch.killed = True
            if placement not in self._killing:
                self._killing.add(placement)
                task = self._around.tasks.spawn(self._kill(placement, watch))
                task.add_done_callback(lambda _: self._killing.discard(placement))
        else:
            self._around.tasks.spawn(self._signal(placement, signal, watch))

    async def _kill(self, placement: str, watch: RankWatch) -> None:
        """The ranks at once; a job that is cancelled is asked with TERM once more, and has its site's KillWait. Then whatever else is left of it."""
        await self._note_signal(placement)
        with contextlib.suppress(Unreachable, Rejected):
            await self.cluster.commands.run("scancel", "--signal=KILL", f"{watch.slurm_job}.{RANKS_STEP}")
            await asyncio.sleep(AT_ONCE_S)
        await self.cluster.cancel(placement)

    async def _note_signal(self, placement: str) -> None:
        """One at a time, since TERM and KILL may come together. A file system that fails keeps no signal back."""
        async with self._noting:
            try:
                await asyncio.to_thread(self.folder(placement).note_signal)
            except OSError:
                log.exception("that %s is sent a signal cannot be noted", placement)

    async def _signal(self, placement: str, signal: str, watch: RankWatch) -> None:
        """Until Slurm has taken it, or there is nobody left to take it."""
        await self._note_signal(placement)
        failures = 0
        while self.watches.get(placement) is watch and not watch.killed:
            try:
                await self.cluster.commands.run("scancel", f"--signal={signal}", watch.slurm_job)
            except Unreachable:
                failures += 1
                await asyncio.sleep(BACKOFF.pause_s(failures))
            except Rejected as error:
                log.warning("%s is not sent %s: %s", placement, signal, error)
                if "signal" not in error.message.lower() or signal == "TERM":
                    return
                signal = "TERM"
            else:
                return

    # Afterwards ----------------------------------------------------------------------------------------------------

    async def enter(
        self, record: PlacementRecord, spec: JobSpec, rank: int, request: Exec | Forward
    ) -> Channel:
        """By a step on its node, in the job that runs it."""
        user = users.other_user(self._settings, record)
        options = await self._step_options(record, spec, rank)
        if isinstance(request, Forward):
            words = steps.relay_words(options, request)
        else:
            folder = self.folder(record.entry.placement)
            path, beside = folder.path / steps.name(), None
            contained = self._contained(record, spec, rank, folder)
            if contained is not None and self._around.images is not None:
                contained = contained._replace(command=request.command)
                beside = images.beside(self._around.images, contained, tty=request.tty)
            address = await self._address(record)
            environment = self._environment(record, spec, rank, address, resumes=record.entry.resume)
            await asyncio.to_thread(
                write_durably, path, steps.script(rank, request, environment, beside).encode()
            )
            await users.give(self._settings, record, path)
            words = steps.command_words(options, request, path)
        step = steps.open_step([*users.become(user), *words], self.cluster.commands.environment, request)
        return await steps.RelayChannel.made(step, request.port) if isinstance(request, Forward) else step

    async def _step_options(self, record: PlacementRecord, spec: JobSpec, rank: int) -> list[str]:
        """Where the rank is, the job knows; which job that is, only the agent's own note may say."""
        folder = self.folder(record.entry.placement)
        there = {found: node for found, (_, node) in (await asyncio.to_thread(folder.marks)).nodes.items()}
        target, intent = await self.cluster.target(record.entry.pool), folder.intent
        if intent is None or rank not in there or target is None:
            raise OSError("it is not known where it runs")
        together = spec.placement.together or ""
        shards = shards_per_node(len(record.slots), spec.resources, target, together)
        ranks = list(there.values()).count(there[rank])
        return steps.options(intent.slurm_job, there[rank], spec.resources, ranks, shards)

    async def usage(self, records: Sequence[PlacementRecord], gpus: Mapping[int, Gpu]) -> Readings:
        """As the cluster gathers it, of each job as a whole."""
        del gpus
        jobs = {
            watch.slurm_job: record
            for record in records
            if (watch := self.watches.get(record.entry.placement)) is not None
        }
        found = await usage.gathered(self.cluster.commands, sorted(jobs))
        return {
            record.entry.placement: {0: found[job].reading(sum(len(slot.gpus) for slot in record.slots))}
            for job, record in jobs.items()
            if job in found
        }

    async def finish_logs(self, record: PlacementRecord) -> None:
        """The ranks have written them; to open one is what makes a networked file system show its true length."""
        for slot in record.slots:
            log_file = self._around.log_file(record.entry.placement, slot.rank)
            with contextlib.suppress(FileNotFoundError):
                await asyncio.to_thread(lambda file: opened(file.parents[1], file).close(), log_file)

    async def push_last(self, record: PlacementRecord, spec: JobSpec) -> str:
        """From the shared directory."""
        return await self._around.carrier.finish(load_of(record, spec), self.checkpoints(record))

    async def pack_outputs(self, record: PlacementRecord, spec: JobSpec, archive: Path) -> bool:
        """All ranks have worked in one directory."""
        if not spec.outputs or not record.ranks:
            return False
        work = self.folder(record.entry.placement).work
        return await asyncio.to_thread(archives.pack, work, spec.outputs, archive) > 0

    async def discard(self, placement: str, checkpoints_of: str | None) -> None:
        """Cancel what may be left of it in Slurm, then remove its files."""
        folder = self.folder(placement)
        self._admitting.pop(placement, None)
        await self.unprepare(placement)
        await asyncio.to_thread(folder.remove, self._link(placement))
        if checkpoints_of:
            doomed = self._settings.shared_dir / "checkpoints" / checkpoints_of
            await asyncio.to_thread(job_folders.remove, doomed)

    def close(self) -> None:
        """Stop watching."""
        self._ranks.close()
        self.cluster.queue.close()

    def folder(self, placement: str) -> Folder:
        """Where a placement's files are."""
        return Folder(self._placements / placement, self._intents / placement)

    def _link(self, placement: str) -> Path:
        return self._around.spool.placements / placement

    def _folders(self, record: PlacementRecord) -> Folders:
        own = self.folder(record.entry.placement).path
        return Folders(self._settings.shared_dir / "inputs", own / "inputs", self.checkpoints(record))

    def checkpoints(self, record: PlacementRecord) -> Path:
        """In the shared directory."""
        return self._settings.shared_dir / "checkpoints" / record.entry.job


def _readable(folders: Folders, spec: JobSpec) -> tuple[Path, ...]:
    """What a container is shown of its inputs."""
    own = (folders.inputs,) if spec.inputs or spec.inputs_from else ()
    return (*own, folders.cache) if spec.inputs else own


def _take(shared: Path, around: Surroundings) -> None:
    """Make the shared directory this agent's, and what is in it no business of the cluster's other users. Raises `Invalid`."""
    if not shared.is_dir():
        remedy = "mount it here and on all nodes, or name another"
        raise Invalid(f"{shared} is not a directory", field="$.slurm.shared_dir", remedy=remedy)
    ownership.claim(shared, around.spool.directory, around.site, "$.slurm.shared_dir")
    for name, mode in _MODES.items():
        _make_private(shared / name, mode)


def _make_private(directory: Path, mode: int) -> None:
    directory.mkdir(mode=mode, exist_ok=True)
    present = stat.S_IMODE(directory.stat().st_mode)
    if present & 0o777 != mode:
        directory.chmod(present & ~0o777 | mode)


def _for_jobs(environment: dict[str, str]) -> dict[str, str]:
    """What Slurm's commands, and through them the jobs, get of the agent's own environment: not what is true of its host alone."""
    return {name: value for name, value in environment.items() if name not in ("HOSTNAME", "TMPDIR")}
