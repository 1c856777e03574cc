"""What a cluster does to those whose machines are its pods, and that nothing is rented twice for it: the provider against pods on virtual time."""

import json
from collections.abc import AsyncIterator

import pytest

from federator.kernel.clock import ManualClock
from federator.kernel.errors import Forbidden, Invalid, NoCapacity
from federator.model.capacity import Instance, InstanceStatus, LaunchRequest
from federator.ports import Provider
from federator_providers.kubernetes import adapter
from federator_providers.kubernetes import provider as entry_point
from federator_providers.kubernetes.adapter import KubernetesProvider
from tests.testbeds.kubernetes.virtual import VirtualCluster

TOKEN = "one-time-join-token"
POOL = "cloud.google.com/gke-nodepool"
BOX: dict[str, object] = {
    "instance_type": "a100",
    "node_selector": {POOL: "burst"},
    "model": "A100",
    "gpu_memory": "80GiB",
    "gpus": 8,
    "cpus": 90,
    "memory": "1TiB",
    "price_usd_h": 36.0,
    "boot_delay": "5m",
}


@pytest.fixture
async def rented(virtual_cluster: VirtualCluster, clock: ManualClock) -> AsyncIterator[KubernetesProvider]:
    settings: dict[str, object] = {
        "kubeconfig": str(virtual_cluster.kubeconfig),
        "image": "registry.example/agent:1",
        "offers": [BOX],
        "pod": {
            "tolerations": [{"key": "burst", "operator": "Exists"}],
            "securityContext": {"runAsUser": 1000},
            "enableServiceLinks": None,
        },
        "container": {"securityContext": {"capabilities": None}},
    }
    made = entry_point("p", settings, clock)
    yield made
    await made.close()


async def ask(provider: Provider, name: str = "lease-a") -> Instance:
    (wanted,) = await provider.offers()
    return await provider.launch(LaunchRequest(name, wanted, "lab", {"queue": "a/B"}, f"join_token: {TOKEN}"))


async def only(provider: Provider) -> Instance:
    (found,) = await provider.instances("lab")
    return found


