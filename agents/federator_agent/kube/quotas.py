"""What the namespaces of jobs may have at all, whatever is free on nodes: their ResourceQuotas and LimitRanges, and the quota of Kueue's ClusterQueues.

They are read now and then, and not watched: people change them by the month. What is read is for reports and for the limits of containers; the cluster itself
holds its quotas, and a pod that comes too late for one is refused with its words.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from functools import reduce
from typing import NamedTuple, TypeVar

import msgspec

from federator.kernel.errors import FederatorError, Forbidden
from federator.kube.api import Api, decoded
from federator.kube.objects import LimitRange, Quota, QuotaSpec, Struct, mib, milli, quantity
from federator_agent.kube import kueue
from federator_agent.kube.settings import KubeSettings, resource_of

EVERY_S = 10.0
UNREADABLE_EVERY_S = 300.0
"""An agent with the rights of before asks again only so often."""
_KINDS = ("cpu", "memory")
_LEAST = {"cpu": "10m", "memory": "32Mi"}
"""What a container that asks for nothing asks for where the namespace wants it to ask for something."""
_REQUESTS, _OF_CLASS = "requests.", ".deviceclass.resource.k8s.io/devices"
log = logging.getLogger("federator_agent.kube")
T = TypeVar("T")


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """What our pods of a namespace may ask for. None, or an absent name: as much as there is."""

    devices: dict[str, int] = {}
    """Together, by the name of the resource."""
    cpus_milli: int | None = None
    memory_mib: int | None = None
    pods: int | None = None
    largest_cpus_milli: int | None = None
    """Each container."""
    largest_memory_mib: int | None = None
    least: dict[str, str] = {}
    """What each container has to ask for, at least, of `cpu` and `memory`."""
    limited: frozenset[str] = frozenset()
    """Of these, `cpu` and `memory`, each container must have a limit."""


UNBOUNDED = Allowance()


class _Quotas(Struct, frozen=True):
    items: tuple[Quota, ...] = ()


class _LimitRanges(Struct, frozen=True):
    items: tuple[LimitRange, ...] = ()


class Asked(NamedTuple):
    """What our own pods of the namespace ask for, those without a node included. `objects`: how many there are, `pods`: how many of them are not over."""

    devices: Counter[str]
    cpus_milli: int = 0
    memory_mib: int = 0
    pods: int = 0
    objects: int = 0


NOTHING = Asked(Counter())


def allowance(
    quotas: Iterable[Quota],
    ranges: Iterable[LimitRange],
    priority_class: str,
    ours: Asked = NOTHING,
) -> Allowance:
    """All of them together: of each thing the least that our pods may have, others' use of it taken off. `ours`: at the moment when the quotas were read."""
    counted = [each for each in quotas if _counts(each.spec, priority_class)]
    lines = [line for each in ranges for line in each.spec.limits if line.type in ("Container", "Pod")]
    devices = dict[str, int]()
    entries = {name: _device(name) for each in counted for name in each.spec.hard}
    for entry, device in entries.items():
        count = (
            _left(counted, lambda text: int(quantity(text)), ours.devices[device], entry) if device else None
        )
        if count is not None:
            devices[device] = min(count, devices.get(device, count))
    limited = {name for name in _KINDS if any(f"limits.{name}" in each.spec.hard for each in counted)}
    limited |= {name for line in lines for name in _KINDS if name in line.max or name in line.default}
    strict = {name for line in lines for name in _KINDS if name in line.max_limit_request_ratio}
    least = {name: text for name, text in _LEAST.items() if name in strict}
    for line in lines:
        for name in _KINDS:
            if line.type == "Container" and quantity(line.min.get(name, "0")) > quantity(
                least.get(name, "0")
            ):
                least[name] = line.min[name]
    whole = [
        _left(counted, lambda text: int(quantity(text)), count, name)
        for name, count in (("pods", ours.pods), ("count/pods", ours.objects))
    ]
    return Allowance(
        devices=devices,
        cpus_milli=_left(counted, milli, ours.cpus_milli, "cpu", "requests.cpu", "limits.cpu"),
        memory_mib=_left(counted, mib, ours.memory_mib, "memory", "requests.memory", "limits.memory"),
        pods=min((each for each in whole if each is not None), default=None),
        largest_cpus_milli=min((milli(line.max["cpu"]) for line in lines if "cpu" in line.max), default=None),
        largest_memory_mib=min(
            (mib(line.max["memory"]) for line in lines if "memory" in line.max), default=None
        ),
        least=least,
        limited=frozenset(limited | strict),
    )


