"""What gateways have told of services, in memory: loads over time, and which replicas are ready. It is told anew every few seconds, so nothing of it is stored.

Of long times the peaks are kept, some two hundred for each service: whether fewer replicas would have done is a question about peaks.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from federator.model.services import SLOW_S, STALE_S, Health, Load, Scale, needed
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
        ready = sum(each.ready for each in seen.replicas)
        load = Load(now, seen.at_once, seen.answered, min(seen.slow, seen.answered), ready)
        load = load._replace(needed=needed(scale, [*self.loads, load]))
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
    """Loads of the last `over_s`: the newest as they are, of older ones the one of each two-hundredth that asked for most."""
    width_s, kept = over_s / PEAKS, list[Load]()
    for each in loads:
        if each.at < now - over_s - width_s:
            continue
        if kept and each.at < now - SLOW_S and kept[-1].at // width_s == each.at // width_s:
            kept[-1] = kept[-1]._replace(needed=max(kept[-1].needed, each.needed))
        else:
            kept.append(each)
    return kept
