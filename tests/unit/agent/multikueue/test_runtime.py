"""A site that stands for a cluster of a MultiKueue: what it writes at Workloads, and what it tells of them."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from federator.kernel.errors import Conflict, Forbidden
from federator.kube.api import decoded
from federator.model.jobs import JobSpec
from federator.model.placements import Cause
from federator_agent.core import events as ev
from federator_agent.core.state import PlacementRecord
from federator_agent.multikueue import workloads
from federator_agent.multikueue.runtime import MultiKueueRuntime
from federator_agent.multikueue.settings import MultiKueueSettings
from federator_agent.staging_errors import StagingRefused
from tests.contract.runtimes.world import RuntimeWorld, Site
from tests.support.waiting import until

MINE, CHECK = "worker-north", "multikueue"
LABELS = {
    workloads.NAMESPACE_LABEL: "n",
    workloads.NAME_LABEL: "w",
    workloads.UID_LABEL: "uid-1",
    workloads.TURN_LABEL: "t1",
}
HELD = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "lastTransitionTime": "t1"}


class WorkloadApi:
    """One Workload at an API server. `refusals` are raised by the next writes."""

    def __init__(self) -> None:
        self.status: dict[str, Any] = {
            "conditions": [HELD],
            "admissionChecks": [{"name": CHECK, "state": "Pending"}],
        }
        self.refusals: list[Exception] = []
        self.writes: list[Any] = []

    def workload(self) -> workloads.Workload:
        meta = {"name": "w", "namespace": "n", "uid": "uid-1", "resourceVersion": "7"}
        data = json.dumps({"metadata": meta, "status": self.status}).encode()
        return decoded(data, workloads.Workload)

    async def ask(self, method: str, path: str, *, body: Any = None, **_: Any) -> bytes:
        assert (method, path) == ("PATCH", "/apis/kueue/namespaces/n/workloads/w/status")
        if self.refusals:
            raise self.refusals.pop(0)
        self.writes.append(body)
        if isinstance(body, dict):
            assert body["metadata"] == {"resourceVersion": "7", "uid": "uid-1"}
            self.status |= body["status"]
        else:
            self.status["admissionChecks"][0]["state"] = next(
                step["value"] for step in body if step["path"].endswith("/state")
            )
        return b"{}"


class World(RuntimeWorld):
    """The runtime, with that manager in place of a watch."""

    def __init__(self, folder: Path, within_s: float = 60.0) -> None:
        self.server = WorkloadApi()
        self.settings = MultiKueueSettings(
            cluster=MINE, check=CHECK, namespaces={"n": "ada"}, admit_within=within_s
        )
        super().__init__(folder, Site(lambda around: MultiKueueRuntime(self.settings, around), "main"))

    def begin(self) -> None:
        super().begin()
        made: Any = self.runtime
        made.api, made.base_path = self.server, "/apis/kueue"
        made.watch = None
        made.synced.set()
        self.seen()

    def seen(self, **status: Any) -> None:
        """The watch brings it as it is now."""
        self.server.status |= status
        made: Any = self.runtime
        key, found = workloads.kept(self.server.workload())
        made.workloads = {} if found is None else {key: found}
        made.seen(key, found)

    def gone(self) -> None:
        made: Any = self.runtime
        made.workloads.clear()
        made.seen("n/w", None)

    def record(self, spec: JobSpec, **fields: Any) -> PlacementRecord:
        return super().record(spec, **{"owner": "ada", **fields})

    async def admitted(self) -> tuple[PlacementRecord, JobSpec]:
        spec = JobSpec("job", run="exit 1", labels=LABELS, nodes=2)
        record = self.record(spec)
        self.spool.keep_spec(record.entry.spec_hash, msgspec.json.encode(spec))
        self.seen(clusterName=MINE)
        prepared = await self.prepare(record, spec)
        return self.intend(record, prepared), spec

    def ends(self) -> list[tuple[int, int | None, Cause | None]]:
        return [
            (each.rank, each.exit_code, each.cause) for each in self.told if isinstance(each, ev.RankEnded)
        ]


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    async def nothing(_self: MultiKueueRuntime) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(MultiKueueRuntime, "watch", nothing)
    world = World(tmp_path)
    world.begin()
    yield world
    await world.end()


SPEC = JobSpec("job", run="exit 1", labels=LABELS)


async def test_it_nominates_its_cluster_alone_and_is_prepared_once_that_has_admitted_it(world: World) -> None:
    world.server.refusals = [Conflict("it has changed")]
    world.seen(nominatedClusterNames=["worker-east", MINE])
    task = asyncio.create_task(world.prepare(world.record(SPEC), SPEC))
    await until(lambda: not world.server.refusals, "a first write")
    world.seen()
    await until(lambda: world.server.writes, "the nomination")
    assert world.server.status["nominatedClusterNames"] == [MINE]
    world.seen()
    assert not task.done()
    world.seen(clusterName=MINE, nominatedClusterNames=None)
    await task
    assert len(world.server.writes) == 1


async def test_what_another_cluster_has_and_what_the_server_forbids_is_planned_elsewhere(
    world: World,
) -> None:
    world.server.refusals = [Forbidden("no")]
    with pytest.raises(StagingRefused, match="does not take the nomination"):
        await world.prepare(world.record(SPEC), SPEC)
    world.seen(clusterName="worker-east")
    with pytest.raises(StagingRefused, match="worker-east"):
        await world.prepare(world.record(SPEC), SPEC)
    with pytest.raises(StagingRefused, match="stands for none"):
        await world.prepare(world.record(JobSpec("job", run="x")), JobSpec("job", run="x"))


async def test_a_cluster_that_does_not_admit_in_time_loses_the_nomination(
    tmp_path: Path, world: World
) -> None:
    slow = World(tmp_path / "slow", within_s=0.05)
    slow.begin()
    task = asyncio.create_task(slow.prepare(slow.record(SPEC), SPEC))
    await until(lambda: slow.server.writes, "the nomination")
    slow.seen()
    await until(lambda: len(slow.server.writes) == 2, "it to be withdrawn")
    assert slow.server.status["nominatedClusterNames"] is None
    slow.seen()
    with pytest.raises(StagingRefused, match="has not admitted it"):
        await task
    await slow.end()


@pytest.mark.parametrize(("reason", "code"), [("Succeeded", 0), ("JobFinished", 0), ("Failed", 1)])
async def test_it_ends_as_the_workload_does(world: World, reason: str, code: int) -> None:
    record, spec = await world.admitted()
    world.runtime.start(record, spec, (0, 1))
    assert [each.rank for each in world.told if isinstance(each, ev.RankStarted)] == [0, 1]
    assert world.ends() == []
    world.seen(conditions=[HELD, {"type": "Finished", "status": "True", "reason": reason, "message": "done"}])
    assert world.ends() == [(0, code, None), (1, code, None)]


@pytest.mark.parametrize("reason", ["OwnerNotFound", "OutOfSync"])
async def test_a_deleted_job_is_no_success(world: World, reason: str) -> None:
    """Kueue says Finished of its Workload, too, before that is deleted."""
    record, spec = await world.admitted()
    world.runtime.start(record, spec, (0, 1))
    said = {
        "type": "Finished",
        "status": "True",
        "reason": reason,
        "message": "The workload's owner no longer exists",
    }
    world.seen(conditions=[HELD, said])
    assert world.ends() == [(0, None, Cause.EVICTED), (1, None, Cause.EVICTED)]


async def test_an_eviction_and_a_deletion_end_it_as_evicted(world: World) -> None:
    record, spec = await world.admitted()
    world.runtime.start(record, spec, (0, 1))
    # queued again and given to the same cluster before anybody looked: that is another turn, and another job's
    world.seen(conditions=[HELD | {"lastTransitionTime": "t2"}])
    assert world.ends() == [(0, None, Cause.EVICTED), (1, None, Cause.EVICTED)]
    await world.restart()
    world.seen(conditions=[HELD])
    world.runtime.find(record, 0)
    world.runtime.find(record, 1)
    assert world.ends() == []
    world.gone()
    assert world.ends() == [(0, None, Cause.EVICTED), (1, None, Cause.EVICTED)]


async def test_who_stops_it_has_kueue_evict_it(world: World) -> None:
    record, spec = await world.admitted()
    world.runtime.start(record, spec, (0, 1))
    world.seen(admissionChecks=[{"name": "other", "state": "Ready"}, {"name": CHECK, "state": "Ready"}])
    world.runtime.signal(record.entry.placement, (0, 1), "TERM")
    await until(lambda: world.server.writes, "the eviction")
    assert {
        "op": "replace",
        "path": "/status/admissionChecks/1/state",
        "value": "Retry",
    } in world.server.writes[0]
    assert world.ends() == []
    world.seen(conditions=[HELD | {"status": "False"}], clusterName=None)
    assert len(world.ends()) == 2


@pytest.mark.parametrize("owner", ["eve", ""])
async def test_anothers_job_with_the_same_labels_neither_nominates_nor_evicts(
    world: World, owner: str
) -> None:
    """Labels of a job are seen by others, who may write them into one of their own."""
    running, spec = await world.admitted()
    world.runtime.start(running, spec, (0, 1))
    world.spool.keep_spec("1" * 64, msgspec.json.encode(spec))
    forged = world.record(spec, owner=owner, spec_hash="1" * 64)
    with pytest.raises(
        StagingRefused, match=r"may not stand for Workloads of namespace n: multikueue\.namespaces"
    ):
        await world.prepare(forged, spec)
    made: Any = world.runtime
    made.watch = asyncio.Event().wait
    world.runtime.resume([forged])  # as after a restart of the agent
    world.runtime.signal(forged.entry.placement, (0, 1), "TERM")
    await world.runtime.unprepare(forged.entry.placement)
    assert world.server.writes == []
    assert world.ends() == []
