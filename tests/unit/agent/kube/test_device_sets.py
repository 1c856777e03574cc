"""The parts into which a cluster's GPUs are cut, read off what the device plugin and GPU feature discovery show, or as the site file says."""

from typing import Any

import msgspec
import pytest

from federator.kernel.errors import Invalid
from federator.kube.objects import Node, Pod
from federator.wire.decoding import decode
from federator.wire.mig import mig
from federator_agent.core.lent_capacity import Host
from federator_agent.kube import settings
from federator_agent.kube.capacity import NodesAndPods, PoolPlace
from federator_agent.kube.device_sets import DeviceSet, device_sets_of
from federator_agent.kube.settings import KubePool, KubeSettings

PRODUCT, REPLICAS = "nvidia.com/gpu.product", "nvidia.com/gpu.replicas"
A100 = {PRODUCT: "NVIDIA-A100-SXM4-80GB", "nvidia.com/gpu.memory": "81920"}
CLUSTER = NodesAndPods(KubeSettings(image="i"), "here")


def node(labels: dict[str, str], taints: tuple[dict[str, str], ...] = (), **has: str) -> Node:
    """`has`: amounts by resource, with `gpu`, `shared`, and `mig_3g_40gb` for nvidia.com/mig-3g.40gb."""
    names = {"gpu": "nvidia.com/gpu", "shared": "nvidia.com/gpu.shared"}
    devices = {
        names.get(key) or f"nvidia.com/{'-'.join(key.split('_', 1)).replace('_', '.')}": amount
        for key, amount in has.items()
    }
    status = {
        "allocatable": {"cpu": "64", "memory": "64Gi", "pods": "100", **devices},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    given = {"metadata": {"name": "n1", "labels": labels}, "spec": {"taints": taints}, "status": status}
    return msgspec.convert(given, Node)


def seen(*nodes: Node, cluster: NodesAndPods = CLUSTER, pods: tuple[dict[str, str], ...] = ()) -> Any:
    machines = {f"n{n}": machine for n, each in enumerate(nodes, 1) if (machine := cluster.machine(each))}
    given = [
        {
            "metadata": {"name": "p"},
            "spec": {"nodeName": "n1", "containers": [{"resources": {"requests": each}}]},
        }
        for each in pods
    ]
    uses = [use for each in given if (use := cluster.use(msgspec.convert(each, Pod))) is not None]
    return cluster.seen(machines, uses)


def names(of: Node, *pools: KubePool) -> list[tuple[str, str, int, int]]:
    return [
        (device_set.pool, device_set.resource, device_set.units, device_set.part_milli)
        for device_set in device_sets_of(of, pools)
    ]


@pytest.mark.parametrize(
    ("name", "model", "memory_mib", "milli"),
    [
        ("nvidia.com/mig-3g.40gb", "A100", 81920, 500),
        ("nvidia.com/mig-3g.40gb", "A100", 0, 500),
        ("nvidia.com/mig-1g.10gb", "A100", 81920, 143),
        ("nvidia.com/mig-1g.20gb", "A100", 81920, 250),
        ("nvidia.com/mig-2g.20gb", "H100", 81559, 286),
        ("nvidia.com/mig-4g.20gb", "A100", 40960, 572),
        ("nvidia.com/mig-7g.80gb", "H100", 81559, 1000),
        ("nvidia.com/mig-1g.18gb", "H200", 143771, 143),
        ("nvidia.com/mig-3g.71gb", "H200", 143771, 500),
        ("nvidia.com/mig-1g.6gb", "A30", 24576, 250),
        ("nvidia.com/mig-2g.12gb", "A30", 0, 500),
        ("nvidia.com/mig-1g.10gb.me", "A100", 0, 143),
        ("a100_3g.20gb", "A100", 40960, 500),
        ("nvidia_a100_1g.5gb", "A100", 0, 143),
    ],
)
def test_an_instance_is_as_much_as_the_larger_of_its_shares(
    name: str, model: str, memory_mib: int, milli: int
) -> None:
    found = mig(name, model, memory_mib)
    assert found is not None
    assert found.milli == milli


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "A100-80GB", "a100", "NVIDIA-A100-SXM4-80GB", "b3g.40gb"])
def test_other_names_are_of_no_instance(name: str) -> None:
    assert mig(name, "A100") is None


def test_whole_gpus_are_as_they_were() -> None:
    assert names(node(A100, gpu="4")) == [("nvidia-a100-sxm4-80gb", "nvidia.com/gpu", 4, 0)]
    assert names(node({**A100, REPLICAS: "1"}, gpu="4")) == names(node(A100, gpu="4"))


def test_time_slices_are_parts_with_or_without_a_name_of_their_own() -> None:
    labels = {**A100, REPLICAS: "4"}
    assert names(node(labels, gpu="0", shared="8")) == [
        ("nvidia-a100-sxm4-80gb-shared-4", "nvidia.com/gpu.shared", 8, 250)
    ]
    labels[PRODUCT] += "-SHARED"
    assert names(node(labels, gpu="8")) == [("nvidia-a100-sxm4-80gb-shared-4", "nvidia.com/gpu", 8, 250)]
    (device_set,) = device_sets_of(node(labels, gpu="8"), ())
    assert device_set.selector == {PRODUCT: "NVIDIA-A100-SXM4-80GB-SHARED", REPLICAS: "4"}
    assert (device_set.model, device_set.gpu_memory_mib) == ("A100", 81920)


