"""Ranks behind their gates: opens them, watches how they end, sends signals, finds them again after the agent's restart.

A pod is never made here: whoever finds none says so. What a rank's end is follows from `judging`; that a pod has vanished, or its node, is looked up once
more before it is believed, and a pod that has vanished from a node that is silent is believed to run.
"""

import asyncio
import logging
import shlex
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from federator.kernel.errors import FederatorError, Transient, Unavailable
from federator.kube.api import Api, decoded
from federator.kube.objects import Pod
from federator.model.jobs import JobSpec
from federator.model.placements import Cause
from federator.retry import Backoff, retried
from federator_agent.core import events as ev
from federator_agent.core.state import PlacementRecord
from federator_agent.kube import commands, outputs
from federator_agent.kube.log_follower import LogFollower
from federator_agent.kube.manifests import MAIN, OUTPUTS_NOTE, PORT, pod_name
from federator_agent.kube.pod_status import End, end_of
from federator_agent.kube.pods import Pods
from federator_agent.runtime import Surroundings

AGAIN_S = 1.0
OPENED_AT = "FEDERATOR_OPENED_AT"
"""In the gate's file: when it was opened, by the agent's clock."""
BACKOFF, FETCH_TRIES = Backoff(1.0, 16.0), 5
log = logging.getLogger("federator_agent.kube")
Key = tuple[str, int]


