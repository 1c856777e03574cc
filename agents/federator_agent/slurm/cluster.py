"""The cluster as everything else here sees it: its queue, its capacity, and jobs cancelled for certain.

Slurm's silence means waiting: while slurmctld does not answer, nothing has ended and nothing is gone.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from federator.retry import retried
from federator_agent.core.lent_capacity import Seen
from federator_agent.slurm import output
from federator_agent.slurm.capacity import View, lent_partitions, view
from federator_agent.slurm.commands import BACKOFF, Commands, Rejected, Unreachable
from federator_agent.slurm.output import WAITING
from federator_agent.slurm.queue import Queue, QueueSnapshot
from federator_agent.slurm.script import SlurmPool
from federator_agent.slurm.settings import SlurmSettings

AGAIN_S = 2.0
CANCEL_AGAIN_S = 5.0
OBSERVE_S = 5.0
BREATH = 5.0
"""Between two looks at all nodes and jobs there is at least this many times what the last one took."""
log = logging.getLogger("federator_agent.slurm")


class SlurmCluster:
    """One Slurm cluster, through its commands."""

    def __init__(self, settings: SlurmSettings, environment: dict[str, str]) -> None:
        self.settings = settings
        self.commands = Commands(settings, environment)
        self.queue = Queue(self.commands, [each.user for each in settings.queues.values() if each.user])
        self._view: View | None = None
        self._nodes: list[output.Node] = []
        self._changed = asyncio.Event()
        self._silent = False

    async def look(self, within_s: float = 0.0) -> QueueSnapshot:
        """The queue, however long Slurm takes to answer."""

        def fall_silent(error: BaseException) -> None:
            if not self._silent:
                log.warning("%s; what runs is left alone until it does", error)
            self._silent = True

        look = await retried(
            partial(self.queue.look, within_s), BACKOFF, on=(Unreachable, Rejected), failed=fall_silent
        )
        if self._silent:
            log.info("Slurm answers again")
        self._silent = False
        return look

    async def cancel(self, name: str) -> None:
        """Cancel all jobs of that name; returns when Slurm says that nothing of them runs or waits."""
        loop = asyncio.get_running_loop()
        cancelled_s = -CANCEL_AGAIN_S
        while left := [job.id for job in (await self.look()).get(name, ()) if not job.over]:
            if loop.time() - cancelled_s >= CANCEL_AGAIN_S:
                cancelled_s = loop.time()
                with contextlib.suppress(Unreachable, Rejected):
                    await self.commands.run("scancel", *left)
            await asyncio.sleep(0.1)
        self.changed()

    async def target(self, pool: str) -> SlurmPool | None:
        """Where a pool is, once Slurm has answered, and which nodes it leaves out; None: there is no such pool."""
        if self._view is None:
            await retried(partial(self._observe, frozenset()), BACKOFF, on=(Unreachable, Rejected))
        assert self._view is not None
        target = self._view.targets.get(pool)
        if target is None:
            return None
        others = (node.name for node in self._nodes if node.switch != target.switch)
        return target._replace(exclude=output.host_list(others))

    async def address(self, node: str) -> str:
        """Under which other nodes reach it."""
        with contextlib.suppress(Unreachable, Rejected):
            for found in output.read_nodes(
                await self.commands.run("scontrol", "show", "node", node, "--oneliner")
            ):
                return found.address
        return node

    def changed(self) -> None:
        """One of our jobs has started or ended: the capacity is worth another look."""
        self._changed.set()

    async def observe(self, ours: Callable[[], Iterable[str]], tell: Callable[[Seen], None]) -> None:
        """Tell what the cluster has whenever that changes, for ever. `ours`: the names of our jobs."""
        loop = asyncio.get_running_loop()
        told: Seen | None = None
        while True:
            self._changed.clear()
            began_s = loop.time()
            pause_s = AGAIN_S
            try:
                seen = await self._observe(frozenset(ours()))
                pause_s = max(OBSERVE_S, BREATH * (loop.time() - began_s))
            except (Unreachable, Rejected) as error:
                if self._view is None and not self._silent:
                    log.warning("%s", error)
                    self._silent = True
                pools = self._view.seen.pools if self._view else ()
                seen = Seen(pools, health=f"Slurm: {error.describe()}"[:500])
            if seen != told:
                tell(seen)
                told = seen
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._changed.wait()

    async def _observe(self, ours: frozenset[str]) -> Seen:
        """Our own jobs first: one that starts meanwhile is then taken off twice for a moment, and never not at all."""
        look = await self.queue.look()
        running = [name for name in ours if any(_holds_nodes(job) for job in look.get(name, ()))]
        show = self.commands.run
        nodes = await nodes_of(self.commands, self.settings)
        partitions = output.read_partitions(await show("scontrol", "show", "partition", "--oneliner"))
        jobs = await show("scontrol", "show", "job", "--details", "--oneliner")
        others = output.read_other_jobs(jobs)
        shards = output.read_shards(jobs, {node.name for node in nodes})
        self._nodes = nodes
        self._view = view(self.settings, nodes, partitions, others, ours, running, shards)
        if not lent_partitions(self.settings, partitions):
            wanted = ", ".join(self.settings.partitions) or "any that is up"
            return msgspec.structs.replace(
                self._view.seen, health=f"Slurm has no partition of these: {wanted}"
            )
        return self._view.seen


async def nodes_of(commands: Commands, settings: SlurmSettings) -> list[output.Node]:
    """All nodes; with their switches, where pools are cut by them. Raises `Unreachable`, `Rejected`."""
    nodes = output.read_nodes(await commands.run("scontrol", "show", "node", "--details", "--oneliner"))
    if not settings.topology:
        return nodes
    switches: dict[str, str] = {}
    with contextlib.suppress(Rejected):  # a topology plugin that has nothing to show
        switches = output.read_switches(await commands.run("scontrol", "show", "topology"))
    return [node._replace(switch=switches.get(node.name, "")) for node in nodes]


def _holds_nodes(job: output.Job) -> bool:
    return not job.over and job.state not in WAITING
