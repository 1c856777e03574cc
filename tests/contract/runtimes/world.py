"""A runtime without its agent: what it tells is kept, what it fetches is given, and the test decides what the core would."""

import asyncio
import hashlib
import io
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from federator.kernel.clock import SystemClock
from federator.kernel.errors import NotFound
from federator.kernel.ids import IdSource
from federator.model.jobs import JobSpec, Resources
from federator.model.placements import DesiredEntry, Order
from federator.wire.link import OutputArchive
from federator_agent.bulk import Bulk
from federator_agent.core import events as ev
from federator_agent.core.lent_capacity import Slot
from federator_agent.core.state import PlacementRecord, RankState
from federator_agent.data.allowed import Allowed
from federator_agent.data.carrier import Carrier
from federator_agent.runtime import Prepared, Runtime, Surroundings, Tasks
from federator_agent.spool import Spool
from tests.support.waiting import until

Told = TypeVar("Told", ev.RankStarted, ev.RankEnded, ev.RankAbsent)
CLOCK = SystemClock()
INPUTS = Path("/var/tmp/federator-inputs")
"""Where jobs of the suite find their inputs: not below /tmp, which is each job's own."""


class Site(NamedTuple):
    """A runtime under test. `make` is called again for each life of its agent."""

    make: Callable[[Surroundings], Runtime]
    pool: str
    gpus: int = 0
    """GPUs that each rank of these tests asks for."""
    alone: bool = True
    """Whether one rank of several can be signalled: the core does not ask for that."""
    carries: bool = True
    """Whether it brings data to its ranks, and takes checkpoints from them."""


class GivenBulk:
    """The dispatcher's files, from memory."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.found: tuple[tuple[OutputArchive, ...], ...] = ()
        """What each placement reads of the outputs of other jobs."""

    def keep(self, files: Mapping[str, bytes]) -> str:
        """Pack a work directory; its hash."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            for name, content in files.items():
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(content), 0o755
                tar.addfile(entry, io.BytesIO(content))
        name = hashlib.sha256(buffer.getvalue()).hexdigest()
        self.blobs[name] = buffer.getvalue()
        return name

    async def blob(self, blob_hash: str, into: Path) -> None:
        if blob_hash not in self.blobs:
            raise NotFound(f"there is no blob {blob_hash}")
        into.write_bytes(self.blobs[blob_hash])

    async def inputs(self, placement: str) -> tuple[tuple[OutputArchive, ...], ...]:
        del placement
        return self.found

    async def input(self, placement: str, job: str, digest: str, into: Path) -> None:
        del placement, job
        await self.blob(digest, into)


