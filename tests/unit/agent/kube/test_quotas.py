"""What a namespace may have: less than its nodes have is reported as less, and containers say what its rules ask them to say."""

import asyncio
from typing import Any

import msgspec
import pytest

from federator.kernel.errors import Forbidden, NotFound
from federator.kube.objects import LimitRange, Node, Pod, PodStatus, Quota
from federator.model.jobs import Accelerators, JobSpec, Resources
from federator_agent.core.lent_capacity import Site, Slot, lent_gpus
from federator_agent.core.state import Phase, PlacementRecord
from federator_agent.kube import dra, kueue, manifests
from federator_agent.kube.capacity import AGENT_LABEL, PLACEMENT_LABEL, SITE_LABEL, NodesAndPods, PoolPlace
from federator_agent.kube.quotas import NOTHING, Allowance, Quotas, allowance
from federator_agent.kube.settings import KubeSettings, resource_of
from federator_agent.staging_errors import StagingRefused
from tests.unit.agent.worlds import entry

GPU = "nvidia.com/gpu"
CLUSTER = NodesAndPods(KubeSettings(image="i"), "here", "me")
POOL = "nvidia-a100-sxm4-80gb"


def _quota(hard: dict[str, str], used: dict[str, str] | None = None, **spec: Any) -> Quota:
    return msgspec.convert({"spec": {"hard": hard, **spec}, "status": {"used": used or {}}}, Quota)


def _range(**line: Any) -> LimitRange:
    return msgspec.convert({"spec": {"limits": [{"type": "Container"} | line]}}, LimitRange)


def _node(name: str, gpus: int = 4) -> Node:
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/gpu.memory": "81920"}
    has = {"cpu": "8", "memory": "16Gi", "pods": "110", GPU: str(gpus)}
    status = {"allocatable": has, "conditions": [{"type": "Ready", "status": "True"}]}
    return msgspec.convert({"metadata": {"name": name, "labels": labels}, "status": status}, Node)


def _pod(gpus: int, *, namespace: str = "federator", placement: str = "") -> Pod:
    labels = {PLACEMENT_LABEL: placement, SITE_LABEL: "here", AGENT_LABEL: "me"} if placement else {}
    spec = {"nodeName": "n0", "containers": [{"resources": {"requests": {GPU: str(gpus), "cpu": "1"}}}]}
    meta = {"name": "p", "namespace": namespace, "labels": labels}
    return msgspec.convert({"metadata": meta, "spec": spec}, Pod)


def _seen(allowed: Allowance, *pods: Pod) -> tuple[int, int, list[int]]:
    """GPUs that may ever be had, that are free, and free CPUs of each host."""
    machines = {name: machine for name in ("n0", "n1") if (machine := CLUSTER.machine(_node(name)))}
    uses = [use for pod in pods if (use := CLUSTER.use(pod))]
    seen = CLUSTER.seen(machines, uses, "", allowed)
    (pool,) = seen.pools
    hosts = seen.hosts[POOL]
    return (
        lent_gpus(Site(name="here", pools=(pool,)), pool),
        sum(len(host.gpus) for host in hosts),
        [host.cpus_milli for host in hosts],
    )


def test_without_quotas_everything_is_reported() -> None:
    assert _seen(allowance([], [], "")) == (8, 8, [8000, 8000])


def test_a_quota_of_gpus_is_what_may_be_had() -> None:
    allowed = allowance([_quota({f"requests.{GPU}": "4"}), _quota({f"requests.{GPU}": "6"})], [], "")
    assert _seen(allowed)[:2] == (4, 4)
    assert _seen(allowed, _pod(3, placement="p1"))[:2] == (4, 1)


def test_what_others_use_of_it_can_never_be_had() -> None:
    """With a node or without one: it is what the API server counts."""
    ours = CLUSTER.asked([_pod(1, placement="p1")])
    quota = _quota(
        {f"requests.{GPU}": "6", "requests.cpu": "6"}, {f"requests.{GPU}": "3", "requests.cpu": "3"}
    )
    allowed = allowance([quota], [], "", ours)
    assert (allowed.devices, allowed.cpus_milli) == ({GPU: 4}, 4000)
    assert _seen(allowed)[:2] == (4, 4)
    assert _seen(allowed, _pod(1, placement="p1"))[:2] == (4, 3)


