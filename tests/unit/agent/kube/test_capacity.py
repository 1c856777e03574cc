"""What is free is counted as the scheduler counts it: what is reported can be had, and what cannot be had is not reported."""

from typing import Any

import msgspec
import pytest

from federator.kube.objects import Condition, Node, Pod, mib, milli, quantity
from federator.model.sites import LocalWork
from federator_agent.core.lent_capacity import Host
from federator_agent.kube.capacity import NodesAndPods, PoolPlace, Size
from federator_agent.kube.device_sets import pool_name
from federator_agent.kube.settings import KubePool, KubeSettings

CLUSTER = NodesAndPods(KubeSettings(image="i"), "here")


def node(name: str = "n1", *, labels: dict[str, str] | None = None, **more: Any) -> Node:
    allocatable = {"cpu": "3920m", "memory": "16Gi", "nvidia.com/gpu": "4", "pods": "10"}
    status = {
        "allocatable": allocatable,
        "conditions": [{"type": "Ready", "status": more.pop("ready", "True")}],
    }
    labels = (
        {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/gpu.memory": "81920"}
        if labels is None
        else labels
    )
    return msgspec.convert(
        {"metadata": {"name": name, "labels": labels}, "spec": more, "status": status}, Node
    )


def pod(node_name: str = "n1", requests: dict[str, str] | None = None, **more: Any) -> Pod:
    spec = {
        "nodeName": node_name,
        "containers": [{"name": "c", "resources": {"requests": requests or {}}}],
        **more.pop("spec", {}),
    }
    return msgspec.convert({"metadata": {"name": "p", "namespace": "federator", **more}, "spec": spec}, Pod)


@pytest.mark.parametrize(
    ("text", "value"),
    [("2", 2), ("100m", 0.1), ("1.5Gi", 1.5 * 2**30), ("1e3", 1000), ("2k", 2000), ("x", 0), ("", 0)],
)
def test_quantities_are_read_as_kubernetes_writes_them(text: str, value: float) -> None:
    assert quantity(text) == pytest.approx(value)


def test_what_is_asked_for_is_rounded_up() -> None:
    assert (milli("100u"), milli("100m"), mib("1"), mib("1Mi")) == (1, 100, 1, 1)


def test_a_node_is_of_the_pool_of_its_gpus() -> None:
    machine = CLUSTER.machine(node())
    assert machine is not None
    (device_set,) = machine.device_sets
    assert (device_set.pool, device_set.model, device_set.gpu_memory_mib, device_set.units) == (
        "nvidia-a100-sxm4-80gb",
        "A100",
        81920,
        4,
    )
    assert machine.size == Size(3920, 16384)


def test_a_node_without_gpus_is_of_the_cpu_pool() -> None:
    machine = CLUSTER.machine(node(labels={}))
    assert machine is not None
    assert [device_set.pool for device_set in machine.device_sets] == ["cpu"]


@pytest.mark.parametrize(
    "more",
    [
        {"ready": "False"},
        {"ready": "Unknown"},
        {"unschedulable": True},
        {"taints": [{"key": "theirs", "effect": "NoSchedule"}]},
        {"taints": [{"key": "theirs", "effect": "NoExecute"}]},
    ],
)
def test_a_node_that_takes_no_work_is_left_out(more: dict[str, Any]) -> None:
    assert CLUSTER.machine(node(**more)) is None


@pytest.mark.parametrize(("condition", "status", "takes"), [
    ("GpuXidError", "True", False), ("GPUNvlinkError", "True", False), ("KernelDeadlock", "True", False),
    ("GpuXidError", "False", True), ("GpuXidError", "Unknown", True), ("EtcdIsVoter", "True", True),
])  # fmt: skip
def test_a_fault_that_a_node_problem_detector_has_found_keeps_new_work_off(
    condition: str, status: str, takes: bool
) -> None:
    each = node()
    said = (*each.status.conditions, Condition(type=condition, status=status))
    faulty = msgspec.structs.replace(each, status=msgspec.structs.replace(each.status, conditions=said))
    assert (CLUSTER.machine(faulty) is not None) is takes
    heedless = NodesAndPods(KubeSettings(image="i", fault_conditions=()), "here")
    assert heedless.machine(faulty) is not None


def test_what_a_pod_asks_for_as_a_whole_counts_in_place_of_its_containers() -> None:
    whole = {"resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}
    use = CLUSTER.use(pod(requests={"cpu": "1", "memory": "4Gi", "nvidia.com/gpu": "2"}, spec=whole))
    assert use is not None
    assert use.size == Size(3000, 1024, {"nvidia.com/gpu": 2})


def test_taints_that_we_tolerate_do_not_count() -> None:
    taints = [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}, {"key": "x", "effect": "PreferNoSchedule"}]
    assert CLUSTER.machine(node(taints=taints)) is not None
    theirs = [{"key": "theirs", "value": "yes", "effect": "NoSchedule"}]
    for toleration, holds in (
        ({"key": "theirs", "operator": "Exists"}, True),
        ({"key": "theirs", "value": "yes"}, True),
        ({"key": "theirs", "value": "no"}, False),
        ({"key": "theirs", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"operator": "Exists"}, True),
    ):
        cluster = NodesAndPods(KubeSettings(image="i", tolerations=(toleration,)), "here")
        assert (cluster.machine(node(taints=theirs)) is not None) is holds


def test_configured_pools_choose_by_label_and_the_rest_is_not_ours() -> None:
    pool = KubePool(
        name="fast", selector={"tier": "fast"}, model="H100", gpu_memory_mib=5, resource="x.com/gpu"
    )
    cluster = NodesAndPods(KubeSettings(image="i", pools=(pool,)), "here")
    machine = cluster.machine(node(labels={"tier": "fast", "other": "1"}))
    assert machine is not None
    assert [(device_set.pool, device_set.units) for device_set in machine.device_sets] == [("fast", 0)]
    assert cluster.machine(node(labels={"tier": "slow"})) is None
    assert cluster.place("fast", ()) == PoolPlace({"tier": "fast"}, (), "x.com/gpu")
    assert cluster.place("cpu", ()) is None


def test_pods_are_sent_where_the_pool_is() -> None:
    label = "nvidia.com/gpu.product"
    assert CLUSTER.place("cpu", ()) == PoolPlace({}, (label,))
    device_sets = CLUSTER.device_sets(node(labels={label: "A 100/x"}))
    assert CLUSTER.place(pool_name("A 100/x"), device_sets) == PoolPlace({label: "A 100/x"})
    assert CLUSTER.place("gone", device_sets) is None


def test_a_pod_counts_as_the_scheduler_counts_it() -> None:
    """Containers added up; an init container only where it asks for more; one that stays is added; the overhead is on top."""

    def container(cpu: str, **more: str) -> dict[str, Any]:
        return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}

    spec: dict[str, Any] = {
        "containers": [container("1"), container("500m")],
        "initContainers": [container("3"), container("250m", restartPolicy="Always"), container("1")],
        "overhead": {"cpu": "100m"},
    }
    use = CLUSTER.use(pod(spec=spec))
    assert use is not None
    assert use.size.cpus_milli == 3100
    spec["initContainers"] = spec["initContainers"][1:]
    use = CLUSTER.use(pod(spec=spec))
    assert use is not None
    assert use.size.cpus_milli == 1850


