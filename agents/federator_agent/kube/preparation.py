"""Brings a placement to its gate: pods made together, scheduled together or taken back, work directory and set-up, each rank by itself.

All of it may be done again after a restart of the agent: names make a pod the same pod, and markers in it say how far it came.
"""

import asyncio
import logging
import tarfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from federator.kernel.errors import FederatorError, Forbidden, Invalid, NotFound, Permanent, Unavailable
from federator.kernel.tasks import cancel_and_wait
from federator.kube.api import Api
from federator.kube.objects import Pod, instant_at
from federator.model.jobs import JobSpec
from federator.model.placements import Cause, PlacementStatus
from federator.wire.needs import DATA, needs_of
from federator_agent import job_folders
from federator_agent.core.state import PlacementRecord
from federator_agent.kube import commands, dra, kueue, manifests
from federator_agent.kube.capacity import NodesAndPods, PoolPlace
from federator_agent.kube.gangs import join
from federator_agent.kube.manifests import MAIN, SIDE, pod_name
from federator_agent.kube.pod_status import end_of, quiet, released, trouble_of, unscheduled
from federator_agent.kube.pod_template import laid_over
from federator_agent.kube.pod_volumes import laden
from federator_agent.kube.pods import LOOK_AGAIN_S, Pods
from federator_agent.kube.quotas import Quotas
from federator_agent.kube.ranks import Ranks
from federator_agent.kube.settings import KubeSettings, class_of
from federator_agent.runtime import Prepared, Surroundings
from federator_agent.staging_errors import StagingError, StagingLost, StagingRefused
from federator_agent.work_archives import WorkArchives

IMAGE_PATIENCE_S = 20.0
"""A pull that fails is tried again by the kubelet for so long before it counts as failed: registries have bad moments."""
AGAIN_S = 1.0
MOST_REFUSALS = 15
"""An API server that has just started refuses what its roles allow until it has read them."""
KILLED = 128
"""Exit codes from here on are those of commands that were killed, with the container that they ran in."""
log = logging.getLogger("federator_agent.kube")


class Archives(NamedTuple):
    """What is unpacked in each pod: the work directory, and what the job reads of the outputs of others."""

    work: Path | None
    inputs: Path | None

    def sizes(self, *, carries: bool) -> tuple[str, str, str]:
        """As `commands.STAGE` takes them. `carries`: data is brought besides."""
        work, inputs = (str(each.stat().st_size) if each else "0" for each in self)
        return work, "data" if carries else "", inputs