def test_a_quota_of_a_class_of_devices_counts_as_gpus() -> None:
    """Whoever wrote it by the class's own entry was offered all that nodes have."""
    resource = resource_of("gpu.nvidia.com")
    pod = _pod(0, placement="p1")
    noted = {dra.DEVICES_NOTE: msgspec.json.encode({resource: 2}).decode()}
    pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=noted))
    ours = CLUSTER.asked([pod])
    assert ours.devices[resource] == 2, "what it asks for by its claim"
    entry = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
    assert allowance([_quota({entry: "6"}, {entry: "3"})], [], "", ours).devices == {resource: 5}
    both = _quota({entry: "6", f"requests.{resource}": "4"}, {entry: "3", f"requests.{resource}": "3"})
    assert allowance([both], [], "", ours).devices == {resource: 3}


def test_pods_that_have_ended_count_where_objects_are_counted() -> None:
    ended = msgspec.structs.replace(_pod(1, placement="p1"), status=PodStatus(phase="Succeeded"))
    ours = CLUSTER.asked([ended, _pod(1, placement="p2")])
    assert (ours.pods, ours.objects, ours.devices[GPU]) == (1, 2, 1)
    assert allowance([_quota({"pods": "5"}, {"pods": "3"})], [], "", ours).pods == 3
    assert allowance([_quota({"count/pods": "5"}, {"count/pods": "5"})], [], "", ours).pods == 2


def test_no_pool_starves_for_another_of_the_same_resource() -> None:
    """Nobody knows yet in which of them the quota will be used."""
    h100 = msgspec.structs.replace(
        _node("h0"),
        metadata=msgspec.structs.replace(
            _node("h0").metadata, labels={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
        ),
    )
    machines = {
        each.metadata.name: machine for each in (_node("a0"), h100) if (machine := CLUSTER.machine(each))
    }
    seen = CLUSTER.seen(machines, [], "", allowance([_quota({f"requests.{GPU}": "4"})], [], ""))
    assert {name: len(hosts[0].gpus) for name, hosts in seen.hosts.items()} == {
        POOL: 4,
        "nvidia-h100-80gb-hbm3": 4,
    }


def test_what_is_left_of_cpus_is_all_that_a_host_has_free() -> None:
    allowed = allowance([_quota({"requests.cpu": "5"})], [], "")
    assert _seen(allowed, _pod(1, placement="p1"))[2] == [4000, 4000]


def test_no_pod_more_is_nothing_free() -> None:
    allowed = allowance([_quota({"pods": "1"})], [], "")
    assert _seen(allowed, _pod(1, placement="p1")) == (8, 0, [0, 0])


def test_no_container_gets_more_than_it_may_ask_for() -> None:
    allowed = allowance([], [_range(max={"cpu": "3"})], "")
    assert _seen(allowed)[2] == [3000, 3000]


@pytest.mark.parametrize(
    ("spec", "counts"),
    [
        ({}, True),
        ({"scopes": ["NotBestEffort"]}, True),
        ({"scopes": ["BestEffort"]}, False),
        ({"scopes": ["Terminating"]}, False),
        ({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["low"]}]}}, True),
        ({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}}, False),
    ],
)  # fmt: skip
def test_a_quota_of_other_pods_does_not_count(spec: dict[str, Any], counts: bool) -> None:
    found = allowance([_quota({f"requests.{GPU}": "1"}, **spec)], [], "low").devices
    assert found == ({GPU: 1} if counts else {})


def _resources(allowed: Allowance, memory_mib: int = 1024) -> list[dict[str, dict[str, str]]]:
    resources = Resources(gpus=Accelerators(1), cpus_milli=2000, memory_mib=memory_mib)
    spec = JobSpec(name="job", run="x", resources=resources)
    slot = Slot(0, "main", "n", (0,), 2000, memory_mib)
    record = PlacementRecord(entry=entry("p1", spec, pool="main"), phase=Phase.STAGING, slots=(slot,))
    pod = manifests.pod(record, spec, 0, PoolPlace({}), KubeSettings(image="i"), "here")
    manifests.bound(pod, allowed)
    return [each["resources"] for each in pod["spec"]["containers"]]


