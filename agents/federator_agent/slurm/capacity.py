"""What a Slurm cluster has and lends, from its nodes, partitions and jobs. Pure.

A pool is a partition; where its nodes are of several makes, there is a pool for each GPU model, `PARTITION-MODEL`, and `PARTITION-cpu`. A node of several partitions belongs to
the first of those that are lent, in the order of the site file: it must not be reported twice, since both cannot be used at once. With `topology` each pool is one for
each leaf switch, `PARTITION-SWITCH`, and what is below none.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from federator.model.jobs import WHOLE_MILLI
from federator.model.sites import LocalWork
from federator.wire.mig import mig
from federator_agent.core.lent_capacity import MOST_POOLS, SHARED_POOL, Host, HostPool, Seen
from federator_agent.core.shares import Sort, left, most
from federator_agent.gpus import Gpu
from federator_agent.slurm.output import OVER, WAITING, Node, OtherJob, Partition
from federator_agent.slurm.script import SlurmPool
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
    targets: dict[str, SlurmPool]


class _GpuGroup(NamedTuple):
    """One sort of GPUs of a node, or of parts of such, or its CPUs alone; and the pool that it counts in."""

    pool: str
    gpu_type: str
    """Empty: untyped, or none."""
    gpu: GpuType
    units: int
    free: int
    part_milli: int = 0
    """Each unit is so many thousandths of a GPU; 0: all of one."""
    on_gpus: tuple[int, ...] = ()
    """Of shards: how many are free on each GPU."""
    per_gpu: int = 0
    """Of shards: how many there are of each."""

    @property
    def sort(self) -> Sort:
        return Sort(self.part_milli or WHOLE_MILLI, self.units, self.free)

    @property
    def hosts(self) -> int:
        """As how many hosts of its pool the node counts for it."""
        return self.units // self.per_gpu if self.per_gpu else self.units if self.part_milli else 1


class _Lent(NamedTuple):
    """A node, and what of it is lent."""

    node: Node
    partition: Partition
    groups: tuple[_GpuGroup, ...]


def view(
    settings: SlurmSettings,
    nodes: Sequence[Node],
    partitions: Sequence[Partition],
    jobs: Iterable[OtherJob],
    ours: Collection[str],
    running: Collection[str],
    shards: Mapping[str, Mapping[int, int]] = MappingProxyType({}),
) -> View:
    """`ours`: the names of all our jobs, none of which is local work; `running`: those that were seen to have their nodes before `nodes` was read; `shards`: used of each GPU of a node."""
    by_pool: dict[str, list[tuple[_Lent, int]]] = {}
    hosts: dict[str, list[Host]] = {}
    for lent in _lent(settings, nodes, partitions, shards):
        for number, group in enumerate(lent.groups):
            by_pool.setdefault(group.pool, []).append((lent, number))
        if lent.partition.up and _takes_work(lent.node):
            for of_pool, host in _free(lent):
                hosts.setdefault(of_pool, []).extend([host] if host.cpus_milli else [])
    uneven = [
        name
        for name, members in by_pool.items()
        if len({lent.groups[number].part_milli for lent, number in members}) > 1
    ]
    pools: list[HostPool] = []
    targets: dict[str, SlurmPool] = {}
    of_partition: dict[str, list[HostPool]] = {}
    of_node: dict[str, HostPool] = {}
    for name, members in islice(by_pool.items(), MOST_POOLS):
        if name in uneven:
            continue  # Slurm would choose, and give more than is booked
        pool = _pool(name, members, settings)
        pools.append(pool)
        targets[name] = _target(*members[0], pool)
        if not pool.shares:
            of_partition.setdefault(members[0][0].partition.name, []).append(pool)
            of_node.update((lent.node.name, pool) for lent, _ in members)
    local = _local_work((job for job in jobs if job.name not in ours), of_partition, of_node)
    free = {pool.name: tuple(hosts.get(pool.name, ())) for pool in pools}
    health = _health(
        uneven, len(by_pool), unknown=bool(settings.topology) and not any(node.switch for node in nodes)
    )
    return View(Seen(tuple(pools), free, frozenset(running), local, health), targets)


def lent_partitions(settings: SlurmSettings, partitions: Sequence[Partition]) -> list[Partition]:
    """Those that the site file names, in its order; without any, all that are up."""
    if not settings.partitions:
        return [partition for partition in partitions if partition.up]
    by_name = {partition.name: partition for partition in partitions}
    return [by_name[name] for name in settings.partitions if name in by_name]


def _health(uneven: Sequence[str], pools: int, *, unknown: bool) -> str:
    """What is amiss with what is lent. `pools`: how many there are; `unknown`: they should be cut by switches, and Slurm names none."""
    remarks = []
    if unknown:
        remarks.append(
            "Slurm names no switches, so pools are whole: set its TopologyPlugin, or leave out slurm.topology"
        )
    if pools > MOST_POOLS:
        remedy = "lend fewer partitions, or leave out slurm.topology"
        remarks.append(f"only {MOST_POOLS} of {pools} pools are offered: {remedy}")
    if uneven:
        remarks.append(f"GPUs of {', '.join(uneven)} are not all cut into as many shards: lend them none")
    return "; ".join(remarks)[:500] or "ok"


def _lent(
    settings: SlurmSettings,
    nodes: Sequence[Node],
    partitions: Sequence[Partition],
    shards: Mapping[str, Mapping[int, int]],
) -> list[_Lent]:
    """Each node once, in the order of partitions, and in each the ones with GPUs first."""
    found: list[_Lent] = []
    taken: set[str] = set()
    for partition in lent_partitions(settings, partitions):
        mine = [node for node in nodes if partition.name in node.partitions and node.name not in taken]
        taken.update(node.name for node in mine)
        makes = {_whole_type(settings, node) for node in mine}
        mine.sort(key=lambda node: _order(_whole_type(settings, node)), reverse=True)
        for node in mine:
            kind = _whole_type(settings, node)
            gpu = GpuType("") if kind is None else _called(settings, kind)
            home = f"{partition.name}-{node.switch}" if node.switch else partition.name
            name = f"{home}-{gpu.model.lower() or 'cpu'}" if len(makes) > 1 else home
            groups = [*_parts(settings, home, node)]
            if kind is not None:
                groups = [
                    *_wholes(settings, partition, node, _GpuGroup(name, kind, gpu, 0, 0), shards),
                    *groups,
                ]
            found.append(_Lent(node, partition, tuple(groups or [_GpuGroup(name, "", gpu, 0, 0)])))
    return found


def _order(kind: str | None) -> tuple[bool, str]:
    return kind is not None, kind or ""


def _whole_type(settings: SlurmSettings, node: Node) -> str | None:
    """The type of most of its whole GPUs; None: it has none."""
    types = [(count, kind) for kind, (count, _) in node.gpus.items() if count and not _part(settings, kind)]
    return max(types)[1] if types else None


def _called(settings: SlurmSettings, kind: str) -> GpuType:
    return settings.gpus.get(kind or UNTYPED) or GpuType(kind.upper() or _UNKNOWN_MODEL)


def _part(settings: SlurmSettings, kind: str) -> GpuType | None:
    """What part of what GPU one of that type is; None: it is a whole one."""
    said = settings.gpus.get(kind or UNTYPED)
    if said is not None and said.part_milli:
        return said
    model = said.model if said else Gpu(0, kind.replace("_", " ").title()).model.upper()
    found = mig(kind, model, said.memory_mib if said else 0)
    if found is None or found.milli >= WHOLE_MILLI:
        return None
    return GpuType(_UNKNOWN_MODEL if mig(model, "") else model, said.memory_mib if said else 0, found.milli)


def _parts(settings: SlurmSettings, home: str, node: Node) -> Iterator[_GpuGroup]:
    for kind, (count, used) in sorted(node.gpus.items()):
        gpu = _part(settings, kind) if count else None
        if gpu is not None:
            free = max(0, count - used)
            yield _GpuGroup(f"{home}-{kind or UNTYPED}", kind, gpu, count, free, gpu.part_milli)


def _wholes(
    settings: SlurmSettings,
    partition: Partition,
    node: Node,
    group: _GpuGroup,
    shards: Mapping[str, Mapping[int, int]],
) -> Iterator[_GpuGroup]:
    """Its whole GPUs, less those that are for shards or have some in use, and the former. Slurm would give a whole one to whoever comes first."""
    count, used = node.gpus[group.gpu_type]
    per_gpu = (node.shards.get(group.gpu_type) or node.shards.get("", 0)) // count
    in_use = [per_gpu - taken for _, taken in sorted(shards.get(node.name, {}).items())] if per_gpu else []
    idle = max(0, count - used - len(in_use))
    shared = min(count, settings.shared.get(partition.name, 0)) if 1 < per_gpu <= WHOLE_MILLI else 0
    kept = min(idle, max(0, shared - len(in_use)))
    if shared < count:
        yield group._replace(units=count - shared, free=min(count - shared, idle - kept))
    if shared:
        on_gpus = tuple(max(0, free) for free in (*in_use, *[per_gpu] * kept))[:shared]
        yield group._replace(
            pool=SHARED_POOL.format(group.pool),
            units=shared * per_gpu,
            free=sum(on_gpus),
            part_milli=WHOLE_MILLI // per_gpu,
            on_gpus=on_gpus,
            per_gpu=per_gpu,
        )


def _beside(lent: _Lent, number: int) -> tuple[int, int]:
    """CPUs and memory that a host of its pool has."""
    sorts, hosts = [group.sort for group in lent.groups], lent.groups[number].hosts
    cpus_milli = most(lent.node.cpus * 1000, sorts, number) // hosts
    return cpus_milli, most(lent.node.memory_mib, sorts, number) // hosts


def _pool(name: str, members: list[tuple[_Lent, int]], settings: SlurmSettings) -> HostPool:
    partition, switch = members[0][0].partition, members[0][0].node.switch
    labels = settings.labels.get(partition.name, {}) | ({settings.topology: switch} if switch else {})
    groups = [lent.groups[number] for lent, number in members]
    beside = [_beside(*member) for member in members]
    pool = HostPool(
        name=name,
        model=groups[0].gpu.model,
        gpu_memory_mib=groups[0].gpu.memory_mib,
        nodes=sum(group.hosts for group in groups),
        gpus_per_node=max(group.units for group in groups),
        cpus_milli_per_node=max(cpus for cpus, _ in beside),
        memory_mib_per_node=max(memory for _, memory in beside),
        longest_s=partition.max_time_s,
        labels=tuple(sorted(labels.items())),
    )
    if not groups[0].part_milli:
        return pool
    part_milli = groups[0].part_milli
    host_milli = WHOLE_MILLI if groups[0].per_gpu else part_milli
    return replace(pool, gpus_per_node=1, shares=1, host_milli=host_milli, cut_milli=part_milli)


def _target(lent: _Lent, number: int, pool: HostPool) -> SlurmPool:
    partition, group = lent.partition, lent.groups[number]
    return SlurmPool(
        partition=partition.name,
        gpu_type=group.gpu_type,
        max_time_s=partition.max_time_s,
        node_cpus=max(1, pool.cpus_milli_per_node // 1000),
        node_gpus=pool.gpus_per_node,
        node_memory_mib=pool.memory_mib_per_node,
        default_memory=partition.default_memory,
        host_milli=pool.host_milli,
        cut_milli=pool.cut_milli,
        shards=bool(group.per_gpu),
        switch=lent.node.switch,
    )


def _takes_work(node: Node) -> bool:
    states = node.states - _HARMLESS
    return bool(states) and states <= _TAKES_WORK


def _free(lent: _Lent) -> Iterator[tuple[str, Host]]:
    """The node as hosts of each of its pools, with what is free: each GPU that has shards is one of its own."""
    node, sorts = lent.node, [group.sort for group in lent.groups]
    cpus = left(node.cpus * 1000, (node.cpus - node.cpus_taken) * 1000, sorts)
    memory = left(node.memory_mib, node.memory_mib - node.memory_taken_mib, sorts)
    for group, cpus_milli, memory_mib in zip(lent.groups, cpus, memory, strict=True):
        for gpu, free in enumerate(group.on_gpus):
            share = free / max(1, group.free)
            beside = int(cpus_milli * share), int(memory_mib * share)
            yield (
                group.pool,
                Host(
                    f"{node.name}/{gpu}", (0,) if free else (), beside[0], beside[1], free * group.part_milli
                ),
            )
        if not group.per_gpu:
            gpus = tuple(range(min(1, group.free) if group.part_milli else group.free))
            yield group.pool, Host(node.name, gpus, cpus_milli, memory_mib, group.free * group.part_milli)


def _local_work(
    jobs: Iterable[OtherJob], pools: Mapping[str, Sequence[HostPool]], of_node: Mapping[str, HostPool]
) -> tuple[LocalWork, ...]:
    """Other people's jobs, equal ones as one entry: those that run are told of the pool of their first node, others of their partition's first that could hold them."""
    counted: Counter[LocalWork] = Counter()
    for job in jobs:
        if job.state in OVER or job.partition not in pools:
            continue
        gpus_per_node = -(-job.gpus // job.nodes)
        lent = pools[job.partition]
        fitting = (pool for pool in lent if pool.gpus_per_node >= gpus_per_node)
        pool = of_node.get(job.host) or (next(fitting, lent[0]) if gpus_per_node else lent[-1])
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
