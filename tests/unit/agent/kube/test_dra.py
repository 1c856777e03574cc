"""GPUs that a cluster hands out by dynamic resource allocation: what drivers publish is counted, what claims hold is taken off, and pods ask by a claim."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from federator.kernel.errors import Invalid, Unavailable
from federator.kube.objects import Node, Pod, Quota
from federator.model.jobs import Accelerators, JobSpec, Resources
from federator.wire.decoding import decode
from federator_agent.core.lent_capacity import Slot
from federator_agent.core.state import Phase, PlacementRecord
from federator_agent.kube import dra, manifests
from federator_agent.kube.capacity import (
    AGENT_LABEL,
    PLACEMENT_LABEL,
    RANK_LABEL,
    SITE_LABEL,
    NodesAndPods,
    Size,
    Use,
)
from federator_agent.kube.dra import Claim, Dra, Held, Slice, SliceDevices
from federator_agent.kube.preparation import Preparation
from federator_agent.kube.quotas import UNBOUNDED, allowance
from federator_agent.kube.settings import (
    MIG_CLASS,
    PRODUCT_LABEL,
    KubePool,
    KubeSettings,
    check,
    resource_of,
)
from tests.support.waiting import until
from tests.unit.agent.worlds import entry

DRIVER = "gpu.nvidia.com"
RESOURCE = resource_of(DRIVER)
POOL = KubePool(name="h100", selector={PRODUCT_LABEL: "H100"}, device_class=DRIVER)
SMALL, LARGE = resource_of(MIG_CLASS, "1g.10gb"), resource_of(MIG_CLASS, "3g.40gb")
INSTANCES = KubePool(
    name="h100-mig",
    selector={PRODUCT_LABEL: "H100"},
    device_class=MIG_CLASS,
    profile="1g.10gb",
    gpu_memory_mib=81920,
)


def published(
    node: str, *devices: str, generation: int = 1, kind: str = "gpu", profile: str = "", **spec: Any
) -> Slice:
    """As NVIDIA's driver publishes them."""
    of_mig = {"profile": {"string": profile}, "parentUUID": {"string": "GPU-1"}} if profile else {}
    given = [
        {
            "name": name,
            "attributes": {
                "type": {"string": kind},
                "productName": {"string": "NVIDIA H100"},
                "index": {"int": 0},
                **of_mig,
            },
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for name in devices
    ]
    pool = {"name": node, "generation": generation, "resourceSliceCount": 1}
    body = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": given, **spec}
    return msgspec.convert({"metadata": {"name": f"{node}-{generation}"}, "spec": body}, Slice)


def instances(node: str, profile: str, *devices: str, **spec: Any) -> Slice:
    return published(node, *devices, kind="mig", profile=profile, **spec)


def claimed(node: str, *devices: str, pod: str = "theirs") -> Held:
    results = [{"request": "gpu", "driver": DRIVER, "pool": node, "device": name} for name in devices]
    status = {
        "allocation": {"devices": {"results": results}},
        "reservedFor": [{"resource": "pods", "name": pod, "uid": "u"}],
    }
    found = dra.held(
        msgspec.convert({"metadata": {"name": "c", "namespace": "jobs"}, "status": status}, Claim)
    )
    assert found is not None
    return found


def offers(*slices: Slice) -> list[SliceDevices]:
    return [offer for each in slices if (offer := dra.offered(each)) is not None]


def node(name: str = "n1", **has: str) -> Node:
    status = {
        "allocatable": {"cpu": "64", "memory": "64Gi", "pods": "100", **has},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    return msgspec.convert(
        {"metadata": {"name": name, "labels": {PRODUCT_LABEL: "H100"}}, "status": status}, Node
    )


def test_whole_gpus_of_the_newest_generation_are_counted() -> None:
    found = offers(
        published("n1", "gpu-0", "gpu-1"),
        published("n1", "gpu-0", "gpu-1", "gpu-2", generation=2),
        published("n2", "gpu-0"),
        published("n3", "vfio-0", kind="vfio"),
    )
    assert dra.counted(found) == {"n1": {RESOURCE: 3}, "n2": {RESOURCE: 1}}
    anywhere = published("x", "gpu-0", nodeName="")
    assert offers(anywhere) == []


def test_what_others_hold_is_taken_off_and_our_own_is_not() -> None:
    found = offers(published("n1", "gpu-0", "gpu-1", "gpu-2"))
    claims = [claimed("n1", "gpu-0"), claimed("n1", "gpu-1", pod="p1-0"), claimed("n9", "gpu-0")]
    assert dra.taken(found, claims, lambda key: key == "jobs/p1-0") == {"n1": {RESOURCE: 1}}
    assert dra.taken(found, claims, lambda key: key == "others/p1-0") == {"n1": {RESOURCE: 2}}
    waiting = msgspec.convert({"metadata": {"name": "c"}}, Claim)
    assert dra.held(waiting) is None


def test_a_gpu_that_its_driver_has_tainted_is_not_counted() -> None:
    def tainted(device: str, effect: str) -> dict[str, object]:
        return {"name": device, "taints": [{"key": "gpu.nvidia.com/xid", "effect": effect}]}

    devices = [tainted("a", "NoSchedule"), tainted("b", "NoExecute"), tainted("c", "None"), {"name": "d"}]
    (offer,) = offers(published("n1", devices=devices))
    assert offer.devices == {"c": RESOURCE, "d": RESOURCE}


def test_mig_instances_count_by_their_profile_and_whole_gpus_beside_them() -> None:
    found = offers(
        published("n1", "gpu-0"),
        instances("n1", "1g.10gb", "a", "b", "c"),
        instances("n1", "3g.40gb", "d"),
        instances("n2", "one", "e"),
    )
    assert dra.counted(found) == {"n1": {RESOURCE: 1, SMALL: 3, LARGE: 1}}
    claims = [claimed("n1", "b"), claimed("n1", "d"), claimed("n1", "a", pod="p1-0")]
    assert dra.taken(found, claims, lambda key: key == "jobs/p1-0") == {"n1": {SMALL: 1, LARGE: 1}}
    assert offers(instances("n1", "1g.10gb", "a", driver="gpu.example.com")) == []


@pytest.mark.parametrize(
    "more",
    [
        {"consumesCounters": [{"counterSet": "gpu-0-counter-set", "counters": {"memory": {"value": "1"}}}]},
        {"allowMultipleAllocations": True},
    ],
    ids=["overlap", "are-shared"],
)
def test_parts_do_not_count_where_no_number_of_them_is_right(more: dict[str, Any]) -> None:
    kinds = {"type": {"string": "mig"}, "profile": {"string": "1g.10gb"}}
    devices = [{"name": "a", "attributes": kinds, **more}, {"name": "b", "attributes": kinds}]
    (offer,) = offers(published("n1", devices=devices))
    assert offer.devices == {"b": SMALL}


def test_who_claims_a_part_that_is_cut_for_him_has_its_gpu() -> None:
    def uses(name: str, kind: str, gpu: int) -> dict[str, Any]:
        counters = [{"counterSet": f"gpu-{gpu}-counters", "counters": {"memory": {"value": "20Gi"}}}]
        return {"name": name, "attributes": {"type": {"string": kind}}, "consumesCounters": counters}

    wholes = [uses("gpu-0", "gpu", 0), uses("gpu-1", "gpu", 1)]
    parts = [uses(f"part-{number}", "mig", number // 2) for number in range(4)]
    found = offers(
        published("n1", devices=wholes),
        published("n1", devices=parts),
        published("n2", devices=[*wholes, *parts]),
    )
    assert dra.counted(found) == {"n1": {RESOURCE: 2}, "n2": {RESOURCE: 2}}
    held = claimed("n1", "part-0", "part-1")
    assert dra.taken(found, [held], lambda _: False) == {"n1": {RESOURCE: 1}}
    both = [held, claimed("n1", "part-2"), claimed("n2", "gpu-1")]
    assert dra.taken(found, both, lambda _: False) == {"n1": {RESOURCE: 2}, "n2": {RESOURCE: 1}}


def test_a_gpu_of_which_claims_choose_their_share_is_not_a_whole_one() -> None:
    devices = [{"name": "gpu-0", "allowMultipleAllocations": True}]
    assert offers(published("n1", devices=devices)) == []


def test_who_only_looks_at_devices_holds_none() -> None:
    """A monitor claims all GPUs of a node with administrative access, and others have them all the same."""
    seen = {"driver": DRIVER, "pool": "n1", "device": "gpu-0", "adminAccess": True}
    status = {"allocation": {"devices": {"results": [seen]}}}
    assert dra.held(msgspec.convert({"metadata": {"name": "monitor"}, "status": status}, Claim)) is None


def test_they_are_gpus_of_a_pool_like_any_other() -> None:
    cluster = NodesAndPods(KubeSettings(image="i", pools=(POOL,)), "here")
    machine = cluster.machine(node(**{RESOURCE: "4"}))
    assert machine is not None
    labels = {SITE_LABEL: "here", PLACEMENT_LABEL: "p1", RANK_LABEL: "0"}
    spec = {"nodeName": "n1", "containers": [{"name": "main"}]}
    ours = {
        "metadata": {
            "name": "p1-0",
            "namespace": "federator",
            "labels": labels,
            "annotations": {dra.DEVICES_NOTE: f'{{"{RESOURCE}": 1}}'},
        },
        "spec": spec,
    }
    use = cluster.use(msgspec.convert(ours, Pod))
    assert use is not None
    taken = dra.taken(offers(published("n1", "a", "b", "c", "d")), [claimed("n1", "a")], lambda _: False)
    seen = cluster.seen({"n1": machine}, [use], claimed=taken)
    (pool,) = seen.pools
    assert (pool.name, pool.gpus_per_node, pool.model) == ("h100", 4, "H100")
    assert len(seen.hosts["h100"][0].gpus) == 2


@pytest.mark.parametrize(
    ("whose", "noted", "free"),
    [
        ({"namespace": "theirs"}, f'{{"{RESOURCE}": 4}}', 4),
        ({"agent": "another"}, f'{{"{RESOURCE}": 4}}', 4),
        ({"agent": ""}, f'{{"{RESOURCE}": 4}}', 4),
        ({}, f'{{"{RESOURCE}": 3}}', 1),
        ({}, f'{{"{RESOURCE}": -5000000}}', 4),
        ({}, f'{{"{RESOURCE}": 1025}}', 4),
        ({}, '{"nvidia.com/gpu": 4}', 4),
    ],
    ids=["elsewhere", "of-another-agent", "of-no-agent", "ours", "negative", "too-many", "no-class"],
)
def test_a_note_is_believed_of_our_own_pods_and_of_classes_alone(
    whose: dict[str, str], noted: str, free: int
) -> None:
    resource, pools = (RESOURCE, (POOL,)) if RESOURCE in noted else ("nvidia.com/gpu", ())
    cluster = NodesAndPods(KubeSettings(image="i", pools=pools), "here", "me")
    machine = cluster.machine(node(**{resource: "4"}))
    assert machine is not None
    labels = {SITE_LABEL: "here", PLACEMENT_LABEL: "p1", AGENT_LABEL: whose.get("agent", "me")}
    meta = {"name": "p1-0", "namespace": whose.get("namespace", "federator"), "labels": labels}
    spec = {"nodeName": "n1", "containers": [{"name": "main"}]}
    pod = {"metadata": meta | {"annotations": {dra.DEVICES_NOTE: noted}}, "spec": spec}
    use = cluster.use(msgspec.convert(pod, Pod))
    assert use is not None
    assert bool(use.placement) is not bool(whose)
    (hosts,) = cluster.seen({"n1": machine}, [use]).hosts.values()
    assert len(hosts[0].gpus) == free


def test_no_more_is_free_than_there_is() -> None:
    cluster = NodesAndPods(KubeSettings(image="i", pools=(POOL,)), "here")
    machine = cluster.machine(node(**{RESOURCE: "4"}))
    assert machine is not None
    use = Use("n1", Size(devices={RESOURCE: -10}))
    assert len(cluster.seen({"n1": machine}, [use]).hosts["h100"][0].gpus) == 4


def test_each_instance_is_a_host_with_its_part_of_a_gpu() -> None:
    cluster = NodesAndPods(KubeSettings(image="i", pools=(POOL, INSTANCES)), "here")
    machine = cluster.machine(node(**{RESOURCE: "1", SMALL: "7"}))
    assert machine is not None
    seen = cluster.seen({"n1": machine}, [], claimed={"n1": Counter({SMALL: 2})})
    whole, part = seen.pools
    assert (whole.name, whole.gpus_per_node, whole.cut_milli) == ("h100", 1, 0)
    assert (part.name, part.model, part.nodes, part.host_milli) == ("h100-mig", "H100", 7, 143)
    assert part.gpu_memory_mib == 81920
    (host,) = seen.hosts["h100-mig"]
    assert host.share_milli == 5 * 143


def test_the_site_file_may_say_the_part() -> None:
    pool = msgspec.structs.replace(INSTANCES, part_milli=125)
    (found,) = NodesAndPods(KubeSettings(image="i", pools=(pool,)), "here").device_sets(node(**{SMALL: "7"}))
    assert (found.pool, found.units, found.part_milli) == ("h100-mig", 7, 125)


def test_instances_are_found_without_pools_in_the_file() -> None:
    found = NodesAndPods(KubeSettings(image="i"), "here").device_sets(node(**{SMALL: "7", LARGE: "1"}))
    assert [(each.pool, each.units, each.part_milli) for each in found] == [
        ("h100-mig-1g.10gb-dra", 7, 143),
        ("h100-mig-3g.40gb-dra", 1, 500),
    ]


def test_a_quota_of_the_class_is_of_all_its_profiles_together() -> None:
    pools = (INSTANCES, msgspec.structs.replace(INSTANCES, name="large", profile="3g.40gb"))
    cluster = NodesAndPods(KubeSettings(image="i", pools=pools), "here", "me")
    machine = cluster.machine(node(**{SMALL: "7", LARGE: "2"}))
    assert machine is not None
    quota = {"hard": {"mig.nvidia.com.deviceclass.resource.k8s.io/devices": "3"}}
    ours = Use("n1", Size(devices={LARGE: 1}), "p1")
    allowed = allowance([msgspec.convert({"metadata": {}, "spec": quota, "status": {}}, Quota)], [], "")
    seen = cluster.seen({"n1": machine}, [ours], allowed=allowed)
    assert [pool.allowed_gpus for pool in seen.pools] == [3, 3]
    assert seen.hosts["h100-mig"][0].share_milli == 2 * 143
    assert seen.hosts["large"][0].share_milli == 500


async def test_a_profile_that_no_node_publishes_is_told_with_those_that_there_are() -> None:
    api: Any = Publishing(1)
    api.slices = [instances("n1", "1g.10gb", "a"), instances("n2", "3g.40gb", "b")]
    found = Dra(api, lambda _: None)
    running = asyncio.create_task(found.run())
    try:
        await asyncio.wait_for(found.known.wait(), 5.0)
    finally:
        running.cancel()
    other = msgspec.structs.replace(INSTANCES, name="h100-2g", profile="2g.20gb")
    remarks = found.missing((POOL, INSTANCES, other))
    seen = NodesAndPods(KubeSettings(image="i"), "here").seen({}, [], remarks=remarks)
    assert seen.health == (
        "pool h100-2g has nothing to lend: no node publishes MIG instances 2g.20gb that are cut already;"
        " published are 1g.10gb, 3g.40gb"
    )


def test_without_pools_in_the_file_they_are_found_where_nodes_are_labelled() -> None:
    cluster = NodesAndPods(KubeSettings(image="i"), "here")
    (found,) = cluster.device_sets(node(**{RESOURCE: "4"}))
    assert (found.pool, found.resource, found.units) == ("h100-dra", RESOURCE, 4)
    place = cluster.place("h100-dra", [found])
    assert place is not None
    assert place.resource == RESOURCE
    both = cluster.device_sets(node(**{RESOURCE: "4", "nvidia.com/gpu": "2"}))
    assert [(each.pool, each.units) for each in both] == [("h100", 2), ("h100-dra", 4)]


def test_gpus_of_nodes_without_a_product_are_a_pool_of_their_class() -> None:
    """Of which model they are nobody knows then, and pods keep off the nodes that have one."""
    cluster = NodesAndPods(KubeSettings(image="i"), "here")
    bare = node(**{RESOURCE: "4"})
    bare = msgspec.structs.replace(bare, metadata=msgspec.structs.replace(bare.metadata, labels={}))
    (found,) = cluster.device_sets(bare)
    assert (found.pool, found.resource, found.units, found.model) == ("gpu.nvidia.com-dra", RESOURCE, 4, "")
    place = cluster.place(found.pool, [found])
    assert place is not None
    assert (place.selector, place.without, place.resource) == ({}, (PRODUCT_LABEL,), RESOURCE)


def test_pods_ask_by_a_claim_of_one_template() -> None:
    settings = KubeSettings(image="i", namespace="jobs", pools=(POOL,))
    spec = JobSpec(name="job", run="x", nodes=2, resources=Resources(gpus=Accelerators(count=2)))
    slots = tuple(Slot(rank, "h100", "n", (), 1000, 0) for rank in range(2))
    record = PlacementRecord(entry=entry("p1", spec, pool="h100"), phase=Phase.STAGING, slots=slots)
    place = NodesAndPods(settings, "here").place("h100", [])
    assert place is not None
    pods = [manifests.pod(record, spec, rank, place, settings, "here") for rank in range(2)]
    template = dra.ask(pods, "p1", place.resource, {"federator/placement": "p1"})
    assert template["metadata"] == {
        "name": "p1",
        "namespace": "jobs",
        "labels": {"federator/placement": "p1"},
    }
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"] == {"deviceClassName": DRIVER, "count": 2}
    for pod in pods:
        main = pod["spec"]["containers"][0]
        assert pod["spec"]["resourceClaims"] == [{"name": "gpus", "resourceClaimTemplateName": "p1"}]
        assert main["resources"]["claims"] == [{"name": "gpus"}]
        assert not [
            name for kind in ("requests", "limits") for name in main["resources"][kind] if "/" in name
        ]
        assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod["spec"][
            "tolerations"
        ]


def test_a_claim_of_an_instance_names_its_profile() -> None:
    settings = KubeSettings(image="i", pools=(INSTANCES,))
    spec = JobSpec(name="job", run="x", resources=Resources(gpus=Accelerators(count=1, share_milli=143)))
    record = PlacementRecord(
        entry=entry("p1", spec, pool="h100-mig"),
        phase=Phase.STAGING,
        slots=(Slot(0, "h100-mig", "n", (), 1000, 0, 143),),
    )
    cluster = NodesAndPods(settings, "here", "me")
    place = cluster.place("h100-mig", cluster.device_sets(node(**{SMALL: "7"})))
    assert place is not None
    pod = manifests.pod(record, spec, 0, place, settings, "here")
    template = dra.ask([pod], "p1", place.resource, {})
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"] == {
        "deviceClassName": "mig.nvidia.com",
        "count": 1,
        "selectors": [{"cel": {"expression": 'device.attributes["gpu.nvidia.com"].profile == "1g.10gb"'}}],
    }
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod["spec"][
        "tolerations"
    ]
    labels = {SITE_LABEL: "here", PLACEMENT_LABEL: "p1", AGENT_LABEL: "me"}
    pod["metadata"] |= {"labels": labels, "namespace": "federator"}
    pod["spec"]["nodeName"] = "n1"
    use = cluster.use(msgspec.convert(pod, Pod))
    assert use is not None
    assert use.size.devices == {SMALL: 1}


class Making:
    """Notes what is made beside the pods of a placement, and the pods."""

    def __init__(self) -> None:
        self.nodes = SimpleNamespace(items={})
        self.groups: list[dict[str, Any]] = []
        self.pods: list[dict[str, Any]] = []

    async def create_group(self, _gang: object, group: dict[str, Any]) -> None:
        self.groups.append(group)

    async def create(self, pod: dict[str, Any]) -> None:
        self.pods.append(pod)

    async def _nothing(self, _made: object) -> None:
        pass

    create_service = create_policy = create_claims = _nothing


@pytest.mark.parametrize("kind", ["volcano", "yunikorn"])
async def test_no_gang_waits_for_a_resource_that_no_node_publishes(kind: str) -> None:
    """A class's extended resource is in no node's capacity: such a gang would never start."""
    document = {
        "image": "i",
        "pools": [{"name": "h100", "selector": {}, "device_class": DRIVER}],
        "gang_scheduler": {"kind": kind},
    }
    settings = decode(document, KubeSettings, "$.kube")
    resources = Resources(gpus=Accelerators(count=2), cpus_milli=1000, memory_mib=1024)
    spec = JobSpec(name="job", run="x", nodes=2, resources=resources)
    slots = tuple(Slot(rank, "h100", "n", (), 1000, 1024) for rank in range(2))
    record = PlacementRecord(entry=entry("p1", spec, pool="h100"), phase=Phase.STAGING, slots=slots)
    making = Making()
    around: Any = SimpleNamespace(site="here", secrets={}, gang_secret=lambda *_: "")
    pods: Any = making
    nothing: Any = SimpleNamespace()
    quotas: Any = SimpleNamespace(of=lambda _home: UNBOUNDED)
    preparing = Preparation(
        nothing, pods, nothing, around, settings, NodesAndPods(settings, "here"), quotas, nothing
    )
    await preparing.create_pods(record, spec)
    assert len(making.pods) == 2
    notes = [pod["metadata"]["annotations"] for pod in making.pods]
    assert dra.DEVICES_NOTE in notes[0]
    if kind == "volcano":
        (group,) = making.groups
        assert group["spec"]["minResources"] == {"cpu": "2000m", "memory": "2048Mi"}
    else:
        (group,) = json.loads(notes[0]["yunikorn.apache.org/task-groups"])
        assert group["minResource"] == {"cpu": "1000m", "memory": "1024Mi"}


@pytest.mark.parametrize(
    ("pool", "told"),
    [
        ({"device_class": "c", "resource": "x/gpu"}, r"pools\[0\]\.device_class"),
        ({"device_class": "c", "part": 0.5}, r"pools\[0\]\.device_class"),
        ({"device_class": MIG_CLASS}, r"pools\[0\]\.profile: is missing"),
        ({"device_class": "c", "profile": "1g.10gb"}, "add device_class: mig.nvidia.com"),
        ({"profile": "1g.10gb"}, "or with a device plugin say resource: nvidia.com/mig-1g.10gb"),
        ({"device_class": MIG_CLASS, "profile": "5g.40gb"}, "no MIG profile that a GPU has.*write 7g.40gb"),
        (
            {"device_class": MIG_CLASS, "profile": '1g.10gb" || true'},
            "is not a MIG profile.*write for example",
        ),
        ({"device_class": MIG_CLASS, "profile": "1g.10gb", "part": 2}, "2 is not a part of a GPU"),
    ],
)
def test_what_does_not_go_together_is_told(pool: dict[str, object], told: str) -> None:
    with pytest.raises(Invalid, match=told):
        check(
            decode({"image": "i", "pools": [{"name": "a", "selector": {}, **pool}]}, KubeSettings, "$.kube")
        )


class Publishing:
    """An API server on which drivers have published slices; a watch tells of nothing more."""

    def __init__(self, slices: int) -> None:
        self.slices = [published(f"n{number}", "gpu-0") for number in range(slices)]

    async def ask(self, _method: str, path: str, **_: Any) -> bytes:
        if path == dra.GROUP:
            return b'{"versions": [{"version": "v1"}]}'
        if path.endswith("/resourceslices"):
            return msgspec.json.encode({"items": self.slices})
        return b'{"items": []}'

    @asynccontextmanager
    async def stream(self, *_: Any, **_more: Any) -> AsyncIterator[None]:
        await asyncio.get_running_loop().create_future()
        yield


async def test_many_slices_that_change_together_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, count, changed = [], dra.counted, list[str]()

    def counting(found: Iterable[SliceDevices]) -> dict[str, Counter[str]]:
        counts.append(1)
        return count(found)

    monkeypatch.setattr(dra, "counted", counting)
    monkeypatch.setattr(dra, "RECOUNT_PAUSE_S", 60.0)
    api: Any = Publishing(100)
    found = Dra(api, changed.append)
    running = asyncio.create_task(found.run())
    try:
        await asyncio.wait_for(found.known.wait(), 5.0)
        assert len(counts) == 1
        assert found.with_devices(node("n7")).status.allocatable[RESOURCE] == "1", "as soon as they are known"
        monkeypatch.setattr(dra, "RECOUNT_PAUSE_S", 0.01)
        changed.clear()
        for number in range(50):
            (offer,) = offers(published(f"n{number}", "gpu-0", "gpu-1"))
            found.slices[f"n{number}-1"] = offer
            found.slice_changed(f"n{number}-1", offer)
        await until(lambda: len(changed) >= 50, "the nodes to be told")
    finally:
        running.cancel()
    assert sorted(changed) == sorted(f"n{number}" for number in range(50))
    assert len(counts) == 2
    assert found.with_devices(node("n7")).status.allocatable[RESOURCE] == "2"


def test_no_template_is_made_where_the_cluster_serves_none() -> None:
    api: Any = None
    found = Dra(api, lambda _: None)
    assert found.templates("jobs") == ""
    with pytest.raises(Unavailable, match=r"resource\.k8s\.io"):
        found.template({"metadata": {"namespace": "jobs"}})
