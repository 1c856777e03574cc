"""What devices a node offers, and the pool that each sort of them counts in.

Without pools in the site file, they are those that the device plugin and GPU feature discovery show: whole GPUs of each product, the parts that time-slicing or MPS makes
of them (`nvidia.com/gpu.shared`, or `nvidia.com/gpu` where a label says how many pods share one), and MIG instances of each profile.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

import msgspec

from federator.kube.objects import Node, quantity
from federator.model.jobs import WHOLE_MILLI
from federator.wire.mig import mig
from federator_agent.gpus import Gpu
from federator_agent.kube.settings import (
    GPU_RESOURCE,
    MEMORY_LABEL,
    PRODUCT_LABEL,
    KubePool,
    class_of,
    profile_of,
)

CPU_POOL = "cpu"
"""Where nodes without GPUs go when no pools are configured."""
NVIDIA = "nvidia.com/"
_MIG_RESOURCE = "nvidia.com/mig-"
_RENAMED = ".shared"
"""How the device plugin may end the name of a resource of which a unit is only a share of a device."""
_SHARED_PRODUCT = "-SHARED"
_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST, _LONGEST_DOMAIN = 63, 40


class DeviceSet(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One sort of device of a node, or its CPUs alone; and how pods are sent to its pool."""

    pool: str
    selector: dict[str, str]
    resource: str = GPU_RESOURCE
    units: int = 0
    part_milli: int = 0
    """Each unit is so many thousandths of a GPU; 0: all of one."""
    model: str = ""
    gpu_memory_mib: int = 0
    """Of a whole GPU."""
    labels: dict[str, str] = {}
    """Of its pool, by what jobs call them: the domains that all its nodes are in."""

    @property
    def weight(self) -> int:
        """What of its node's CPUs and memory goes with a unit, beside other units there."""
        return self.part_milli or WHOLE_MILLI


def device_sets_of(
    node: Node, pools: Sequence[KubePool], topology: Mapping[str, str] = MappingProxyType({})
) -> tuple[DeviceSet, ...]:
    """What a node offers, whether or not it takes work now; of the site file's pools, the first one for each resource. Nothing: it is in none of these."""
    labels, has = node.metadata.labels, node.status.allocatable
    chosen: dict[str, KubePool] = {}
    for pool in pools or _found(labels, has):
        if pool.selector.items() <= labels.items():
            chosen.setdefault(pool.asked, pool)
    device_sets = [
        _device_set(pool, labels, int(quantity(has.get(pool.asked, "0")))) for pool in chosen.values()
    ]
    left = [device_set for device_set in device_sets if device_set.units] or device_sets[:1]
    return tuple(_within(each, labels, topology) for each in left)


def _within(device_set: DeviceSet, labels: Mapping[str, str], topology: Mapping[str, str]) -> DeviceSet:
    """As of the rack, zone or other domain that its node says it is in; of none, it stays in the pool of the whole site."""
    domains = {name: labels[label] for name, label in topology.items() if labels.get(label)}
    if not domains:
        return device_set
    return msgspec.structs.replace(
        device_set,
        pool=pool_name(device_set.pool, _domain("-".join(domains.values()))),
        selector=device_set.selector | {topology[name]: value for name, value in domains.items()},
        labels=domains,
    )


def _found(labels: Mapping[str, str], has: Iterable[str]) -> Iterator[KubePool]:
    """A pool for each sort of device that a node shows."""
    product = labels.get(PRODUCT_LABEL)
    selector = {} if product is None else {PRODUCT_LABEL: product}
    of_classes = [
        _of_class(resource, product or class_of(resource), selector)
        for resource in sorted(has)
        if class_of(resource)
    ]
    if product is None:
        yield from (*of_classes, KubePool(name=CPU_POOL, selector={}))
        return
    parts = [
        name for name in sorted(has) if name.startswith(_MIG_RESOURCE) or name == GPU_RESOURCE + _RENAMED
    ]
    for resource in (GPU_RESOURCE, *parts):
        label, replicas = _replicas(resource, labels)
        profile = resource.removeprefix(NVIDIA).removesuffix(_RENAMED)
        ends = [profile] if resource.startswith(_MIG_RESOURCE) else []
        selector = {PRODUCT_LABEL: product}
        if replicas > 1:
            ends.append(f"shared-{replicas}")
            selector[label] = str(replicas)
        yield KubePool(
            name=pool_name(product.removesuffix(_SHARED_PRODUCT), *ends), selector=selector, resource=resource
        )
    yield from of_classes


def _of_class(resource: str, product: str, selector: dict[str, str]) -> KubePool:
    profile = profile_of(resource)
    ends = [f"mig-{profile.replace('+', '.')}"] if profile else []
    name = pool_name(product, *ends, "dra")
    return KubePool(name=name, selector=selector, device_class=class_of(resource), profile=profile)


def _replicas(resource: str, labels: Mapping[str, str]) -> tuple[str, int]:
    """How many pods share a device of that resource, and the label that says so."""
    label = f"{resource.removesuffix(_RENAMED)}.replicas"
    return label, max(1, int(quantity(labels.get(label, "1"))))


def _device_set(pool: KubePool, labels: Mapping[str, str], units: int) -> DeviceSet:
    if not units:
        return DeviceSet(pool=pool.name, selector=pool.selector, resource=pool.asked)
    product, memory_mib = labels.get(PRODUCT_LABEL, ""), int(quantity(labels.get(MEMORY_LABEL, "0")))
    model = pool.model or Gpu(0, product).model.upper()
    instance = mig(product, model, pool.gpu_memory_mib)
    if instance is not None:
        # With one sort of instance on all GPUs the labels are of the instance, not of the GPU.
        memory_mib = round(memory_mib / instance.of_memory)
    elif pool.profile or pool.resource.startswith(_MIG_RESOURCE):
        memory_mib = pool.gpu_memory_mib or memory_mib
        instance = mig(pool.profile or pool.resource, model, memory_mib)
    _, replicas = _replicas(pool.resource, labels)
    milli = (instance.milli if instance else WHOLE_MILLI) // replicas
    part_milli = pool.part_milli or (milli if milli < WHOLE_MILLI else 0)
    return DeviceSet(
        pool=pool.name,
        selector=pool.selector,
        resource=pool.asked,
        units=units,
        part_milli=part_milli,
        model=model,
        gpu_memory_mib=pool.gpu_memory_mib or memory_mib,
    )


def _domain(name: str) -> str:
    """The name of a domain, short enough to be a part of another."""
    name = _NAME.sub("-", name)
    if len(name) <= _LONGEST_DOMAIN:
        return name
    return f"{name[: _LONGEST_DOMAIN - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def pool_name(product: str, *ends: str) -> str:
    """The name of the pool of a GPU product, or of a sort of parts of it."""
    end = "".join(f"-{each}" for each in ends)
    return _NAME.sub("-", product).strip("-._").lower()[: _LONGEST - len(end)] + end


def taint_keys(resource: str) -> tuple[str, ...]:
    """The taints that keep other work off nodes with that resource."""
    if class_of(resource).endswith("." + NVIDIA.rstrip("/")):
        return (GPU_RESOURCE,)
    return (resource,) if not resource.startswith(NVIDIA) else tuple(dict.fromkeys((resource, GPU_RESOURCE)))
