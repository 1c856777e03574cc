"""When rented machines of each make were busy lately, and so how long it took until one that fell idle was needed again.

Made of placements, and so the same after a restart; read when a machine has idled for longer than it is kept anyway.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from statistics import median
from typing import NamedTuple

from federator.control.record.records import Changes, Records
from federator.model.capacity import Lease, LeaseStatus
from federator.model.placements import Placement
from federator.planning.rentals.warmth import Wait

SINCE_S = 86400.0
"""What was longer ago says nothing about now."""
MOST = 40
"""So many times are looked at, the newest."""

Make = tuple[str, str, str, int]
"""Provider, site, model, and GPUs of a machine."""


class _Stay(NamedTuple):
    """One placement on one machine; it has not ended where `until_at` is None."""

    lease: str
    since_at: float
    until_at: float | None


class Demand:
    """Busy times of rented machines, by make."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._stays: dict[Make, dict[tuple[str, str], _Stay]] | None = None
        """None: not read yet."""
        records.subscribe(self._hear)

    def waits(self, lease: Lease, now: float) -> list[Wait]:
        """How long others like this one idled; of several that idle now, those that do so for a shorter time are taken first."""
        busy = list(self._busy(_make(lease), now))
        needed = sorted(since_at for since_at, _ in busy)
        idle_before = self._fresher(lease)
        found = []
        for fell_idle_at in sorted(until_at for _, until_at in busy if until_at is not None)[-MOST:]:
            number = bisect_right(needed, fell_idle_at) + idle_before
            came = number < len(needed)
            found.append(Wait((needed[number] if came else now) - fell_idle_at, came))
        return found

    def run_s(self, lease: Lease, now: float) -> float:
        """For how long such machines are mostly busy at a time."""
        lasted = [until - since for since, until in self._busy(_make(lease), now) if until is not None]
        return median(lasted[-MOST:]) if lasted else 0.0

    def _fresher(self, lease: Lease) -> int:
        return sum(
            other.status is LeaseStatus.READY
            and other.id != lease.id
            and _make(other) == _make(lease)
            and (other.idle_since_at or 0.0, other.id) > (lease.idle_since_at or 0.0, lease.id)
            for other in self._records.leases.values()
        )

    def _busy(self, make: Make, now: float) -> Iterator[tuple[float, float | None]]:
        """From when until when each machine had something to do, whatever number of placements that was."""
        if self._stays is None:
            self._stays = {}
            self._take(self._records.placements.values())
        stays = self._stays.get(make, {})
        for key in [key for key, stay in stays.items() if (stay.until_at or now) < now - SINCE_S]:
            del stays[key]
        begun: dict[str, float] = {}
        ends: dict[str, float | None] = {}
        for stay in sorted(stays.values(), key=lambda stay: (stay.since_at, stay.lease)):
            name, end = stay.lease, ends.get(stay.lease, float("-inf"))
            if end is not None and stay.since_at > end:
                if name in begun:
                    yield begun[name], end
                begun[name], ends[name] = stay.since_at, stay.until_at
            elif end is not None:
                ends[name] = None if stay.until_at is None else max(end, stay.until_at)
        for name, since_at in begun.items():
            yield since_at, ends[name]

    def _hear(self, changes: Changes) -> None:
        if self._stays is not None:
            self._take(row for row in changes.rows.values() if isinstance(row, Placement))

    def _take(self, placements: Iterable[Placement]) -> None:
        assert self._stays is not None
        for placement in placements:
            for name in placement.leases or (placement.lease,):
                lease = self._records.leases.get(name or "")
                if lease is not None:
                    # Of one that was given up before it began, no end is known: it was none.
                    until_at = placement.ended_at or (placement.assigned_at if placement.ended else None)
                    stay = _Stay(lease.id, placement.assigned_at, until_at)
                    self._stays.setdefault(_make(lease), {})[lease.id, placement.id] = stay


def _make(lease: Lease) -> Make:
    offer = lease.offer
    return lease.provider, lease.site, offer.model, offer.gpus
