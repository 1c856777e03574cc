"""Limits on calls of a provider's API, as a decorator around any provider: a rate, respect for its retry-after, a circuit breaker.

Nothing here sleeps. A call that must wait is refused with `TooMany` and the delay, because the caller, one loop that looks
after all leases, has better things to do than to wait for one provider.
"""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from federator.kernel.clock import Clock
from federator.kernel.errors import NoCapacity, TooMany, Transient
from federator.model.capacity import Instance, LaunchRequest, Offer
from federator.ports import Provider

T = TypeVar("T")


@dataclass
class LimitedProvider:
    """At most `calls_per_s` to `inner` over time, `calls_at_once` in a row; silent for `open_s` after `failures_to_open` faults."""

    inner: Provider
    clock: Clock
    calls_per_s: float = 5.0
    calls_at_once: int = 10
    failures_to_open: int = 5
    open_s: float = 60.0

    def __post_init__(self) -> None:
        self.name = self.inner.name
        self._tokens = float(self.calls_at_once)
        self._filled_at = self.clock.boot()
        self._failures = 0
        self._closed_until = self._filled_at

    async def offers(self) -> Sequence[Offer]:
        """As `inner` has it."""
        self._admit()
        return await self._watched(self.inner.offers())

    async def launch(self, request: LaunchRequest) -> Instance:
        """As `inner` has it."""
        self._admit()
        return await self._watched(self.inner.launch(request))

    async def instances(self, federation: str) -> Sequence[Instance]:
        """As `inner` has it."""
        self._admit()
        return await self._watched(self.inner.instances(federation))

    async def terminate(self, name: str) -> None:
        """As `inner` has it."""
        self._admit()
        await self._watched(self.inner.terminate(name))

    async def close(self) -> None:
        """Always passed on."""
        await self.inner.close()

    def _admit(self) -> None:
        now = self.clock.boot()
        if now < self._closed_until:
            raise TooMany(
                f"provider {self.name} asked for a pause, or fails", retry_after_s=self._closed_until - now
            )
        self._tokens = min(self.calls_at_once, self._tokens + (now - self._filled_at) * self.calls_per_s)
        self._filled_at = now
        if self._tokens < 1.0:
            raise TooMany(
                f"provider {self.name} may be called {self.calls_per_s:g} times a second",
                retry_after_s=(1.0 - self._tokens) / self.calls_per_s,
            )
        self._tokens -= 1.0

    async def _watched(self, call: Awaitable[T]) -> T:
        try:
            answer = await call
        except NoCapacity:
            self._failures = 0  # an answer about one offer; the provider itself is well
            raise
        except Transient as error:
            self._failures += 1
            pause_s = self.open_s if self._failures >= self.failures_to_open else 0.0
            self._closed_until = self.clock.boot() + max(error.retry_after_s, pause_s)
            raise
        self._failures = 0
        return answer
