"""The `kube:` part of a site file: how to reach the cluster, and what of it to use.

Nothing of it imports the client, so that an agent of another kind can read a site file without it.
"""

import re
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import field

from federator.kernel.errors import Invalid
from federator.model.whose import EVERYBODY, Whose
from federator.wire import fields
from federator.wire.accelerators import MAX_GPU_MEMORY_MIB, Model, read_accelerators
from federator.wire.decoding import decode
from federator.wire.mig import PROFILE, nearest
from federator_agent import whose as naming
from federator_agent.kube.gangs import Gangs, GangScheduler
from federator_agent.kube.pod_template import read_template
from federator_agent.kube.security import NOBODY

GPU_RESOURCE = "nvidia.com/gpu"
PRODUCT_LABEL = "nvidia.com/gpu.product"
DEVICE_CLASS = "deviceclass.resource.kubernetes.io/"
"""What comes before a class of devices in the name of its extended resource."""
MIG_CLASS = "mig.nvidia.com"
"""The class of MIG instances: of all profiles, so that those of one count as a resource of their own."""
MEMORY_LABEL = "nvidia.com/gpu.memory"
SIDE_IMAGE = "busybox:1.36"
IMAGE = "image"
FAULT_CONDITIONS = ("KernelDeadlock", "ReadonlyFilesystem", "Gpu*Error", "Gpu*Unhealthy", "Gpu*Lost")
MAX_USER = 2**31 - 1
MOST_DOMAINS = 4
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


def _profile(value: object, path: str) -> str:
    word = fields.text(value, path, limit=40)
    if not PROFILE.fullmatch(word):
        raise Invalid(f"{word!r} is not a MIG profile", field=path, remedy="write for example 1g.10gb")
    if nearest(word) != word:
        remedy = f"write {nearest(word)}"
        raise Invalid(f"{word!r} is no MIG profile that a GPU has", field=path, remedy=remedy)
    return word


def _toleration(value: object, path: str) -> dict[str, str]:
    given = decode(value, dict[Literal["key", "operator", "value", "effect"], object], path)
    return fields.pairs(given, path, limit=4)


def resource_of(device_class: str, profile: str = "") -> str:
    """The extended resource of a class of devices; with a profile, what counts the MIG instances of that one here."""
    return DEVICE_CLASS + device_class + (f"/{profile}" if profile else "")


def class_of(resource: str) -> str:
    """The class of an extended resource; empty: it is of a device plugin."""
    return resource.removeprefix(DEVICE_CLASS).partition("/")[0] if resource.startswith(DEVICE_CLASS) else ""


def profile_of(resource: str) -> str:
    """The MIG profile of a resource of a class; empty: it is of all of the class."""
    return resource.removeprefix(DEVICE_CLASS).partition("/")[2] if resource.startswith(DEVICE_CLASS) else ""


def in_quotas(resource: str) -> str:
    """The resource by which quotas count a unit: a class as a whole, whatever the profile."""
    return resource_of(class_of(resource)) if class_of(resource) else resource


