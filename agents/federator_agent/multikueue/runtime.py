"""Carries out nothing itself: a placement nominates the site's cluster for a Workload, begins when Kueue has admitted it there, and ends as it ends.

That a Workload runs at one cluster only is Kueue's promise: `status.clusterName` cannot change until it is evicted. So a placement that has begun is lost as soon as another
cluster, or none, stands there. `docs/decisions/0046-workloads-of-multikueue-as-jobs.md` says why it is done so.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from federator.kernel.errors import Conflict, FederatorError, Forbidden, Invalid, NotFound, NotSupported
from federator.kube.api import Api
from federator.model.jobs import JobSpec
from federator.model.placements import Cause
from federator.wire.tunnel import Exec, Forward
from federator_agent.core import events as ev
from federator_agent.core.state import PlacementRecord
from federator_agent.gpus import Gpu
from federator_agent.kube.informer import Informer
from federator_agent.multikueue.settings import MultiKueueSettings
from federator_agent.multikueue.workloads import PENDING, RETRY, Named, Workload, base, kept, named_by
from federator_agent.runtime import Channel, Prepared, Surroundings
from federator_agent.staging_errors import StagingRefused
from federator_agent.usage import Readings

PORT = 1
"""Nobody listens: where ranks meet is seen to in their own cluster."""
AGAIN_S = 2.0
MERGE_PATCH, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
log = logging.getLogger("federator_agent.multikueue")


class _Running(NamedTuple):
    """A placement whose gate is open."""

    named: Named
    ranks: tuple[int, ...]


class MultiKueueRuntime:
    """The `multikueue` runtime."""

    keeps = False

    def __init__(self, settings: MultiKueueSettings, around: Surroundings) -> None:
        self._settings, self._around = settings, around
        self.api = Api(settings.kubeconfig, settings.context)
        self.base_path = ""
        self.synced = asyncio.Event()
        self._changed = asyncio.Condition()
        self._stands_for: dict[str, Named] = {}
        """By placement, its Workload."""
        self._running: dict[str, _Running] = {}
        self.workloads: dict[str, Workload] = {}

    # Watching --------------------------------------------------------------------------------------------------------

    def resume(self, records: Sequence[PlacementRecord]) -> None:
        """Begin to watch the Workloads of the manager."""
        for record in records:
            spec = self._around.spool.spec(record.entry.spec_hash)
            named = named_by(spec) if spec is not None else None
            if named is not None and not self._stranger(record, named):
                self._stands_for[record.entry.placement] = named
        self._around.tasks.spawn(self.watch())

    async def watch(self) -> None:
        """Follow the Workloads of the cluster, once Kueue is there."""
        try:
            while not self.base_path:
                try:
                    self.base_path = await base(self.api)
                except FederatorError as error:
                    log.warning("Kueue cannot be reached yet: %s", error)
                    await asyncio.sleep(AGAIN_S)
            seen: Informer[Workload, Workload] = Informer(
                self.api,
                f"{self.base_path}/workloads",
                Workload,
                kept,
                self.seen,
                skips=True,
            )
            self.workloads = seen.items
            self._around.tasks.spawn(self._once(seen))
            await seen.run()
        finally:
            await self.api.close()

    async def _once(self, seen: Informer[Workload, Workload]) -> None:
        await seen.synced.wait()
        self.synced.set()
        for placement in list(self._running):
            self._look(placement)

    def seen(self, key: str, workload: Workload | None) -> None:
        """Act on a Workload that has changed; None: it is gone."""
        del workload
        self._around.tasks.spawn(self._wake())
        if self.synced.is_set():
            for placement in [name for name, each in self._running.items() if each.named.key == key]:
                self._look(placement)

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def observe(self) -> None:
        """What the cluster has is what the site file declares."""

    def find_port(self) -> int:
        """None is needed."""
        return PORT

    # Up to the gate --------------------------------------------------------------------------------------------------

    async def prepare(
        self, record: PlacementRecord, spec: JobSpec, setting_up: Callable[[], None]
    ) -> Prepared:
        """Nominate the cluster, and wait until it has admitted the Workload."""
        del setting_up
        named = named_by(spec)
        if named is None:
            raise StagingRefused(
                "this site only nominates its cluster for Workloads of Kueue, and the job stands for none"
            )
        if why := self._stranger(record, named):
            raise StagingRefused(why)
        self._stands_for[record.entry.placement] = named
        await self.synced.wait()
        self._note(record, f"cluster {self._settings.cluster} is nominated for Workload {named.key}")
        try:
            async with asyncio.timeout(self._settings.admit_within):
                while not await self._admitted(named):
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(AGAIN_S), self._changed:
                            await self._changed.wait()
        except TimeoutError:
            await self.unprepare(record.entry.placement)
            within_s = self._settings.admit_within
            raise StagingRefused(
                f"cluster {self._settings.cluster} has not admitted it within {within_s:.0f} s"
            ) from None
        return Prepared(PORT)

    def _stranger(self, record: PlacementRecord, named: Named) -> str:
        """Why a job of that person may not stand for this Workload; empty: it may. Whoever names a Workload can have it evicted."""
        owner, person = record.entry.owner, self._settings.namespaces.get(named.namespace)
        if owner and owner == person:
            return ""
        return (
            f"jobs of {owner or 'somebody unknown'} may not stand for Workloads of namespace {named.namespace}: "
            "multikueue.namespaces of the site file names whose may"
        )

    async def _admitted(self, named: Named) -> bool:
        """Whether the cluster has it, or has had it; nominates it where nobody has. Of a Workload that is gone or evicted, the operator ends the job. Raises `StagingRefused`."""
        found, mine = self._find(named), self._settings.cluster
        if found is None:
            return False
        if found.status.cluster_name and found.status.cluster_name != mine:
            raise StagingRefused(f"Kueue has given it to cluster {found.status.cluster_name}")
        if found.status.cluster_name:
            return True
        waits = found.ended is None and found.check(self._settings.check) == PENDING
        if waits and found.status.nominated_cluster_names != (mine,):
            await self._nominate(found, (mine,))
        return False

    async def _nominate(self, workload: Workload, clusters: tuple[str, ...]) -> None:
        """Write the nomination. Where the Workload has changed, or the manager is away, it is looked at again. Raises `StagingRefused`."""
        meta = {"resourceVersion": workload.metadata.resource_version, "uid": workload.metadata.uid}
        body = {"metadata": meta, "status": {"nominatedClusterNames": list(clusters) or None}}
        try:
            await self.api.ask("PATCH", self._path(workload), body=body, kind=MERGE_PATCH)
        except (Invalid, Forbidden) as error:
            raise StagingRefused(f"the manager does not take the nomination: {error}") from None
        except FederatorError as error:
            log.info("Workload %s is not nominated yet: %s", workload.key, error)

    async def unprepare(self, placement: str) -> None:
        """Withdraw the nomination; where the cluster has the Workload by now, Kueue is asked to evict it. Returns when the cluster has no claim to it any more."""
        named = self._stands_for.get(placement)
        if named is None:
            return
        await self.synced.wait()
        while (found := self._find(named)) is not None and self._claims(found):
            await self._let_go(found)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S), self._changed:
                    await self._changed.wait()

    def _claims(self, found: Workload) -> bool:
        """Whether the cluster has it, or may take it."""
        mine = self._settings.cluster
        nominated = not found.status.cluster_name and mine in (found.status.nominated_cluster_names or ())
        return not found.ended and (found.status.cluster_name == mine or nominated)

    async def _let_go(self, found: Workload) -> None:
        try:
            if found.status.cluster_name:
                await self._evict(found)
            else:
                await self._nominate(found, ())
        except FederatorError as error:
            log.warning("Workload %s cannot be taken back yet: %s", found.key, error)

    async def _evict(self, found: Workload) -> None:
        """Have Kueue evict it and queue it again, as MultiKueue does where a cluster has evicted it."""
        number = next(
            (
                at
                for at, each in enumerate(found.status.admission_checks)
                if each.name == self._settings.check
            ),
            None,
        )
        if number is None or found.check(self._settings.check) == RETRY:
            return
        at = f"/status/admissionChecks/{number}"
        body = [
            {"op": "test", "path": "/metadata/uid", "value": found.metadata.uid},
            {"op": "test", "path": f"{at}/name", "value": self._settings.check},
            {"op": "replace", "path": f"{at}/state", "value": RETRY},
            {
                "op": "add",
                "path": f"{at}/message",
                "value": "Federator has planned it elsewhere, or stopped it",
            },
        ]
        with contextlib.suppress(Conflict, NotFound):
            await self.api.ask("PATCH", self._path(found), body=body, kind=JSON_PATCH)

    def _find(self, named: Named) -> Workload | None:
        found = self.workloads.get(named.key)
        return found if named.of(found) else None

    def _path(self, found: Workload) -> str:
        meta = found.metadata
        return f"{self.base_path}/namespaces/{meta.namespace}/workloads/{meta.name}/status"

    def _note(self, record: PlacementRecord, text: str) -> None:
        """A line in the log of its first rank; those of the others are empty."""
        for number, slot in enumerate(record.slots):
            file = self._around.log_file(record.entry.placement, slot.rank)
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("a") as log_file:
                log_file.write("" if number else f"{text}\n")

    def checkpoints(self, record: PlacementRecord) -> None:
        """They are in their cluster, as its Workload sees to it."""
        del record

    # Beyond it -------------------------------------------------------------------------------------------------------

    def start(self, record: PlacementRecord, spec: JobSpec, ranks: tuple[int, ...]) -> None:
        """Kueue has begun with it: from now on it is watched for its end."""
        del spec
        self._note(record, f"cluster {self._settings.cluster} has admitted it; its logs are there")
        for rank in ranks:
            self._follow(record, rank, self._around.clock.now())

    def find(self, record: PlacementRecord, rank: int) -> None:
        """It was admitted before `start` was asked for, so it began."""
        at = record.started_at
        self._follow(record, rank, at if at is not None else self._around.clock.now())

    def _follow(self, record: PlacementRecord, rank: int, began_at: float) -> None:
        placement = record.entry.placement
        self._around.tell(ev.RankStarted(placement, rank, began_at))
        named = self._stands_for.get(placement)
        if named is None:
            detail = "the spec is lost that says which Workload it stands for"
            self._around.tell(ev.RankEnded(placement, rank, self._around.clock.now(), None, detail))
            return
        before = self._running[placement].ranks if placement in self._running else ()
        self._running[placement] = _Running(named, (*before, rank))
        if self.synced.is_set():
            self._look(placement)

    def _look(self, placement: str) -> None:
        """Tell its end, once it is over."""
        running = self._running[placement]
        found, now = self._find(running.named), self._around.clock.now()
        code: int | None = None
        if found is not None and found.ended is not None:
            code, detail = found.ended
        elif found is not None and found.status.cluster_name == self._settings.cluster:
            return
        else:
            left = self.workloads.get(running.named.key)
            evicted = left.says("Evicted") if left is not None else None
            detail = (
                f"Kueue has evicted it: {evicted.message}"
                if evicted is not None
                else "Kueue has taken it back"
            )
        del self._running[placement]
        cause = Cause.EVICTED if code is None else None
        for rank in running.ranks:
            self._around.tell(ev.RankEnded(placement, rank, now, code, detail[:500], cause))

    def signal(self, placement: str, ranks: tuple[int, ...], signal: str) -> None:
        """Whatever it is: it has to leave, which is told when Kueue has evicted it."""
        del ranks, signal
        self._around.tasks.spawn(self.unprepare(placement))

    async def enter(
        self, record: PlacementRecord, spec: JobSpec, rank: int, request: Exec | Forward
    ) -> Channel:
        """Raises `NotSupported`: the dispatcher has no way to its pods."""
        del record, spec, rank, request
        raise NotSupported(f"its pods are in cluster {self._settings.cluster}: use kubectl there")

    async def usage(self, records: Sequence[PlacementRecord], gpus: Mapping[int, Gpu]) -> Readings:
        """Nothing is known."""
        del records, gpus
        return {}

    async def finish_logs(self, record: PlacementRecord) -> None:
        """They are whole."""

    async def push_last(self, record: PlacementRecord, spec: JobSpec) -> str:
        """There is nothing to push."""
        del record, spec
        return ""

    async def pack_outputs(self, record: PlacementRecord, spec: JobSpec, archive: Path) -> bool:
        """They are in their cluster."""
        del record, spec, archive
        return False

    async def discard(self, placement: str, checkpoints_of: str | None) -> None:
        """Forget it."""
        del checkpoints_of
        self._running.pop(placement, None)
        self._stands_for.pop(placement, None)

    def close(self) -> None:
        """The connections have ended with the tasks."""
