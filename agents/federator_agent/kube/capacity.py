"""What the cluster has for us: of each node that takes work, its allocatable less what every pod on it asks for, ours and others' alike.

A request is counted as the scheduler counts it: containers added up, an init container only where it asks for more, the overhead on top. Nodes that are
not ready, cordoned, or tainted against us are left out: what runs there goes on, and nothing new is sent.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from federator.kube.objects import Container, Node, Pod, Taint, mib, milli, quantity
from federator.model.sites import LocalWork
from federator.wire.jsontext import read
from federator_agent.core.lent_capacity import MOST_POOLS, Host, HostPool, Seen
from federator_agent.core.shares import Sort, left, most
from federator_agent.kube.device_sets import CPU_POOL, NVIDIA, DeviceSet, device_sets_of, taint_keys
from federator_agent.kube.dra import DEVICES_NOTE
from federator_agent.kube.pod_template import selector
from federator_agent.kube.quotas import UNBOUNDED, Allowance, Asked
from federator_agent.kube.settings import GPU_RESOURCE, PRODUCT_LABEL, KubeSettings, class_of, in_quotas

PLACEMENT_LABEL = "federator/placement"
SITE_LABEL = "federator/site"
RANK_LABEL = "federator/rank"
AGENT_LABEL = "federator/agent"
"""Whose it is: another agent of a site of that name, or of another federation, may use the same namespace."""


MOST_DEVICES = 1024
"""More of a class than a pod can have: no node has as many."""


class Size(msgspec.Struct, frozen=True, gc=False):
    """How much: of a pod, what it asks for. `devices`: by the name of their resource."""

    cpus_milli: int = 0
    memory_mib: int = 0
    devices: dict[str, int] = {}


class Use(msgspec.Struct, frozen=True, gc=False):
    """A pod as far as others' room is concerned. `placement`: whose it is, if ours, and which `rank` of it."""

    node: str
    size: Size
    placement: str = ""
    rank: int = 0


class Machine(msgspec.Struct, frozen=True, gc=False):
    """A node that takes work: what it offers, and what its pods may ask for altogether."""

    device_sets: tuple[DeviceSet, ...]
    size: Size
    pods: int


class PoolPlace(NamedTuple):
    """How pods are sent to a pool: labels that a node must have, and labels that it must not."""

    selector: dict[str, str]
    without: tuple[str, ...] = ()
    resource: str = GPU_RESOURCE
    part_milli: int = 0
    """A unit of the resource is so many thousandths of a GPU; 0: all of one."""


