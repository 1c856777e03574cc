"""What an agent needs from whatever runs its work: `local` processes, the pods of a `kube` cluster, the jobs of a `slurm` cluster.

The core decides when a placement is prepared, started, signalled and forgotten, in one way for all of them. Exactly-once rests on the *gate* between `prepare`
and `start`: preparing may be repeated, gets everything that a placement needs, its nodes included, and runs no command; the command of a rank begins only after `start`, which
the core asks for once it has written so to its disk. `tests/contract/runtimes` holds what every runtime must do.
"""

import asyncio
import hmac
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from federator.kernel.clock import Clock
from federator.kernel.tasks import cancel_and_wait
from federator.model.jobs import JobSpec
from federator.wire.tunnel import Exec, Forward
from federator_agent.bulk import Bulk
from federator_agent.core.events import Event
from federator_agent.core.state import PlacementRecord
from federator_agent.data.carrier import Carrier
from federator_agent.gpus import CUDA_VISIBLE_DEVICES, Gpu
from federator_agent.images import Images
from federator_agent.local.confinement import Confinement, shared
from federator_agent.secrets import Secret
from federator_agent.spool import Spool
from federator_agent.usage import Readings

log = logging.getLogger("federator_agent")


class Prepared(NamedTuple):
    """A placement at its gate."""

    master_port: int
    """Where rank 0 may listen."""
    hosts: Mapping[int, str] = MappingProxyType({})
    """Where each rank is, when somebody else than the core has chosen."""


class Tasks:
    """What runs beside the loop. A failure is logged; all ends with the agent."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something beside the loop."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("a task of the agent failed", exc_info=error)

    async def end_all(self) -> None:
        """Give all of it up; returns when none is left."""
        running = list(self._running)
        await cancel_and_wait(*running)


class Surroundings(NamedTuple):
    """What a runtime works with. `tell`: how it says what has happened; `environment`: what local work gets of the agent's own."""

    site: str
    environment: dict[str, str]
    clock: Clock
    spool: Spool
    bulk: Bulk
    carrier: Carrier
    tasks: Tasks
    tell: Callable[[Event], None]
    secrets: Mapping[str, Secret] = MappingProxyType({})
    confinement: Confinement = shared()
    """What stands between the jobs of this host."""
    images: Images | None = None
    """How jobs run in the image that they name, where they are processes; None: they do not."""
    visible: str = CUDA_VISIBLE_DEVICES
    """The variable that says which GPUs a rank sees, where ranks are processes."""
    gang_key: bytes = b""
    """What the secrets of gangs are made of."""

    def gang_secret(self, record: PlacementRecord, spec: JobSpec) -> str:
        """What only the ranks of a gang know, each time the same. Empty for one that has ranks at other agents, which have another key."""
        if spec.nodes < 2 or len(record.entry.ranks) < spec.nodes or not self.gang_key:
            return ""
        return hmac.new(self.gang_key, record.entry.placement.encode(), "sha256").hexdigest()

    def checkpoints(self, record: PlacementRecord) -> Path:
        """Where a job's checkpoints are kept on this host, from one placement to the next."""
        return self.spool.checkpoints / record.entry.job

    def log_file(self, placement: str, rank: int) -> Path:
        """A rank's log, which is only ever appended to and uploaded as it grows."""
        return self.spool.placements / placement / f"rank-{rank}" / "log"


class Channel(Protocol):
    """The job's end of a tunnel: frames as `federator.wire.tunnel` has them."""

    async def receive(self) -> bytes | None:
        """The job's next frame; None when nothing more comes, after an `END` where the job's side says how it ended."""
        ...

    async def send(self, frame: bytes) -> None:
        """Pass a frame on to the job; waits while it does not take it. What it does not read any more is dropped."""
        ...

    def close(self) -> None:
        """Nobody reads or writes any more: hang up. A command that goes on after that is killed soon."""
        ...


class Runtime(Protocol):
    """Runs ranks. What takes long is a task; whatever goes wrong in one, an event comes: nothing may stay in limbo."""

    keeps: bool
    """Whether what a job has saved stays at the site when its placement is over."""

    def resume(self, records: Sequence[PlacementRecord]) -> None:
        """At the agent's start, with all that it remembers, what is over and not yet discarded included: tidy up what is not of these, go on bringing logs.

        `prepare`, `unprepare` and `find` follow for what is not over.
        """
        ...

    async def observe(self) -> None:
        """Tell what the site has (`CapacitySeen`) whenever that changes, for ever; or return at once, where the core knows."""
        ...

    def find_port(self) -> int:
        """A port on which rank 0 of a gang over several members could listen."""
        ...

    async def prepare(
        self, record: PlacementRecord, spec: JobSpec, setting_up: Callable[[], None]
    ) -> Prepared:
        """Bring a placement to its gate, all ranks of it, or leave nothing. Called again for the same placement after a restart.

        `setting_up` is called when the set-up script begins. Cancelled when `unprepare` follows. Raises `StagingError`.
        """
        ...

    async def unprepare(self, placement: str) -> None:
        """Give up a preparation, however far it came; returns when nothing of it runs or waits."""
        ...

    def checkpoints(self, record: PlacementRecord) -> Path | None:
        """Where the job saves itself, as the agent reaches it; None where only the job does, and what moves its data is beside it."""
        ...

    def start(self, record: PlacementRecord, spec: JobSpec, ranks: tuple[int, ...]) -> None:
        """Open the gate; for ranks of which it is open already, change nothing. Tells `RankStarted` and, one day, `RankEnded` of each."""
        ...

    def find(self, record: PlacementRecord, rank: int) -> None:
        """After a restart of the agent: what became of a rank that `start` may have been asked for.

        Tells `RankStarted`, then `RankEnded` in time; or `RankAbsent`, when its gate is provably shut.
        """
        ...

    def signal(self, placement: str, ranks: tuple[int, ...], signal: str) -> None:
        """Send a signal to the command of these ranks; `KILL` to everything they ever started. A rank that is over is passed over."""
        ...

    async def enter(
        self, record: PlacementRecord, spec: JobSpec, rank: int, request: Exec | Forward
    ) -> Channel:
        """Run a command beside that of a rank that runs, with its user, folder, environment and limits; or connect to a port that it listens on.

        What is started ends with the rank at the latest. Raises `FederatorError` and `OSError` when it cannot.
        """
        ...

    async def usage(self, records: Sequence[PlacementRecord], gpus: Mapping[int, Gpu]) -> Readings:
        """What the ranks of these use now, as far as it can be known here. `gpus`: what this host's driver says of its GPUs. Raises nothing of what is asked."""
        ...

    async def finish_logs(self, record: PlacementRecord) -> None:
        """When nothing of it runs: return when its logs are whole. Raises `FederatorError`, `OSError`."""
        ...

    async def push_last(self, record: PlacementRecord, spec: JobSpec) -> str:
        """Then: bring what it has saved last to its `checkpoint.uri`; what to tell of it when that cannot be done. Raises nothing of the transfer's."""
        ...

    async def pack_outputs(self, record: PlacementRecord, spec: JobSpec, archive: Path) -> bool:
        """Then: pack the outputs that it declares, of all ranks; whether there are any. Raises `FederatorError`, `OSError`."""
        ...

    async def discard(self, placement: str, checkpoints_of: str | None) -> None:
        """The dispatcher knows the end: remove what is left outside of the agent's own directory, with `checkpoints_of` that job's checkpoints too.

        Called again if it failed.
        """
        ...

    def close(self) -> None:
        """Stop watching. Everything that runs goes on."""
        ...
