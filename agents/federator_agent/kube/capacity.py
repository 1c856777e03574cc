"""What the cluster has for us: of each node that takes work, its allocatable less what every pod on it asks for, ours and others' alike.

A request is counted as the scheduler counts it: containers added up, an init container only where it asks for more, the overhead on top. Nodes that are
not ready, cordoned, or tainted against us are left out: what runs there goes on, and nothing new is sent.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from federator.model.sites import LocalWork
from federator_agent.core.lending import Host, HostPool, Seen
from federator_agent.kube.objects import Container, Node, Pod, Taint, mib, milli, quantity
from federator_agent.kube.settings import GPU_RESOURCE, MEMORY_LABEL, PRODUCT_LABEL, KubePool, KubeSettings
from federator_agent.nvml import Gpu

CPU_POOL = "cpu"
"""Where nodes without GPUs go when no pools are configured."""
PLACEMENT_LABEL = "federator/placement"
SITE_LABEL = "federator/site"
RANK_LABEL = "federator/rank"
AGENT_LABEL = "federator/agent"
"""Whose it is: another agent of a site of that name, or of another federation, may use the same namespace."""
_NAME = re.compile(r"[^A-Za-z0-9._-]+")


class Size(msgspec.Struct, frozen=True, gc=False):
    """How much: of a pod, what it asks for."""

    cpus_milli: int = 0
    memory_mib: int = 0
    gpus: int = 0


class Use(msgspec.Struct, frozen=True, gc=False):
    """A pod as far as others' room is concerned. `placement`: whose it is, if ours, and which `rank` of it."""

    node: str
    size: Size
    placement: str = ""
    rank: int = 0


class Machine(msgspec.Struct, frozen=True, gc=False):
    """A node that takes work: its pool, and what its pods may ask for altogether."""

    pool: str
    model: str
    gpu_memory_mib: int
    size: Size
    pods: int


class PoolPlace(NamedTuple):
    """How pods are sent to a pool: labels that a node must have, and labels that it must not."""

    selector: dict[str, str]
    without: tuple[str, ...] = ()
    resource: str = GPU_RESOURCE


class Cluster:
    """The site's reading of nodes and pods."""

    def __init__(self, settings: KubeSettings, site: str) -> None:
        self._settings = settings
        self._site = site
        self._resources = {pool.resource for pool in settings.pools} or {GPU_RESOURCE}

    def machine(self, node: Node) -> Machine | None:
        """A node as it counts; None: it takes no work of ours."""
        pool = self._pool_of(node.metadata.labels)
        if pool is None or not node.ready or node.spec.unschedulable:
            return None
        if any(not self._tolerated(taint, pool.resource) for taint in node.spec.taints):
            return None
        free, labels = node.status.allocatable, node.metadata.labels
        product, memory = labels.get(PRODUCT_LABEL, ""), labels.get(MEMORY_LABEL, "")
        gpus = int(quantity(free.get(pool.resource, "0")))
        return Machine(
            pool=pool.name,
            model=(pool.model or Gpu(0, product).model.upper()) if gpus else "",
            gpu_memory_mib=(pool.gpu_memory_mib or int(quantity(memory))) if gpus else 0,
            size=Size(
                int(quantity(free.get("cpu", "0")) * 1000),
                int(quantity(free.get("memory", "0")) / 2**20),
                gpus,
            ),
            pods=int(quantity(free.get("pods", "110"))),
        )

    def _pool_of(self, labels: Mapping[str, str]) -> KubePool | None:
        for pool in self._settings.pools:
            if pool.selector.items() <= labels.items():
                return pool
        if self._settings.pools:
            return None
        product = labels.get(PRODUCT_LABEL)
        if product is None:
            return KubePool(name=CPU_POOL, selector={})
        return KubePool(name=pool_name(product), selector={PRODUCT_LABEL: product})

    def _tolerated(self, taint: Taint, resource: str) -> bool:
        return (
            taint.effect not in ("NoSchedule", "NoExecute")
            or taint.key == resource
            or any(_tolerates(each, taint) for each in self._settings.tolerations)
        )

    def place(self, pool: str, products: Iterable[str]) -> PoolPlace | None:
        """How pods are sent to a pool. `products`: the GPU products that nodes are labelled with."""
        for each in self._settings.pools:
            if each.name == pool:
                return PoolPlace(each.selector, (), each.resource)
        if self._settings.pools:
            return None
        if pool == CPU_POOL:
            return PoolPlace({}, (PRODUCT_LABEL,))
        return next((PoolPlace({PRODUCT_LABEL: each}) for each in products if pool_name(each) == pool), None)

    def use(self, pod: Pod) -> Use | None:
        """A pod as it counts; None: it has no node, or nothing of it runs any more."""
        if not pod.spec.node_name or pod.over:
            return None
        labels = pod.metadata.labels
        ours = labels.get(PLACEMENT_LABEL, "") if labels.get(SITE_LABEL) == self._site else ""
        rank = labels.get(RANK_LABEL, "") if ours else ""
        size = _request(pod, self._resources)
        return Use(pod.spec.node_name, size, ours, int(rank) if rank.isdecimal() else 0)

    def seen(self, machines: Mapping[str, Machine], uses: Iterable[Use], trouble: str = "") -> Seen:
        """What there is and what of it is free."""
        taken: dict[str, list[int]] = {}
        bound, local = set(), Counter[tuple[str, int]]()
        for use in uses:
            each = taken.setdefault(use.node, [0, 0, 0, 0])
            size = use.size
            each[0] += size.cpus_milli
            each[1] += size.memory_mib
            each[2] += size.gpus
            each[3] += 1
            if use.placement:
                bound.add((use.placement, use.rank))
            elif size.gpus and use.node in machines:
                local[machines[use.node].pool, size.gpus] += 1
        hosts: dict[str, list[Host]] = {}
        for name, machine in sorted(machines.items()):
            hosts.setdefault(machine.pool, []).append(_free(name, machine, taken.get(name, (0, 0, 0, 0))))
        return Seen(
            pools=_pools(machines.values()),
            hosts={pool: tuple(free) for pool, free in hosts.items()},
            bound=frozenset(bound),
            local_work=tuple(LocalWork(pool, nodes, gpus) for (pool, gpus), nodes in sorted(local.items())),
            health=f"the cluster is not seen as it is: {trouble}" if trouble else "ok",
        )


