"""When the executor looks at leases: as soon as one may have something to do, and no oftener than providers are to be asked."""

import asyncio
import contextlib

from federator.control.record.records import Changes
from federator.kernel.clock import Clock
from federator.model.capacity import Lease, LeaseStatus


class LeaseTimer:
    """How often a provider is asked about a lease: at once for a new status, then no oftener than it is polled."""

    def __init__(self, clock: Clock, every_s: float) -> None:
        self._clock = clock
        self._every_s = every_s
        self._next: dict[str, tuple[LeaseStatus, float]] = {}
        """By lease: the status it was asked in, and when it may be asked again, in the boot clock."""

    def allows(self, lease: Lease) -> bool:
        """Whether it may be asked now; then that counts as done."""
        now_s = self._clock.boot()
        status, next_s = self._next.get(lease.id, (None, 0.0))
        if status is lease.status and now_s < next_s:
            return False
        self._next[lease.id] = (lease.status, now_s + self._every_s)
        return True

    def forget(self, lease_id: str) -> None:
        """It has ended."""
        self._next.pop(lease_id, None)


class Alarm:
    """Rings when a lease may have something to do. Most changes are none of a lease's business, and most federations rent nothing."""

    def __init__(self) -> None:
        self.rings = asyncio.Event()
        self.any_open = True
        """Whether there was an open lease at the last look."""

    def hear(self, changes: Changes | None) -> None:
        """Rows have changed, or (None) something was heard."""
        rows = changes.rows.values() if changes is not None else ()
        if self.any_open or any(isinstance(row, Lease) for row in rows):
            self.rings.set()

    async def rung(self, within_s: float | None) -> bool:
        """Wait for it, but not longer; whether it rang."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if within_s is None else max(0.05, within_s)):
                await self.rings.wait()
        return self.rings.is_set()