def test_instances_of_several_profiles_are_a_pool_each_beside_whole_gpus() -> None:
    of = node(A100, gpu="2", mig_3g_40gb="2", mig_1g_10gb="7")
    assert names(of) == [
        ("nvidia-a100-sxm4-80gb", "nvidia.com/gpu", 2, 0),
        ("nvidia-a100-sxm4-80gb-mig-1g.10gb", "nvidia.com/mig-1g.10gb", 7, 143),
        ("nvidia-a100-sxm4-80gb-mig-3g.40gb", "nvidia.com/mig-3g.40gb", 2, 500),
    ]


def test_where_all_gpus_are_cut_alike_the_labels_are_of_the_instance() -> None:
    labels = {PRODUCT: "NVIDIA-A100-SXM4-80GB-MIG-3g.40gb", "nvidia.com/gpu.memory": "40192"}
    (device_set,) = device_sets_of(node(labels, gpu="8"), ())
    assert (device_set.resource, device_set.units, device_set.part_milli) == ("nvidia.com/gpu", 8, 500)
    assert (device_set.model, device_set.gpu_memory_mib) == ("A100", 80384)


def test_the_site_file_may_say_the_part_and_have_several_pools_of_one_node() -> None:
    halves = KubePool(name="halves", selector={}, resource="x.com/gpu.half", part_milli=500, model="MI300X")
    whole = KubePool(name="whole", selector={PRODUCT: A100[PRODUCT]})
    of = node(A100, gpu="2", mig_3g_40gb="2")
    of.status.allocatable["x.com/gpu.half"] = "4"
    assert names(of, whole, halves) == [
        ("whole", "nvidia.com/gpu", 2, 0),
        ("halves", "x.com/gpu.half", 4, 500),
    ]
    assert names(node(A100, gpu="0"), whole, halves) == [("whole", "nvidia.com/gpu", 0, 0)]
    assert names(node({}, gpu="0"), whole) == []


def test_the_site_files_part_is_a_part() -> None:
    given: dict[str, Any] = {"image": "i", "pools": [{"name": "p", "selector": {"a": "b"}, "part": 0.5}]}
    assert decode(given, settings.KubeSettings, "$.kube").pools[0].part_milli == 500
    given["pools"][0]["part"] = 2
    with pytest.raises(Invalid, match=r"\$\.kube\.pools\[0\]\.part: 2 is not a part of a GPU"):
        decode(given, settings.KubeSettings, "$.kube")


def test_each_free_part_has_its_part_of_what_is_free_beside_it() -> None:
    asks = {"nvidia.com/mig-3g.40gb": "1", "cpu": "4", "memory": "4Gi"}
    found = seen(node(A100, gpu="1", mig_3g_40gb="2"), pods=(asks,))
    whole, half = found.pools
    assert (whole.gpus_per_node, whole.shares, whole.cpus_milli_per_node) == (1, 0, 32000)
    assert (half.nodes, half.host_milli, half.cut_milli, half.cpus_milli_per_node) == (2, 500, 500, 16000)
    assert found.hosts[whole.name] == (Host("n1", (0,), 32000, 32768),)
    assert found.hosts[half.name] == (Host("n1", (0,), 20000, 20480, 500),)
    (local,) = found.local_work
    assert (local.pool, local.nodes, local.gpus_per_node) == (half.name, 1, 500)


def test_where_no_device_is_free_what_is_beside_them_is_told_once() -> None:
    asks = ({"nvidia.com/mig-3g.40gb": "2", "cpu": "1"}, {"nvidia.com/gpu": "1", "cpu": "1"})
    found = seen(node(A100, gpu="1", mig_3g_40gb="2"), pods=asks)
    assert [host for hosts in found.hosts.values() for host in hosts] == [
        Host("n1", (), 32000, 32768),
        Host("n1", (), 0, 0),
    ]


def test_a_pool_whose_nodes_are_cut_in_several_ways_lends_nothing_and_says_so() -> None:
    pool = KubePool(name="mixed", selector={})
    cluster = NodesAndPods(KubeSettings(image="i", pools=(pool,)), "here")
    found = seen(
        node({**A100, REPLICAS: "2"}, gpu="4"), node({**A100, REPLICAS: "4"}, gpu="4"), cluster=cluster
    )
    assert (found.pools, found.hosts) == ((), {})
    assert "pool mixed are not all cut alike" in found.health


def test_pods_are_sent_to_parts_by_the_name_of_their_resource() -> None:
    device_sets = device_sets_of(node({**A100, REPLICAS: "4"}, shared="8"), ())
    place = CLUSTER.place("nvidia-a100-sxm4-80gb-shared-4", device_sets)
    assert place == PoolPlace({PRODUCT: A100[PRODUCT], REPLICAS: "4"}, (), "nvidia.com/gpu.shared", 250)
    pool = KubePool(name="q", selector={"a": "b"}, resource="nvidia.com/gpu.shared", part_milli=100)
    cluster = NodesAndPods(KubeSettings(image="i", pools=(pool,)), "here")
    device_set = DeviceSet(pool="q", selector={}, units=1, part_milli=100)
    assert cluster.place("q", (device_set,)) == PoolPlace({"a": "b"}, (), "nvidia.com/gpu.shared", 100)


def test_the_taint_of_the_plain_resource_is_tolerated_for_its_parts_too() -> None:
    for key, holds in (("nvidia.com/gpu", True), ("nvidia.com/mig-3g.40gb", True), ("theirs", False)):
        of = node(A100, ({"key": key, "effect": "NoSchedule"},), mig_3g_40gb="2")
        assert (CLUSTER.machine(of) is not None) is holds
