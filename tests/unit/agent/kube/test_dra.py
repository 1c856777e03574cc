"""GPUs that a cluster hands out by dynamic resource allocation: what drivers publish is counted, what claims hold is taken off, and pods ask by a claim."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from federator.kernel.errors import Invalid, Unavailable
from federator.kube.objects import Pod
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
from federator_agent.kube.dra import Claim, Dra, SliceDevices
from federator_agent.kube.preparation import Preparation
from federator_agent.kube.quotas import UNBOUNDED
from federator_agent.kube.settings import (
    MIG_CLASS,
    PRODUCT_LABEL,
    KubeSettings,
    check,
)
from tests.support.waiting import until
from tests.unit.agent.kube.slices import DRIVER, POOL, RESOURCE, Publishing, claimed, node, offers, published
from tests.unit.agent.worlds import entry


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
