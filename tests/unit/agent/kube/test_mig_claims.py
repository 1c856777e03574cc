"""Parts of GPUs that a cluster hands out by dynamic resource allocation: MIG instances that are cut beforehand count by their profile, and what overlaps does not."""

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest

from federator.kube.objects import Pod, Quota
from federator.model.jobs import Accelerators, JobSpec, Resources
from federator_agent.core.lent_capacity import Slot
from federator_agent.core.state import Phase, PlacementRecord
from federator_agent.kube import dra, manifests
from federator_agent.kube.capacity import (
    AGENT_LABEL,
    PLACEMENT_LABEL,
    SITE_LABEL,
    NodesAndPods,
    Size,
    Use,
)
from federator_agent.kube.dra import Dra, Slice
from federator_agent.kube.quotas import allowance
from federator_agent.kube.settings import (
    MIG_CLASS,
    PRODUCT_LABEL,
    KubePool,
    KubeSettings,
    resource_of,
)
from tests.unit.agent.kube.slices import POOL, RESOURCE, Publishing, claimed, node, offers, published
from tests.unit.agent.worlds import entry

SMALL, LARGE = resource_of(MIG_CLASS, "1g.10gb"), resource_of(MIG_CLASS, "3g.40gb")
INSTANCES = KubePool(
    name="h100-mig",
    selector={PRODUCT_LABEL: "H100"},
    device_class=MIG_CLASS,
    profile="1g.10gb",
    gpu_memory_mib=81920,
)


def instances(node: str, profile: str, *devices: str, **spec: Any) -> Slice:
    return published(node, *devices, kind="mig", profile=profile, **spec)


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
        "pool h100-2g has no GPUs: no node publishes MIG instances of profile 2g.20gb that were cut beforehand;"
        " the profiles there are: 1g.10gb, 3g.40gb"
    )


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