class RuntimeWorld:
    """One runtime over one state directory, through as many lives of its agent as the test wants."""

    def __init__(self, folder: Path, site: Site) -> None:
        self.site = site
        self.bulk = GivenBulk()
        self.told: list[ev.Event] = []
        self.setups: list[str] = []
        self.placements: list[str] = []
        self._ids = IdSource(CLOCK)
        self.spool = Spool(folder / "state")
        self._tasks = Tasks()
        self.runtime: Runtime
        self.records: dict[str, PlacementRecord] = {}
        self.allowed: tuple[Allowed, ...] | None = None
        """Which data its next life moves,"""
        self.networks: tuple[str, ...] = ()
        """and the private networks from which it does."""

    def begin(self) -> None:
        """A life of the agent begins: it knows what it has written down."""
        self._tasks = Tasks()
        around = Surroundings(
            "here",
            {"PATH": "/usr/bin:/bin"},
            CLOCK,
            self.spool,
            cast("Bulk", self.bulk),
            Carrier(self.spool.directory, CLOCK, None, self.allowed, networks=self.networks, bulk=self.bulk),
            self._tasks,
            self.told.append,
            gang_key=self.spool.gang_key(),
        )
        self.runtime = self.site.make(around)
        self.runtime.resume(list(self.records.values()))

    async def restart(self) -> None:
        """The agent dies and is started again; what it was told is forgotten."""
        await self.end()
        self.told.clear()
        self.begin()

    async def end(self) -> None:
        """The agent dies."""
        await self._tasks.end_all()
        self.runtime.close()

    async def close(self) -> None:
        """Take back everything, and end."""
        for placement in self.placements:
            await self.runtime.unprepare(placement)
            await self.runtime.discard(placement, None)
        await self.end()
        self.spool.close()

    # What a test asks for ------------------------------------------------------------------------------------------

    def spec(self, run: str | None, **fields: Any) -> JobSpec:
        """A job of a shell script, and small."""
        resources = Resources(cpus_milli=10)
        return JobSpec(**{"name": "job", "run": run, "resources": resources, **fields})

    def record(self, spec: JobSpec, **fields: Any) -> PlacementRecord:
        """A placement of it, as the core would have it when it is staged."""
        placement = self._ids.new("plc")
        entry = DesiredEntry(
            **{
                "placement": placement,
                "job": self._ids.new("job"),
                "job_name": spec.name,
                "epoch": 1,
                "spec_hash": "0" * 64,
                "order": Order.RUN,
                "ranks": tuple(range(spec.nodes)),
                "pool": self.site.pool,
                "grace_s": 5.0,
                **fields,
            }
        )
        need = spec.resources
        gpus = tuple(range(need.gpus.count))
        slots = tuple(
            Slot(rank, entry.pool, "?", gpus, need.cpus_milli, need.memory_mib) for rank in entry.ranks
        )
        record = PlacementRecord(entry=entry, slots=slots)
        self.placements.append(placement)
        self.records[placement] = record
        return record

    async def prepare(self, record: PlacementRecord, spec: JobSpec) -> Prepared:
        """Bring it to its gate."""
        placement = record.entry.placement
        return await self.runtime.prepare(record, spec, lambda: self.setups.append(placement))

    async def run(self, spec: JobSpec, **fields: Any) -> PlacementRecord:
        """Prepare and start all of it; return when it has begun."""
        record = self.record(spec, **fields)
        prepared = await self.prepare(record, spec)
        return await self.start(record, spec, prepared)

    async def start(self, record: PlacementRecord, spec: JobSpec, prepared: Prepared) -> PlacementRecord:
        """Write down that it runs, and open its gate."""
        record = self.intend(record, prepared)
        self.runtime.start(record, spec, record.entry.ranks)
        for rank in record.entry.ranks:
            await self.wait_for(ev.RankStarted, record, rank)
        return record

    def intend(self, record: PlacementRecord, prepared: Prepared) -> PlacementRecord:
        """Write down that it is to run."""
        ranks = tuple(RankState(rank=rank) for rank in record.entry.ranks)
        running = PlacementRecord(
            entry=record.entry, slots=record.slots, ranks=ranks, master_port=prepared.master_port
        )
        self.records[record.entry.placement] = running
        return running

    async def wait_for(self, kind: type[Told], record: PlacementRecord, rank: int = 0) -> Told:
        """The first of that kind that is told of a rank."""
        found = await until(lambda: self._of(kind, record, rank), f"{kind.__name__} of rank {rank}")
        return cast("Told", found[0])

    def _of(self, kind: type[Told], record: PlacementRecord, rank: int) -> list[ev.Event]:
        placement = record.entry.placement
        return [
            event
            for event in self.told
            if isinstance(event, kind) and event.placement == placement and event.rank == rank
        ]

    def count(self, kind: type[Told], record: PlacementRecord, rank: int = 0) -> int:
        """How often it was told."""
        return len(self._of(kind, record, rank))

    async def over(self, record: PlacementRecord) -> list[ev.RankEnded]:
        """How all ranks ended, once they have; with their logs whole."""
        ends = [await self.wait_for(ev.RankEnded, record, rank) for rank in record.entry.ranks]
        await asyncio.wait_for(self.runtime.finish_logs(record), 60)
        return ends

    def log(self, record: PlacementRecord, rank: int = 0) -> str:
        """What a rank has written."""
        file = self.spool.placements / record.entry.placement / f"rank-{rank}" / "log"
        return file.read_text() if file.exists() else ""

    async def has_written(self, record: PlacementRecord, words: str, rank: int = 0) -> None:
        """Return when its log has that."""
        await until(
            lambda: words in self.log(record, rank), f"{words!r} in the log: {self.log(record, rank)!r}"
        )

    async def outputs(self, record: PlacementRecord, spec: JobSpec, folder: Path) -> dict[str, bytes]:
        """What it has put out, by name."""
        archive = folder / "outputs.tar.gz"
        if not await self.runtime.pack_outputs(record, spec, archive):
            return {}
        with tarfile.open(archive) as tar:
            return {member.name: cast("Any", tar.extractfile(member)).read() for member in tar}