def test_pods_without_a_node_or_at_their_end_take_nothing() -> None:
    assert CLUSTER.use(pod("")) is None
    over = msgspec.convert({"metadata": {}, "spec": {"nodeName": "n1"}, "status": {"phase": "Failed"}}, Pod)
    assert CLUSTER.use(over) is None


def test_what_is_free_is_what_nobody_asks_for_ours_and_theirs_alike() -> None:
    ours = {"federator/placement": "plc-1", "federator/site": "here", "federator/rank": "3"}
    others = {"federator/placement": "plc-2", "federator/site": "there"}
    uses = [
        CLUSTER.use(pod(requests={"nvidia.com/gpu": "1", "cpu": "1"}, labels=ours)),
        CLUSTER.use(pod(requests={"nvidia.com/gpu": "2", "memory": "1Gi"}, labels=others)),
        CLUSTER.use(pod(requests={"cpu": "10"})),
        CLUSTER.use(pod("elsewhere", requests={"nvidia.com/gpu": "2"})),
    ]
    machines = {
        name: machine for name in ("n1", "n2") if (machine := CLUSTER.machine(node(name))) is not None
    }
    seen = CLUSTER.seen(machines, [use for use in uses if use is not None])
    pool = "nvidia-a100-sxm4-80gb"
    full_last = (Host("n2", (0, 1, 2, 3), 3920, 16384), Host("n1", (0,), 0, 15360))
    assert seen.hosts[pool] == full_last
    assert seen.bound == {("plc-1", 3)}
    assert seen.local_work == (LocalWork(pool, 1, 2),)
    assert [(each.name, each.nodes, each.gpus_per_node) for each in seen.pools] == [(pool, 2, 4)]
    assert seen.health == "ok"


def test_a_node_that_has_all_the_pods_it_may_have_is_full() -> None:
    machine = CLUSTER.machine(node())
    assert machine is not None
    use = CLUSTER.use(pod())
    assert use is not None
    seen = CLUSTER.seen({"n1": machine}, [use] * 10)
    assert seen.hosts["nvidia-a100-sxm4-80gb"] == (Host("n1", (), 0, 0),)


def test_trouble_is_told() -> None:
    assert "away" in CLUSTER.seen({}, (), "away").health


def test_nodes_that_the_sites_pod_template_keeps_pods_off_are_not_offered() -> None:
    template = {"spec": {"nodeSelector": {"nodes": "batch"}}}
    cluster = NodesAndPods(KubeSettings(image="i", pod=template), "here")
    labels = {"nvidia.com/gpu.product": "A100"}
    assert cluster.machine(node(labels=labels)) is None
    assert cluster.machine(node(labels=labels | {"nodes": "batch"})) is not None
