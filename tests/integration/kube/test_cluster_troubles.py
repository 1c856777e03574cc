"""What a cluster does to pods, and what others do to them: each has its cause, nothing is made again, and silence is no proof."""

import asyncio
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from federator.kube.api import Api, TooOld
from federator.kube.objects import Pod
from federator.model.jobs import Accelerators, Resources
from federator.model.placements import Cause, PlacementStatus
from federator.model.sites import SiteReport
from federator_agent.core import events as ev
from federator_agent.kube import commands, preparation
from federator_agent.kube.informer import Informer
from federator_agent.staging_errors import StagingError, StagingLost, StagingRefused
from tests.contract.runtimes import factories_kube
from tests.contract.runtimes.world import RuntimeWorld
from tests.integration.agent.conftest import entry
from tests.integration.agent.fake_dispatcher import FakeDispatcher
from tests.integration.kube.conftest import PODS, POOL, KubeAgent, tight
from tests.support.waiting import until
from tests.testbeds.kubernetes.cluster import NAMESPACE
from tests.testbeds.kubernetes.node import NODE
from tests.testbeds.kubernetes.shared import Bed

SMALL = Resources(cpus_milli=10)
RUN = "echo there; while :; do sleep 0.1; done"


@pytest.fixture
def own(testbed: Bed) -> Bed:
    """A cluster whose parts a test may kill."""
    if testbed.cluster is None:
        pytest.skip("this would break a cluster that is not the test's own")
    return testbed


async def running(dispatcher: FakeDispatcher, run: str = RUN) -> None:
    await dispatcher.want(entry("p1", dispatcher.spec(run=run, resources=SMALL), pool=POOL, grace_s=2.0))
    await dispatcher.until(lambda: "there" in dispatcher.log("p1"))


async def test_a_pod_that_somebody_deletes_is_evicted_and_not_made_again(
    dispatcher: FakeDispatcher, agent: KubeAgent
) -> None:
    await running(dispatcher)
    agent.delete("p1")
    report = await dispatcher.ended("p1")
    assert (report.status, report.cause) == (PlacementStatus.LOST, Cause.EVICTED)
    assert "deleted at the cluster" in report.detail
    await until(lambda: agent.pod("p1") is None, "it to go")
    reports = len(dispatcher.reports)
    await dispatcher.until(lambda: len(dispatcher.reports) > reports)
    assert agent.pod("p1") is None


SAVES = 'trap "echo saved; exit 0" TERM; echo there; while :; do sleep 0.1; done'


@pytest.mark.parametrize("how", ["eviction", "delete"])
async def test_a_pod_that_saves_itself_and_exits_well_when_it_is_told_to_go_has_not_succeeded(
    dispatcher: FakeDispatcher, agent: KubeAgent, how: str
) -> None:
    """As `kubectl drain` does it, which asks for an eviction, and as `kubectl delete pod` does."""
    await running(dispatcher, SAVES)
    if how == "eviction":
        agent.evict("p1")
    else:
        agent.delete("p1")
    report = await dispatcher.ended("p1")
    assert "saved\n" in dispatcher.log("p1")
    assert (report.status, report.cause) == (PlacementStatus.LOST, Cause.EVICTED), report


async def test_a_pod_that_is_torn_away_is_lost(dispatcher: FakeDispatcher, agent: KubeAgent) -> None:
    await running(dispatcher)
    agent.remove("p1")
    report = await dispatcher.ended("p1")
    assert (report.status, report.cause) == (PlacementStatus.LOST, Cause.NODE_LOST)
    assert "was removed from the cluster" in report.detail


async def test_a_pod_deleted_on_a_silent_node_is_not_over_until_the_node_says_so(
    dispatcher: FakeDispatcher, agent: KubeAgent, own: Bed
) -> None:
    await running(dispatcher)
    assert own.node is not None
    own.node.kill_kubelet()
    try:
        agent.delete("p1")
        reports = len(dispatcher.reports)
        await dispatcher.until(lambda: len(dispatcher.reports) > reports + 2)
        last = dispatcher.last("p1")
        assert last is not None
        assert last.status is PlacementStatus.RUNNING
    finally:
        own.node.start_kubelet()
        await asyncio.to_thread(own.node.wait_ready)
    report = await dispatcher.ended("p1")
    assert (report.status, report.cause) == (PlacementStatus.LOST, Cause.EVICTED)


