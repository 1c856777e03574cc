"""What gateways have told of services, in memory: loads over time, and which replicas are ready. It is told anew every few seconds, so nothing of it is stored.

Of long times the peaks are kept, some two hundred for each service: whether fewer replicas would have done is a question about peaks.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from federator.model.services import SLOW_S, STALE_S, UP_S, Health, Load, Scale, Use, needed, needed_by_use
from federator.wire.services import SeenLoad

SOONEST_S = 0.5
"""A report that comes sooner after the last one is not counted as a load."""
FAILING_S = 15.0
"""A replica that was ready fails once no gateway has found it so for so long."""
PEAKS = 200
BOOK_S = 3600.0
"""So often what was answered is written to the ledger."""
MOST_GATEWAYS = 16
"""Of one owner at a time: what more of them tell is not counted."""


Asked = TypeVar("Asked", Load, Use)


class _Told(NamedTuple):
    """The last report of a gateway."""

    at: float
    seen: SeenLoad


class Answers(NamedTuple):
    """Of one replica, since it is known."""

    answered: int = 0
    errors: int = 0


class Booked(NamedTuple):
    """What the ledger has of a service."""

    answered: int = 0
    met: int = 0
    at: float = float("-inf")


@dataclass
class ServiceLoad:
    """Of one service, from all gateways that send it requests."""

    loads: list[Load] = field(default_factory=list)
    answered: int = 0
    met: int = 0
    told_at: float = float("-inf")
    ready_at: dict[str, float] = field(default_factory=dict)
    """When each replica was last found ready, by its job."""
    answers: dict[str, Answers] = field(default_factory=dict)
    """Of each replica, by its job."""
    uses: list[Use] = field(default_factory=list)
    """How busy the GPUs of its replicas were, where that is a target."""
    booked: Booked = field(default_factory=Booked)
    _gateways: dict[str, _Told] = field(default_factory=dict)

    def tell(self, gateway: str, seen: SeenLoad, scale: Scale, now: float) -> None:
        """A gateway has seen that. What it works on counts beside what the others have told in the last seconds."""
        former = self._gateways.pop(gateway, None)
        others = {name: each for name, each in self._gateways.items() if now - each.at < UP_S}
        if len(others) >= MOST_GATEWAYS:
            return
        soon = former is not None and now - former.at < SOONEST_S
        self._gateways = others | {gateway: _Told(former.at if former and soon else now, seen)}
        known = self.at_once
        self.ready_at = {job: at for job, at in self.ready_at.items() if job in known}
        self.ready_at |= {each.job: now for each in seen.replicas if each.ready}
        self.told_at = now
        if not self.answered:
            self.booked = Booked(at=now)
        if soon:
            return
        self.answers = {job: each for job, each in self.answers.items() if job in known}
        for each in seen.replicas:
            so_far = self.answers.get(each.job, Answers())
            self.answers[each.job] = Answers(so_far.answered + each.answered, so_far.errors + each.errors)
        self.answered += seen.answered
        self.met += min(seen.met, seen.answered)
        at_once = sum(each.seen.at_once for each in self._gateways.values())
        ready = {each.job for told in self._gateways.values() for each in told.seen.replicas if each.ready}
        load = Load(
            now, at_once, seen.answered, min(seen.slow, seen.answered), len(ready),
            working=min(at_once, self.at_once.total()), rate=self.rate,
        )  # fmt: skip
        load = load._replace(needed=needed(scale, [*self.loads, load]))
        self.loads = peaks([*self.loads, load], scale.down_after_s, now)

    def use(self, percent: float, ready: int, scale: Scale, now: float) -> None:
        """So busy the GPUs of so many ready replicas are."""
        if self.uses and now - self.uses[-1].at < SOONEST_S:
            return
        use = Use(now, percent, ready)
        use = use._replace(needed=needed_by_use(scale, [*self.uses, use]))
        self.uses = peaks([*self.uses, use], scale.down_after_s, now)

    @property
    def at_once(self) -> Counter[str]:
        """Requests that each replica works on, by its job."""
        found = Counter[str]()
        for told in self._gateways.values():
            found.update({each.job: each.at_once for each in told.seen.replicas})
        return found

    @property
    def rate(self) -> float:
        """Requests answered per second."""
        return sum(each.seen.answered / each.seen.over_s for each in self._gateways.values())

    @property
    def p95_s(self) -> float | None:
        """Within so long 95 of a hundred were answered, at the gateway where it took longest."""
        return max((t.seen.p95_s for t in self._gateways.values() if t.seen.p95_s is not None), default=None)

    def unbooked(self, now: float, *, last: bool) -> Booked | None:
        """What was answered since the ledger was last told, where that is due; `last`: the service goes."""
        since = self.booked
        if self.answered == since.answered or (now - since.at < BOOK_S and not last):
            return None
        return Booked(self.answered - since.answered, self.met - since.met, now)

    def book(self, new: Booked) -> None:
        """The ledger has been told that."""
        self.booked = Booked(self.booked.answered + new.answered, self.booked.met + new.met, new.at)

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


def peaks(loads: Iterable[Asked], over_s: float, now: float) -> list[Asked]:
    """Loads or uses of the last `over_s`: the newest as they are, of older ones the one of each two-hundredth that asked for most."""
    width_s, kept = over_s / PEAKS, list[Asked]()
    for each in loads:
        if each.at < now - over_s - width_s:
            continue
        if kept and each.at < now - SLOW_S and kept[-1].at // width_s == each.at // width_s:
            kept[-1] = kept[-1]._replace(needed=max(kept[-1].needed, each.needed))
        else:
            kept.append(each)
    return kept