def test_containers_have_the_limits_and_the_least_that_the_namespace_asks_for() -> None:
    main, side = _resources(Allowance())
    assert main["limits"] == {"memory": "1024Mi", GPU: "1"}
    assert side == {"requests": {"cpu": "0", "memory": "0"}, "limits": {}}
    strict = allowance([_quota({"limits.cpu": "8"})], [_range(min={"memory": "64Mi"})], "")
    main, side = _resources(strict)
    assert main["limits"] == {"memory": "1024Mi", GPU: "1", "cpu": main["requests"]["cpu"]}
    assert side == {"requests": {"cpu": "0", "memory": "64Mi"}, "limits": {"cpu": "0"}}
    _, side = _resources(allowance([], [_range(maxLimitRequestRatio={"cpu": "2"})], ""))
    assert side == {"requests": {"cpu": "10m", "memory": "0"}, "limits": {"cpu": "10m"}}


@pytest.mark.parametrize("line", [{"default": {"cpu": "500m"}}, {"type": "Pod", "max": {"cpu": "4"}}])
def test_a_limit_of_ones_own_stands_where_the_namespace_would_put_in_a_smaller_one_or_wants_one(
    line: dict[str, Any],
) -> None:
    main, _ = _resources(allowance([], [_range(**line)], ""))
    assert main["limits"]["cpu"] == main["requests"]["cpu"]


def test_what_the_side_container_asks_for_is_not_offered() -> None:
    allowed = allowance([_quota({"requests.cpu": "2"})], [_range(min={"cpu": "100m"})], "")
    assert _seen(allowed)[2] == [1900, 1900]


def test_a_job_that_does_not_say_its_memory_is_told_to_where_the_namespace_limits_it() -> None:
    strict = allowance([_quota({"limits.memory": "8Gi"})], [], "")
    with pytest.raises(StagingRefused, match=r"resources\.memory"):
        _resources(strict, memory_mib=0)
    assert _resources(strict)[0]["limits"]["memory"] == "1024Mi"


LOCAL = {"spec": {"clusterQueue": "shared"}, "status": {"flavorsReservation": [{"name": "a", "resources": [{"name": GPU, "total": "2"}]}]}}  # fmt: skip


def _behind(**more: Any) -> dict[str, Any]:
    quota = {"name": GPU, "nominalQuota": "6", **more.pop("quota", {})}
    groups = [{"flavors": [{"name": "a", "resources": [quota, {"name": "cpu", "nominalQuota": "100"}]}]}]
    status = {"flavorsReservation": [{"name": "a", "resources": [{"name": GPU, "total": "3"}]}]}
    return {"spec": {"resourceGroups": groups, **more}, "status": status}


@pytest.mark.parametrize(
    ("behind", "devices"),
    [
        (_behind(), {GPU: 5}),
        (_behind(cohort="all", quota={"borrowingLimit": "2"}), {GPU: 7}),
        (_behind(cohortName="all"), {}),
    ],
    ids=["own", "borrowed-within-a-limit", "borrowed-without"],
)
async def test_the_quota_of_a_cluster_queue_less_what_other_queues_hold_of_it(
    behind: dict[str, Any], devices: dict[str, int]
) -> None:
    answers = {
        "/apis/kueue.x-k8s.io": {"preferredVersion": {"version": "v1beta2"}},
        "/apis/kueue.x-k8s.io/v1beta2/namespaces/ns/localqueues/gpus": LOCAL,
        "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/shared": behind,
    }

    class Api:
        async def ask(self, _method: str, path: str) -> bytes:
            if path not in answers:
                raise NotFound(path)
            return msgspec.json.encode(answers[path])

    api: Any = Api()
    assert await kueue.devices(api, {"ns": False}, ["gpus"]) == devices
    assert await kueue.devices(api, {"ns": False}, ["none"]) == {}
    assert await kueue.devices(api, {"ns": True}, ["gpus"]) == {}, "Kueue holds no pod without a queue"
    assert await kueue.devices(api, {"ns": False, "free": False}, ["gpus"]) == {}, (
        "nor those of another namespace"
    )


