"""What one life of an agent does with the data of its jobs: outputs of other jobs in, logs and outputs home, on a real disk and through production's own code.

What a rank writes can be told from what any other wrote, so that who reads it can be asked whether it is whole, and of an attempt that came to a good end.
"""

import gzip
import io
import random
import shutil
import tarfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import aiohttp

from federator.model.jobs import JobSpec
from federator_agent.bulk import Bulk
from federator_agent.core.state import PlacementRecord
from federator_agent.data.carrier import Carrier
from federator_agent.link import Link as AgentLink
from federator_agent.link_use import LinkUse
from federator_agent.logs import LogUploads
from tests.lab.faults.dispatchers import Dispatcher
from tests.lab.faults.hosts import Host
from tests.lab.faults.plan import JobPlan
from tests.lab.faults.scene import Scene
from tests.lab.faults.transfers import Bearer, Http

CACHE_BYTES = 2**20
"""What a member keeps of what it has fetched: a few archives."""
OUTPUT = "out.bin"
INPUT = "data"


class Data:
    """Of one life."""

    def __init__(
        self, host: Host, scene: Scene, server: Callable[[], Dispatcher], ticket: Callable[[], Awaitable[str]]
    ) -> None:
        assert host.meter is not None
        self._folder, self._truth = host.folder, scene.truth
        self._works = scene.plan.works()
        self._folder.mkdir(parents=True, exist_ok=True)
        host.meter.begins()
        use = LinkUse(host.clock, host.plan.link.limits if host.plan.link else None)
        http = Http(host.member, server, host.meter, scene)
        self._bulk = Bulk(cast("AgentLink", Bearer(ticket)), cast("aiohttp.ClientSession", http), use)
        self._logs = LogUploads(self._bulk, use)
        self._carrier = Carrier(self._folder, host.clock, CACHE_BYTES, bulk=self._bulk)

    async def bring(self, record: PlacementRecord, spec: JobSpec) -> None:
        """What it reads. Raises `StagingError`."""
        await self._carrier.bring_outputs(record, spec, self._inputs(record), lambda _: None)

    def read(self, record: PlacementRecord, spec: JobSpec) -> None:
        """A rank looks at its inputs as it begins: they are whole, and of an attempt that came to a good end."""
        for source in spec.inputs_from or ():
            file = self._inputs(record) / source.name / OUTPUT
            content = file.read_bytes() if file.exists() else b""
            name = content.partition(b"\n")[0].decode(errors="replace")
            written = self._truth.rows.placements.get(name)
            if written is None or written.job != source.job or name not in self._truth.succeeded:
                self._truth.find(
                    0, f"{record.entry.placement} reads {name[:60]!r}, which is no success of {source.job}"
                )
            elif content != _content(name, self._work(written.job).output_bytes):
                self._truth.find(0, f"{record.entry.placement} reads what is not what {name} wrote")

    async def collect(self, record: PlacementRecord, spec: JobSpec) -> str:
        """Logs and outputs go home; what could not be kept."""
        name, folder = record.entry.placement, self._folder / "placements" / record.entry.placement
        work = self._work(record.entry.job)
        for slot in record.slots:
            log = folder / f"rank-{slot.rank}" / "log"
            fresh = not log.exists()
            if fresh:
                log.parent.mkdir(parents=True, exist_ok=True)
                log.write_bytes(_content(f"log of {name}", work.log_bytes))
            self._logs.follow(name, slot.rank, log, fresh=fresh)
        try:
            notes = await self._logs.finish(name)
            if spec.outputs:
                archive = folder / "outputs.tar.gz"
                if not archive.exists():
                    archive.write_bytes(_packed(_content(name, work.output_bytes)))
                await self._bulk.put_outputs(name, archive)
        except Exception as error:  # noqa: BLE001 - as the agent's own: whatever goes wrong, the end is told
            return f"logs or outputs could not be kept: {error}"
        return notes

    def discard(self, placement: str) -> None:
        """Nothing of it is kept."""
        shutil.rmtree(self._folder / "placements" / placement, ignore_errors=True)

    def _inputs(self, record: PlacementRecord) -> Path:
        return self._folder / "placements" / record.entry.placement / "inputs"

    def _work(self, job: str) -> JobPlan:
        return self._works[self._truth.rows.jobs[job].name]


def lose_what_is_kept(folder: Path) -> None:
    """Somebody tidies the disk: what was fetched is gone."""
    for entry in sorted((folder / "outputs-read").glob("*")):
        if entry.is_dir():
            shutil.rmtree(entry)


def _content(name: str, size: int) -> bytes:
    return name.encode() + b"\n" + random.Random(name).randbytes(size)


def _packed(content: bytes) -> bytes:
    packed = io.BytesIO()
    zipped = gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, compresslevel=1)
    with zipped, tarfile.open(fileobj=zipped, mode="w") as archive:
        entry = tarfile.TarInfo(OUTPUT)
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()
