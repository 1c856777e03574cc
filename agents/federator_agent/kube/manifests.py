"""What a placement is at the cluster: one bare pod for each rank, and for a gang a Service without an address, which gives each rank a name.

A pod has two containers. `main` runs the job behind a gate (`wrapper.sh`); `side` brings the work directory in and the outputs out, and sends signals, all
by commands that the agent runs in it. They share a folder and their processes. Set-up runs in `main`, so that what it installs is there for the command.
A pod is never restarted, and its finalizer holds the object until the dispatcher knows how it ended.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from federator.kube.objects import quantity
from federator.model.jobs import APART, ON_ONE_HOST, JobSpec
from federator.model.placements import DesiredEntry
from federator.wire.needs import DATA, needs_of
from federator_agent.core.state import PlacementRecord
from federator_agent.environment import GANG_VARIABLE, Where, command_of, rank_environment
from federator_agent.kube import kueue, security
from federator_agent.kube.capacity import PLACEMENT_LABEL, RANK_LABEL, SITE_LABEL, PoolPlace
from federator_agent.kube.data_mover import FOLDER, GATE, inputs_of
from federator_agent.kube.device_sets import taint_keys
from federator_agent.kube.quotas import Allowance
from federator_agent.kube.settings import KubeSettings
from federator_agent.staging_errors import StagingRefused

PORT = 29500
"""Every pod has an address of its own, so every rank 0 may have this port."""
FINALIZER = "federator/status"
EPOCH_LABEL, JOB_LABEL = "federator/epoch", "federator/job"
OUTPUTS_NOTE = "federator/outputs"
"""The patterns that its job declares: the agent may have to fetch them before it knows the job again."""
MAIN, SIDE = "main", "side"
CHECKPOINTS = f"{FOLDER}/checkpoints"
INPUTS = f"{FOLDER}/inputs"
DATA_NOTE = "federator/data"
"""Where the checkpoints go that its side container takes away."""
STAGING_ALLOWANCE_S = 6 * 3600.0
"""What a pod may take for its image, work directory and queueing, beyond its max_duration, before the cluster itself ends it."""
WRAPPER = Path(__file__).with_name("wrapper.sh").read_text()
SIDE_SCRIPT = Path(__file__).with_name("side.sh").read_text()


def pod_name(placement: str, rank: int) -> str:
    """The name of a rank's pod, which no other pod ever has."""
    return f"{placement}-{rank}"


def labels(record: PlacementRecord, site: str) -> dict[str, str]:
    """By which pods and Service of a placement are found."""
    entry = record.entry
    return {
        PLACEMENT_LABEL: entry.placement,
        EPOCH_LABEL: str(entry.epoch),
        JOB_LABEL: entry.job,
        SITE_LABEL: site,
    }


def service(record: PlacementRecord, site: str, home: str) -> dict[str, Any]:
    """Names for the ranks of a gang: `<placement>-<rank>.<placement>`, where the cluster has DNS."""
    placement = record.entry.placement
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": placement, "namespace": home, "labels": labels(record, site)},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {PLACEMENT_LABEL: placement},
            "ports": [{"name": "rendezvous", "port": PORT}],
        },
    }


def network_policy(record: PlacementRecord, site: str, home: str) -> dict[str, Any]:
    """The ranks of a gang reach each other, where the namespace lets nobody else reach them."""
    placement = record.entry.placement
    ranks = {"podSelector": {"matchLabels": {PLACEMENT_LABEL: placement}}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": placement, "namespace": home, "labels": labels(record, site)},
        "spec": ranks | {"policyTypes": ["Ingress"], "ingress": [{"from": [ranks]}]},
    }


STAYS = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
"""What keeps those that scale a cluster down from moving a pod that works to a fuller node: it would begin again."""
_TOGETHER = {ON_ONE_HOST: "podAffinity", APART: "podAntiAffinity"}


