"""What a Slurm cluster has and lends, from its nodes, partitions and jobs. Pure.

A pool is a partition; where its nodes are of several makes, there is a pool for each GPU model, `PARTITION-MODEL`, and `PARTITION-cpu`. A node of several partitions belongs to
the first of those that are lent, in the order of the site file: it must not be reported twice, since both cannot be used at once.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from federator.model.sites import LocalWork
from federator_agent.core.lending import Host, HostPool, Seen
from federator_agent.slurm.output import OVER, WAITING, Node, OtherJob, Partition
from federator_agent.slurm.script import Target
from federator_agent.slurm.settings import UNTYPED, GpuType, SlurmSettings

MOST_LOCAL_WORK = 500
"""Entries of local work in a report; the ones that hold most go first."""
_TAKES_WORK = frozenset({"IDLE", "MIXED", "ALLOCATED", "COMPLETING"})
"""A node in any other state, or with any other flag (DRAIN, DOWN, MAINT, RESERVED, PLANNED for a waiting job, POWERED_DOWN …) takes none of ours now."""
_HARMLESS = frozenset({"CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE"})
_UNKNOWN_MODEL = "GPU"


class View(NamedTuple):
    """A look at the cluster: what is reported of it, and where in it each pool is."""

    seen: Seen
    targets: dict[str, Target]


class _Make(NamedTuple):
    """Nodes of one partition and one GPU type."""

    partition: Partition
    gpu_type: str
    """Empty: untyped, or none."""
    has_gpus: bool
    nodes: list[Node]


def view(
    settings: SlurmSettings,
    nodes: Sequence[Node],
    partitions: Sequence[Partition],
    jobs: Iterable[OtherJob],
    ours: Collection[str],
    running: Collection[str],
) -> View:
    """`ours`: the names of all our jobs, none of which is local work; `running`: those that were seen to have their nodes before `nodes` was read."""
    pools: list[HostPool] = []
    hosts: dict[str, tuple[Host, ...]] = {}
    targets: dict[str, Target] = {}
    of_partition: dict[str, list[HostPool]] = {}
    for make, several in _makes(settings, nodes, partitions):
        pool = _pool(settings, make, several=several)
        pools.append(pool)
        of_partition.setdefault(make.partition.name, []).append(pool)
        free = (_host(node) for node in make.nodes if make.partition.up and _takes_work(node))
        hosts[pool.name] = tuple(host for host in free if host.cpus_milli)
        targets[pool.name] = _target(make, pool)
    local = _local_work((job for job in jobs if job.name not in ours), of_partition)
    return View(Seen(tuple(pools), hosts, frozenset(running), local), targets)


def lent_partitions(settings: SlurmSettings, partitions: Sequence[Partition]) -> list[Partition]:
    """Those that the site file names, in its order; without any, all that are up."""
    if not settings.partitions:
        return [partition for partition in partitions if partition.up]
    by_name = {partition.name: partition for partition in partitions}
    return [by_name[name] for name in settings.partitions if name in by_name]


def _makes(
    settings: SlurmSettings, nodes: Sequence[Node], partitions: Sequence[Partition]
) -> list[tuple[_Make, bool]]:
    """With whether their partition has other makes, too."""
    found = []
    taken: set[str] = set()
    for partition in lent_partitions(settings, partitions):
        makes: dict[tuple[bool, str], _Make] = {}
        for node in nodes:
            if partition.name in node.partitions and node.name not in taken:
                taken.add(node.name)
                kind = _gpu_type(node)
                key = (kind is not None, kind or "")
                makes.setdefault(key, _Make(partition, key[1], key[0], [])).nodes.append(node)
        found += [(makes[key], len(makes) > 1) for key in sorted(makes, reverse=True)]
    return found


def _gpu_type(node: Node) -> str | None:
    """The type of most of its GPUs; None: it has none."""
    types = [(count, kind) for kind, (count, _) in node.gpus.items() if count]
    return max(types)[1] if types else None


def _pool(settings: SlurmSettings, make: _Make, *, several: bool) -> HostPool:
    name, gpu = make.partition.name, _model(settings, make)
    if several:
        name = f"{name}-{gpu.model.lower() if make.has_gpus else 'cpu'}"
    return HostPool(
        name=name,
        model=gpu.model,
        gpu_memory_mib=gpu.memory_mib,
        nodes=len(make.nodes),
        gpus_per_node=max(node.gpus.get(make.gpu_type, (0, 0))[0] for node in make.nodes),
        cpus_milli_per_node=max(node.cpus for node in make.nodes) * 1000,
        memory_mib_per_node=max(node.memory_mib for node in make.nodes),
    )


def _model(settings: SlurmSettings, make: _Make) -> GpuType:
    if not make.has_gpus:
        return GpuType("")
    said = settings.gpus.get(make.gpu_type or UNTYPED)
    return said or GpuType(make.gpu_type.upper() or _UNKNOWN_MODEL)


def _target(make: _Make, pool: HostPool) -> Target:
    return Target(
        partition=make.partition.name,
        gpu_type=make.gpu_type,
        max_time_s=make.partition.max_time_s,
        node_cpus=pool.cpus_milli_per_node // 1000,
        node_gpus=pool.gpus_per_node,
        node_memory_mib=pool.memory_mib_per_node,
        default_memory=make.partition.default_memory,
    )


def _takes_work(node: Node) -> bool:
    states = node.states - _HARMLESS
    return bool(states) and states <= _TAKES_WORK


def _host(node: Node) -> Host:
    count, used = node.gpus.get(_gpu_type(node) or "", (0, 0))
    return Host(
        node.name,
        tuple(range(max(0, count - used))),
        max(0, node.cpus - node.cpus_taken) * 1000,
        max(0, node.memory_mib - node.memory_taken_mib),
    )


def _local_work(jobs: Iterable[OtherJob], pools: Mapping[str, Sequence[HostPool]]) -> tuple[LocalWork, ...]:
    """Other people's jobs, equal ones as one entry. Of a partition with several makes they are told of the first that could hold them."""
    counted: Counter[LocalWork] = Counter()
    for job in jobs:
        if job.state in OVER or job.partition not in pools:
            continue
        gpus_per_node = -(-job.gpus // job.nodes)
        fitting = [pool for pool in pools[job.partition] if pool.gpus_per_node >= gpus_per_node]
        pool = (fitting or pools[job.partition])[0 if gpus_per_node else -1]
        queued = job.state in WAITING
        ends_at = None if queued else job.ends_at
        counted[LocalWork(pool.name, 1, min(gpus_per_node, pool.gpus_per_node), ends_at, queued)] += job.nodes
    works = [
        LocalWork(work.pool, nodes, work.gpus_per_node, work.ends_at, work.queued)
        for work, nodes in counted.items()
    ]
    works.sort(
        key=lambda work: (-work.nodes * work.gpus_per_node, -work.nodes, work.pool, work.ends_at or 0.0)
    )
    return tuple(works[:MOST_LOCAL_WORK])