class NodesAndPods:
    """The site's reading of nodes and pods."""

    def __init__(self, settings: KubeSettings, site: str, agent: str = "") -> None:
        """`agent`: what tells this agent's pods from those of others, as `AGENT_LABEL` of them says."""
        self._settings = settings
        self._site = site
        self._agent = agent
        self._homes = frozenset(settings.homes())
        self._resources = {pool.asked for pool in settings.pools}
        self._selector = selector(settings.pod)

    def device_sets(self, node: Node) -> tuple[DeviceSet, ...]:
        """What a node offers, whether or not it takes work now."""
        return device_sets_of(node, self._settings.pools, self._settings.topology)

    def machine(self, node: Node) -> Machine | None:
        """A node as it counts; None: it takes no work of ours."""
        device_sets = self.device_sets(node)
        if not device_sets or not node.ready or node.spec.unschedulable or self._ailing(node):
            return None
        if not self._selector.items() <= node.metadata.labels.items():
            return None
        keys = {key for device_set in device_sets for key in taint_keys(device_set.resource)}
        if any(not self._tolerated(taint, keys) for taint in node.spec.taints):
            return None
        has = node.status.allocatable
        size = Size(int(quantity(has.get("cpu", "0")) * 1000), int(quantity(has.get("memory", "0")) / 2**20))
        return Machine(device_sets=device_sets, size=size, pods=int(quantity(has.get("pods", "110"))))

    def _ailing(self, node: Node) -> bool:
        """Whether what watches nodes has found a fault that does not make it unready."""
        found = [each.type.lower() for each in node.status.conditions if each.status == "True"]
        faults = [fault.lower() for fault in self._settings.fault_conditions]
        return any(fnmatchcase(each, fault) for each in found for fault in faults)

    def _tolerated(self, taint: Taint, keys: Collection[str]) -> bool:
        return (
            taint.effect not in ("NoSchedule", "NoExecute")
            or taint.key in keys
            or any(_tolerates(each, taint) for each in self._settings.tolerations)
        )

    def place(self, pool: str, device_sets: Iterable[DeviceSet]) -> PoolPlace | None:
        """How pods are sent to a pool. `device_sets`: what all nodes offer."""
        of_pool = [device_set for device_set in device_sets if device_set.pool == pool]
        part_milli = max((device_set.part_milli for device_set in of_pool), default=0)
        if of_pool and (of_pool[0].labels or not self._settings.pools):
            first = of_pool[0]
            plain = not self._settings.pools and PRODUCT_LABEL not in first.selector
            return PoolPlace(first.selector, (PRODUCT_LABEL,) * plain, first.resource, part_milli)
        for each in self._settings.pools:
            if each.name == pool:
                return PoolPlace(each.selector, (), each.asked, part_milli)
        if pool == CPU_POOL and not self._settings.pools:
            return PoolPlace({}, (PRODUCT_LABEL,))
        return None

    def use(self, pod: Pod) -> Use | None:
        """A pod as it counts; None: it has no node, or nothing of it runs any more."""
        if not pod.spec.node_name or pod.over:
            return None
        labels = pod.metadata.labels
        ours = labels.get(PLACEMENT_LABEL, "") if self.ours(pod) else ""
        rank = labels.get(RANK_LABEL, "") if ours else ""
        size = self._size(pod) if ours else request_of(pod, self._resources)
        return Use(pod.spec.node_name, size, ours, int(rank) if rank.isdecimal() else 0)

    def _size(self, pod: Pod) -> Size:
        """Of one of ours, what it asks for by a claim included."""
        size = request_of(pod, self._resources)
        if DEVICES_NOTE not in pod.metadata.annotations:
            return size
        return msgspec.structs.replace(size, devices=size.devices | _noted(pod))

    def ours(self, pod: Pod) -> bool:
        """Whether this agent has made it. Labels alone say nothing: anybody may set them in a namespace of his own."""
        meta = pod.metadata
        return (
            meta.namespace in self._homes
            and meta.labels.get(SITE_LABEL) == self._site
            and meta.labels.get(AGENT_LABEL, "") == self._agent
        )

    def asked(self, pods: Iterable[Pod]) -> Asked:
        """What pods ask for together, those without a node included."""
        asked = Asked(Counter())
        for pod in pods:
            asked = asked._replace(objects=asked.objects + 1)
            if not pod.over:
                size = self._size(pod)
                asked = asked._replace(
                    devices=asked.devices + _in_quotas(size.devices),
                    cpus_milli=asked.cpus_milli + size.cpus_milli,
                    memory_mib=asked.memory_mib + size.memory_mib,
                    pods=asked.pods + 1,
                )
        return asked

    def seen(
        self,
        machines: Mapping[str, Machine],
        uses: Iterable[Use],
        trouble: str = "",
        allowed: Allowance = UNBOUNDED,
        claimed: Mapping[str, Counter[str]] = MappingProxyType({}),
        remarks: Sequence[str] = (),
    ) -> Seen:
        """What there is and what of it is free, as far as the namespace of jobs may have it. `claimed`: by node, devices that others hold by claims. `remarks`: what else to say of the site's health."""
        taken: dict[str, _Taken] = {}
        room = NamespaceRoom(allowed)
        bound, local = set(), Counter[tuple[str, int]]()
        for use in uses:
            taken.setdefault(use.node, _Taken()).add(use.size)
            if use.placement:
                room.add(use.size)
                bound.add((use.placement, use.rank))
            elif use.node in machines:
                for device_set in machines[use.node].device_sets:
                    if units := use.size.devices.get(device_set.resource, 0):
                        local[device_set.pool, device_set.part_milli * units or units] += 1
        for node, units_of in claimed.items():
            taken.setdefault(node, _Taken()).devices.update(units_of)
        hosts: dict[str, list[Host]] = {}
        free = [
            each
            for name, machine in sorted(machines.items())
            for each in _free(name, machine, taken.get(name, _Taken()))
        ]
        # What a quota leaves is of no use on a host whose processors are all taken.
        for device_set, host in sorted(free, key=lambda each: not each[1].cpus_milli):
            hosts.setdefault(device_set.pool, []).append(room.take(host, device_set))
        pools, uneven = _pools(machines.values())
        resources = {
            each.pool: each.resource for machine in machines.values() for each in machine.device_sets
        }
        found, pools = len(pools), pools[:MOST_POOLS]
        pools = tuple(room.bounded(pool, resources[pool.name]) for pool in pools)
        health = "; ".join(
            [f"the state of the cluster is not known: {trouble}"] * bool(trouble)
            + [
                f"GPUs of pool {name} are not all cut alike: give each sort a pool of its own"
                for name in uneven
            ]
            + [
                f"only {MOST_POOLS} of {found} pools are offered: name labels of larger domains in kube.topology"
            ]
            * (found > MOST_POOLS)
            + [*remarks]
        )
        return Seen(
            pools=pools,
            hosts={pool.name: tuple(hosts[pool.name]) for pool in pools if pool.name in hosts},
            bound=frozenset(bound),
            local_work=tuple(LocalWork(pool, nodes, gpus) for (pool, gpus), nodes in sorted(local.items())),
            health=health or "ok",
        )