class Ranks:
    """What is done for single ranks. Each has at most one task of a kind."""

    def __init__(self, api: Api, pods: Pods, around: Surroundings) -> None:
        self._api, self._pods, self._around = api, pods, around
        self._watching: dict[Key, asyncio.Task[None]] = {}
        self._following: dict[Key, tuple[LogFollower, asyncio.Task[None]]] = {}
        self._fetching: dict[Key, asyncio.Task[None]] = {}

    # Opening -------------------------------------------------------------------------------------------------------

    def open(self, record: PlacementRecord, spec: JobSpec, rank: int) -> None:
        """Open its gate, if it is shut, and watch it."""
        self._once(self._watching, (record.entry.placement, rank), self._open(record, spec, rank))

    async def _open(self, record: PlacementRecord, spec: JobSpec, rank: int) -> None:
        """However long it takes: the rank is to run, or be known not to."""
        placement = record.entry.placement
        name, now = pod_name(placement, rank), self._around.clock.now()
        await self._pods.synced()
        while True:
            pod = self._pods.get(name) or await self._seen(name)
            ended = await self._ended(name, pod)
            if ended is not None or pod is None:
                self._tell_end(placement, rank, pod, ended)
                return
            if await self._opened(record, spec, pod, now):
                break
            await self._pods.wait(placement, AGAIN_S)
        self._around.tell(ev.RankStarted(placement, rank, now))
        await self._watch(placement, rank, pod)

    async def _opened(self, record: PlacementRecord, spec: JobSpec, pod: Pod, now: float) -> bool:
        """Whether its gate is open now."""
        name, gate = pod.metadata.name, self._gate(record, spec, now)
        try:
            await commands.done(self._api, self._pods.path(pod), commands.OPEN, pod.metadata.uid, gate)
        except FederatorError as error:
            log.warning("the gate of %s cannot be opened yet: %s", name, error)
            return False
        return True

    def _gate(self, record: PlacementRecord, spec: JobSpec, now: float) -> str:
        """What the wrapper reads before the command: where rank 0 is, by number, since a cluster may have no names."""
        lines = [f"{OPENED_AT}={now:.3f}"]
        first = self._pods.get(pod_name(record.entry.placement, 0))
        if (
            len(record.entry.ranks) > 1
            and first is not None
            and first.status.pod_ip
            and not record.entry.rendezvous
        ):
            address = first.status.pod_ip
            host = f"[{address}]" if ":" in address else address
            values = {
                "MASTER_ADDR": address, "PET_MASTER_ADDR": address, "PET_RDZV_ENDPOINT": f"{host}:{PORT}",
            }  # fmt: skip
            lines += [
                f"export {key}={shlex.quote(value)}" for key, value in values.items() if key not in spec.env
            ]
        return "\n".join(lines)

    # Finding -------------------------------------------------------------------------------------------------------

    def find(self, record: PlacementRecord, rank: int) -> None:
        """What became of it while the agent was away."""
        self._once(self._watching, (record.entry.placement, rank), self._find(record.entry.placement, rank))

    async def _find(self, placement: str, rank: int) -> None:
        name = pod_name(placement, rank)
        await self._pods.synced()
        while True:
            pod = self._pods.get(name) or await self._seen(name)
            ended = await self._ended(name, pod)
            if ended is not None or pod is None:
                self._tell_end(placement, rank, pod, ended)
                return
            gate = await self._looked(pod)
            if gate is not None:
                break
            await self._pods.wait(placement, AGAIN_S)
        if gate:
            self._around.tell(ev.RankStarted(placement, rank, opened_at(gate, self._around.clock.now())))
            await self._watch(placement, rank, pod)
            return
        self.follow(placement, rank, pod)
        del self._watching[placement, rank]
        self._around.tell(ev.RankAbsent(placement, rank))

    async def _looked(self, pod: Pod) -> str | None:
        """What stands in its gate, nothing while it is shut; None: it cannot be seen."""
        path = self._pods.path(pod)
        try:
            return await commands.done(self._api, path, commands.LOOK, pod.metadata.uid)
        except FederatorError as error:
            log.warning("%s cannot be looked into yet: %s", pod.metadata.name, error)
            return None

    async def _seen(self, name: str) -> Pod | None:
        return await retried(
            lambda: self._pods.look(name),
            BACKOFF,
            on=FederatorError,
            failed=lambda error: log.warning("%s cannot be looked for: %s", name, error),
        )

    # Watching ------------------------------------------------------------------------------------------------------

    async def _watch(self, placement: str, rank: int, pod: Pod) -> None:
        """Until it is over; then its outputs are fetched, and it is told."""
        name = pod.metadata.name
        self.follow(placement, rank, pod)
        while True:
            latest = self._pods.get(name)
            if latest is not None and latest.metadata.uid != pod.metadata.uid:
                latest = None
            pod = latest or pod
            ended = await self._ended(name, latest, pod)
            if ended is not None:
                self._tell_end(placement, rank, pod, ended)
                return
            await self._pods.wait(placement)

    async def _ended(self, name: str, pod: Pod | None, last: Pod | None = None) -> End | None:
        """How it ended, if it has. `pod`: as the copy has it; `last`: as it was known before it vanished."""
        now = time.time()
        if pod is not None and (end := end_of(pod, now)) is not None:
            return end
        try:
            if pod is None:
                return await self._vanished(name, last, now)
            if pod.spec.node_name and await self._pods.node_gone(pod.spec.node_name):
                detail = f"its node {pod.spec.node_name} is no longer part of the cluster"
                return End(now, None, detail, Cause.NODE_LOST)
        except FederatorError as error:
            log.warning("%s cannot be looked up: %s", name, error)
        return None

    async def _vanished(self, name: str, last: Pod | None, now: float) -> End | None:
        """Somebody has removed the pod's object, finalizer and all. Its kubelet ends what is left, if it lives: it is given the time."""
        if await self._pods.look(name, last.metadata.uid if last else "") is not None:
            return None
        node = last.spec.node_name if last else ""
        if last is not None and node and not await self._pods.node_gone(node):
            seen = self._pods.nodes.items.get(node)
            if seen is not None and not seen.ready:
                return None
            await asyncio.sleep(self._grace_s(last))
        return End(
            time.time() if last else now,
            None,
            f"its pod {name} was removed from the cluster",
            Cause.NODE_LOST,
        )

    def _grace_s(self, pod: Pod) -> float:
        return float(pod.spec.termination_grace_period_seconds) + AGAIN_S

    def _tell_end(self, placement: str, rank: int, pod: Pod | None, end: End | None) -> None:
        end = end or End(time.time(), None, "its pod is not there", Cause.NODE_LOST)
        if pod is not None:
            self.follow(placement, rank, pod)
            self._following[placement, rank][0].over.set()
            self.fetch(placement, rank, pod)
        at = self._clock_time(end.at)
        self._around.tell(ev.RankEnded(placement, rank, at, end.exit_code, end.detail, end.cause))

    def _clock_time(self, real_at: float) -> float:
        """A time of the cluster by this agent's clock. The cluster's are whole seconds: put later, so that no end seems to come before a stop that caused it."""
        clock = self._around.clock
        ago_s = max(0.0, time.time() - real_at - 1.0)
        return clock.now() - ago_s / (clock.real_delay_s(1.0) or 1.0)

    # Signals, logs, outputs ----------------------------------------------------------------------------------------

    async def signal(self, placement: str, rank: int, signal: str) -> None:
        """To its process group, however long the API server is away: it is what a job saves itself on. Where a kill does not get through, its kubelet is asked."""
        name, word = pod_name(placement, rank), signal.removeprefix("SIG")
        await self._pods.synced()
        while True:
            pod = self._pods.get(name)
            if pod is None or pod.state(MAIN).terminated is not None:
                return
            try:
                await commands.done(self._api, self._pods.path(pod), commands.SIGNAL, pod.metadata.uid, word)
            except FederatorError as error:
                log.warning("%s did not take %s: %s", name, signal, error)
                if word == "KILL":
                    await self._pods.delete(pod)
                if word == "KILL" or not isinstance(error, Unavailable):
                    return
            else:
                return
            await asyncio.sleep(AGAIN_S)

    def follow(self, placement: str, rank: int, pod: Pod) -> None:
        """Bring its log from now on."""
        if (placement, rank) not in self._following:
            path = self._pods.path(pod)
            follower = LogFollower(self._api, path, self._around.log_file(placement, rank))
            self._following[placement, rank] = (follower, self._around.tasks.spawn(follower.run()))

    async def finish_log(self, placement: str, rank: int) -> None:
        """When nothing of it runs: return when its log is whole."""
        pod = await self._seen(pod_name(placement, rank))
        if pod is not None and pod.state(MAIN).waiting is None:
            self.follow(placement, rank, pod)
        if (following := self._following.get((placement, rank))) is not None:
            follower, task = following
            follower.over.set()
            await asyncio.wait([task])

    def archive(self, placement: str, rank: int) -> Path:
        """Where its outputs are kept."""
        return self._around.log_file(placement, rank).with_name("outputs.tar.gz")

    def fetch(self, placement: str, rank: int, pod: Pod) -> None:
        """Get its outputs now: until then its pod keeps its node's GPUs."""
        if OUTPUTS_NOTE in pod.metadata.annotations:
            self._once(self._fetching, (placement, rank), self._fetch(placement, rank, pod))

    async def _fetch(self, placement: str, rank: int, pod: Pod) -> None:
        archive, path = self.archive(placement, rank), self._pods.path(pod)
        patterns = decoded(pod.metadata.annotations.get(OUTPUTS_NOTE, "[]"), tuple[str, ...])
        archive.parent.mkdir(parents=True, exist_ok=True)

        async def once() -> None:
            if not archive.exists():
                await outputs.fetch(self._api, path, pod.metadata.uid, patterns, archive)
            await commands.done(self._api, path, commands.LEAVE, pod.metadata.uid)

        try:
            await retried(once, BACKOFF, on=(Transient, commands.CommandFailed), attempts=FETCH_TRIES)
        except FederatorError as error:
            log.warning("the outputs of %s cannot be fetched: %s", pod.metadata.name, error)

    async def fetched(self, placement: str, rank: int) -> Path:
        """Its outputs, once they are here. Raises `Unavailable` when they cannot be had."""
        pod = await self._seen(pod_name(placement, rank))
        archive = self.archive(placement, rank)
        if not archive.exists() and pod is not None:
            self.fetch(placement, rank, pod)
        task = self._fetching.get((placement, rank))
        if task is not None:
            await asyncio.wait([task])
        if not archive.exists():
            raise Unavailable(f"the outputs of rank {rank} could not be fetched from its pod")
        return archive

    def _once(self, tasks: dict[Key, asyncio.Task[None]], key: Key, work: Coroutine[Any, Any, None]) -> None:
        running = tasks.get(key)
        if running is not None and not running.done():
            work.close()
            return
        tasks[key] = self._around.tasks.spawn(work)

    def forget(self, placement: str) -> None:
        """It is over and told."""
        for tasks in (self._watching, self._fetching):
            for key in [key for key in tasks if key[0] == placement]:
                tasks.pop(key).cancel()
        for key in [key for key in self._following if key[0] == placement]:
            self._following.pop(key)[1].cancel()


def opened_at(gate: str, now: float) -> float:
    """When a gate was opened. A job's set-up may have written anything there; its rank is looked after all the same."""
    try:
        at = float(gate.partition("\n")[0].partition("=")[2])
    except ValueError:
        return now
    return at if 0.0 < at <= now else now
