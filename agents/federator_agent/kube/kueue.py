"""What Kueue is told by the pods of a placement, and what it says of them.

Every placement's pods are one group, also where the site names no queue: a namespace may have a LocalQueue named `default`, whose pods Kueue holds unasked, and
ranks that it admits one by one can keep each other waiting for ever. A failed pod is never made again, so the group says so, and Kueue gives its quota back.
"""

from federator.kernel.errors import FederatorError, Forbidden, NotFound
from federator_agent.kube.api import Api, decoded
from federator_agent.kube.objects import Condition, Meta, Struct

GATE = "kueue.x-k8s.io/admission"
GROUP = "/apis/kueue.x-k8s.io"
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


class _WorkloadStatus(Struct, frozen=True):
    conditions: tuple[Condition, ...] = ()


class _Workload(Struct, frozen=True):
    metadata: Meta
    status: _WorkloadStatus = _WorkloadStatus()


async def reason(api: Api, namespace: str, placement: str) -> str:
    """Why a placement's pods are not admitted, in Kueue's own words where they can be had."""
    try:
        version = decoded(await api.ask("GET", GROUP), _Group).preferred_version.version
        path = f"{GROUP}/{version}/namespaces/{namespace}/workloads/{placement}"
        conditions = decoded(await api.ask("GET", path), _Workload).status.conditions
    except NotFound:
        return f"{PENDING}, and knows no such group: see whether the queue exists"
    except Forbidden:
        return f"{PENDING}; the agent may not read why: apply the present manifest of the agent"
    except FederatorError as error:
        return f"{PENDING}; why cannot be read: {error}"
    said = [each.message for each in conditions if each.status == "False" and each.message]
    return f"{PENDING}: {said[0][:300]}" if said else PENDING
