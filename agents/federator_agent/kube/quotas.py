"""What the namespace of jobs may have at all, whatever is free on nodes: its ResourceQuotas and LimitRanges, and the quota of Kueue's ClusterQueue.

They are read now and then, and not watched: people change them by the month. What is read is for reports and for the limits of containers; the cluster itself
holds its quotas, and a pod that comes too late for one is refused with its words.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import msgspec

from federator.kernel.errors import FederatorError, Forbidden
from federator_agent.kube import kueue
from federator_agent.kube.api import Api, decoded
from federator_agent.kube.objects import LimitRange, Quota, QuotaSpec, Struct, mib, milli, quantity
from federator_agent.kube.settings import KubeSettings

EVERY_S = 10.0
UNREADABLE_EVERY_S = 300.0
"""An agent with the rights of before asks again only so often."""
SIDE_CPU, SIDE_MEMORY = "10m", "32Mi"
"""What the side container asks for where the namespace wants it to ask for something."""
_GPUS = "requests."
log = logging.getLogger("federator_agent.kube")
T = TypeVar("T")


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """What the pods of a namespace may ask for. None, or an absent name: as much as there is."""

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


def allowance(
    quotas: Iterable[Quota],
    ranges: Iterable[LimitRange],
    kueue_devices: Mapping[str, int],
    priority_class: str,
) -> Allowance:
    """All of them together: of each thing the least. `kueue_devices`: what Kueue's queue allows."""
    hard = [each.spec.hard for each in quotas if _counts(each.spec, priority_class)]
    lines = [line for each in ranges for line in each.spec.limits if line.type in ("Container", "Pod")]
    devices = dict(kueue_devices)
    for each in hard:
        for name, amount in each.items():
            if name.startswith(_GPUS) and "/" in name:
                resource, count = name.removeprefix(_GPUS), int(quantity(amount))
                devices[resource] = min(count, devices.get(resource, count))
    limited = {name for name in ("cpu", "memory") if any(f"limits.{name}" in each for each in hard)}
    strict = {name for line in lines for name in line.max_limit_request_ratio}
    least = {name: text for name, text in (("cpu", SIDE_CPU), ("memory", SIDE_MEMORY)) if name in strict}
    for line in lines:
        for name in ("cpu", "memory"):
            if line.type == "Container" and quantity(line.min.get(name, "0")) > quantity(
                least.get(name, "0")
            ):
                least[name] = line.min[name]
    return Allowance(
        devices=devices,
        cpus_milli=_least(milli, hard, "cpu", "requests.cpu", "limits.cpu"),
        memory_mib=_least(mib, hard, "memory", "requests.memory", "limits.memory"),
        pods=_least(lambda text: int(quantity(text)), hard, "pods", "count/pods"),
        largest_cpus_milli=_least(milli, [line.max for line in lines], "cpu"),
        largest_memory_mib=_least(mib, [line.max for line in lines], "memory"),
        least=least,
        limited=frozenset(limited | (strict & {"cpu", "memory"})),
    )


def _counts(spec: QuotaSpec, priority_class: str) -> bool:
    """Whether our pods are among those that a quota is of. Of scopes that depend on the job it is not known before."""
    return set(spec.scopes) <= {"NotBestEffort"} and all(
        term.scope_name == "NotBestEffort"
        or (term.scope_name == "PriorityClass" and term.operator == "In" and priority_class in term.values)
        for term in spec.scope_selector.match_expressions
    )


def _least(read: Callable[[str], int], amounts: Iterable[Mapping[str, str]], *names: str) -> int | None:
    return min((read(each[name]) for each in amounts for name in names if name in each), default=None)


class Quotas:
    """What is allowed, as it was read last."""

    def __init__(self, api: Api, settings: KubeSettings) -> None:
        self._api, self._settings = api, settings
        self.now = UNBOUNDED

    async def run(self, changed: Callable[[], None]) -> None:
        """Read it, for ever."""
        while True:
            pause_s = EVERY_S
            try:
                seen = await self._read()
            except Forbidden as error:
                seen, pause_s = UNBOUNDED, UNREADABLE_EVERY_S
                log.warning("quotas are not reported; apply the present manifest of the agent: %s", error)
            except FederatorError as error:
                seen = self.now
                log.debug("quotas cannot be read: %s", error)
            if seen != self.now:
                self.now = seen
                changed()
            await asyncio.sleep(pause_s)

    async def _read(self) -> Allowance:
        quotas = await self._objects("resourcequotas", _Quotas)
        ranges = await self._objects("limitranges", _LimitRanges)
        devices = dict[str, int]()
        if self._settings.kueue_queue:
            devices = await kueue.devices(self._api, self._settings.namespace, self._settings.kueue_queue)
        return allowance(quotas.items, ranges.items, devices, self._settings.priority_class)

    async def _objects(self, plural: str, kind: type[T]) -> T:
        path = f"/api/v1/namespaces/{self._settings.namespace}/{plural}"
        return decoded(await self._api.ask("GET", path), kind)
