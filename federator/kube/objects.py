"""The few fields of nodes, pods and the rules of namespaces that are read here, decoded straight from what the API server says."""

import math
import re
from datetime import datetime

import msgspec

_QUANTITY = re.compile(r"([0-9.]+(?:[eE][0-9]+)?)([numkMGTPE]|[KMGTPE]i)?")
MOST = 2.0**63
"""Of anything, in its unit."""
_FACTORS = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0} | {
    f"{unit}{kind}": float(base**power)
    for kind, base in (("", 1000), ("i", 1024))
    for power, unit in enumerate("kMGTPE" if not kind else "KMGTPE", 1)
}


def quantity(text: str) -> float:
    """What Kubernetes writes as `100m`, `2`, `16Gi` or `1e3`; 0 for what is not one. Labels of nodes are read so too, and anything may stand there."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return 0.0
    number, suffix = match.groups()
    try:
        found = float(number) * _FACTORS[suffix or ""]
    except ValueError:
        return 0.0
    return found if found <= MOST else 0.0


def milli(text: str) -> int:
    """Milli-cores, rounded up."""
    return math.ceil(round(quantity(text) * 1000, 6))


def mib(text: str) -> int:
    """MiB, rounded up."""
    return math.ceil(quantity(text) / 2**20)


def instant_at(text: str) -> float:
    """Seconds since the epoch; 0 for an empty text, and for what is no time."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else 0.0
    except (ValueError, OverflowError):
        return 0.0


class Struct(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A part of an object, by the names that the API has. What is not named is passed over."""


class Meta(Struct, frozen=True):
    """Who it is."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    deletion_grace_period_seconds: int | None = None

    @property
    def key(self) -> str:
        """Of it among all of its kind: what it is called alone, others in other namespaces are called too."""
        return f"{self.namespace}/{self.name}"


class Taint(Struct, frozen=True):
    """What keeps pods off a node."""

    key: str
    value: str = ""
    effect: str = ""


class Condition(Struct, frozen=True):
    """One thing that is said of an object."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class NodeSpec(Struct, frozen=True):
    """What people want of a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(Struct, frozen=True):
    """What the node says."""

    allocatable: dict[str, str] = {}
    conditions: tuple[Condition, ...] = ()


class Node(Struct, frozen=True):
    """A machine of the cluster."""

    metadata: Meta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> bool:
        """Whether its kubelet is heard."""
        return any(each.type == "Ready" and each.status == "True" for each in self.status.conditions)


class Requests(Struct, frozen=True):
    """What a container asks for."""

    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


class Container(Struct, frozen=True):
    """A container as it is wanted."""

    name: str = ""
    resources: Requests = Requests()
    restart_policy: str = ""
    """`Always` makes an init container stay."""


class SchedulingGate(Struct, frozen=True):
    """What keeps the scheduler from looking at a pod."""

    name: str = ""


class PodSpec(Struct, frozen=True):
    """A pod as it is wanted."""

    node_name: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    resources: Requests = Requests()
    """Of the pod at all, whatever its containers ask for."""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: dict[str, str] = {}
    termination_grace_period_seconds: int = 30


class Waiting(Struct, frozen=True):
    """Not yet."""

    reason: str = ""
    message: str = ""


class Running(Struct, frozen=True):
    """Now."""

    started_at: str = ""


class Terminated(Struct, frozen=True):
    """Over."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""
    finished_at: str | None = ""


class ContainerState(Struct, frozen=True):
    """One of the three."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Struct, frozen=True):
    """A container as it is."""

    name: str
    state: ContainerState = ContainerState()


class PodStatus(Struct, frozen=True):
    """A pod as it is."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(Struct, frozen=True):
    """Containers on a node."""

    metadata: Meta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def over(self) -> bool:
        """Whether nothing of it runs, by the word of its kubelet."""
        return self.status.phase in ("Succeeded", "Failed")

    def state(self, container: str) -> ContainerState:
        """How a container is; of one that nothing is said of, nothing."""
        found = (each.state for each in self.status.container_statuses if each.name == container)
        return next(found, ContainerState())

    def condition(self, kind: str) -> Condition | None:
        """What is said of that."""
        return next((each for each in self.status.conditions if each.type == kind), None)


class ScopeTerm(Struct, frozen=True):
    """One condition on the pods that a quota is of."""

    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class ScopeSelector(Struct, frozen=True):
    """All of which hold of them."""

    match_expressions: tuple[ScopeTerm, ...] = ()


class QuotaSpec(Struct, frozen=True):
    """What a ResourceQuota allows, and of which pods."""

    hard: dict[str, str] = {}
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector = ScopeSelector()


class QuotaStatus(Struct, frozen=True):
    """What of it is used."""

    used: dict[str, str] = {}


class Quota(Struct, frozen=True):
    """A ResourceQuota."""

    spec: QuotaSpec = QuotaSpec()
    status: QuotaStatus = QuotaStatus()


class Limit(Struct, frozen=True):
    """A line of a LimitRange."""

    type: str = ""
    max: dict[str, str] = {}
    min: dict[str, str] = {}
    default: dict[str, str] = {}
    """The limits of containers that name none."""
    max_limit_request_ratio: dict[str, str] = {}


class LimitRangeSpec(Struct, frozen=True):
    """Its lines."""

    limits: tuple[Limit, ...] = ()


class LimitRange(Struct, frozen=True):
    """What each container may ask for."""

    spec: LimitRangeSpec = LimitRangeSpec()
