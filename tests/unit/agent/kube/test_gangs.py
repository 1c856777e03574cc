"""What Kubernetes, Volcano, KAI and YuniKorn are told of a gang: as their documentation has it."""

import json
from typing import Any

import pytest

from federator.kernel.errors import Invalid
from federator.model.jobs import Accelerators, JobSpec, Resources
from federator.model.whose import Whose
from federator.wire.decoding import decode
from federator_agent.core.lent_capacity import Slot
from federator_agent.core.state import Phase, PlacementRecord
from federator_agent.kube import gangs, manifests
from federator_agent.kube.capacity import PoolPlace
from federator_agent.kube.settings import KubeSettings, check
from tests.unit.agent.worlds import entry


def settings(**kube: object) -> KubeSettings:
    found = decode({"image": "i", "namespace": "jobs", **kube}, KubeSettings, "$.kube")
    check(found)
    return found


def joined(
    gang: dict[str, object], nodes: int = 2, **kube: object
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    site = settings(gang_scheduler=gang, **kube)
    resources = Resources(gpus=Accelerators(count=4), cpus_milli=1500, memory_mib=1024)
    spec = JobSpec(name="job", run="x", nodes=nodes, resources=resources)
    slots = tuple(Slot(rank, "main", "n", (), 1500, 1024) for rank in range(nodes))
    record = PlacementRecord(entry=entry("p1", spec, pool="main"), phase=Phase.STAGING, slots=slots)
    pods = [
        manifests.pod(record, spec, rank, PoolPlace({"gpu": "a100"}), site, "here") for rank in range(nodes)
    ]
    assert site.gang_scheduler is not None
    group = gangs.join(pods, site.gang_scheduler, "p1", Whose("research/x"), manifests.labels(record, "here"))
    return pods, group


def test_kubernetes_has_a_group_of_its_own_and_pods_that_name_it() -> None:
    pods, group = joined({"kind": "kubernetes"}, priority_class="low")
    assert group is not None
    assert (group["apiVersion"], group["kind"]) == ("scheduling.k8s.io/v1alpha2", "PodGroup")
    assert group["spec"] == {"schedulingPolicy": {"gang": {"minCount": 2}}}
    for pod in pods:
        assert pod["spec"]["schedulerName"] == "default-scheduler"
        assert pod["spec"]["schedulingGroup"] == {"podGroupName": "p1"}


def test_kubernetes_has_no_queues() -> None:
    with pytest.raises(Invalid, match="queues"):
        settings(gang_scheduler={"kind": "kubernetes", "queue": "q"})


def test_volcano_has_a_group_with_what_all_ranks_need() -> None:
    pods, group = joined({"kind": "volcano", "queues": {"research/*": "vision"}}, priority_class="low")
    assert group is not None
    assert (group["apiVersion"], group["kind"]) == ("scheduling.volcano.sh/v1beta1", "PodGroup")
    assert group["metadata"]["name"] == "p1"
    assert group["metadata"]["namespace"] == "jobs"
    assert group["metadata"]["labels"]["federator/placement"] == "p1"
    assert group["spec"] == {
        "minMember": 2,
        "queue": "vision",
        "priorityClassName": "low",
        "minResources": {"cpu": "3000m", "memory": "2048Mi", "nvidia.com/gpu": "8"},
    }
    for pod in pods:
        assert pod["spec"]["schedulerName"] == "volcano"
        assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "p1"


def test_kai_has_a_group_and_makes_none_of_its_own() -> None:
    pods, group = joined({"kind": "kai", "queue": "q"})
    assert group is not None
    assert group["apiVersion"] == "scheduling.run.ai/v2alpha2"
    assert group["spec"] == {"minMember": 2, "queue": "q"}
    for pod in pods:
        assert pod["spec"]["schedulerName"] == "kai-scheduler"
        assert pod["metadata"]["labels"]["kai.scheduler/queue"] == "q"
        notes = pod["metadata"]["annotations"]
        assert (notes["pod-group-name"], notes["kai.scheduler/skip-podgrouper"]) == ("p1", "true")


def test_yunikorn_holds_room_for_all_ranks() -> None:
    pods, group = joined({"kind": "yunikorn", "queue": "root.q", "scheduler_name": "own"})
    assert group is None
    for pod in pods:
        assert pod["spec"]["schedulerName"] == "own"
        marks, notes = pod["metadata"]["labels"], pod["metadata"]["annotations"]
        assert (marks["yunikorn.apache.org/app-id"], marks["yunikorn.apache.org/queue"]) == ("p1", "root.q")
        (group_of_ranks,) = json.loads(notes["yunikorn.apache.org/task-groups"])
        assert group_of_ranks["name"] == notes["yunikorn.apache.org/task-group-name"]
        assert group_of_ranks["minMember"] == 2
        assert group_of_ranks["minResource"] == {"cpu": "1500m", "memory": "1024Mi", "nvidia.com/gpu": "4"}
        assert group_of_ranks["nodeSelector"] == {"gpu": "a100"}
    (alone,), _ = joined({"kind": "yunikorn"}, nodes=1)
    assert "yunikorn.apache.org/task-groups" not in alone["metadata"]["annotations"]


def test_two_ways_of_admitting_gangs_do_not_go_together() -> None:
    with pytest.raises(Invalid, match="gang_scheduler"):
        settings(gang_scheduler={"kind": "volcano"}, kueue_queue="q")
    with pytest.raises(Invalid, match=r"pod\.spec\.schedulerName"):
        settings(gang_scheduler={"kind": "kai"}, pod={"spec": {"schedulerName": "x"}})
    with pytest.raises(Invalid, match=r"gang_scheduler\.kind"):
        settings(gang_scheduler={"kind": "slurm"})


def test_the_ranks_of_a_gang_are_told_its_secret() -> None:
    spec = JobSpec(name="job", run="x", nodes=2)
    pod = manifests.pod(
        PlacementRecord(entry=entry("p1", spec)), spec, 1, PoolPlace({}), KubeSettings(image="i"), "here"
    )
    manifests.tell_secret(pod, "ours")
    main = pod["spec"]["containers"][0]
    assert {"name": "FEDERATOR_GANG_SECRET", "value": "ours"} in main["env"]