async def test_a_node_that_is_taken_out_of_the_cluster_takes_its_ranks_with_it(
    dispatcher: FakeDispatcher, agent: KubeAgent, own: Bed
) -> None:
    await running(dispatcher)
    assert own.node is not None
    own.node.kill_kubelet()
    try:
        # As the cluster itself says after a while. One that is taken out while it is well is waited for.
        silent = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
        patch = {"status": {"conditions": [silent]}}
        kind = "application/strategic-merge-patch+json"
        own.admin.ask("PATCH", f"/api/v1/nodes/{NODE}/status", patch, kind)
        own.admin.ask("DELETE", f"/api/v1/nodes/{NODE}")
        report = await dispatcher.ended("p1")
        assert (report.status, report.cause) == (PlacementStatus.LOST, Cause.NODE_LOST)
        assert f"its node {NODE} is no longer part of the cluster" in report.detail
        await dispatcher.until(lambda: not dispatcher.reports[-1].pools)
    finally:
        own.node.start_kubelet()
        await asyncio.to_thread(own.node.wait_ready)


async def test_an_api_server_that_dies_and_comes_back_loses_nothing(
    dispatcher: FakeDispatcher, agent: KubeAgent, own: Bed
) -> None:
    """Killed while one job runs and another is brought to its gate."""
    assert own.cluster is not None
    await running(dispatcher, "echo there; sleep 4; echo over; exit 3")
    spec = dispatcher.spec(run="echo second", setup="sleep 3", resources=SMALL)
    await dispatcher.want(entry("p2", spec, pool=POOL))
    await agent.main_runs("p2")
    own.cluster.kill("kube-apiserver")
    await asyncio.sleep(1)
    own.cluster.start_api_server()
    await asyncio.to_thread(own.cluster.wait_ready)
    report = await dispatcher.ended("p1")
    assert (report.status, report.exit_code) == (PlacementStatus.FAILED, 3)
    assert (await dispatcher.ended("p2")).status is PlacementStatus.SUCCEEDED
    assert (dispatcher.log("p1"), dispatcher.log("p2")) == ("there\nover\n", "second\n")


# Without the agent's process -----------------------------------------------------------------------------------------


async def test_a_gang_that_does_not_fit_is_refused_with_the_schedulers_words_and_taken_back_whole(
    world: RuntimeWorld, testbed: Bed
) -> None:
    world.site = tight(start_within_s=2.0)
    await world.restart()
    spec = world.spec("true", nodes=3, resources=Resources(Accelerators(count=4), cpus_milli=10))
    with pytest.raises(
        StagingRefused, match=r"1 of 3 pods found no node within 2 s.*Insufficient nvidia.com/gpu"
    ):
        await world.prepare(world.record(spec), spec)
    assert testbed.admin.ask("GET", PODS)["items"] == []
    assert testbed.admin.ask("GET", f"/api/v1/namespaces/{NAMESPACE}/services")["items"] == []


@pytest.mark.parametrize(
    ("image", "words"), [("localhost:1/none:1", "ImagePull"), ("No/Name", "InvalidImageName")]
)
async def test_an_image_that_cannot_be_had_is_the_cause(
    world: RuntimeWorld, monkeypatch: pytest.MonkeyPatch, image: str, words: str
) -> None:
    monkeypatch.setattr(preparation, "IMAGE_PATIENCE_S", 0.5)
    world.site = tight(image=image)
    await world.restart()
    spec = world.spec("true")
    with pytest.raises(StagingError, match=words) as failed:
        await world.prepare(world.record(spec), spec)
    assert failed.value.cause is Cause.IMAGE_PULL
    assert not isinstance(failed.value, StagingRefused)


async def test_a_side_image_that_cannot_be_had_is_the_sites_fault(
    world: RuntimeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation, "IMAGE_PATIENCE_S", 0.5)
    world.site = tight(side_image="localhost:1/none:1")
    await world.restart()
    spec = world.spec("true")
    with pytest.raises(StagingRefused, match="side container"):
        await world.prepare(world.record(spec), spec)