def pool_name(product: str) -> str:
    """The name of the pool of a GPU product."""
    return _NAME.sub("-", product).strip("-._").lower()[:63]


def _tolerates(toleration: Mapping[str, str], taint: Taint) -> bool:
    if toleration.get("effect", taint.effect) != taint.effect:
        return False
    if toleration.get("key", taint.key) != taint.key:
        return False
    return toleration.get("operator", "Equal") == "Exists" or toleration.get("value", "") == taint.value


def _free(name: str, machine: Machine, taken: Iterable[int]) -> Host:
    cpus_milli, memory_mib, gpus, pods = taken
    size = machine.size
    if pods >= machine.pods:
        return Host(name, (), 0, 0)
    return Host(
        name,
        tuple(range(max(0, size.gpus - gpus))),
        max(0, size.cpus_milli - cpus_milli),
        max(0, size.memory_mib - memory_mib),
    )


def _pools(machines: Iterable[Machine]) -> tuple[HostPool, ...]:
    """A pool is as large as its largest node; what each node has is said of the node."""
    by_name: dict[str, list[Machine]] = {}
    for machine in machines:
        by_name.setdefault(machine.pool, []).append(machine)
    return tuple(
        HostPool(
            name=name,
            model=max(each.model for each in members),
            gpu_memory_mib=min((each.gpu_memory_mib for each in members if each.size.gpus), default=0),
            nodes=len(members),
            gpus_per_node=max(each.size.gpus for each in members),
            cpus_milli_per_node=max(each.size.cpus_milli for each in members),
            memory_mib_per_node=max(each.size.memory_mib for each in members),
        )
        for name, members in sorted(by_name.items())
    )


def _request(pod: Pod, resources: Iterable[str]) -> Size:
    def asked(container: Container) -> tuple[int, int, int]:
        return _asked(container.resources.requests, resources)

    stays = [each for each in pod.spec.init_containers if each.restart_policy == "Always"]
    total = [sum(parts) for parts in zip((0, 0, 0), *map(asked, (*pod.spec.containers, *stays)), strict=True)]
    most, before = (0, 0, 0), (0, 0, 0)
    for each in pod.spec.init_containers:
        now = tuple(map(sum, zip(before, asked(each), strict=True)))
        most = (max(most[0], now[0]), max(most[1], now[1]), max(most[2], now[2]))
        if each.restart_policy == "Always":
            before = (now[0], now[1], now[2])
    overhead = _asked(pod.spec.overhead, resources)
    return Size(*(max(one, other) + more for one, other, more in zip(total, most, overhead, strict=True)))


def _asked(amounts: Mapping[str, str], resources: Iterable[str]) -> tuple[int, int, int]:
    gpus = sum(int(quantity(amounts[each])) for each in resources if each in amounts)
    return milli(amounts.get("cpu", "0")), mib(amounts.get("memory", "0")), gpus