class Preparation:
    """What happens before the gate."""

    def __init__(  # noqa: PLR0913, PLR0917 - what it joins
        self,
        api: Api,
        pods: Pods,
        ranks: Ranks,
        around: Surroundings,
        settings: KubeSettings,
        cluster: NodesAndPods,
        quotas: Quotas,
        work_archives: WorkArchives,
    ) -> None:
        self._api, self._pods, self._ranks = api, pods, ranks
        self._around, self._settings, self._cluster = around, settings, cluster
        self._quotas, self._work_archives = quotas, work_archives
        self._making: dict[str, asyncio.Task[list[BaseException]]] = {}

    async def prepare(
        self, record: PlacementRecord, spec: JobSpec, setting_up: Callable[[], None]
    ) -> Prepared:
        """Return when all ranks wait at their gates. Raises `StagingError`; then nothing of it runs or keeps a node."""
        placement = record.entry.placement
        await self._pods.synced()
        archives = Archives(None, None)
        try:
            archives = Archives(await self._archive(spec), await self._inputs(record, spec))
            await self.create_pods(record, spec)
            await self.wait_until_scheduled(record)
            await self._staged(record, spec, archives, setting_up)
        except StagingRefused:
            await self.take_back(placement)
            raise
        except StagingError:
            await self._end(placement)
            raise
        finally:
            if archives.inputs is not None:  # each pod has its own, and the agent keeps room for one job's
                archives.inputs.unlink(missing_ok=True)
        pods = {rank: self._pods.get(pod_name(placement, rank)) for rank in record.entry.ranks}
        hosts = {rank: pod.spec.node_name for rank, pod in pods.items() if pod is not None}
        return Prepared(manifests.PORT, hosts)

    async def _archive(self, spec: JobSpec) -> Path | None:
        if spec.workdir is None:
            return None
        try:
            return await self._work_archives.fetch(spec.workdir)
        except (Permanent, OSError) as error:
            raise StagingError(Cause.STAGING, f"the work directory cannot be fetched: {error}") from None

    async def _inputs(self, record: PlacementRecord, spec: JobSpec) -> Path | None:
        """What it reads of the outputs of other jobs, as one archive for all its ranks."""
        if not spec.inputs_from:
            return None
        folder = self._around.spool.placements / record.entry.placement / "inputs"
        folder.parent.mkdir(parents=True, exist_ok=True)
        await self._around.carrier.bring_outputs(record, spec, folder, log.info)
        archive = folder.with_suffix(".tar.gz")
        await asyncio.to_thread(_packed, folder, archive)
        return archive

    async def create_pods(self, record: PlacementRecord, spec: JobSpec) -> None:
        """All at once. What is there already is taken for what it is: the names are never used for anything else."""
        device_sets = (
            device_set for node in self._pods.nodes.items.values() for device_set in node.device_sets
        )
        place = self._cluster.place(record.entry.pool, device_sets)
        if place is None:
            raise StagingRefused(f"there is no pool {record.entry.pool} at the cluster any more")
        if spec.resources.gpus.count and any(slot.share_milli != place.part_milli for slot in record.slots):
            raise StagingRefused(f"the GPUs of pool {record.entry.pool} are cut in another way by now")
        site, home = self._around.site, self._settings.home(record.entry.whose)
        try:
            if len(record.entry.ranks) > 1:
                await self._pods.create_service(manifests.service(record, site, home))
                await self._pods.create_policy(manifests.network_policy(record, site, home))
            made = self._manifests(record, spec, place)
            labels = manifests.labels(record, site)
            if spec.resources.gpus.count and class_of(place.resource):
                await self._pods.create_claims(dra.ask(made, record.entry.placement, place.resource, labels))
            # Last: of a resource that nodes do not publish a scheduler would wait for ever to have enough.
            if (gang := self._settings.gang_scheduler) is not None:
                group = join(made, gang, record.entry.placement, record.entry.whose, labels)
                if group is not None:
                    await self._pods.create_group(gang, group)
            await self._make(record.entry.placement, made)
        except (Forbidden, Invalid) as error:
            raise StagingRefused(f"the cluster does not take its pods: {error}") from None
        except FederatorError as error:
            raise StagingRefused(f"its pods could not be made: {error}") from None

    def _manifests(self, record: PlacementRecord, spec: JobSpec, place: PoolPlace) -> list[dict[str, Any]]:
        """Of all ranks, with what the site lays over them."""
        settings, whose = self._settings, record.entry.whose
        hidden = [self._around.secrets[name].kubernetes for name in spec.secrets or ()]
        made = [
            manifests.pod(record, spec, rank, place, settings, self._around.site, hidden)
            for rank in record.entry.ranks
        ]
        if gang_secret := self._around.gang_secret(record, spec):
            for each in made:
                manifests.tell_secret(each, gang_secret)
        laden(made, record, spec, settings, self._around)
        made = [laid_over(each, *settings.templates(whose)) for each in made]
        for each in made:
            manifests.bound(each, self._quotas.of(settings.home(whose)))
        return made

    async def _make(self, placement: str, pods: list[dict[str, Any]]) -> None:
        """Return when no request to make a pod is under way any more. Raises the first one's error."""
        # A preparation that is given up must still learn what there is: a pod that comes later is nobody's.
        making = asyncio.create_task(self._made(pods))
        self._making[placement] = making
        making.add_done_callback(lambda _: self._making.pop(placement, None))
        for error in await asyncio.shield(making):
            raise error

    async def _made(self, pods: list[dict[str, Any]]) -> list[BaseException]:
        results = await asyncio.gather(*map(self._pods.create, pods), return_exceptions=True)
        return [result for result in results if result is not None]

    async def wait_until_scheduled(self, record: PlacementRecord) -> None:
        """All pods have a node, or time is up: first for the controller that holds them by a gate, if there is one, then for the scheduler."""
        placement, gated, since_at = record.entry.placement, False, 0.0
        while True:
            pods = [self.live(record, rank) for rank in record.entry.ranks]
            left = [pod for pod in pods if not pod.spec.node_name]
            if not left:
                return
            first_at = min(instant_at(pod.metadata.creation_timestamp) for pod in pods)
            if gated != (gated := any(pod.spec.scheduling_gates for pod in left)) or not since_at:
                since_at = max(first_at, time.time() - 1.0)
            queued = gated or self._settings.gang_scheduler is not None
            within_s = self._settings.admit_within_s if queued else self._settings.start_within_s
            give_up_at = since_at + within_s
            if time.time() >= give_up_at:
                what = f"{len(left)} of {len(pods)} pods"
                if gated:
                    why = await self._unadmitted(placement, left)
                    raise StagingRefused(f"{what} were not admitted within {within_s:g} s: {why}")
                why = next(filter(None, map(unscheduled, left)), "the scheduler has not said why")
                raise StagingRefused(f"{what} found no node within {within_s:g} s: {why}")
            await self._pods.wait(placement, min(5.0, max(0.05, give_up_at - time.time())))

    async def _unadmitted(self, placement: str, pods: list[Pod]) -> str:
        gates = sorted({gate.name for pod in pods for gate in pod.spec.scheduling_gates})
        if kueue.GATE in gates:
            return await kueue.reason(self._api, pods[0].metadata.namespace, placement)
        return f"held by the scheduling gates {', '.join(gates)}"

    def live(self, record: PlacementRecord, rank: int) -> Pod:
        """A rank's pod, which should be on its way to its gate. Raises `StagingError` when it cannot be any more."""
        name = pod_name(record.entry.placement, rank)
        pod = self._pods.get(name)
        if pod is None:
            raise StagingLost(f"rank {rank}: its pod was removed from the cluster before it began")
        end = end_of(pod, time.time())
        if end is not None and pod.state(MAIN).terminated is not None and end.exit_code is not None:
            terminated = pod.state(MAIN).terminated
            assert terminated is not None
            if end.cause is not None:
                raise StagingError(end.cause, f"rank {rank}: in its set-up: {end.detail}", end.exit_code)
            if terminated.message.strip() == "set-up":
                message = f"the set-up ended with exit code {end.exit_code}; the log has its output"
                raise StagingError(Cause.SETUP, message, end.exit_code)
            why = end.detail or f"its container ended with exit code {end.exit_code} before its gate"
            raise StagingError(Cause.STAGING, f"rank {rank}: {why}", end.exit_code)
        if end is not None:
            raise StagingLost(f"rank {rank}: {end.detail}", end.cause or Cause.NODE_LOST)
        if pod.metadata.deletion_timestamp:
            raise StagingLost(f"rank {rank}: its pod was deleted at the cluster", Cause.EVICTED)
        return pod

    async def _staged(
        self, record: PlacementRecord, spec: JobSpec, archives: Archives, setting_up: Callable[[], None]
    ) -> None:
        left = set(record.entry.ranks)

        def staged(rank: int) -> None:
            left.discard(rank)
            if not left and spec.setup:
                setting_up()

        def words(rank: int) -> tuple[str, ...]:
            sizes = archives.sizes(carries=DATA in needs_of(spec))
            return *sizes, manifests.inputs_dir(record, spec, rank)

        tasks = [
            asyncio.create_task(self.stage_rank(record, rank, archives, staged, words(rank)))
            for rank in record.entry.ranks
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            await cancel_and_wait(*tasks)

    async def stage_rank(
        self,
        record: PlacementRecord,
        rank: int,
        archives: Archives,
        staged: Callable[[int], None],
        words: Sequence[str],
    ) -> None:
        """One rank, up to its gate: looked after by watching its pod while a command in it waits."""
        pod = await self._side_runs(record, rank)
        self._ranks.follow(record.entry.placement, rank, pod)
        refusals = 0
        while True:
            pod = self.live(record, rank)
            work = asyncio.create_task(self._run_stage(pod, rank, archives, staged, words))
            watch = asyncio.create_task(self._main_fails(record, rank))
            try:
                await asyncio.wait([work, watch], return_when=asyncio.FIRST_COMPLETED)
                if watch.done():
                    watch.result()
                if work.done():
                    return work.result()
            except commands.CommandFailed as error:
                _judge(error, rank)
                log.info("rank %d of %s is over before its gate", rank, record.entry.placement)
            except (Unavailable, NotFound) as error:
                log.info("staging rank %d of %s: %s; trying again", rank, record.entry.placement, error)
            except Forbidden as error:
                if (refusals := refusals + 1) > MOST_REFUSALS:
                    remedy = "give the agent's role the verb create on pods/exec"
                    raise StagingRefused(f"rank {rank}: {error}; {remedy}") from None
                log.info("staging rank %d of %s: %s; trying again", rank, record.entry.placement, error)
            finally:
                await cancel_and_wait(work, watch)
            await self._pods.wait(record.entry.placement, AGAIN_S)

    async def _run_stage(
        self, pod: Pod, rank: int, archives: Archives, staged: Callable[[int], None], words: Sequence[str]
    ) -> None:
        path, uid = self._pods.path(pod), pod.metadata.uid
        wanted = {"want work": archives.work, "want inputs": archives.inputs}
        async with commands.run(self._api, path, commands.STAGE, uid, *words, stdin=True) as command:
            async for line in command.lines():
                if (archive := wanted.get(line)) is not None:
                    await command.send_file(archive)
                elif line == "staged":
                    staged(rank)

    async def _side_runs(self, record: PlacementRecord, rank: int) -> Pod:
        troubled_at = 0.0
        while True:
            pod = self.live(record, rank)
            if pod.state(SIDE).running is not None and pod.state(MAIN).waiting is None:
                return pod
            troubled_at = self._troubled(pod, rank, troubled_at)
            await self._pods.wait(record.entry.placement, AGAIN_S)

    async def _main_fails(self, record: PlacementRecord, rank: int) -> None:
        """Return never; raise when the pod comes to nothing."""
        troubled_at = 0.0
        while True:
            pod = self.live(record, rank)
            troubled_at = self._troubled(pod, rank, troubled_at)
            if pod.spec.node_name and await self._node_gone(pod.spec.node_name):
                raise StagingLost(
                    f"rank {rank}: its node {pod.spec.node_name} is no longer part of the cluster"
                )
            await self._pods.wait(record.entry.placement)

    async def _node_gone(self, node: str) -> bool:
        try:
            return await self._pods.node_gone(node)
        except FederatorError:
            return False

    def _troubled(self, pod: Pod, rank: int, since_at: float) -> float:
        """Since when it has been in trouble, 0.0 for not; raises when that has been too long."""
        trouble = trouble_of(pod)
        if trouble is None:
            return 0.0
        since_at = since_at or time.time()
        if not trouble.lasting and time.time() - since_at < IMAGE_PATIENCE_S:
            return since_at
        if trouble.ours:
            raise StagingRefused(f"rank {rank}: the site's side container: {trouble.message}")
        raise StagingError(trouble.cause, f"rank {rank}: {trouble.message}")

    async def _end(self, placement: str) -> None:
        """Of a placement that can never start nothing may keep a node. Its objects stay until the dispatcher knows."""
        try:
            await asyncio.gather(*map(self._pods.delete, await self._pods.of(placement)))
        except FederatorError as error:
            log.warning("the pods of %s could not be ended: %s", placement, error)

    async def take_back(self, placement: str) -> None:
        """End and remove all of it; return when nothing of it runs. However long that takes: until then its nodes are not free."""
        if (making := self._making.get(placement)) is not None:
            await asyncio.wait([making])
        pause_s = 0.2
        while True:
            try:
                pods = await self._pods.of(placement)
                await asyncio.gather(*(self._pods.delete(pod) for pod in pods if not quiet(pod)))
                for pod in pods:
                    if released(pod):
                        continue
                    if quiet(pod) or (pod.spec.node_name and await self._pods.node_gone(pod.spec.node_name)):
                        await self._pods.release(pod)
                if all(map(released, pods)):
                    await self._pods.delete_service(placement)
                    return
                await self._pods.wait(placement, pause_s)
                pause_s = min(LOOK_AGAIN_S, pause_s * 1.5)  # a node may be silent for days
            except FederatorError as error:
                log.warning("the pods of %s cannot be taken back yet: %s", placement, error)
                await asyncio.sleep(AGAIN_S)


def _packed(folder: Path, archive: Path) -> None:
    """The folder as an archive, and then no longer as a folder. Raises `StagingRefused` when the agent has no room for it."""
    try:
        with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
            tar.add(folder, arcname=".")
    except OSError as error:
        archive.unlink(missing_ok=True)
        raise StagingRefused(f"what it reads of other jobs cannot be packed: {error}") from None
    finally:
        job_folders.remove(folder)


def _judge(error: commands.CommandFailed, rank: int) -> None:
    """Raise what a failed command in a rank's pod means; return when only the pod can tell."""
    if error.exit_code == commands.WRONG_POD:
        raise StagingLost(f"rank {rank}: another pod has its name") from None
    if error.exit_code == commands.UNBROUGHT:
        raise _unbrought(error.said) from None
    if error.exit_code != commands.MAIN_OVER and error.exit_code < KILLED:
        message = (
            f"rank {rank}: the work directory, or what it reads of other jobs, could not be unpacked: {error}"
        )
        raise StagingError(Cause.STAGING, message) from None


def _unbrought(said: str) -> StagingError:
    """What moves a pod's data has said why it cannot: the kind of the failure first, then in words."""
    status, _, message = said.partition("\n")
    if status == PlacementStatus.REFUSED:
        return StagingRefused(message)
    return StagingError(Cause.STAGING, message)
