"""What Kueue is told by the pods of a placement, and what it says of them.

Every placement's pods are one group, also where the site names no queue: a namespace may have a LocalQueue named `default`, whose pods Kueue holds unasked, and
ranks that it admits one by one can keep each other waiting for ever. A failed pod is never made again, so the group says so, and Kueue gives its quota back.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from federator.kernel.errors import FederatorError, Forbidden, NotFound
from federator.kube.api import Api, decoded
from federator.kube.objects import Condition, Meta, Struct, quantity

GATE = "kueue.x-k8s.io/admission"
GROUP = "/apis/kueue.x-k8s.io"
DEFAULT = "default"
"""The LocalQueue of pods that name none, where a namespace has it."""
PENDING = "Kueue has not admitted them"


def labels(placement: str, queue: str) -> dict[str, str]:
    """By which Kueue finds the group and its queue."""
    group = {"kueue.x-k8s.io/pod-group-name": placement}
    return group | {"kueue.x-k8s.io/queue-name": queue} if queue else group


def annotations(ranks: int) -> dict[str, str]:
    """How large the group is, and that none of its pods comes again."""
    return {
        "kueue.x-k8s.io/pod-group-total-count": str(ranks),
        "kueue.x-k8s.io/retriable-in-group": "false",
    }


class _Version(Struct, frozen=True):
    version: str = ""


class _Group(Struct, frozen=True):
    preferred_version: _Version = _Version()


class _Quota(Struct, frozen=True):
    name: str = ""
    nominal_quota: str = "0"
    borrowing_limit: str | None = None
    total: str = "0"


class _Flavor(Struct, frozen=True):
    resources: tuple[_Quota, ...] = ()


class _ResourceGroup(Struct, frozen=True):
    flavors: tuple[_Flavor, ...] = ()


class _QueueSpec(Struct, frozen=True):
    cluster_queue: str = ""
    cohort: str = ""
    cohort_name: str = ""
    resource_groups: tuple[_ResourceGroup, ...] = ()


class _QueueStatus(Struct, frozen=True):
    flavors_reservation: tuple[_Flavor, ...] = ()


class Queue(Struct, frozen=True):
    """A LocalQueue or the ClusterQueue behind it."""

    spec: _QueueSpec = _QueueSpec()
    status: _QueueStatus = _QueueStatus()

    def reserved(self) -> Counter[str]:
        """How much of each resource its workloads hold."""
        amounts = Counter[str]()
        for flavor in self.status.flavors_reservation:
            for each in flavor.resources:
                amounts[each.name] += int(quantity(each.total))
        return amounts


class _WorkloadStatus(Struct, frozen=True):
    conditions: tuple[Condition, ...] = ()


class _Workload(Struct, frozen=True):
    metadata: Meta
    status: _WorkloadStatus = _WorkloadStatus()


def allowed(local: Iterable[Queue], behind: Iterable[Queue]) -> dict[str, int]:
    """How much of each extended resource the pods of these LocalQueues may have at once, others' use of the ClusterQueues behind them taken off. What one of them may borrow without limit is left out."""
    most, endless, reserved = Counter[str](), set[str](), Counter[str]()
    for queue in behind:
        reserved += queue.reserved()
        borrows = bool(queue.spec.cohort or queue.spec.cohort_name)
        for each in (
            quota
            for group in queue.spec.resource_groups
            for flavor in group.flavors
            for quota in flavor.resources
        ):
            most[each.name] += int(quantity(each.nominal_quota))
            if borrows and each.borrowing_limit is None:
                endless.add(each.name)
            elif borrows:
                most[each.name] += int(quantity(each.borrowing_limit or "0"))
    others = reserved - sum((each.reserved() for each in local), Counter[str]())
    return {
        name: max(0, count - others[name])
        for name, count in most.items()
        if "/" in name and name not in endless
    }


async def devices(api: Api, homes: Mapping[str, bool], queues: Iterable[str]) -> dict[str, int]:
    """What `allowed` says of those LocalQueues that there are in some namespaces, each with whether pods that name no queue are made there, too. Nothing where Kueue holds the pods of one of them not, or not all. Raises `FederatorError`."""
    try:
        base = f"{GROUP}/{await _version(api)}"
    except NotFound:
        return {}

    async def queue(path: str) -> Queue | None:
        try:
            return decoded(await api.ask("GET", f"{base}/{path}"), Queue)
        except NotFound:
            return None

    local = list[Queue]()
    for home, others in homes.items():
        names = dict.fromkeys((*queues, *([DEFAULT] if others else ())))
        found = {
            name: each for name in names if (each := await queue(f"namespaces/{home}/localqueues/{name}"))
        }
        if not found or (others and DEFAULT not in found):
            return {}
        local += found.values()
    behind = [
        await queue(f"clusterqueues/{name}") for name in sorted({each.spec.cluster_queue for each in local})
    ]
    return allowed(local, filter(None, behind))


async def _version(api: Api) -> str:
    return decoded(await api.ask("GET", GROUP), _Group).preferred_version.version


async def reason(api: Api, namespace: str, placement: str) -> str:
    """Why a placement's pods are not admitted, in Kueue's own words where they can be had."""
    try:
        path = f"{GROUP}/{await _version(api)}/namespaces/{namespace}/workloads/{placement}"
        conditions = decoded(await api.ask("GET", path), _Workload).status.conditions
    except NotFound:
        return f"{PENDING}, and knows no such group: see whether the queue exists"
    except Forbidden:
        return f"{PENDING}; the agent may not read why: apply the present manifest of the agent"
    except FederatorError as error:
        return f"{PENDING}; why cannot be read: {error}"
    said = [each.message for each in conditions if each.status == "False" and each.message]
    return f"{PENDING}: {said[0][:300]}" if said else PENDING
