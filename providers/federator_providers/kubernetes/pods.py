"""Machines as pods: what is asked for, and what a pod says about the machine.

All that must outlive the dispatcher stands in an annotation of the pod. The join token does not: it is in a secret that the pod owns, so that it goes with it, and that whoever may
read pods cannot read.
"""

import re
from typing import Any

import msgspec

from federator.kernel.errors import Invalid
from federator.kube.objects import Pod, instant_at
from federator.model.capacity import Instance, InstanceStatus, LaunchRequest
from federator.wire.jsontext import read
from federator_providers.billing import metered_usd
from federator_providers.kubernetes.settings import KubernetesConfiguration

RENTED = "federator/rented"
"""The label of all machines, and the annotation with their record."""
AGENT = "agent"
NOTICE_S = 120
"""For how long a pod goes on that the cluster wants to have gone: its agent saves what it can meanwhile."""
NAMES = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
USER = 10001
"""Whom the image of the agent has for it."""
_HOME, _USER_DATA = "/var/lib/federator-agent", "/etc/federator-rented"
_WAITS = ["/bin/sh", "-c", "sleep 86400"]


class PodRecord(msgspec.Struct, frozen=True):
    """What a machine was rented as."""

    federation: str
    offer: str
    usd_h: float
    minimum_s: float
    scale_down_s: float
    tags: dict[str, str]
    delay_s: float = 1800.0
    """From launch until it should run. Pods of older versions do not say it; this is more than most nodes take."""


def to_create(request: LaunchRequest, configuration: KubernetesConfiguration) -> dict[str, Any]:
    """The pod. Raises `Invalid` for a name that no pod can have."""
    if not NAMES.fullmatch(request.name):
        remedy = "use up to 63 small letters, digits and '-', at both ends no '-'"
        raise Invalid(f"{request.name!r} cannot name a pod", field="name", remedy=remedy)
    given, offer = configuration.given, request.offer
    record = PodRecord(
        request.federation,
        offer.name,
        offer.price_usd_h,
        offer.minimum_billing_s,
        given.scale_down_s,
        request.tags,
        offer.delay_s,
    )
    annotations = {
        RENTED: msgspec.json.encode(record).decode(),
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        "karpenter.sh/do-not-disrupt": "true",
    }
    gpus = {given.gpu_resource: str(offer.gpus)} if offer.gpus else {}
    size = {"cpu": f"{offer.cpus_milli}m", "memory": f"{offer.memory_mib}Mi"}
    container = {
        "name": AGENT,
        "image": given.image,
        "command": list(given.command),
        "env": [
            {"name": "FEDERATOR_USER_DATA_FILE", "value": f"{_USER_DATA}/user-data"},
            {"name": "FEDERATOR_AGENT_STATE_DIR", "value": f"{_HOME}/state"},
            {"name": "HOME", "value": _HOME},
        ],
        "resources": {"requests": size | gpus, "limits": gpus},
        "volumeMounts": [
            {"name": "user-data", "mountPath": _USER_DATA, "readOnly": True},
            {"name": "home", "mountPath": _HOME},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - the container's own
        ],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        # The agent would end at once with all its work, and not use the time that a pod has which is to go.
        "lifecycle": {"preStop": {"exec": {"command": _WAITS}}},
    }
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": NOTICE_S,
        "nodeSelector": configuration.selectors[offer.name],
        "tolerations": [{"key": each, "operator": "Exists"} for each in gpus],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumes": [
            {"name": "user-data", "secret": {"secretName": request.name}},
            {"name": "home", "emptyDir": {}},
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
        ],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": request.name, "labels": {RENTED: "true"}, "annotations": annotations},
        "spec": _merged(spec, given.pod) | {"containers": [_merged(container, given.container)]},
    }


def secret_of(pod: Pod, user_data: str) -> dict[str, Any]:
    """What the pod is started with. It goes with the pod."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": pod.metadata.name, "ownerReferences": [owner]},
        "stringData": {"user-data": user_data},
    }


def record_of(pod: Pod) -> PodRecord | None:
    """What it was rented as; None: it is none of ours."""
    try:
        return read(pod.metadata.annotations.get(RENTED, ""), PodRecord)
    except msgspec.MsgspecError:
        return None


def has_node(pod: Pod) -> bool:
    """Whether there is a node for it, or was."""
    return bool(pod.spec.node_name)


def launched_at(pod: Pod) -> float:
    """When it was asked for."""
    return instant_at(pod.metadata.creation_timestamp)


def instance(
    pod: Pod,
    record: PodRecord,
    now: float,
    ended_at: float | None = None,
    *,
    asked: bool = False,
    no_capacity: str = "",
) -> Instance:
    """In our words. `ended_at`: of a pod that is gone; `asked`: we have asked for its end; `no_capacity`: why there was no node for it.

    A machine is billed from its launch, so that the node's boot is, but for one that never had a node; and for as long after its end as the autoscaler keeps the node.
    """
    begun_at, reclaim_at = launched_at(pod), None
    if pod.over:
        ends = [each.state.terminated for each in pod.status.container_statuses]
        ended_at = max((instant_at(end.finished_at or "") for end in ends if end), default=0.0) or now
        if (
            pod.status.reason and not asked
        ):  # such as Evicted or Preempting: the agent has not ended by itself
            reclaim_at = ended_at
    elif ended_at is not None and not asked and has_node(pod):
        reclaim_at = ended_at
    elif pod.metadata.deletion_timestamp and not asked:
        reclaim_at = instant_at(pod.metadata.deletion_timestamp)
    over_at = None if ended_at is None else max(begun_at, ended_at)
    if over_at is not None:
        status = InstanceStatus.ENDED
    elif reclaim_at is not None:
        status = InstanceStatus.INTERRUPTING
    else:
        runs = pod.state(AGENT).running is not None
        status = InstanceStatus.RUNNING if runs else InstanceStatus.BOOTING
    until_at = now if over_at is None else over_at + record.scale_down_s
    return Instance(
        name=pod.metadata.name,
        offer=record.offer,
        status=status,
        launched_at=begun_at,
        ended_at=over_at,
        tags=record.tags | {"federation": record.federation},
        billed_usd=metered_usd(record.usd_h, record.minimum_s, begun_at, until_at) if has_node(pod) else 0.0,
        reclaim_at=reclaim_at,
        no_capacity=no_capacity,
    )


def _merged(ours: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """With what is given: mappings are merged, lists added, and nothing takes away."""
    made = dict(ours)
    for key, value in given.items():
        own = made.get(key)
        if value is None:
            made.pop(key, None)
        elif isinstance(own, dict) and isinstance(value, dict):
            made[key] = _merged(own, value)
        elif isinstance(own, list) and isinstance(value, list):
            made[key] = own + value
        else:
            made[key] = value
    return made
