"""Runs ranks as pods of a Kubernetes cluster. `docs/decisions/0020-pods-behind-a-gate.md` says why it is done so."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from federator.kernel.errors import FederatorError, NotFound
from federator.kube.api import Api
from federator.kube.objects import Pod
from federator.model.jobs import JobSpec
from federator.wire.needs import DATA, needs_of
from federator.wire.tunnel import Exec, Forward
from federator_agent import ownership, secrets
from federator_agent.core import events as ev
from federator_agent.core.lent_capacity import Seen
from federator_agent.core.state import PlacementRecord
from federator_agent.gpus import Gpu
from federator_agent.kube import commands, entrance, manifests, outputs, usage
from federator_agent.kube.capacity import PLACEMENT_LABEL, NodesAndPods, Use
from federator_agent.kube.checkpoint_push import pushed
from federator_agent.kube.informer import Informer
from federator_agent.kube.manifests import MAIN, pod_name
from federator_agent.kube.pod_volumes import MEMORY
from federator_agent.kube.pods import Pods
from federator_agent.kube.preparation import Preparation
from federator_agent.kube.quotas import Quotas
from federator_agent.kube.ranks import Ranks
from federator_agent.kube.settings import KubeSettings
from federator_agent.runtime import Channel, Prepared, Surroundings
from federator_agent.staging_errors import StagingRefused
from federator_agent.usage import Reading, Readings
from federator_agent.work_archives import WorkArchives

LOOK_PAUSE_S = 0.25
"""Between two looks at what is free, at least: a thousand pods that come at once are one look."""
HEALTH_S = 5.0
LOOKS = 4
"""Pods that are asked at once what they use."""
LEAVE_S = 0.1
"""So long the tasks that end together have to give their connections back."""
RUNNING = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
log = logging.getLogger("federator_agent.kube")


class KubeRuntime:
    """The `kube` runtime. The cluster's own scheduler chooses nodes and devices."""

    def __init__(self, settings: KubeSettings, around: Surroundings) -> None:
        self._around, self._settings = around, settings
        self.keeps = bool(settings.checkpoints)
        self._api = Api(settings.kubeconfig, settings.context)
        agent = ownership.mark_of(around.spool.directory, around.site).owner
        self._cluster = NodesAndPods(settings, around.site, agent)
        self.pods = Pods(self._api, settings, around.site, self._cluster, agent)
        self._ranks = Ranks(self._api, self.pods, around)
        self._quotas = Quotas(self._api, settings, lambda home: self._cluster.asked(self.pods.within(home)))
        self._archives = WorkArchives(around.spool.directory, around.bulk)
        self._preparing = Preparation(
            self._api, self.pods, self._ranks, around, settings, self._cluster, self._quotas, self._archives
        )
        self._look = self.pods.nodes_changed
        self._looks = asyncio.Semaphore(LOOKS)
        self._uses: Informer[Pod, Use] = Informer(
            self._api,
            "/api/v1/pods",
            Pod,
            lambda pod: (pod.metadata.key, self._cluster.use(pod)),
            lambda _name, _use: self._look.set(),
            {"fieldSelector": RUNNING},
        )

    def resume(self, records: Sequence[PlacementRecord]) -> None:
        """Begin to watch, and look for pods that nobody knows any more; old archives of work directories go."""
        self._archives.drop_old()
        spawn = self._around.tasks.spawn
        spawn(self.pods.mirror.run())
        spawn(self.pods.dra.run())
        spawn(self.pods.keep_nodes())
        spawn(self._stay_connected())
        spawn(self._tidy({record.entry.placement for record in records}))

    async def _stay_connected(self) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(LEAVE_S)
            await self._api.close()

    async def _tidy(self, known: set[str]) -> None:
        """Pods of placements that this agent has no record of: taken back when their command never ran, or is over; else left alone, as are those that another agent has made."""
        await self.pods.synced()
        for pod in list(self.pods.mirror.items.values()):
            name, placement = pod.metadata.name, pod.metadata.labels.get(PLACEMENT_LABEL, "")
            if placement in known:
                continue
            if not self.pods.made_here(pod):
                log.error("the pod %s is of another agent of this site's name; it is left alone", name)
            elif await self._idle(pod):
                log.warning("the pod %s is of no placement known here, and is taken back", name)
                await self._preparing.take_back(placement)
            else:
                log.error("the pod %s runs for a placement that is not known here; it is left alone", name)

    async def _idle(self, pod: Pod) -> bool:
        if pod.over or not pod.spec.node_name or pod.state(MAIN).terminated is not None:
            return True
        if pod.state(MAIN).running is None:
            return True
        path = self.pods.path(pod)
        try:
            return not await commands.done(self._api, path, commands.LOOK, pod.metadata.uid)
        except FederatorError:
            return False

    async def observe(self) -> None:
        """Tell what is free whenever nodes or pods change."""
        self._around.tasks.spawn(self._uses.run())
        self._around.tasks.spawn(self._quotas.run(self._look.set))
        await self.pods.nodes.synced.wait()
        await self._uses.synced.wait()
        told: Seen | None = None
        while True:
            self._look.clear()
            seen = self._seen()
            if seen != told:
                self._around.tell(ev.CapacitySeen(seen))
                told = seen
            await asyncio.sleep(LOOK_PAUSE_S)
            try:
                async with asyncio.timeout(HEALTH_S):
                    await self._look.wait()
            except TimeoutError:
                continue

    def _seen(self) -> Seen:
        nodes = self.pods.nodes.items
        machines = {name: node.machine for name, node in nodes.items() if node.machine is not None}
        trouble = self.pods.nodes.trouble or self._uses.trouble or self.pods.mirror.trouble
        return self._cluster.seen(
            machines,
            self._uses.items.values(),
            trouble,
            self._quotas.now,
            self.pods.claimed(),
            self.pods.dra.missing(self._settings.pools),
        )

    def find_port(self) -> int:
        """Every pod has an address of its own."""
        return manifests.PORT

    def checkpoints(self, record: PlacementRecord) -> None:
        """They lie on a claim that pods mount, and the agent does not."""
        del record

    async def prepare(
        self, record: PlacementRecord, spec: JobSpec, setting_up: Callable[[], None]
    ) -> Prepared:
        """Pods, all of them on nodes, each with its work directory, set up and waiting."""
        secrets.check(self._around.secrets, spec, record.entry.whose)
        self._around.carrier.check(spec, record.entry.whose)
        if self._settings.data is None and DATA in needs_of(spec):
            raise StagingRefused("this site cannot bring data to its pods: its site file has no kube.data")
        return await self._preparing.prepare(record, spec, setting_up)

    async def unprepare(self, placement: str) -> None:
        """Take all of it back."""
        await self._preparing.take_back(placement)

    def start(self, record: PlacementRecord, spec: JobSpec, ranks: tuple[int, ...]) -> None:
        """Open their gates."""
        hosts = ", ".join(f"{slot.rank} on {slot.host}" for slot in record.slots)
        log.info("%s of job %s starts: %s", record.entry.placement, record.entry.job, hosts)
        for rank in ranks:
            self._ranks.open(record, spec, rank)

    def find(self, record: PlacementRecord, rank: int) -> None:
        """Look at its pod."""
        self._ranks.find(record, rank)

    def signal(self, placement: str, ranks: tuple[int, ...], signal: str) -> None:
        """To their process groups."""
        for rank in ranks:
            self._around.tasks.spawn(self._ranks.signal(placement, rank, signal))

    async def enter(
        self, record: PlacementRecord, spec: JobSpec, rank: int, request: Exec | Forward
    ) -> Channel:
        """Its pod."""
        del spec
        pod = self.pods.get(pod_name(record.entry.placement, rank))
        if pod is None:
            raise NotFound("its pod is not there any more")
        path = self.pods.path(pod)
        if isinstance(request, Forward):
            return await entrance.connect(self._api, path, request, self._around.tasks)
        hang_up = partial(entrance.hang_up, self._api, path, pod.metadata.uid)
        return await entrance.enter(self._api, path, request, hang_up, self._around.tasks)

    async def usage(self, records: Sequence[PlacementRecord], gpus: Mapping[int, Gpu]) -> Readings:
        """As the pods see it, a few at a time. Of a gang all or nothing: what one rank does not say would read as nothing done."""
        del gpus
        found = await asyncio.gather(*(self._used(record) for record in records))
        return {
            record.entry.placement: {
                rank: reading for rank, reading in zip(record.entry.ranks, ranks, strict=True) if reading
            }
            for record, ranks in zip(records, found, strict=True)
            if all(ranks)
        }

    async def _used(self, record: PlacementRecord) -> list[Reading | None]:
        readings: list[Reading | None] = []
        for rank in record.entry.ranks:
            pod = self.pods.get(pod_name(record.entry.placement, rank))
            if pod is None or pod.state(MAIN).running is None:
                return [None]
            async with self._looks:
                readings.append(await usage.look(self._api, self.pods.path(pod)))
        return readings

    async def finish_logs(self, record: PlacementRecord) -> None:
        """Get what is missing of each."""
        placement = record.entry.placement
        await asyncio.gather(*(self._ranks.finish_log(placement, rank) for rank in record.entry.ranks))

    async def push_last(self, record: PlacementRecord, spec: JobSpec) -> str:
        """From each pod, by its side container."""
        if DATA not in needs_of(spec) or self._settings.data is None:
            return ""
        placement = record.entry.placement
        said = await asyncio.gather(
            *(pushed(self._api, self.pods, placement, rank.rank) for rank in record.ranks)
        )
        return "; ".join(dict.fromkeys(each for each in said if each))

    async def pack_outputs(self, record: PlacementRecord, spec: JobSpec, archive: Path) -> bool:
        """Of all ranks together."""
        if not spec.outputs or not record.ranks:
            return False
        placement = record.entry.placement
        found = await asyncio.gather(*(self._ranks.fetched(placement, rank.rank) for rank in record.ranks))
        return await asyncio.to_thread(outputs.merge, found, archive) > 0

    async def discard(self, placement: str, checkpoints_of: str | None) -> None:
        """Let its objects go. Checkpoints are removed by whoever has mounted the claim: the agent, where its manifest says so."""
        if checkpoints_of:
            noted = self._around.spool.checkpoints / MEMORY / "saved" / f"{checkpoints_of}.json"
            noted.unlink(missing_ok=True)
        self._ranks.forget(placement)
        await self._preparing.take_back(placement)

    def close(self) -> None:
        """The connections have ended with the tasks. Everything that runs goes on."""