def pod(
    record: PlacementRecord,
    spec: JobSpec,
    rank: int,
    place: PoolPlace,
    settings: KubeSettings,
    site: str,
    secrets: Sequence[str] = (),
) -> dict[str, Any]:
    """A rank's pod. `secrets`: of the namespace, whose keys are variables of the job."""
    entry = record.entry
    marks = (
        labels(record, site)
        | {RANK_LABEL: str(rank)}
        | kueue.labels(entry.placement, settings.local_queue(entry.whose))
    )
    notes = STAYS | kueue.annotations(len(entry.ranks))
    if spec.outputs:
        notes[OUTPUTS_NOTE] = msgspec.json.encode(spec.outputs).decode()
    inner: dict[str, Any] = {
        "restartPolicy": "Never",
        "shareProcessNamespace": True,
        "automountServiceAccountToken": False,
        "securityContext": security.of_pod(settings.run_as),
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": max(1, math.ceil(entry.grace_s)),
        "nodeSelector": dict(place.selector),
        "tolerations": [*settings.tolerations, *_for_gpus(spec, place)],
        "containers": [_main(record, spec, rank, place, settings, site), _side(spec, settings)],
        "volumes": _volumes(spec, settings),
    }
    if secrets:
        inner["containers"][0]["envFrom"] = [{"secretRef": {"name": name}} for name in secrets]
    if affinity := _affinity(entry, spec, place):
        inner["affinity"] = affinity
    if len(entry.ranks) > 1:
        inner |= {"hostname": pod_name(entry.placement, rank), "subdomain": entry.placement}
    if settings.priority_class:
        inner["priorityClassName"] = settings.priority_class
    if account := settings.account(entry.whose):
        inner["serviceAccountName"] = account
    if entry.max_duration_s is not None:
        bound_s = entry.max_duration_s + entry.grace_s + settings.start_within_s + STAGING_ALLOWANCE_S
        inner["activeDeadlineSeconds"] = math.ceil(bound_s)
    metadata = {
        "name": pod_name(entry.placement, rank), "namespace": settings.home(entry.whose), "labels": marks, "annotations": notes,
        "finalizers": [FINALIZER],
    }  # fmt: skip
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": inner}


def tell_secret(pod: dict[str, Any], secret: str) -> None:
    """Give a rank's command what the ranks of its gang know each other by.

    As a plain variable, which whoever may read the namespace's pods can see: agents have no right to Secrets, and others than the gang's own pods are kept off
    its ports by `network_policy`, where the cluster has these.
    """
    pod["spec"]["containers"][0]["env"].append({"name": GANG_VARIABLE, "value": secret})