async def test_a_pod_that_is_deleted_in_its_set_up_is_lost_and_its_siblings_end(
    world: RuntimeWorld, testbed: Bed
) -> None:
    spec = world.spec("echo no", setup="echo there; sleep 600", nodes=2)
    record = world.record(spec)
    placement = record.entry.placement
    task = asyncio.create_task(world.prepare(record, spec))
    await world.has_written(record, "there", rank=1)
    testbed.admin.ask("DELETE", f"{PODS}/{placement}-0")
    with pytest.raises(StagingLost) as lost:
        await task
    assert lost.value.cause is Cause.EVICTED
    sibling = testbed.admin.find(f"{PODS}/{placement}-1")
    assert sibling is not None
    assert sibling["metadata"]["deletionTimestamp"]


async def test_a_set_up_that_outgrows_its_memory_says_so(world: RuntimeWorld) -> None:
    spec = world.spec("true", setup="tail /dev/zero", resources=Resources(cpus_milli=10, memory_mib=32))
    with pytest.raises(StagingError) as failed:
        await world.prepare(world.record(spec), spec)
    assert failed.value.cause is Cause.OUT_OF_MEMORY


async def test_a_gate_opens_for_its_own_pod_only(world: RuntimeWorld) -> None:
    spec = world.spec("true")
    record = world.record(spec)
    await world.prepare(record, spec)
    api = Api(factories_kube.settings().kubeconfig)
    path = f"{PODS}/{record.entry.placement}-0"
    with pytest.raises(commands.CommandFailed) as refused:
        await commands.done(api, path, commands.OPEN, "another-uid", "x=1")
    assert refused.value.exit_code == commands.WRONG_POD
    await api.close()


async def test_pods_that_no_record_knows_are_taken_back_unless_they_run(
    world: RuntimeWorld, testbed: Bed, tmp_path: Path
) -> None:
    """As when the agent was killed before it had written down that it makes them."""
    spec = world.spec(RUN)
    idle = world.record(spec)
    await world.prepare(idle, spec)
    runs = await world.run(spec)
    forgetful = RuntimeWorld(tmp_path, factories_kube.site())
    forgetful.begin()
    await until(lambda: testbed.admin.find(f"{PODS}/{idle.entry.placement}-0") is None, "the idle one to go")
    pod = testbed.admin.find(f"{PODS}/{runs.entry.placement}-0")
    assert pod is not None
    assert "deletionTimestamp" not in pod["metadata"]
    await forgetful.close()


