"""Rate limits of the HTTP API, one token bucket per person.

Each route has a cost. Everybody has a store of it that refills; who has used it up waits, and nobody else does.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiohttp import web

from federator.kernel.errors import TooMany
from federator.settings import LimitSettings

PLAIN, TUNNEL, HEAVY = 1, 5, 20
"""What a submission costs, a tunnel into a job, and what has to plan, compile or replay."""
MOST_KNOWN = 10_000
"""After so many people it is looked whose store is full again: they are as if they had never called."""
AGAIN_S = 1.0


class Rates:
    """What people have left. `now` is in real seconds."""

    def __init__(self, limits: LimitSettings, now: Callable[[], float]) -> None:
        self.limits = limits
        self.now = now
        self.left: dict[str, tuple[float, float]] = {}
        """How much was left, and when."""
        self._busy: Counter[str] = Counter()

    @contextmanager
    def spend(self, who: str, cost: int) -> Iterator[None]:
        """Take so much, and hold a place for what is heavy. Raises `TooMany` before anything is done."""
        if not cost:
            yield
            return
        heavy = cost >= HEAVY
        most = self.limits.heavy_each
        if heavy and self._busy[who] >= most:
            raise TooMany(
                f"user {who} has {most} previews, explanations or looks at policies under way",
                retry_after_s=AGAIN_S,
                remedy="wait for one to end, or have limits.heavy_each raised",
            )
        self._take(who, cost)
        self._busy[who] += heavy
        try:
            yield
        finally:
            self._busy[who] -= heavy
            if not self._busy[who]:
                del self._busy[who]

    def _take(self, who: str, cost: int) -> None:
        rate, burst, now = self.limits.person_rate, self.limits.person_burst, self.now()
        left = self._present(who, now)
        if left < cost:
            raise TooMany(
                f"user {who} has sent too many requests: a user may send {burst:g} at once and {rate:g} a second, "
                f"and this one counts as {cost}",
                retry_after_s=(cost - left) / rate,
                remedy="send many jobs as lines of one request, or have limits.person_rate raised",
            )
        self.left[who] = left - cost, now
        if len(self.left) > MOST_KNOWN:
            self.left = {each: self.left[each] for each in self.left if self._present(each, now) < burst}

    def _present(self, who: str, now: float) -> float:
        burst = float(self.limits.person_burst)
        left, at = self.left.get(who, (burst, now))
        return min(burst, left + (now - at) * self.limits.person_rate)


RATES = web.AppKey("rates", Rates)
"""Where the application keeps them."""
