"""GPUs of this host that are cut by MIG: each profile of instances is a pool of parts, each instance a host of its own in it.

CPUs and memory go with the instances' shares of their GPU's memory: those never come to more than one, and stay as they are whatever the rest of the GPU is cut into.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from federator_agent.core.lent_capacity import HostPool, Instance, unparted
from federator_agent.gpus import Gpu

Cuts = Mapping[int, tuple[Gpu, ...]]
"""The instances of each GPU that has some, by its number."""


class _Beside(NamedTuple):
    """What goes with each GPU of a pool."""

    cpus_milli: int
    memory_mib: int


def with_instances(
    pools: Collection[HostPool], watched: Collection[HostPool], cuts: Cuts
) -> tuple[HostPool, ...]:
    """The pools, of the watched ones without GPUs that are cut, and with a pool for each sort of their instances."""
    after: list[HostPool] = []
    parts: dict[str, HostPool] = {}
    for pool in pools:
        cut = [number for number in pool.numbers if number in cuts] if pool in watched else []
        if not cut:
            after.append(pool)
            continue
        beside = _Beside(
            pool.cpus_milli_per_node // pool.gpus_per_node, pool.memory_mib_per_node // pool.gpus_per_node
        )
        left = tuple(number for number in pool.numbers if number not in cuts)
        if left:
            after.append(_less(pool, left, beside))
        for instance in (each for number in cut for each in cuts[number]):
            part = _part(pool, instance, beside)
            before = parts.get(part.name)
            parts[part.name] = part if before is None else _joined(before, part)
    return (*after, *parts.values())


def _less(pool: HostPool, left: tuple[int, ...], beside: _Beside) -> HostPool:
    """With these of its GPUs alone."""
    if pool.shares:
        return replace(pool, devices=left, shares=len(left), nodes=len(left))
    return replace(
        pool,
        devices=left,
        gpus_per_node=len(left),
        cpus_milli_per_node=beside.cpus_milli * len(left),
        memory_mib_per_node=beside.memory_mib * len(left),
    )


def _part(pool: HostPool, gpu: Gpu, beside: _Beside) -> HostPool:
    """A pool of that instance alone."""
    assert gpu.mig is not None
    return HostPool(
        name=f"{unparted(pool.name)}-{gpu.mig.profile}",
        model=pool.model,
        gpu_memory_mib=pool.gpu_memory_mib,
        gpus_per_node=1,
        cpus_milli_per_node=int(beside.cpus_milli * gpu.mig.of_memory),
        memory_mib_per_node=int(beside.memory_mib * gpu.mig.of_memory),
        devices=(gpu.index,),
        shares=1,
        host_milli=gpu.mig.milli,
        cut_milli=gpu.mig.milli,
        instances=(Instance(gpu.uuid, gpu.memory_mib, pool.name),),
        labels=pool.labels,
    )


def _joined(one: HostPool, other: HostPool) -> HostPool:
    """One pool of what two of the same name have."""
    return replace(
        one,
        nodes=one.nodes + other.nodes,
        shares=one.shares + other.shares,
        devices=one.devices + other.devices,
        instances=one.instances + other.instances,
    )