class _Taken:
    """What the pods of a node ask for."""

    def __init__(self) -> None:
        self.cpus_milli, self.memory_mib, self.pods = 0, 0, 0
        self.devices: Counter[str] = Counter()

    def add(self, size: Size) -> None:
        self.cpus_milli += size.cpus_milli
        self.memory_mib += size.memory_mib
        self.pods += 1
        self.devices.update(size.devices)


class NamespaceRoom:
    """What our pods may still ask for. Told of those that have a node, it cuts what is free on hosts."""

    def __init__(self, allowed: Allowance) -> None:
        self._allowed = allowed
        self._devices = dict(allowed.devices)
        self._of_pool: dict[str, int] = {}
        self._cpus_milli, self._memory_mib, self._pods = allowed.cpus_milli, allowed.memory_mib, allowed.pods
        self._beside = (milli(allowed.least.get("cpu", "0")), mib(allowed.least.get("memory", "0")))
        """What the side container of each pod takes of its room."""

    def add(self, size: Size) -> None:
        """A pod of ours is there."""
        for name, units in _in_quotas(size.devices).items():
            if name in self._devices:
                self._devices[name] -= units
        self._cpus_milli = None if self._cpus_milli is None else self._cpus_milli - size.cpus_milli
        self._memory_mib = None if self._memory_mib is None else self._memory_mib - size.memory_mib
        self._pods = None if self._pods is None else self._pods - 1

    def take(self, host: Host, device_set: DeviceSet) -> Host:
        """The host with no more free than is left. Its devices are taken off what is left for the next host of its pool, and not of others: nobody knows yet which pool will be asked for. CPUs and memory are not, as one pod may want them all."""
        if self._pods is not None and self._pods <= 0:
            return Host(host.name, (), 0, 0)
        part = device_set.part_milli
        units = host.share_milli // part if part else len(host.gpus)
        if (name := in_quotas(device_set.resource)) in self._devices:
            left = self._of_pool.setdefault(device_set.pool, self._devices[name])
            units = min(units, max(0, left))
            self._of_pool[device_set.pool] = left - units
        cpus, memory = self._bounded(host.cpus_milli, host.memory_mib, self._cpus_milli, self._memory_mib)
        return Host(host.name, host.gpus[: min(1, units) if part else units], cpus, memory, part * units)

    def bounded(self, pool: HostPool, resource: str) -> HostPool:
        """The pool as far as it may ever be had."""
        allowed = self._allowed
        cpus, memory = self._bounded(
            pool.cpus_milli_per_node, pool.memory_mib_per_node, allowed.cpus_milli, allowed.memory_mib
        )
        return msgspec.structs.replace(
            pool,
            allowed_gpus=allowed.devices.get(in_quotas(resource)) if pool.gpus_per_node else None,
            cpus_milli_per_node=cpus,
            memory_mib_per_node=memory,
        )

    def _bounded(
        self, cpus: int, memory: int, cpus_left: int | None, memory_left: int | None
    ) -> tuple[int, int]:
        allowed = self._allowed
        return (
            _lower(cpus, cpus_left, allowed.largest_cpus_milli, beside=self._beside[0]),
            _lower(memory, memory_left, allowed.largest_memory_mib, beside=self._beside[1]),
        )


def _lower(amount: int, *bounds: int | None, beside: int) -> int:
    return max(0, min([amount, *(bound for bound in bounds if bound is not None)]) - beside)


def _tolerates(toleration: Mapping[str, str], taint: Taint) -> bool:
    if toleration.get("effect", taint.effect) != taint.effect:
        return False
    if toleration.get("key", taint.key) != taint.key:
        return False
    return toleration.get("operator", "Equal") == "Exists" or toleration.get("value", "") == taint.value


def _free(name: str, machine: Machine, taken: _Taken) -> Iterator[tuple[DeviceSet, Host]]:
    """The node as a host of each of its pools, with what is free of it."""
    open_, size = taken.pods < machine.pods, machine.size
    sorts = [
        Sort(
            device_set.weight,
            device_set.units,
            min(device_set.units, max(0, device_set.units - taken.devices[device_set.resource])) * open_,
        )
        for device_set in machine.device_sets
    ]
    cpus = left(size.cpus_milli, (size.cpus_milli - taken.cpus_milli) * open_, sorts)
    memory = left(size.memory_mib, (size.memory_mib - taken.memory_mib) * open_, sorts)
    for device_set, sort, cpus_milli, memory_mib in zip(
        machine.device_sets, sorts, cpus, memory, strict=True
    ):
        gpus = tuple(range(min(1, sort.free) if device_set.part_milli else sort.free))
        yield device_set, Host(name, gpus, cpus_milli, memory_mib, device_set.part_milli * sort.free)


