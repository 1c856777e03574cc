"""Runs ranks as processes of this host, each under its shim."""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from federator.kernel.errors import Conflict
from federator.model.jobs import JobSpec
from federator.model.placements import Cause
from federator.wire.tunnel import Exec, Forward
from federator_agent import archives, images, secrets
from federator_agent.channels import NumberedChannel, PortChannel, begun, nobody_listens, open_process
from federator_agent.core import events as ev
from federator_agent.core.lent_capacity import Slot
from federator_agent.core.state import PlacementRecord
from federator_agent.data.carrier import Folders, load_of, writing_to
from federator_agent.environment import (
    Where,
    command_of,
    device_environment,
    rank_environment,
    setup_environment,
)
from federator_agent.gpus import Gpu
from federator_agent.local import cgroups, traces
from federator_agent.local.confinement import GIVEN_DESCRIPTOR, Launch, Place
from federator_agent.local.meter import Rank, readings
from federator_agent.local.ranks import OUT_OF_MEMORY, TOLD_FROM_OUTSIDE, Found, LocalRanks
from federator_agent.local.watchdog import Fence
from federator_agent.runtime import Channel, Prepared, Surroundings
from federator_agent.staging import Staging, free_port
from federator_agent.staging_errors import StagingError
from federator_agent.usage import Readings

CONTAINER_S, AGAIN_S = 5.0, 0.3
"""Real seconds: a rank counts as running before its container does, which is waited for so long."""
ADDRESS = "127.0.0.1"
"""Where the ranks of a gang find each other when all of them are on this host."""
MOST_SAID = 500
_CAUSES = {OUT_OF_MEMORY: Cause.OUT_OF_MEMORY, TOLD_FROM_OUTSIDE: Cause.EVICTED}
log = logging.getLogger("federator_agent.local")