def _affinity(entry: DesiredEntry, spec: JobSpec, place: PoolPlace) -> dict[str, Any]:
    """On nodes of the pool only, and with the other ranks or without them where the job says so."""
    found: dict[str, Any] = {}
    if place.without:
        terms = [{"key": key, "operator": "DoesNotExist"} for key in place.without]
        required = {"nodeSelectorTerms": [{"matchExpressions": terms}]}
        found["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    if (how := _TOGETHER.get(spec.placement.together or "")) and len(entry.ranks) > 1:
        mates = {"matchLabels": {PLACEMENT_LABEL: entry.placement}}
        term = {"labelSelector": mates, "topologyKey": "kubernetes.io/hostname"}
        found[how] = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return found


def _main(
    record: PlacementRecord, spec: JobSpec, rank: int, place: PoolPlace, settings: KubeSettings, site: str
) -> dict[str, Any]:
    needs = spec.resources
    requests = {"cpu": f"{needs.cpus_milli}m"}
    limits = {}
    if needs.memory_mib:
        requests["memory"] = limits["memory"] = f"{needs.memory_mib}Mi"
    if needs.gpus.count:
        requests[place.resource] = limits[place.resource] = str(needs.gpus.count)
    alone = len(record.entry.ranks) == 1
    address = "127.0.0.1" if alone else f"{pod_name(record.entry.placement, 0)}.{record.entry.placement}"
    where = Where(site, address, CHECKPOINTS, inputs_dir(record, spec, rank))
    environment = rank_environment(replace(record, master_port=PORT), spec, rank, where)
    if settings.run_as is not None:
        environment = security.NAMED | environment
    mounts = [mount("federator", FOLDER), mount("gate", GATE) | {"readOnly": True}]
    if needs.shm_mib:
        mounts.append(mount("shm", "/dev/shm"))  # noqa: S108 - it is where programs look for it
    if settings.checkpoints:
        mounts.append(mount("checkpoints", CHECKPOINTS) | {"subPath": record.entry.job})
    return {
        "name": MAIN,
        "image": spec.image or settings.image,
        "command": ["/bin/sh", "-c"],
        "args": [verbatim(word) for word in (WRAPPER, "wrapper.sh", spec.setup or "", *command_of(spec))],
        "env": [{"name": name, "value": verbatim(value)} for name, value in environment.items()],
        "resources": {"requests": requests, "limits": limits},
        "securityContext": security.of_container(settings.run_as),
        "volumeMounts": mounts,
    }


def inputs_dir(record: PlacementRecord, spec: JobSpec, rank: int) -> str:
    """Where a rank's job looks for its inputs: beside others' where data is brought, or else in its pod alone."""
    return inputs_of(pod_name(record.entry.placement, rank)) if DATA in needs_of(spec) else INPUTS


def _side(spec: JobSpec, settings: KubeSettings) -> dict[str, Any]:
    return {
        "name": SIDE,
        "image": settings.side_image,
        "command": ["sh", "-c"],
        "args": [verbatim(SIDE_SCRIPT), "side.sh", "stay" if spec.outputs else ""],
        "env": [
            {"name": "FEDERATOR_POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        ],
        # A rank that asks for a whole node must fit on a whole node.
        "resources": {"requests": {"cpu": "0", "memory": "0"}},
        "securityContext": security.of_container(settings.run_as),
        "volumeMounts": [mount("federator", FOLDER), mount("gate", GATE)],
    }


def _volumes(spec: JobSpec, settings: KubeSettings) -> list[dict[str, Any]]:
    volumes: list[dict[str, Any]] = [{"name": name, "emptyDir": {}} for name in ("federator", "gate")]
    if spec.resources.shm_mib:
        size = {"medium": "Memory", "sizeLimit": f"{spec.resources.shm_mib}Mi"}
        volumes.append({"name": "shm", "emptyDir": size})
    if settings.checkpoints:
        volumes.append({"name": "checkpoints", "persistentVolumeClaim": {"claimName": settings.checkpoints}})
    return volumes


def _for_gpus(spec: JobSpec, place: PoolPlace) -> list[dict[str, str]]:
    """GPU nodes are often tainted with the name of their resource, to keep other work off."""
    if not spec.resources.gpus.count:
        return []
    keys = taint_keys(place.resource)
    return [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in keys]


def mount(name: str, path: str) -> dict[str, Any]:
    """Where a container has a volume."""
    return {"name": name, "mountPath": path}


def verbatim(text: str) -> str:
    """As it is: Kubernetes would put variables in for `$(NAME)`, and make one dollar of two."""
    return text.replace("$", "$$")


def bound(pod: dict[str, Any], allowed: Allowance) -> None:
    """Have each container ask for what the namespace asks of containers, and limit what it has to limit, to what it asks for. Raises `StagingRefused` for a job that has not said how much memory to limit it to."""
    inner = pod["spec"]
    if "memory" in allowed.limited and "memory" not in inner["containers"][0]["resources"]["requests"]:
        raise StagingRefused(
            "the namespace limits memory, and the job does not say how much it needs: set resources.memory"
        )
    for container in (*inner["containers"], *inner.get("initContainers", ())):
        resources = container.setdefault("resources", {})
        requests, limits = resources.setdefault("requests", {}), resources.setdefault("limits", {})
        for name, least in allowed.least.items():
            if quantity(requests.get(name, "0")) < quantity(least):
                requests[name] = least
                limits |= {name: least} if name in limits else {}
        for name in allowed.limited & requests.keys():
            limits.setdefault(name, requests[name])
