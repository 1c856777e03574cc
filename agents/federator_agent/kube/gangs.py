"""Gangs by a scheduler of the cluster's own, beside Kueue: Kubernetes' own one, Volcano and KAI by a PodGroup that the agent makes, YuniKorn by annotations.

Without one the agent makes all pods of a placement together and takes all of them back when some find no node; such a scheduler never binds a part of them.
What is said to each is as its documentation has it; tests hold the manifests, and have no such scheduler.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from federator.kube.objects import mib, milli, quantity
from federator.model.whose import Whose
from federator.wire import fields
from federator_agent import whose as naming

QueueName = Annotated[str, fields.short(200, "research")]
_TASK_GROUP = "ranks"


class Gangs(StrEnum):
    """Schedulers that know gangs."""

    KUBERNETES = "kubernetes"
    VOLCANO = "volcano"
    KAI = "kai"
    YUNIKORN = "yunikorn"


SCHEDULER_NAMES = {
    Gangs.KUBERNETES: "default-scheduler",
    Gangs.VOLCANO: "volcano",
    Gangs.KAI: "kai-scheduler",
    Gangs.YUNIKORN: "yunikorn",
}
_VERSIONS = {
    Gangs.KUBERNETES: "scheduling.k8s.io/v1alpha2",
    Gangs.VOLCANO: "scheduling.volcano.sh/v1beta1",
    Gangs.KAI: "scheduling.run.ai/v2alpha2",
}
"""Whose PodGroup the agent makes."""


class GangScheduler(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A scheduler that binds the pods of a gang together, instead of the cluster's default one."""

    kind: Gangs
    """Which: `kubernetes`, whose default scheduler knows gangs where the cluster has the feature `GangScheduling`; `volcano`, `kai` or `yunikorn`."""
    scheduler_name: QueueName = ""
    """What pods name as their scheduler. Left out: `default-scheduler`, `volcano`, `kai-scheduler` or `yunikorn`."""
    queue: QueueName = ""
    """Its queue for the pods, such as `research` or `root.research`. Left out: its own default. `kubernetes` has none."""
    queues: dict[naming.Key, QueueName] = {}
    """By [whose work](#whose-work) it is, its queue. `*`: all others. Left out: as `queue` says."""


def group_path(gang: GangScheduler, namespace: str) -> str:
    """Where the API server has the groups; empty: this scheduler has none."""
    version = _VERSIONS.get(gang.kind)
    return f"/apis/{version}/namespaces/{namespace}/podgroups" if version else ""


def join(
    pods: Sequence[dict[str, Any]],
    gang: GangScheduler,
    placement: str,
    whose: Whose,
    labels: Mapping[str, str],
) -> dict[str, Any] | None:
    """Have the pods of a placement scheduled as one gang. Answers the object that is to be made before them, if there is one."""
    queue = naming.said_of(gang.queues, whose) or gang.queue
    marks, notes = _marks(gang, placement, queue, pods)
    for pod in pods:
        pod["spec"]["schedulerName"] = gang.scheduler_name or SCHEDULER_NAMES[gang.kind]
        pod["metadata"]["labels"] |= marks
        pod["metadata"]["annotations"] |= notes
    version = _VERSIONS.get(gang.kind)
    if version is None:
        return None
    spec: dict[str, Any] = {"minMember": len(pods)}
    if queue:
        spec["queue"] = queue
    if priority := pods[0]["spec"].get("priorityClassName"):
        spec["priorityClassName"] = priority
    if gang.kind is Gangs.VOLCANO:
        spec["minResources"] = requested(pods)
    if gang.kind is Gangs.KUBERNETES:
        spec = {"schedulingPolicy": {"gang": {"minCount": len(pods)}}}
        for pod in pods:
            pod["spec"]["schedulingGroup"] = {"podGroupName": placement}
    metadata = {"name": placement, "namespace": pods[0]["metadata"]["namespace"], "labels": dict(labels)}
    return {"apiVersion": version, "kind": "PodGroup", "metadata": metadata, "spec": spec}


def _marks(
    gang: GangScheduler, placement: str, queue: str, pods: Sequence[dict[str, Any]]
) -> tuple[dict[str, str], dict[str, str]]:
    """Labels and annotations of each pod."""
    match gang.kind:
        case Gangs.KUBERNETES:
            return {}, {}
        case Gangs.VOLCANO:
            return {}, {"scheduling.k8s.io/group-name": placement}
        case Gangs.KAI:
            # Its pod grouper would put each bare pod into a group of its own.
            notes = {"pod-group-name": placement, "kai.scheduler/skip-podgrouper": "true"}
            return ({"kai.scheduler/queue": queue} if queue else {}), notes
        case Gangs.YUNIKORN:
            marks = {"yunikorn.apache.org/app-id": placement}
            if queue:
                marks["yunikorn.apache.org/queue"] = queue
            return marks, _task_groups(pods) if len(pods) > 1 else {}


def _task_groups(pods: Sequence[dict[str, Any]]) -> dict[str, str]:
    """What YuniKorn holds room by, until all of a gang fit: placeholders as large as a rank, on nodes where a rank may be."""
    spec = pods[0]["spec"]
    group = {
        "name": _TASK_GROUP,
        "minMember": len(pods),
        "minResource": requested(pods[:1]),
        "nodeSelector": spec["nodeSelector"],
        "tolerations": spec["tolerations"],
    }
    if "affinity" in spec:
        group["affinity"] = spec["affinity"]
    return {
        "yunikorn.apache.org/task-group-name": _TASK_GROUP,
        "yunikorn.apache.org/task-groups": json.dumps([group]),
        "yunikorn.apache.org/schedulingPolicyParameters": "gangSchedulingStyle=Hard",
    }


def requested(pods: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """What pods ask for together."""
    total = Counter[str]()
    for container in (each for pod in pods for each in pod["spec"]["containers"]):
        for name, text in container["resources"].get("requests", {}).items():
            total[name] += (
                milli(text) if name == "cpu" else mib(text) if name == "memory" else int(quantity(text))
            )
    units = {"cpu": "m", "memory": "Mi"}
    return {name: f"{count}{units.get(name, '')}" for name, count in sorted(total.items()) if count}