class Kueues:
    """An API server with Kueue on it: of each LocalQueue its ClusterQueue, of each of these its GPUs."""

    def __init__(self, local: dict[str, str], behind: dict[str, int]) -> None:
        self._local, self._behind = local, behind

    async def ask(self, _method: str, path: str) -> bytes:
        kind, name = path.split("/")[-2:]
        if path == kueue.GROUP:
            return msgspec.json.encode({"preferredVersion": {"version": "v1beta2"}})
        if kind == "localqueues" and name in self._local:
            return msgspec.json.encode({"spec": {"clusterQueue": self._local[name]}})
        if kind == "clusterqueues":
            quota = {"name": GPU, "nominalQuota": str(self._behind[name])}
            return msgspec.json.encode({"spec": {"resourceGroups": [{"flavors": [{"resources": [quota]}]}]}})
        if name in ("resourcequotas", "limitranges"):
            return b"{}"
        raise NotFound(path)


async def _read(api: Any, settings: KubeSettings) -> Quotas:
    """What is allowed, read once."""
    read = Quotas(api, settings, lambda _home: NOTHING)
    told = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(read.run(told.set))
        try:
            await asyncio.wait_for(told.wait(), 10.0)
        finally:
            reading.cancel()
    return read


async def test_teams_have_together_what_their_cluster_queues_have() -> None:
    api = Kueues({"vision": "a", "speech": "b", "text": "b"}, {"a": 4, "b": 2})
    queues = {"team:vision": "vision", "team:speech": "speech", "team:text": "text", "team:gone": "gone"}
    settings = KubeSettings(image="i", kueue_queues=queues | {"*": "text"})
    assert (await _read(api, settings)).now.devices == {GPU: 6}


async def test_a_queue_named_default_holds_pods_that_name_none() -> None:
    read = await _read(Kueues({"default": "a"}, {"a": 4}), KubeSettings(image="i"))
    assert read.now.devices == {GPU: 4}
    one = KubeSettings(image="i", kueue_queues={"team:vision": "vision"})
    api = Kueues({"vision": "a", "default": "b"}, {"a": 4, "b": 2})
    assert (await _read(api, one)).now.devices == {GPU: 6}


async def test_a_queue_that_may_not_be_read_is_said() -> None:
    class Api:
        async def ask(self, _method: str, path: str) -> bytes:
            raise Forbidden(path)

    with pytest.raises(Forbidden):
        await kueue.devices(Api(), {"ns": False}, ["gpus"])  # type: ignore[arg-type]


async def test_namespaces_that_share_a_cluster_queue_have_its_quota_once() -> None:
    queues = {"team:vision": "vision", "*": "all"}
    settings = KubeSettings(image="i", namespaces={"team:vision": "vision"}, kueue_queues=queues)
    read = await _read(Kueues({"vision": "a", "all": "a"}, {"a": 8}), settings)
    assert read.now.devices == {GPU: 8}


async def test_several_namespaces_offer_what_they_allow_together_and_each_has_its_own_rules() -> None:
    """Two teams with four and two GPUs were offered four."""
    quotas = {
        "jobs": {"requests.nvidia.com/gpu": "4", "pods": "5"},
        "vision": {"requests.nvidia.com/gpu": "2"},
    }

    class Api:
        async def ask(self, _method: str, path: str) -> bytes:
            if path == kueue.GROUP:
                raise NotFound(path)
            home, plural = path.split("/")[4:]
            items: list[Any] = [{"spec": {"hard": quotas[home]}}] if plural == "resourcequotas" else []
            if plural == "limitranges" and home == "vision":
                items = [{"spec": {"limits": [{"type": "Container", "max": {"memory": "1Gi"}}]}}]
            return msgspec.json.encode({"items": items})

    settings = KubeSettings(image="i", namespace="jobs", namespaces={"team:vision": "vision"})
    read = await _read(Api(), settings)
    assert read.now.devices == {"nvidia.com/gpu": 6}
    assert read.now.pods is None
    assert not read.now.limited
    assert read.of("vision").devices == {"nvidia.com/gpu": 2}
    assert read.of("vision").limited == {"memory"}