async def test_a_machine_is_a_pod_of_the_size_of_a_node_that_no_autoscaler_moves(
    rented: KubernetesProvider, virtual_cluster: VirtualCluster
) -> None:
    await ask(rented)
    pod = virtual_cluster.pods["lease-a"]
    notes, spec = pod["metadata"]["annotations"], pod["spec"]
    assert notes["karpenter.sh/do-not-disrupt"] == "true"
    assert notes["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"
    assert spec["nodeSelector"] == {POOL: "burst"}
    assert [each["key"] for each in spec["tolerations"]] == ["nvidia.com/gpu", "burst"], "lists are added"
    assert "enableServiceLinks" not in spec
    assert (spec["securityContext"]["runAsUser"], spec["securityContext"]["runAsGroup"]) == (1000, 10001)
    (container,) = spec["containers"]
    assert container["securityContext"] == {"allowPrivilegeEscalation": False}, "null takes away"
    assert container["resources"]["requests"] == {
        "cpu": "90000m",
        "memory": f"{2**20}Mi",
        "nvidia.com/gpu": "8",
    }


async def test_the_join_token_is_in_a_secret_that_goes_with_the_pod(
    rented: KubernetesProvider, virtual_cluster: VirtualCluster
) -> None:
    await ask(rented)
    pod, secret = virtual_cluster.pods["lease-a"], virtual_cluster.secrets["lease-a"]
    assert TOKEN not in json.dumps(pod)
    assert TOKEN in secret["stringData"]["user-data"]
    assert [each["uid"] for each in secret["metadata"]["ownerReferences"]] == [pod["metadata"]["uid"]]


async def test_a_launch_whose_answer_is_lost_finds_its_pod_and_gives_it_its_secret(
    rented: KubernetesProvider, virtual_cluster: VirtualCluster
) -> None:
    virtual_cluster.lost = 1
    with pytest.raises(Exception, match="cannot be reached"):
        await ask(rented)
    assert virtual_cluster.secrets == {}
    await ask(rented)
    assert (list(virtual_cluster.pods), list(virtual_cluster.secrets)) == (["lease-a"], ["lease-a"])


async def test_a_pod_without_a_node_costs_nothing_and_is_given_up_with_what_the_autoscaler_says(
    rented: KubernetesProvider, virtual_cluster: VirtualCluster, clock: ManualClock
) -> None:
    virtual_cluster.has_nodes = False
    await ask(rented)
    clock.advance(600)
    assert ((await only(rented)).status, (await only(rented)).billed_usd) == (InstanceStatus.BOOTING, 0.0)
    virtual_cluster.events = [
        _event("NotTriggerScaleUp", "max node group size reached", "2025-10-09T08:54:00Z"),
        _event("FailedScheduling", "0/3 nodes are available", "2025-10-09T08:55:00Z"),
    ]
    clock.advance(1)
    given_up = await only(rented)
    assert (given_up.status, given_up.billed_usd, given_up.reclaim_at) == (InstanceStatus.ENDED, 0.0, None)
    assert given_up.no_capacity == (
        "no node came within 10m1s: NotTriggerScaleUp: max node group size reached"
    )
    assert virtual_cluster.pods == {}
    assert (await ask(rented)).status is InstanceStatus.ENDED, "its name is not launched again"


async def test_a_pod_whose_offer_left_the_settings_is_given_up_too(
    rented: KubernetesProvider, virtual_cluster: VirtualCluster, clock: ManualClock
) -> None:
    virtual_cluster.has_nodes = False
    await ask(rented)
    settings: dict[str, object] = {
        "kubeconfig": str(virtual_cluster.kubeconfig),
        "image": "registry.example/agent:1",
        "offers": [BOX | {"instance_type": "h100"}],
    }
    restarted = entry_point("p", settings, clock)
    try:
        clock.advance(600)
        assert (await only(restarted)).status is InstanceStatus.BOOTING
        clock.advance(1)
        assert (await only(restarted)).no_capacity.startswith("no node came within 10m1s")
    finally:
        await restarted.close()


def _event(reason: str, message: str, at: str) -> dict[str, str]:
    return {"uid": "uid-lease-a", "reason": reason, "message": message, "lastTimestamp": at}


async def test_a_node_that_comes_late_is_used(
    rented: KubernetesProvider, virtual_cluster: VirtualCluster, clock: ManualClock
) -> None:
    virtual_cluster.has_nodes = False
    await ask(rented)
    clock.advance(590)
    virtual_cluster.give_node("lease-a")
    clock.advance(60)
    running = await only(rented)
    assert running.status is InstanceStatus.RUNNING
    assert running.billed_usd == pytest.approx(6.5)


async def test_the_node_is_billed_for_as_long_as_the_autoscaler_keeps_it(
    rented: KubernetesProvider, clock: ManualClock
) -> None:
    await ask(rented)
    clock.advance(3000)
    await rented.terminate("lease-a")
    ended = await only(rented)
    assert (ended.status, ended.reclaim_at) == (InstanceStatus.ENDED, None)
    assert ended.billed_usd == pytest.approx(36.0), "3000 s and ten minutes more"
    (offer,) = await rented.offers()
    assert offer.teardown_s == 610.0


async def test_a_drained_node_is_notice_and_its_end_an_interruption(
    rented: KubernetesProvider, virtual_cluster: VirtualCluster, clock: ManualClock
) -> None:
    await ask(rented)
    virtual_cluster.drain("lease-a")
    noticed = await only(rented)
    assert (noticed.status, noticed.reclaim_at) == (InstanceStatus.INTERRUPTING, clock.now() + 120)
    clock.advance(120)
    del virtual_cluster.pods["lease-a"]
    gone = await only(rented)
    assert (gone.status, gone.reclaim_at) == (InstanceStatus.ENDED, clock.now())


@pytest.mark.parametrize("reason", ["Evicted", ""])
async def test_a_pod_that_has_ended_says_when_and_whether_the_cluster_has_ended_it(
    rented: KubernetesProvider, virtual_cluster: VirtualCluster, clock: ManualClock, reason: str
) -> None:
    await ask(rented)
    at = clock.now()
    virtual_cluster.end("lease-a", reason)
    clock.advance(100)
    ended = await only(rented)
    assert (ended.ended_at, ended.reclaim_at) == (at, at if reason else None)
    assert (await rented.offers())[0].available == 4
    clock.advance(2 * 3600)
    await rented.instances("lab")
    assert virtual_cluster.pods == {}, "it is cleared away"


async def test_a_used_up_quota_of_the_namespace_is_want_of_capacity(
    rented: KubernetesProvider, virtual_cluster: VirtualCluster
) -> None:
    virtual_cluster.refuses = {"pods": (403, "exceeded quota: gpus, requested: 8, used: 8, limited: 8")}
    with pytest.raises(NoCapacity, match="exceeded quota: gpus"):
        await ask(rented)
    virtual_cluster.refuses = {"pods": (403, "cannot create resource pods")}
    with pytest.raises(Forbidden):
        await ask(rented)


async def test_a_pod_that_can_have_no_secret_is_ended(
    rented: KubernetesProvider, virtual_cluster: VirtualCluster
) -> None:
    virtual_cluster.refuses = {"secrets": (403, "cannot create resource secrets")}
    with pytest.raises(Forbidden, match="secrets"):
        await ask(rented)
    assert virtual_cluster.pods == {}


async def test_all_pages_are_read_and_a_pod_is_not_gone_whose_record_somebody_has_removed(
    rented: KubernetesProvider, virtual_cluster: VirtualCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "PAGE_SIZE", 2)
    for name in ("a", "b", "c"):
        await ask(rented, name)
    virtual_cluster.pods["b"]["metadata"]["labels"] = {}
    virtual_cluster.pods["c"]["metadata"]["annotations"] = {}
    listed = await rented.instances("lab")
    assert {each.name: each.status for each in listed} == dict.fromkeys("abc", InstanceStatus.BOOTING)


async def test_a_pod_that_somebody_else_has_made_is_left_alone(
    rented: KubernetesProvider, virtual_cluster: VirtualCluster
) -> None:
    virtual_cluster.pods["c"] = {"metadata": {"name": "c", "uid": "theirs", "labels": {}}}
    with pytest.raises(Invalid, match="has not launched"):
        await ask(rented, "c")
    await rented.terminate("c")
    assert "c" in virtual_cluster.pods
    with pytest.raises(Invalid, match="small letters"):
        await ask(rented, "Lease_A")
