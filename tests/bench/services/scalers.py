"""What says how many replicas are wanted: each is asked every 2 s, as the dispatcher asks itself, and told what a gateway tells."""

from collections import deque
from math import ceil
from typing import Protocol

from federator.control.submission.service_loads import ServiceLoad
from federator.model.services import Scale, scaled
from federator.wire.services import SeenLoad


class Scaler(Protocol):
    """Decides how many replicas there are."""

    def wanted(self, seen: SeenLoad, active: int, now_s: float) -> int:
        """So many from now on; `active`: so many there are, those that start among them."""
        ...


class Fixed:
    """Always the same number."""

    def __init__(self, replicas: int) -> None:
        self._replicas = replicas

    def wanted(self, seen: SeenLoad, active: int, now_s: float) -> int:
        """That number."""
        del seen, active, now_s
        return self._replicas


class Federator:
    """The dispatcher's own functions, with what it keeps of loads."""

    def __init__(self, scale: Scale, begin: int) -> None:
        self._scale = scale
        self._load = ServiceLoad()
        self._wanted = begin

    def wanted(self, seen: SeenLoad, active: int, now_s: float) -> int:
        """As the loop of replicas decides."""
        del active
        self._load.tell("", seen, self._scale, now_s)
        self._wanted = scaled(self._scale, self._load.loads, self._wanted, now_s).replicas
        return self._wanted


class Threshold:
    """As the HorizontalPodAutoscaler of Kubernetes with its defaults, told the same requests at a time as an external metric with an average value.

    Every 15 s: the metric over the target, rounded up, unless the ratio to what there is differs from 1 by no more than a tenth. At most four more or twice as many in 15 s;
    fewer only as the highest recommendation of five minutes says. (kubernetes.io, "Horizontal Pod Autoscaling": algorithm details, and default behaviour.)
    """

    SYNC_S = 15.0
    TOLERANCE = 0.1
    STABLE_S = 300.0

    def __init__(self, scale: Scale, begin: int) -> None:
        self._scale = scale
        self._wanted = begin
        self._seen = list[float]()
        self._next_s = self.SYNC_S
        self._recommended = deque([(0.0, begin)])

    def wanted(self, seen: SeenLoad, active: int, now_s: float) -> int:
        """As it last decided."""
        self._seen.append(seen.at_once)
        if now_s < self._next_s:
            return self._wanted
        self._next_s += self.SYNC_S
        metric, self._seen = sum(self._seen) / len(self._seen), []
        ratio = metric / (self._scale.requests_per_replica * max(1, active))
        desired = active
        if abs(ratio - 1) > self.TOLERANCE:
            desired = ceil(metric / self._scale.requests_per_replica)
        desired = max(self._scale.least, min(self._scale.most, desired))
        self._recommended.append((now_s, desired))
        while self._recommended[0][0] < now_s - self.STABLE_S:
            self._recommended.popleft()
        stable = min(active, max(each for _, each in self._recommended))
        self._wanted = min(max(desired, stable), active + max(4, active))
        return self._wanted