def _device(entry: str) -> str:
    """The extended resource that an entry of a quota is of; empty: it is of something else. A class of devices counts as its own."""
    if entry.endswith(_OF_CLASS):
        return resource_of(entry.removesuffix(_OF_CLASS))
    return entry.removeprefix(_REQUESTS) if entry.startswith(_REQUESTS) and "/" in entry else ""


def _counts(spec: QuotaSpec, priority_class: str) -> bool:
    """Whether our pods are among those that a quota is of. Of scopes that depend on the job it is not known before."""
    return set(spec.scopes) <= {"NotBestEffort"} and all(
        term.scope_name == "NotBestEffort"
        or (term.scope_name == "PriorityClass" and term.operator == "In" and priority_class in term.values)
        for term in spec.scope_selector.match_expressions
    )


def _left(quotas: Iterable[Quota], read: Callable[[str], int], ours: int, *names: str) -> int | None:
    """How much of what goes by these names our pods may have altogether; None: no quota counts it."""
    left = [
        read(each.spec.hard[name]) - max(0, read(each.status.used.get(name, "0")) - ours)
        for each in quotas
        for name in names
        if name in each.spec.hard
    ]
    return max(0, min(left)) if left else None


class Quotas:
    """What is allowed, as it was read last."""

    def __init__(self, api: Api, settings: KubeSettings, ours: Callable[[str], Asked]) -> None:
        """`ours`: what our pods of a namespace ask for now."""
        self._api, self._settings, self._ours = api, settings, ours
        self._by_home = dict.fromkeys(settings.homes(), UNBOUNDED)
        self._by_kueue = dict[str, int]()

    @property
    def now(self) -> Allowance:
        """What is allowed at all: of several namespaces, what they allow together."""
        together = reduce(_together, self._by_home.values())
        devices = {
            name: min(each[name] for each in (together.devices, self._by_kueue) if name in each)
            for name in together.devices | self._by_kueue
        }
        return msgspec.structs.replace(together, devices=devices)

    def of(self, home: str) -> Allowance:
        """What is allowed in a namespace."""
        return self._by_home.get(home, UNBOUNDED)

    async def run(self, changed: Callable[[], None]) -> None:
        """Read it, for ever."""
        while True:
            pause_s, before = EVERY_S, (dict(self._by_home), self._by_kueue)
            for home in self._settings.homes():
                try:
                    self._by_home[home] = await self._read(home)
                except Forbidden as error:
                    self._by_home[home], pause_s = UNBOUNDED, UNREADABLE_EVERY_S
                    log.warning(
                        "quotas of %s are not reported; apply the present manifest of the agent: %s",
                        home,
                        error,
                    )
                except FederatorError as error:
                    log.debug("quotas of %s cannot be read: %s", home, error)
            try:
                homes = {home: self._settings.unqueued(home) for home in self._settings.homes()}
                self._by_kueue = await kueue.devices(self._api, homes, self._settings.local_queues())
            except FederatorError as error:
                log.debug("Kueue's quota cannot be read: %s", error)
            if (self._by_home, self._by_kueue) != before:
                changed()
            await asyncio.sleep(pause_s)

    async def _read(self, home: str) -> Allowance:
        quotas = await self._objects(home, "resourcequotas", _Quotas)
        ranges = await self._objects(home, "limitranges", _LimitRanges)
        return allowance(quotas.items, ranges.items, self._settings.priority_class, self._ours(home))

    async def _objects(self, home: str, plural: str, kind: type[T]) -> T:
        return decoded(await self._api.ask("GET", f"/api/v1/namespaces/{home}/{plural}"), kind)


def _together(one: Allowance, other: Allowance) -> Allowance:
    """What two namespaces allow: the sum of what all their pods may have, and of what holds for each container what one of them allows."""

    def total(mine: int | None, theirs: int | None) -> int | None:
        return None if mine is None or theirs is None else mine + theirs

    def most(mine: int | None, theirs: int | None) -> int | None:
        return None if mine is None or theirs is None else max(mine, theirs)

    return Allowance(
        devices={
            name: one.devices[name] + other.devices[name]
            for name in one.devices.keys() & other.devices.keys()
        },
        cpus_milli=total(one.cpus_milli, other.cpus_milli),
        memory_mib=total(one.memory_mib, other.memory_mib),
        pods=total(one.pods, other.pods),
        largest_cpus_milli=most(one.largest_cpus_milli, other.largest_cpus_milli),
        largest_memory_mib=most(one.largest_memory_mib, other.largest_memory_mib),
        least={
            name: min(one.least[name], other.least[name], key=quantity)
            for name in one.least.keys() & other.least.keys()
        },
        limited=one.limited & other.limited,
    )
