"""The `kube:` part of a site file: how to reach the cluster, and what of it to use.

Nothing of it imports the client, so that an agent of another kind can read a site file without it.
"""

import re
from collections.abc import Mapping

import msgspec

from federator.kernel.errors import Invalid
from federator.wire import fields
from federator.wire.accelerators import MAX_GPU_MEMORY_MIB, read_model

GPU_RESOURCE = "nvidia.com/gpu"
PRODUCT_LABEL = "nvidia.com/gpu.product"
MEMORY_LABEL = "nvidia.com/gpu.memory"
SIDE_IMAGE = "busybox:1.36"
KEYS = (
    "namespace", "kubeconfig", "context", "image", "side_image", "service_account", "priority_class", "tolerations",
    "start_within", "checkpoints", "pools", "kueue_queue",
)  # fmt: skip
POOL_KEYS = ("name", "selector", "model", "gpu_memory", "resource")
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
    """The extended resource that counts the GPUs."""


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
    service_account: str = ""
    """Of the jobs' pods; they are given no token in any case."""
    priority_class: str = ""
    tolerations: tuple[dict[str, str], ...] = ()
    start_within_s: float = 300.0
    """All pods of a placement have a node by then, or none keeps one."""
    checkpoints: str = ""
    """The claim on a volume that all nodes share, where checkpoints outlive a pod; empty: they do not."""
    pools: tuple[KubePool, ...] = ()
    """Empty: a pool of each GPU product that nodes are labelled with, and `cpu` for the rest."""
    kueue_queue: str = ""
    """Put pods under this local queue of Kueue, a gang as one group. Never tried on a real Kueue."""


def parse(value: Mapping[str, object], path: str) -> KubeSettings:
    """Settings from the site file. Raises `Invalid` that names the field."""
    fields.known_only(value, path, KEYS)
    if "image" not in value:
        remedy = "name the image that jobs run in, for example 'image: pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime'"
        raise Invalid("is missing", field=f"{path}.image", remedy=remedy)
    pools = value.get("pools", [])
    if not isinstance(pools, list):
        raise Invalid("is not a list", field=f"{path}.pools", remedy="write one '- name: …' for each pool")
    parsed = tuple(_pool(pool, f"{path}.pools[{index}]") for index, pool in enumerate(pools))
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
        pools=parsed,
    )


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
    )


def _tolerations(value: object, path: str) -> tuple[dict[str, str], ...]:
    if not isinstance(value, list):
        raise Invalid("is not a list", field=path, remedy="write '- {key: …, operator: Exists}'")
    found = []
    for index, each in enumerate(value):
        fields.known_only(fields.mapping(each, f"{path}[{index}]"), f"{path}[{index}]", TOLERATION_KEYS)
        found.append(fields.pairs(each, f"{path}[{index}]", limit=4))
    return tuple(found)


def _label(value: object, path: str) -> str:
    word = fields.text(value, path, limit=200)
    if not _LABEL.fullmatch(word):
        remedy = "use small letters, digits and '-', at most 63"
        raise Invalid(f"{word!r} is not a name of Kubernetes", field=path, remedy=remedy)
    return word
