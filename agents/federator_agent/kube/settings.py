"""The `kube:` part of a site file: how to reach the cluster, and what of it to use.

Nothing of it imports the client, so that an agent of another kind can read a site file without it.
"""

import re
from functools import partial
from typing import Annotated, Literal

import msgspec
from msgspec import field

from federator.kernel.errors import Invalid
from federator.model.whose import Whose
from federator.wire import fields
from federator.wire.accelerators import MAX_GPU_MEMORY_MIB, Model, read_accelerators
from federator.wire.records import decode
from federator_agent import whose as naming
from federator_agent.kube.security import NOBODY

GPU_RESOURCE = "nvidia.com/gpu"
PRODUCT_LABEL = "nvidia.com/gpu.product"
MEMORY_LABEL = "nvidia.com/gpu.memory"
SIDE_IMAGE = "busybox:1.36"
IMAGE = "image"
FAULT_CONDITIONS = ("KernelDeadlock", "ReadonlyFilesystem", "Gpu*Error", "Gpu*Unhealthy", "Gpu*Lost")
MAX_USER = 2**31 - 1
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def _label(value: object, path: str) -> str:
    word = fields.text(value, path, limit=200)
    if not _LABEL.fullmatch(word):
        remedy = "use small letters, digits and '-', at most 63"
        raise Invalid(f"{word!r} is not a name of Kubernetes", field=path, remedy=remedy)
    return word


def _claim(value: object, path: str) -> str:
    return "" if value == "none" else _label(value, path)


def _run_as(value: object, path: str) -> int | None:
    if value == IMAGE:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= MAX_USER:
        remedy = f"write a number from 1, or '{IMAGE}' where images need to choose their user"
        raise Invalid(f"{value!r} is not the number of a user other than root", field=path, remedy=remedy)
    return value


def _absolute(value: object, path: str) -> str:
    word = fields.text(value, path, limit=1000)
    if not word.startswith("/") or ".." in word.split("/"):
        raise Invalid(
            f"{word!r} is not the whole path of a directory", field=path, remedy="write for example /data"
        )
    return "/" + word.strip("/")


def _part_milli(value: object, path: str) -> int:
    share = read_accelerators(value, path).share_milli
    if not share:
        raise Invalid(f"{value!r} is not a part of a GPU", field=path, remedy="write for example 0.5")
    return share


def _toleration(value: object, path: str) -> dict[str, str]:
    given = decode(value, dict[Literal["key", "operator", "value", "effect"], object], path)
    return fields.pairs(given, path, limit=4)


Label = Annotated[str, fields.written(_label, pattern=f"^{_LABEL.pattern}$")]
Image = Annotated[str, fields.short(1000, "pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime")]
Word = Annotated[str, fields.short(1000)]
Absolute = Annotated[str, fields.written(_absolute, "/data", pattern="^/")]
Toleration = Annotated[
    dict[str, str], fields.written(_toleration, "{key: gpu, operator: Exists}", **fields.PAIRS)
]


