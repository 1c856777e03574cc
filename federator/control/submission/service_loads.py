"""What gateways have told of services, in memory: loads over time, and which replicas are ready. It is told anew every few seconds, so nothing of it is stored.

Of long times the peaks are kept, some two hundred for each service: whether fewer replicas would have done is a question about peaks.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from federator.model.services import STALE_S, UP_S, Health, Load, Scale
from federator.wire.services import SeenLoad, SeenReplica

SOONEST_S = 0.5
"""A report that comes sooner after the last one is not counted as a load."""
FAILING_S = 15.0
"""A replica that was ready fails once no gateway has found it so for so long."""
PEAKS = 200


@dataclass
class ServiceLoad:
    """Of one service."""

    loads: list[Load] = field(default_factory=list)
    answered: int = 0
    met: int = 0
    told_at: float = float("-inf")
    rate: float = 0.0
    p95_s: float | None = None
    ready_at: dict[str, float] = field(default_factory=dict)
    """When each replica was last found ready, by its job."""
    at_once: dict[str, int] = field(default_factory=dict)

    def tell(self, seen: SeenLoad, scale: Scale, now: float) -> None:
        """A gateway has seen that."""
        self._tell_replicas(seen.replicas, now)
        if now - self.told_at < SOONEST_S:
            return
        self.answered += seen.answered
        self.met += min(seen.met, seen.answered)
        self.told_at, self.rate, self.p95_s = now, seen.answered / seen.over_s, seen.p95_s
        load = Load(now, seen.at_once, self.rate, seen.p95_s)
        self.loads = peaks([*self.loads, load], scale.down_after_s, now)

    def _tell_replicas(self, replicas: Iterable[SeenReplica], now: float) -> None:
        known = {each.job for each in replicas}
        self.ready_at = {job: at for job, at in self.ready_at.items() if job in known}
        self.ready_at |= {each.job: now for each in replicas if each.ready}
        self.at_once = {each.job: each.at_once for each in replicas}

    def health(self, job: str, now: float) -> Health:
        """Of a replica whose job runs. Without a gateway it is taken to be ready."""
        if self.stale(now):
            return Health.READY
        ready_at = self.ready_at.get(job)
        if ready_at is None:
            return Health.STARTING
        return Health.READY if now - ready_at < FAILING_S else Health.FAILING

    def stale(self, now: float) -> bool:
        """Whether no gateway has told anything lately."""
        return now - self.told_at > STALE_S

    @property
    def attained(self) -> float | None:
        """The part of all requests that were answered as they should be."""
        return self.met / self.answered if self.answered else None


def peaks(loads: Iterable[Load], over_s: float, now: float) -> list[Load]:
    """Loads of the last `over_s`: the newest as they are, of older ones the peak of each two-hundredth."""
    width_s, kept = over_s / PEAKS, list[Load]()
    for each in loads:
        if each.at < now - over_s - width_s:
            continue
        if kept and each.at < now - 2 * UP_S and kept[-1].at // width_s == each.at // width_s:
            kept[-1] = _peak(kept[-1], each)
        else:
            kept.append(each)
    return kept


def _peak(one: Load, other: Load) -> Load:
    slowest = max((each.p95_s for each in (one, other) if each.p95_s is not None), default=None)
    return Load(one.at, max(one.at_once, other.at_once), max(one.rate, other.rate), slowest)