async def test_the_pods_of_another_agent_are_left_alone(
    world: RuntimeWorld, testbed: Bed, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be of another federation, in which a site has the same name: its pods wait for it, and hold how they ended."""
    spec = world.spec(RUN)
    record = world.record(spec)
    await world.prepare(record, spec)
    name = f"{record.entry.placement}-0"
    another = RuntimeWorld(tmp_path / "another", factories_kube.site())
    another.begin()
    await until(
        lambda: (
            f"the pod {name} is of another agent" in caplog.text
            or testbed.admin.find(f"{PODS}/{name}") is None
        ),
        "it to be found",
    )
    pod = testbed.admin.find(f"{PODS}/{name}")
    assert pod is not None
    assert "deletionTimestamp" not in pod["metadata"]
    await another.close()


async def test_a_log_that_the_node_has_rotated_goes_on_where_it_was(world: RuntimeWorld) -> None:
    """As much as the node has kept is in the log once, in order, and a gap is said."""
    lines = 30_000
    pad = "x" * 480
    run = f"i=0; while [ $i -lt {lines} ]; do echo $i {pad}; i=$((i+1)); done; echo last"
    record = await world.run(world.spec(run))
    await world.has_written(record, "\n100 ")
    await world.restart()
    world.runtime.find(record, 0)
    await world.over(record)
    numbers = [int(line) for line in re.findall(r"^(\d+) ", world.log(record), re.MULTILINE)]
    assert numbers == sorted(set(numbers))
    assert world.log(record).endswith("last\n")
    assert len(numbers) == lines or "was dropped at its node" in world.log(record)


async def test_a_watch_that_is_too_old_lists_again(own: Bed) -> None:
    """A server that has been started anew knows nothing of what was before."""
    assert own.cluster is not None
    own.cluster.kill("kube-apiserver")
    own.cluster.start_api_server()
    await asyncio.to_thread(own.cluster.wait_ready)
    api = Api(factories_kube.settings().kubeconfig)
    mirror: Informer[Pod, Pod] = Informer(
        api, PODS, Pod, lambda pod: (pod.metadata.name, pod), lambda _name, _pod: None
    )
    with pytest.raises(TooOld):
        await mirror.watch("1")
    listed = mirror.relist
    versions: list[str] = []

    async def old_at_first() -> str:
        versions.append(await listed())
        return versions[-1] if len(versions) > 1 else "1"

    mirror.relist = old_at_first  # type: ignore[method-assign]
    task = asyncio.create_task(mirror.run())
    try:
        await until(lambda: len(versions) > 1, "the second list")
        container = {"name": "c", "image": own.image, "command": ["true"]}
        pod = {"metadata": {"name": "new", "namespace": NAMESPACE}, "spec": {"containers": [container]}}
        own.admin.apply({"apiVersion": "v1", "kind": "Pod", **pod})
        await until(lambda: "new" in mirror.items, "the watch to go on")
        own.admin.remove(f"{PODS}/new")
        await until(lambda: "new" not in mirror.items, "the end of it")
    finally:
        task.cancel()
        await asyncio.wait([task])
        await api.close()


async def test_a_signal_after_the_end_is_passed_over(world: RuntimeWorld) -> None:
    record = await world.run(world.spec("true"))
    await world.over(record)
    world.runtime.signal(record.entry.placement, (0,), "KILL")
    await world.runtime.discard(record.entry.placement, None)
    assert world.count(ev.RankEnded, record) == 1


QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "tight", "namespace": NAMESPACE},
    "spec": {"hard": {"requests.nvidia.com/gpu": "2", "limits.cpu": "2", "limits.memory": "1Gi"}},
}
BOUNDS = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "tight", "namespace": NAMESPACE},
    "spec": {
        "limits": [{"type": "Container", "min": {"memory": "8Mi"}, "maxLimitRequestRatio": {"cpu": "2"}}]
    },
}


@pytest.fixture
def ruled(testbed: Bed) -> Iterator[None]:
    """A namespace with a quota, and with rules of what containers must ask for."""
    testbed.admin.apply(QUOTA)
    testbed.admin.apply(BOUNDS)
    yield
    base = f"/api/v1/namespaces/{NAMESPACE}"
    testbed.admin.remove(f"{base}/resourcequotas/tight")
    testbed.admin.remove(f"{base}/limitranges/tight")


@pytest.mark.usefixtures("ruled", "no_pods_left")
async def test_a_namespace_with_a_quota_offers_what_the_quota_allows_and_takes_its_jobs(
    dispatcher: FakeDispatcher, testbed: Bed, tmp_path: Path
) -> None:
    agent = KubeAgent(tmp_path, dispatcher.url, testbed)
    await agent.join(dispatcher.url)
    await agent.start()
    try:
        await dispatcher.until(lambda: any(_gpus(report) == 2 for report in dispatcher.reports))
        assert (
            testbed.admin.ask("GET", f"/api/v1/nodes/{NODE}")["status"]["allocatable"]["nvidia.com/gpu"] > "2"
        )
        small = Resources(Accelerators(count=1), cpus_milli=10, memory_mib=16)
        await dispatcher.want(entry("p1", dispatcher.spec(run=RUN, resources=small), pool=POOL, grace_s=1.0))
        await dispatcher.until(lambda: "there" in dispatcher.log("p1"))
        await dispatcher.until(lambda: _gpus(dispatcher.reports[-1]) == 1)
    finally:
        await agent.end(signal.SIGKILL)


def _gpus(report: SiteReport) -> int:
    return sum(shape.gpus * shape.count for pool in report.pools for shape in pool.free)