Label = Annotated[str, fields.written(_label, pattern=f"^{_LABEL.pattern}$")]
Image = Annotated[str, fields.short(1000, "pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime")]
Word = Annotated[str, fields.short(1000)]
Absolute = Annotated[str, fields.written(_absolute, "/data", pattern="^/")]
Template = Annotated[
    dict[str, Any],
    fields.written(read_template, "{spec: {runtimeClassName: nvidia}}", type="object"),
]
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
    device_class: Annotated[str, fields.short(253, "gpu.nvidia.com")] = ""
    """The class of devices, in place of `resource`, where the cluster hands GPUs out by dynamic resource allocation. Left out: a device plugin does."""
    profile: Annotated[str, fields.written(_profile, "1g.10gb", pattern=f"^{PROFILE.pattern}$")] = ""
    """Which MIG instances of `device_class: mig.nvidia.com` its units are."""
    part_milli: Annotated[int, fields.written(_part_milli, "0.5", type=["number", "string"])] = field(
        name="part", default=0
    )
    """Which part of a GPU each unit of the resource is. Left out: as its name, its profile and the labels of nodes say, which may be all of one."""

    @property
    def asked(self) -> str:
        """The extended resource of which pods ask for units."""
        return resource_of(self.device_class, self.profile) if self.device_class else self.resource


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
    namespaces: dict[naming.Key, Label] = {}
    """By [whose work](#whose-work) it is, the namespace of its pods, such as `{research/*: research, team:vision: vision}`. `*`: all others. Left out: as `namespace` says."""
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
    pod: Template = {}
    """A part of a pod template, with `metadata` and `spec` in the words of Kubernetes, that is [laid over](../howto/kubernetes-site.md#lay-a-pod-template-over-jobs) the pods of all jobs."""
    pods: dict[naming.Key, Template] = {}
    """By [whose work](#whose-work) it is, what is laid over its pods on top of `pod`. `*`: all others."""
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
    topology: dict[fields.Name, Word] = {}
    """By what jobs call it, the label of nodes that says in which rack, zone or NVLink domain they are, such as `{rack: topology.kubernetes.io/rack}`. Each pool is then one for each value, with that label."""
    data: KubeData | None = None
    """How data is brought to pods. Left out: none is."""
    kueue_queue: Label = ""
    """The local queue of Kueue that admits the pods, a gang as one group. Left out: Kueue's default for the namespace, if it has one."""
    kueue_queues: dict[naming.Key, Label] = {}
    """By [whose work](#whose-work) it is, the local queue of Kueue. `*`: all others. Left out: as `kueue_queue` says."""
    gang_scheduler: GangScheduler | None = None
    """What schedules the pods instead of the cluster's default scheduler, a gang as a whole. Left out: the default one does."""

    def account(self, whose: Whose) -> str:
        """The service account of such pods; empty: the namespace's own."""
        return naming.said_of(self.service_accounts, whose) or self.service_account

    def home(self, whose: Whose) -> str:
        """The namespace of such pods."""
        return naming.said_of(self.namespaces, whose) or self.namespace

    def homes(self) -> tuple[str, ...]:
        """All namespaces of pods, each once."""
        return tuple(dict.fromkeys((self.namespace, *self.namespaces.values())))

    def local_queue(self, whose: Whose) -> str:
        """The local queue of Kueue for such pods; empty: none is named."""
        return naming.said_of(self.kueue_queues, whose) or self.kueue_queue

    def local_queues(self) -> tuple[str, ...]:
        """All local queues that are named, each once."""
        return tuple(dict.fromkeys(filter(None, (self.kueue_queue, *self.kueue_queues.values()))))

    def unqueued(self, home: str) -> bool:
        """Whether some pods of a namespace name no local queue."""
        return home == self.namespace and not self.kueue_queue and EVERYBODY not in self.kueue_queues

    def templates(self, whose: Whose) -> tuple[dict[str, Any], ...]:
        """What is laid over such pods, the last one on top."""
        return (self.pod, naming.said_of(self.pods, whose) or {})

    def named_templates(self) -> dict[str, dict[str, Any]]:
        """All that may be laid over pods, by the field of the site file."""
        return {"pod": self.pod} | {f"pods.{key}": each for key, each in self.pods.items()}


def check(settings: KubeSettings) -> None:
    """Rules that types do not say. Raises `Invalid` that names the field."""
    if len({pool.name for pool in settings.pools}) < len(settings.pools):
        raise Invalid("has two pools of one name", field="$.kube.pools", remedy="give each its own")
    for number, pool in enumerate(settings.pools):
        _check_class(pool, f"$.kube.pools[{number}]")
    if len(settings.topology) > MOST_DOMAINS:
        remedy = f"name {MOST_DOMAINS} at most: each makes more and smaller pools"
        raise Invalid(f"has {len(settings.topology)} entries", field="$.kube.topology", remedy=remedy)
    _check_scheduler(settings)
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


def _check_class(pool: KubePool, path: str) -> None:
    of_mig = pool.device_class == MIG_CLASS
    if pool.device_class and (pool.resource != GPU_RESOURCE or (pool.part_milli and not of_mig)):
        remedy = f"leave out resource and part: GPUs of a class are whole, and parts are of {MIG_CLASS} or of a device plugin"
        raise Invalid("does not go with them", field=f"{path}.device_class", remedy=remedy)
    if of_mig and not pool.profile:
        remedy = "write for example 1g.10gb: a pool has MIG instances of one profile"
        raise Invalid("is missing", field=f"{path}.profile", remedy=remedy)
    if pool.profile and not of_mig:
        remedy = f"add device_class: {MIG_CLASS}, or with a device plugin say resource: nvidia.com/mig-{pool.profile} instead"
        raise Invalid(f"goes with the class {MIG_CLASS} alone", field=f"{path}.profile", remedy=remedy)


def _check_scheduler(settings: KubeSettings) -> None:
    if settings.gang_scheduler is None:
        return
    if settings.kueue_queue or settings.kueue_queues:
        remedy = "keep one of kube.gang_scheduler and kube.kueue_queue"
        raise Invalid("does not go with Kueue's queues", field="$.kube.gang_scheduler", remedy=remedy)
    if settings.gang_scheduler.kind is Gangs.KUBERNETES and (
        settings.gang_scheduler.queue or settings.gang_scheduler.queues
    ):
        remedy = "leave out queue and queues: the default scheduler has none"
        raise Invalid("does not go with queues", field="$.kube.gang_scheduler.kind", remedy=remedy)
    for name, template in settings.named_templates().items():
        if template.get("spec", {}).get("schedulerName"):
            remedy = "write it as kube.gang_scheduler.scheduler_name"
            raise Invalid("is said twice", field=f"$.kube.{name}.spec.schedulerName", remedy=remedy)


def _check_volume(volume: KubeVolume, path: str) -> None:
    if bool(volume.claim) == bool(volume.host_path):
        remedy = "write 'claim: …' for a volume that all nodes share, or 'host_path: /…' for a directory of each node"
        raise Invalid("needs one of 'claim' and 'host_path'", field=path, remedy=remedy)