class LocalRuntime:
    """The `local` runtime. The core has seated every rank on this host, down to its GPUs."""

    keeps = True

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._ranks = LocalRanks(around.clock)
        self._confinement = around.confinement
        self._staging = Staging(around.spool.directory, around.bulk, self._ranks, around.confinement)

    def resume(self, records: Sequence[PlacementRecord]) -> None:
        """End set-ups whose result nobody would learn."""
        del records
        self._staging.clear()

    async def observe(self) -> None:
        """The hosts are those that the site file declares."""

    def find_port(self) -> int:
        """One that is free at this moment."""
        return free_port()

    async def prepare(
        self, record: PlacementRecord, spec: JobSpec, setting_up: Callable[[], None]
    ) -> Prepared:
        """The work directory, and what the set-up script makes of it."""
        log_file = self._around.log_file(record.entry.placement, record.slots[0].rank)
        environment = setup_environment(self._around.environment, spec, self._around.site)
        secrets.check(self._around.secrets, spec, record.entry.whose)
        self._around.carrier.check(spec, record.entry.whose)
        images.refuse(self._around.images, spec)
        work, fence = self._work(record.entry.placement), self._fence(record, spec)
        await self._around.carrier.bring_all(record, spec, self._folders(record), writing_to(log_file))
        owner = record.entry.owner
        await self._fetch_image(spec)
        await self._staging.prepare(spec, work, log_file, environment, setting_up, fence, owner)
        try:
            await asyncio.to_thread(self._confinement.own, self._place(record), fresh=True)
        except OSError as error:
            raise StagingError(Cause.STAGING, f"its folders cannot be given to its user: {error}") from None
        return Prepared(free_port())

    async def _fetch_image(self, spec: JobSpec) -> None:
        """Before the start, so that a job whose image cannot be had says so."""
        if self._around.images is None or spec.image is msgspec.UNSET:
            return
        if text := images.fetch(self._around.images, spec.image):
            code, said = await self._run("/bin/sh", "-c", text)
            if code != 0:
                raise StagingError(Cause.IMAGE_PULL, f"{spec.image}: {said or f'exit code {code}'}")

    async def _run(self, *words: str) -> tuple[int, str]:
        """A program of the site's to its end: its code, and what it complained of last."""
        process = await asyncio.create_subprocess_exec(
            *words,
            env=self._around.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            _, said = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        return process.returncode or 0, said.decode(errors="replace").strip()[-MOST_SAID:]

    def _launch(
        self, record: PlacementRecord, spec: JobSpec, slot: Slot, place: Place, environment: dict[str, str]
    ) -> Launch:
        """In the image that it names, which sees its folders and nothing else of the host; or confined on the host. Raises `OSError`."""
        base, command = self._around.environment, command_of(spec)
        if self._around.images is None or spec.image is msgspec.UNSET:
            return self._confinement.launch(place, command, environment, base)
        directory = self._rank(record.entry.placement, slot.rank)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / traces.CONTAINED).touch()
        contained = self._contained(record, spec, slot, place, command)
        return self._container_launch(slot, place, images.script(self._around.images, contained), environment)

    def _contained(
        self, record: PlacementRecord, spec: JobSpec, slot: Slot, place: Place, command: Sequence[str]
    ) -> images.Contained:
        owner = place.work.lstat()
        assert spec.image is not msgspec.UNSET
        return images.Contained(
            name=self._container(record.entry.placement, slot.rank),
            image=spec.image,
            command=command,
            work=place.work,
            writable=place.writable,
            readable=place.readable,
            user=f"{owner.st_uid}:{owner.st_gid}" if os.geteuid() == 0 else "",
            gpus=bool(slot.gpus),
            shm_mib=spec.resources.shm_mib,
        )

    def _container_launch(self, slot: Slot, place: Place, text: str, environment: dict[str, str]) -> Launch:
        base = self._around.environment
        owner = place.work.lstat().st_uid if os.geteuid() == 0 else None
        words = ["/bin/sh", "-c", _taking(text)]
        return Launch(
            words,
            base | device_environment(slot, self._around.visible),
            images.given(environment, base),
            owner,
        )

    @staticmethod
    def _container(placement: str, rank: int) -> str:
        return f"federator-{placement}-{rank}"

    async def unprepare(self, placement: str) -> None:
        """A preparation that is cancelled ends its set-up itself."""

    def checkpoints(self, record: PlacementRecord) -> Path:
        """In the agent's own directory."""
        return self._around.checkpoints(record)

    def start(self, record: PlacementRecord, spec: JobSpec, ranks: tuple[int, ...]) -> None:
        """Start them; a rank that cannot be started is lost."""
        placement, now = record.entry.placement, self._around.clock.now()
        checkpoints = self._around.checkpoints(record)
        checkpoints.mkdir(parents=True, exist_ok=True)
        hosts = ", ".join(f"{slot.host} gpus {list(slot.gpus)}" for slot in record.slots)
        log.info("%s of job %s starts on %s", placement, record.entry.job, hosts)
        resumes = self._around.carrier.resumes(load_of(record, spec), checkpoints)
        where = self._where(record, spec, resumes=resumes)
        fence = self._fence(record, spec)
        for slot in record.slots:
            if slot.rank not in ranks:
                continue
            directory, ended = self._rank(placement, slot.rank), self._on_end(placement, slot.rank)
            if self._ranks.begun(directory):
                if not self._ranks.watches(directory):  # nobody would tell of it
                    self.find(record, slot.rank)
                continue
            try:
                environment = self._environment(record, spec, slot, where)
                place = self._place(record, slot)
                launch = self._launch(record, spec, slot, place, environment)
                launch = self._confinement.limited(launch, directory, slot.cpus_milli, slot.memory_mib)
                self._ranks.start(directory, place.work, launch, ended, fence)
            except (OSError, ValueError, StagingError) as error:
                ended(self._around.clock.now(), None, f"it could not be started: {error}")
            else:
                self._around.tell(ev.RankStarted(placement, slot.rank, now))

    def _where(self, record: PlacementRecord, spec: JobSpec, *, resumes: bool) -> Where:
        checkpoints, inputs = self._around.checkpoints(record), self._folders(record).inputs
        secret = self._around.gang_secret(record, spec)
        return Where(self._around.site, ADDRESS, str(checkpoints), str(inputs), resumes, secret)

    def _environment(
        self, record: PlacementRecord, spec: JobSpec, slot: Slot, where: Where
    ) -> dict[str, str]:
        """What a rank sees. Raises `StagingError` for a secret that cannot be had."""
        visible = self._around.visible
        devices = device_environment(self._as_seen(slot), visible)
        environment = self._around.environment | devices | rank_environment(record, spec, slot.rank, where)
        environment[visible] = devices[visible]  # whatever the job says of it
        return environment | secrets.variables(self._around.secrets, spec)

    async def enter(
        self, record: PlacementRecord, spec: JobSpec, rank: int, request: Exec | Forward
    ) -> Channel:
        """Beside its processes; or to a port that one of them listens on: others of this host are none of its owner's business."""
        placement = record.entry.placement
        directory = self._rank(placement, rank)
        if isinstance(request, Forward):
            ranks = [self._rank(placement, each) for each in record.live_ranks]
            if not await asyncio.to_thread(traces.listens, ranks, request.port):
                raise nobody_listens(request.port)
            return PortChannel(*await asyncio.open_connection(ADDRESS, request.port))
        slot = next(each for each in record.slots if each.rank == rank)
        environment = self._environment(
            record, spec, slot, self._where(record, spec, resumes=record.entry.resume)
        )
        if request.tty:
            environment["TERM"] = request.term or "dumb"
        if self._around.images is not None and (directory / traces.CONTAINED).exists():
            return await self._enter_container(record, spec, slot, request, environment)
        launch = self._confinement.beside(
            self._place(record, slot),
            list(request.command),
            environment,
            self._around.environment,
            tty=request.tty,
        )
        if self._confinement.doors:
            await self._ranks.namespaces_made(directory)
        return open_process(
            partial(self._ranks.start_beside, directory, launch, self._confinement.doors),
            tty=request.tty,
            size=request.size,
            inner=self._confinement.apart,
        )

    async def _enter_container(
        self, record: PlacementRecord, spec: JobSpec, slot: Slot, request: Exec, environment: dict[str, str]
    ) -> Channel:
        """By the program that runs it, within the control groups of its rank. Podman leaves the command alone when it ends itself."""
        assert self._around.images is not None
        if self._around.images.engine is not images.Engine.PODMAN:
            return self._open_beside(record, spec, slot, request, environment)
        name, base = self._container(record.entry.placement, slot.rank), self._around.environment
        work = self._place(record, slot).work
        text = images.enter(name, work, request.command, tty=request.tty)
        launch = Launch(["/bin/sh", "-c", _taking(text)], base, images.given(environment, base))
        directory = self._rank(record.entry.placement, slot.rank)
        start = partial(self._ranks.start_beside, directory, launch, ())
        give_up_s = asyncio.get_running_loop().time() + CONTAINER_S
        while True:
            process = open_process(start, tty=request.tty, size=request.size)
            try:
                number, first = await begun(process)
            except BaseException as error:
                process.close()
                if not isinstance(error, Conflict) or asyncio.get_running_loop().time() > give_up_s:
                    raise
                await asyncio.sleep(AGAIN_S)
            else:
                return NumberedChannel(process, first, partial(self._hang_up, name, number))

    def _open_beside(
        self, record: PlacementRecord, spec: JobSpec, slot: Slot, request: Exec, environment: dict[str, str]
    ) -> Channel:
        """In a container of its own, which ends with its program."""
        assert self._around.images is not None
        place = self._place(record, slot)
        contained = self._contained(record, spec, slot, place, request.command)
        text = images.beside(self._around.images, contained, tty=request.tty)
        launch = self._container_launch(slot, place, text, environment)
        directory = self._rank(record.entry.placement, slot.rank)
        start = partial(self._ranks.start_beside, directory, launch, ())
        return open_process(start, tty=request.tty, size=request.size)

    def _hang_up(self, name: str, number: int) -> None:
        async def told() -> None:
            await self._run(*images.hang_up(name, number))

        self._around.tasks.spawn(told())

    def find(self, record: PlacementRecord, rank: int) -> None:
        """Look at what its shim has left."""
        self._around.tasks.spawn(self._find(record.entry.placement, rank))

    async def _find(self, placement: str, rank: int) -> None:
        directory = self._rank(placement, rank)
        found = await self._ranks.find(directory, self._on_end(placement, rank))
        if found is Found.ABSENT:
            self._around.tell(ev.RankAbsent(placement, rank))
        else:
            self._around.tell(ev.RankStarted(placement, rank, self._ranks.started_at(directory)))

    def signal(self, placement: str, ranks: tuple[int, ...], signal: str) -> None:
        """To their process groups."""
        for rank in ranks:
            self._ranks.signal(self._rank(placement, rank), signal)

    async def usage(self, records: Sequence[PlacementRecord], gpus: Mapping[int, Gpu]) -> Readings:
        """By control groups or processes, and by the driver."""
        running = {
            record.entry.placement: [
                Rank(slot, self._around.spool.placements / record.entry.placement / f"rank-{slot.rank}")
                for slot in record.slots
            ]
            for record in records
        }
        return await asyncio.to_thread(readings, running, gpus)

    async def finish_logs(self, record: PlacementRecord) -> None:
        """The ranks have written them."""

    async def push_last(self, record: PlacementRecord, spec: JobSpec) -> str:
        """From where they are kept here."""
        return await self._around.carrier.finish(load_of(record, spec), self.checkpoints(record))

    async def pack_outputs(self, record: PlacementRecord, spec: JobSpec, archive: Path) -> bool:
        """All ranks have worked in one directory."""
        if not spec.outputs or not record.ranks:
            return False
        work = self._work(record.entry.placement)
        return await asyncio.to_thread(archives.pack, work, spec.outputs, archive) > 0

    async def discard(self, placement: str, checkpoints_of: str | None) -> None:
        """All of it is in the agent's own directory, which it removes."""
        del checkpoints_of
        if self._around.images is not None:
            for mark in self._work(placement).parent.glob(f"rank-*/{traces.CONTAINED}"):
                name = self._container(placement, int(mark.parent.name.removeprefix("rank-")))
                if words := images.cleanup(self._around.images, name):
                    await self._run(*words)
        for directory in self._work(placement).parent.glob("rank-*"):
            cgroups.clear(cgroups.of(directory))
        self._confinement.release(self._work(placement))

    def close(self) -> None:
        """Stop watching."""
        self._ranks.close()

    def _on_end(self, placement: str, rank: int) -> Callable[[float, int | None, str], None]:
        """What is known of an end beyond its code has its cause."""

        def ended(at: float, code: int | None, detail: str) -> None:
            cause = _CAUSES.get(detail)
            self._around.tell(ev.RankEnded(placement, rank, at, code, detail, cause))

        return ended

    def _fence(self, record: PlacementRecord, spec: JobSpec) -> Fence | None:
        """What its watchdog has to know, in real seconds."""
        if not spec.stop_within_s:
            return None
        real_s = self._around.clock.real_delay_s
        stop_within_s, grace_s = real_s(spec.stop_within_s), real_s(record.entry.grace_s)
        return Fence(str(self._around.spool.renewals), stop_within_s, grace_s, record.entry.signal)

    def _folders(self, record: PlacementRecord) -> Folders:
        spool = self._around.spool
        own = spool.placements / record.entry.placement
        return Folders(spool.directory / "inputs", own / "inputs", self._around.checkpoints(record))

    def _place(self, record: PlacementRecord, slot: Slot | None = None) -> Place:
        folders, work = self._folders(record), self._work(record.entry.placement)
        links = [link.resolve() for link in folders.inputs.glob("*")]
        # Of the inputs that are kept here, its own.
        kept = {above for link in links for above in link.parents if above.parent == folders.cache.resolve()}
        shown = [folders.inputs] if folders.inputs.is_dir() else []
        return Place(
            own=work.parent,
            work=work,
            owner=record.entry.owner,
            writable=(folders.checkpoints,),
            readable=(*shown, *sorted(kept)),
            gpus=slot.gpus if slot else (),
            shares=bool(slot and slot.share_milli and not slot.uuid),
        )

    def _as_seen(self, slot: Slot) -> Slot:
        """With the numbers that its GPUs have for who sees no others."""
        if not self._confinement.hides_gpus(slot.gpus):
            return slot
        return replace(slot, gpus=tuple(range(len(slot.gpus))))

    def _work(self, placement: str) -> Path:
        return self._around.spool.placements / placement / "work"

    def _rank(self, placement: str, rank: int) -> Path:
        return self._around.log_file(placement, rank).parent


def _taking(text: str) -> str:
    """A script for a container's program, whose variables come where that expects them."""
    return f"exec {images.GIVEN}<&{GIVEN_DESCRIPTOR} {GIVEN_DESCRIPTOR}<&-\n{text}"