class KubePool(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nodes that are offered as one pool. What is left out is looked up on the nodes."""

    name: fields.Name
    """The pool's name."""
    selector: Annotated[
        dict[str, str],
        fields.written(
            partial(fields.pairs, limit=100),
            "{nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}",
            **fields.PAIRS,
        ),
    ]
    """Labels, all of which its nodes carry."""
    model: Model = ""
    """Of their GPUs. Left out: as the label `nvidia.com/gpu.product` says."""
    gpu_memory_mib: Annotated[int, fields.size("80GB", high_mib=MAX_GPU_MEMORY_MIB)] = field(
        name="gpu_memory", default=0
    )
    """Of each. Left out: as the label `nvidia.com/gpu.memory` says."""
    resource: Annotated[str, fields.short(300, GPU_RESOURCE)] = GPU_RESOURCE
    """The extended resource that counts the GPUs, or the parts of such. Left out: `nvidia.com/gpu`."""
    part_milli: Annotated[int, fields.written(_part_milli, "0.5", type=["number", "string"])] = field(
        name="part", default=0
    )
    """Which part of a GPU each unit of the resource is. Left out: as its name and the labels of nodes say, which may be all of one."""


class KubeVolume(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that pods mount. Exactly one of `claim` and `host_path`."""

    claim: Label = ""
    """A claim on a volume that all nodes share."""
    host_path: Absolute = ""
    """A directory of each node."""
    path: Absolute = ""
    """Where it is mounted. Of `volumes`."""


class KubeData(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How pods get `inputs`, and their checkpoints reach `checkpoint.uri`."""

    image: Annotated[str, fields.short(1000, "federator:latest")]
    """Of the side container of such pods, with `federator[agent,aws]` in it: the agent's own will do."""
    secret: Label = ""
    """A Secret of the namespace whose keys are variables of that container, such as credentials for S3."""
    cache: KubeVolume | None = None
    """Where inputs are kept for later jobs, such as `{host_path: /var/cache/federator}`. Left out: they go with the pod."""
    volumes: tuple[KubeVolume, ...] = ()
    """What `file:///` addresses lead to, such as `[{path: /data, claim: datasets}]`."""


class KubeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Kubernetes cluster whose pods run the work, instead of `pools`."""

    image: Image
    """What jobs run in. It has `/bin/sh`."""
    namespace: Label = "federator"
    """Where their pods are made: better another one than the agent's own. Left out: `federator`."""
    run_as: Annotated[int | None, fields.written(_run_as, "1000", "image", type=["integer", "string"])] = (
        NOBODY
    )
    """The number of the user that jobs run as, without privileges; `image`: whom their image names, which may be root. The namespace must then take the pod security profile `baseline`. Left out: 65532."""
    kubeconfig: Word = ""
    """How the cluster is reached: a file. Left out: the agent is a pod of the cluster."""
    context: Word = ""
    """Which cluster of that file. Left out: its current one."""
    side_image: Word = SIDE_IMAGE
    """What runs beside each job to bring files in and out. It has `sh`, `tar`, `head`, `find`, `xargs` and `gzip`. Left out: `busybox:1.36`."""
    service_account: Label = ""
    """Whose the jobs' pods are; they get no token of it. Left out: the namespace's default."""
    service_accounts: dict[naming.Key, Label] = {}
    """By [whose work](#whose-work) it is, the service account of its pods, such as `{research/*: research, team:vision: vision}`. `*`: all others. Left out: as `service_account` says."""
    priority_class: Label = ""
    """Of the jobs' pods, so that local work can push them off. Left out: the cluster's default."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints of nodes that are used all the same. That of the GPU resource always is, for jobs with GPUs."""
    start_within_s: Annotated[float, fields.duration("5m", low_s=1.0)] = field(
        name="start_within", default=300.0
    )
    """All pods of a placement have a node by then, or all are taken back; from when nothing holds them any more. Left out: 5m."""
    admit_within_s: Annotated[float, fields.duration("1h", low_s=1.0)] = field(
        name="admit_within", default=600.0
    )
    """So long pods may be held by a scheduling gate, as Kueue holds those that it has not admitted, before all are taken back. Left out: 10m."""
    fault_conditions: tuple[Annotated[str, fields.short(200, "GpuXidError")], ...] = FAULT_CONDITIONS
    """Conditions of a node, `*` for any letters, that keep new work off it while they are `True`, as node problem detectors set them. Left out: `KernelDeadlock`, `ReadonlyFilesystem`, `Gpu*Error`, `Gpu*Unhealthy` and `Gpu*Lost`."""
    checkpoints: Annotated[str, fields.written(_claim, "shared-claim", "none")] = ""
    """The claim on a volume of all nodes on which checkpoints outlive their pod. Left out: `none`."""
    pools: tuple[KubePool, ...] = ()
    """Nodes that are lent. Left out: one pool of each GPU product that nodes are labelled with, of each sort of its parts, and `cpu`."""
    data: KubeData | None = None
    """How data is brought to pods. Left out: none is."""
    kueue_queue: Label = ""
    """The local queue of Kueue that admits the pods, a gang as one group. Left out: Kueue's default for the namespace, if it has one."""

    def account(self, whose: Whose) -> str:
        """The service account of such pods; empty: the namespace's own."""
        return naming.said_of(self.service_accounts, whose) or self.service_account


def check(settings: KubeSettings) -> None:
    """Rules that types do not say. Raises `Invalid` that names the field."""
    if len({pool.name for pool in settings.pools}) < len(settings.pools):
        raise Invalid("has two pools of one name", field="$.kube.pools", remedy="give each its own")
    if settings.data is None:
        return
    for number, each in enumerate(settings.data.volumes):
        path = f"$.kube.data.volumes[{number}]"
        _check_volume(each, path)
        if each.path in ("", "/") or f"{each.path}/".startswith("/federator/"):
            wrong = "is taken" if each.path else "is missing"
            raise Invalid(wrong, field=f"{path}.path", remedy="mount it at a path of its own, such as /data")
    if settings.data.cache is not None:
        _check_volume(settings.data.cache, "$.kube.data.cache")
        if settings.data.cache.path:
            raise Invalid("has no effect here", field="$.kube.data.cache.path", remedy="leave it out")


def _check_volume(volume: KubeVolume, path: str) -> None:
    if bool(volume.claim) == bool(volume.host_path):
        remedy = "write 'claim: …' for a volume that all nodes share, or 'host_path: /…' for a directory of each node"
        raise Invalid("needs one of 'claim' and 'host_path'", field=path, remedy=remedy)