def _beside(machine: Machine, number: int) -> tuple[int, int]:
    """CPUs and memory of a host of that device set, when all of it is free."""
    sorts, device_set = (
        [Sort(device_set.weight, device_set.units) for device_set in machine.device_sets],
        machine.device_sets[number],
    )
    hosts = device_set.units if device_set.part_milli else 1
    size = machine.size
    return most(size.cpus_milli, sorts, number) // hosts, most(size.memory_mib, sorts, number) // hosts


def _pools(machines: Iterable[Machine]) -> tuple[tuple[HostPool, ...], list[str]]:
    """A pool is as large as its largest node; what each node has is said of the node. And the names of those whose GPUs are cut in several ways: nobody can be sure there of what he gets."""
    by_name: dict[str, list[tuple[DeviceSet, tuple[int, int]]]] = {}
    for machine in machines:
        for number, device_set in enumerate(machine.device_sets):
            by_name.setdefault(device_set.pool, []).append((device_set, _beside(machine, number)))
    cuts = {
        name: {device_set.part_milli for device_set, _ in members if device_set.units} or {0}
        for name, members in by_name.items()
    }
    uneven = sorted(name for name, several in cuts.items() if len(several) > 1)
    pools = (
        _pool(name, members, min(cuts[name]))
        for name, members in sorted(by_name.items())
        if name not in uneven
    )
    return tuple(pools), uneven


def _pool(name: str, members: list[tuple[DeviceSet, tuple[int, int]]], part_milli: int) -> HostPool:
    pool = HostPool(
        name=name,
        model=max(device_set.model for device_set, _ in members),
        gpu_memory_mib=min(
            (device_set.gpu_memory_mib for device_set, _ in members if device_set.units), default=0
        ),
        nodes=len(members),
        labels=tuple(sorted(members[0][0].labels.items())),
        gpus_per_node=max(device_set.units for device_set, _ in members),
        cpus_milli_per_node=max(cpus for _, (cpus, _) in members),
        memory_mib_per_node=max(memory for _, (_, memory) in members),
    )
    if not part_milli:
        return pool
    return msgspec.structs.replace(
        pool,
        nodes=sum(device_set.units for device_set, _ in members),
        gpus_per_node=1,
        shares=1,
        host_milli=part_milli,
        cut_milli=part_milli,
    )


def request_of(pod: Pod, resources: Collection[str]) -> Size:
    """What a pod asks for: CPUs, memory, and these extended resources."""

    def asked(container: Container) -> Counter[str]:
        return _asked(container.resources.requests, resources)

    total, most, before = Counter[str](), Counter[str](), Counter[str]()
    for each in (
        *pod.spec.containers,
        *(c for c in pod.spec.init_containers if c.restart_policy == "Always"),
    ):
        total += asked(each)
    for each in pod.spec.init_containers:
        now = before + asked(each)
        most |= now
        if each.restart_policy == "Always":
            before = now
    of_pod = _asked(pod.spec.resources.requests, resources)
    asked_for = (total | most) | {
        name: of_pod[name] for name in _PLAIN if name in pod.spec.resources.requests
    }
    all_ = Counter(asked_for) + _asked(pod.spec.overhead, resources)
    devices = {name: count for name, count in all_.items() if name not in _PLAIN}
    return Size(all_["cpu"], all_["memory"], devices)


def _noted(pod: Pod) -> dict[str, int]:
    """What it asks for by a claim: units of classes of devices, and no more than a pod can have."""
    try:
        noted = read(pod.metadata.annotations[DEVICES_NOTE], dict[str, int])
    except msgspec.MsgspecError:
        return {}
    return {name: count for name, count in noted.items() if class_of(name) and 0 <= count <= MOST_DEVICES}


def _in_quotas(devices: Mapping[str, int]) -> Counter[str]:
    counted = Counter[str]()
    for resource, units in devices.items():
        counted[in_quotas(resource)] += units
    return counted


_PLAIN = ("cpu", "memory")


def _asked(amounts: Mapping[str, str], resources: Collection[str]) -> Counter[str]:
    """Milli-cores, MiB, and devices by the name of their resource."""
    found = {
        name: int(quantity(amount))
        for name, amount in amounts.items()
        if name.startswith(NVIDIA) or name in resources
    }
    return Counter(found | {"cpu": milli(amounts.get("cpu", "0")), "memory": mib(amounts.get("memory", "0"))})
