"""What the link to the outside is used for: bytes of the last hour by kind, and what the site file allows of it.

Counted are messages, and bodies of requests with a flat size for their heads; not what TLS, TCP and pings add, nor tunnels into jobs. Bulk is all
that is large, whether it goes to the dispatcher or straight to a bucket or a web server. All times are of the agent's clock. Half of the budget is for reports and half for logs, each with some minutes in which it may go faster. What promises
need is never held back: statuses, orders and renewals count, and only what can wait waits for them.
"""

import asyncio
from collections import deque

from msgspec.structs import replace

from federator.kernel.clock import Clock
from federator.model.sites import LINK_KINDS, LinkState, LinkTraffic
from federator_agent.link_limits import LinkLimits

REPORTS, LOGS, BULK = LINK_KINDS
HEAD_BYTES = 300
"""Of the head of a request, or of an answer."""
HOUR_S = 3600.0
MOST_WORDS = 400
"""Characters of the hours of bulk that are told."""
SLICE_S = 60.0
BURST_S = 300.0
"""So long a half of the budget may have been left unused to be used at once."""
SMALL_BYTES = 2**18
"""What is no larger moves at any hour."""
LOOK_S = 30.0
SHORTEST_S = 0.001
RENEW_WITHIN_S = 10.0
"""`stop_within` less the grace is at least three times as long: a late answer or two stop nothing."""


class HoursOver(Exception):
    """The hours of what is so large are over: it goes on in the next."""


class Allowance:
    """So many bytes a second on average. Whoever has used more than is there waits until that is made up for."""

    def __init__(self, bytes_s: float, burst_s: float, now_s: float) -> None:
        self._bytes_s = bytes_s
        self._burst_s = burst_s
        self._paid_s = now_s
        """Until when what was used is paid."""

    def use(self, used_bytes: int, now_s: float) -> None:
        """Take that off."""
        self._paid_s = max(self._paid_s, now_s - self._burst_s) + used_bytes / self._bytes_s

    def wait_s(self, now_s: float) -> float:
        """Seconds until something is there; less than a millisecond is none."""
        left_s = self._paid_s - now_s
        return left_s if left_s >= SHORTEST_S else 0.0


class LinkUse:
    """What has been used, and what may be."""

    def __init__(self, clock: Clock, limits: LinkLimits | None = None) -> None:
        self._clock = clock
        self.limits = limits or LinkLimits()
        now_s = clock.boot()
        half_bytes_s = (self.limits.budget or 0) / 2 / HOUR_S
        self._halves = (
            {kind: Allowance(half_bytes_s, BURST_S, now_s) for kind in (REPORTS, LOGS)}
            if half_bytes_s
            else {}
        )
        self._hours = self.limits.bulk_hours
        rate = self.limits.bulk.rate
        self._rate = None if rate is None else Allowance(rate, 1.0, now_s)
        self._slices: deque[tuple[float, dict[str, list[int]]]] = deque()
        self.round_trip_s: float | None = None
        """Of the newest report and its answer."""

    def count(self, kind: str, *, sent: int = 0, received: int = 0) -> None:
        """So much has gone over the link."""
        now_s = self._clock.boot()
        begins_s = now_s - now_s % SLICE_S
        if not self._slices or self._slices[-1][0] != begins_s:
            self._slices.append((begins_s, {}))
            self._forget(now_s)
        of_kind = self._slices[-1][1].setdefault(kind, [0, 0])
        of_kind[0] += sent
        of_kind[1] += received
        if kind in self._halves:
            self._halves[kind].use(sent + received, now_s)

    def _forget(self, now_s: float) -> None:
        while self._slices and self._slices[0][0] <= now_s - HOUR_S:
            self._slices.popleft()

    def state(self, *, limits: bool = True) -> LinkState:
        """As it is told to the dispatcher. `limits`: with those of bulk."""
        self._forget(self._clock.boot())
        found = []
        for kind in LINK_KINDS:
            of_kind = [each[kind] for _, each in self._slices if kind in each]
            if of_kind:
                found.append(LinkTraffic(kind, sum(s for s, _ in of_kind), sum(r for _, r in of_kind)))
        state = LinkState(tuple(found), self.round_trip_s, self.limits.budget)
        return replace(state, rate=self.limits.bulk.rate, hours=self._hours_in_words()) if limits else state

    def _hours_in_words(self) -> str:
        words = ", ".join(each.in_words for each in self._hours)
        return f"{words[:MOST_WORDS]} {self.limits.bulk.timezone}" if words else ""

    # Reports -------------------------------------------------------------------------------------------------------

    def pace_s(self, every_s: float) -> float:
        """The pause to the next report that nobody needs to be told of anything new, in place of `every_s`. Never so long that a renewal would come too late."""
        return max(every_s, min(self._wait_s(REPORTS), RENEW_WITHIN_S))

    @property
    def may_tell(self) -> bool:
        """Whether what is only of interest may be told now: it is told later, as a sum."""
        return not self._wait_s(REPORTS)

    # Logs ----------------------------------------------------------------------------------------------------------

    @property
    def log_bytes(self) -> int | None:
        """Most that is sent of the log of one rank: a quarter of an hour's half. None: it is for the dispatcher to say."""
        budget = self.limits.budget
        return None if budget is None else budget // 8

    async def until_logs_may_move(self) -> bool:
        """Wait until there is something left of their half; whether that took any time."""
        waited = False
        while wait_s := self._wait_s(LOGS):
            waited = True
            await asyncio.sleep(self._clock.real_delay_s(wait_s))  # others use it meanwhile
        return waited

    # Bulk ----------------------------------------------------------------------------------------------------------

    async def until_bulk_may_move(self, size_bytes: int) -> None:
        """Wait for the hours of what is so large."""
        while not self.may_move(size_bytes):  # noqa: ASYNC110 - by the wall clock
            await asyncio.sleep(self._clock.real_delay_s(LOOK_S))

    def refuse_bulk(self, size_bytes: int) -> None:
        """Raise `HoursOver` outside of the hours of what is so large."""
        if not self.may_move(size_bytes):
            raise HoursOver("its hours are over: it goes on in the next")

    async def bulk_moved(self, size_bytes: int, *, sent: int = 0, received: int = 0) -> None:
        """A part of something so large has moved: wait for as long as the rate asks for. Raises as `refuse_bulk`."""
        self.count(BULK, sent=sent, received=received)
        if self._rate is not None:
            self._rate.use(sent + received, self._clock.boot())
            while wait_s := self._rate.wait_s(self._clock.boot()):  # noqa: ASYNC110 - others use it meanwhile
                await asyncio.sleep(self._clock.real_delay_s(wait_s))
        self.refuse_bulk(size_bytes)

    @property
    def holds_bulk(self) -> bool:
        """Whether bulk has a rate or hours to keep to."""
        return self._rate is not None or bool(self._hours)

    def may_move(self, size_bytes: int) -> bool:
        """Whether what is so large moves now; a negative size is not known."""
        if not self._hours or 0 <= size_bytes <= SMALL_BYTES:
            return True
        now_at = self._clock.now()
        return any(each.contains(now_at) for each in self._hours)

    def _wait_s(self, kind: str) -> float:
        half = self._halves.get(kind)
        return half.wait_s(self._clock.boot()) if half else 0.0
