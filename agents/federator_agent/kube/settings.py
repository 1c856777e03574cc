"""The `kube:` part of a site file: how to reach the cluster, and what of it to use.

Nothing of it imports the client, so that an agent of another kind can read a site file without it.
"""

import re
from collections.abc import Mapping

import msgspec

from federator.kernel.errors import Invalid
from federator.model.whose import Whose
from federator.wire import fields
from federator.wire.accelerators import MAX_GPU_MEMORY_MIB, read_accelerators, read_model
from federator_agent import whose as naming
from federator_agent.kube.security import NOBODY

GPU_RESOURCE = "nvidia.com/gpu"
PRODUCT_LABEL = "nvidia.com/gpu.product"
MEMORY_LABEL = "nvidia.com/gpu.memory"
SIDE_IMAGE = "busybox:1.36"
IMAGE = "image"
MAX_USER = 2**31 - 1
KEYS = (
    "namespace", "kubeconfig", "context", "image", "side_image", "run_as", "service_account", "service_accounts",
    "priority_class", "tolerations", "start_within", "checkpoints", "pools", "kueue_queue", "data",
)  # fmt: skip
DATA_KEYS = ("image", "secret", "cache", "volumes")
VOLUME_KEYS = ("claim", "host_path")
POOL_KEYS = ("name", "selector", "model", "gpu_memory", "resource", "part")
TOLERATION_KEYS = ("key", "operator", "value", "effect")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class KubePool(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that are offered as one pool: those that carry all labels of `selector`."""

    name: str
    selector: dict[str, str]
    model: str = ""
    """Of their GPUs; empty: as the label `nvidia.com/gpu.product` says."""
    gpu_memory_mib: int = 0
    """Of each; 0: as the label `nvidia.com/gpu.memory` says."""
    resource: str = GPU_RESOURCE
    """The extended resource that counts the GPUs, or the parts of such."""
    part_milli: int = 0
    """Each unit of it is so many thousandths of a GPU; 0: as its name and the labels of nodes say, which may be all of one."""


class KubeVolume(msgspec.Struct, frozen=True, kw_only=True):
    """Something that pods mount: one of `claim` and `host_path`."""

    claim: str = ""
    """A claim on a volume that all nodes share."""
    host_path: str = ""
    """A directory of each node."""
    path: str = ""
    """Where it is mounted."""


class KubeData(msgspec.Struct, frozen=True, kw_only=True):
    """How data is brought to pods, and their checkpoints away."""

    image: str
    """Of the side container of pods whose jobs have data: it has this package, with what reaches S3."""
    secret: str = ""
    """Of the namespace: its keys are variables of that container, such as the credentials for S3."""
    cache: KubeVolume | None = None
    """Where inputs are kept for the next job; None: with each pod, and gone with it."""
    volumes: tuple[KubeVolume, ...] = ()
    """What `file:///` addresses lead to."""


class KubeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach the cluster, and what of it to use."""

    image: str
    """What jobs run in. It has `/bin/sh`."""
    namespace: str = "federator"
    kubeconfig: str = ""
    """A file; empty: the agent is itself a pod of the cluster."""
    context: str = ""
    """Of that file; empty: its current one."""
    side_image: str = SIDE_IMAGE
    """What brings work directories in and outputs out, beside the job. It has `sh`, `tar` and `head`."""
    run_as: int | None = NOBODY
    """The user of jobs; None: whom their image names, which may be root."""
    service_account: str = ""
    """Of the jobs' pods; they are given no token in any case."""
    service_accounts: dict[str, str] = {}
    """By whose work it is, as `federator_agent.whose` reads it, instead of `service_account`."""
    priority_class: str = ""
    tolerations: tuple[dict[str, str], ...] = ()
    start_within_s: float = 300.0
    """All pods of a placement have a node by then, or none keeps one."""
    checkpoints: str = ""
    """The claim on a volume that all nodes share, where checkpoints outlive a pod; empty: they do not."""
    pools: tuple[KubePool, ...] = ()
    """Empty: a pool of each GPU product that nodes are labelled with, and `cpu` for the rest."""
    data: KubeData | None = None
    """None: no data is brought to pods."""
    kueue_queue: str = ""
    """Put pods under this local queue of Kueue, a gang as one group. Never tried on a real Kueue."""

    def account(self, whose: Whose) -> str:
        """The service account of such pods; empty: the namespace's own."""
        return naming.said_of(self.service_accounts, whose) or self.service_account


def parse(value: Mapping[str, object], path: str) -> KubeSettings:
    """Settings from the site file. Raises `Invalid` that names the field."""
    fields.known_only(value, path, KEYS)
    if "image" not in value:
        remedy = "name the image that jobs run in, for example 'image: pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime'"
        raise Invalid("is missing", field=f"{path}.image", remedy=remedy)
    pools = _entries(value.get("pools", []), f"{path}.pools", "write one '- name: …' for each pool")
    parsed = tuple(_pool(pool, where) for pool, where in pools)
    if len({pool.name for pool in parsed}) < len(parsed):
        raise Invalid("has two pools of one name", field=f"{path}.pools", remedy="give each its own")
    words = {
        key: fields.text(value[key], f"{path}.{key}", limit=1000)
        for key in ("image", "kubeconfig", "context", "side_image")
        if key in value
    }
    words |= {
        key: _label(value[key], f"{path}.{key}")
        for key in ("namespace", "service_account", "priority_class", "checkpoints", "kueue_queue")
        if key in value and (key != "checkpoints" or value[key] != "none")
    }
    return KubeSettings(
        **words,
        tolerations=_tolerations(value.get("tolerations", []), f"{path}.tolerations"),
        start_within_s=fields.duration_s(value.get("start_within", "5m"), f"{path}.start_within", low_s=1.0),
        run_as=_run_as(value["run_as"], f"{path}.run_as") if "run_as" in value else NOBODY,
        service_accounts=naming.read(value.get("service_accounts", {}), f"{path}.service_accounts", _label),
        pools=parsed,
        data=_data(fields.mapping(value["data"], f"{path}.data"), f"{path}.data")
        if "data" in value
        else None,
    )


def _run_as(value: object, path: str) -> int | None:
    if value == IMAGE:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= MAX_USER:
        remedy = f"write a number from 1, or '{IMAGE}' where images need to choose their user"
        raise Invalid(f"{value!r} is not the number of a user other than root", field=path, remedy=remedy)
    return value


def _data(value: Mapping[str, object], path: str) -> KubeData:
    fields.known_only(value, path, DATA_KEYS)
    if "image" not in value:
        remedy = "name an image with federator[agent,aws] in it: the agent's own will do"
        raise Invalid("is missing", field=f"{path}.image", remedy=remedy)
    volumes = _entries(value.get("volumes", []), f"{path}.volumes", "write '- {path: /data, claim: …}'")
    return KubeData(
        image=fields.text(value["image"], f"{path}.image", limit=1000),
        secret=_label(value["secret"], f"{path}.secret") if "secret" in value else "",
        cache=_volume(value["cache"], f"{path}.cache") if "cache" in value else None,
        volumes=tuple(_mounted(each, where) for each, where in volumes),
    )


def _mounted(value: object, path: str) -> KubeVolume:
    given = dict(fields.mapping(value, path))
    where = _absolute(given.pop("path", ""), f"{path}.path")
    if where == "/" or f"{where}/".startswith("/federator/"):
        raise Invalid("is taken", field=f"{path}.path", remedy="mount it at a path of its own, such as /data")
    return msgspec.structs.replace(_volume(given, path), path=where)


def _volume(value: object, path: str) -> KubeVolume:
    given = fields.mapping(value, path)
    fields.known_only(given, path, VOLUME_KEYS)
    if len(given) != 1:
        remedy = "write 'claim: …' for a volume that all nodes share, or 'host_path: /…' for a directory of each node"
        raise Invalid("needs one of 'claim' and 'host_path'", field=path, remedy=remedy)
    if "claim" in given:
        return KubeVolume(claim=_label(given["claim"], f"{path}.claim"))
    return KubeVolume(host_path=_absolute(given["host_path"], f"{path}.host_path"))


def _absolute(value: object, path: str) -> str:
    word = fields.text(value, path, limit=1000)
    if not word.startswith("/") or ".." in word.split("/"):
        raise Invalid(
            f"{word!r} is not the whole path of a directory", field=path, remedy="write for example /data"
        )
    return "/" + word.strip("/")


def _pool(value: object, path: str) -> KubePool:
    pool = fields.mapping(value, path)
    fields.known_only(pool, path, POOL_KEYS)
    for key in ("name", "selector"):
        if key not in pool:
            remedy = (
                "write for example 'name: a100, selector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}'"
            )
            raise Invalid("is missing", field=f"{path}.{key}", remedy=remedy)
    memory = pool.get("gpu_memory")
    return KubePool(
        name=fields.name(pool["name"], f"{path}.name"),
        selector=fields.pairs(pool["selector"], f"{path}.selector", limit=100),
        model=read_model(pool["model"], f"{path}.model") if "model" in pool else "",
        gpu_memory_mib=0
        if memory is None
        else fields.size_mib(memory, f"{path}.gpu_memory", high_mib=MAX_GPU_MEMORY_MIB),
        resource=fields.text(pool.get("resource", GPU_RESOURCE), f"{path}.resource", limit=300),
        part_milli=_part_milli(pool["part"], f"{path}.part") if "part" in pool else 0,
    )


def _part_milli(value: object, path: str) -> int:
    share = read_accelerators(value, path).share_milli
    if not share:
        raise Invalid(f"{value!r} is not a part of a GPU", field=path, remedy="write for example 0.5")
    return share


def _tolerations(value: object, path: str) -> tuple[dict[str, str], ...]:
    found = []
    for each, where in _entries(value, path, "write '- {key: …, operator: Exists}'"):
        fields.known_only(fields.mapping(each, where), where, TOLERATION_KEYS)
        found.append(fields.pairs(each, where, limit=4))
    return tuple(found)


def _entries(value: object, path: str, remedy: str) -> list[tuple[object, str]]:
    """Those of a list, each with its own path."""
    if not isinstance(value, list):
        raise Invalid("is not a list", field=path, remedy=remedy)
    return [(each, f"{path}[{index}]") for index, each in enumerate(value)]


def _label(value: object, path: str) -> str:
    word = fields.text(value, path, limit=200)
    if not _LABEL.fullmatch(word):
        remedy = "use small letters, digits and '-', at most 63"
        raise Invalid(f"{word!r} is not a name of Kubernetes", field=path, remedy=remedy)
    return word
