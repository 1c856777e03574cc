"""GET /v1/usage: GPU time, money, waits and deadlines, by whatever people ask for."""

from typing import Literal

import msgspec

Key = Literal["user", "team", "queue", "site", "model", "month", "day"]
KEYS: tuple[Key, ...] = ("user", "team", "queue", "site", "model", "month", "day")


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """What one group has had. Of `user` to `day` those are filled by which it was asked. Money is in whole cents: rows add up to the total.

    GPU time and money are of the ledger; jobs, waits and deadlines are of the jobs on record that have ended in that time.
    """

    user: str = ""
    team: str = ""
    queue: str = ""
    site: str = ""
    model: str = ""
    month: str = ""
    """Such as 2026-11, in UTC."""
    day: str = ""
    """Such as 2026-11-28, in UTC."""
    gpu_s: float = 0.0
    """GPU-seconds, owned and rented."""
    rented_gpu_s: float = 0.0
    owned_usd: float = 0.0
    """GPU time on owned capacity, at its site's `price_per_gpu_hour`."""
    rented_usd: float = 0.0
    data_usd: float = 0.0
    """Data that was moved."""
    usd: float = 0.0
    """All of it."""
    energy_kwh: float = 0.0
    """Of GPUs whose power is known,"""
    power_usd: float = 0.0
    """what that cost, as their sites say of electricity. No part of `usd`: a site's `price_per_gpu_hour` is to cover it."""
    co2_kg: float = 0.0
    """What it emitted, as they say."""
    jobs: int = 0
    succeeded: int = 0
    wait_s: float | None = None
    """From submission to the start, on average over those that have started."""
    longest_wait_s: float | None = None
    deadlines: int = 0
    """Jobs that had one, without those that were cancelled before it,"""
    deadlines_met: int = 0
    """and those that had succeeded by then."""
    starts_told: int = 0
    """Jobs that have started and whose first forecast is kept,"""
    starts_kept: int = 0
    """and those that started by the end of its range (90 of 100 should)."""
    finishes_told: int = 0
    finishes_kept: int = 0
    """The same of the ends of jobs that succeeded,"""
    costs_told: int = 0
    costs_kept: int = 0
    """and of what those cost in rent and data, where that was told: no more, but for a cent."""
    answered: int = 0
    """Requests that services answered, as the ledger has them once an hour,"""
    met: int = 0
    """and those of them without an error of the server, and within the target's `p95_latency`."""


class UsageReport(msgspec.Struct, frozen=True, kw_only=True):
    """Rows, by their keys; and all of them together."""

    whose: str
    """Whose use it counts, in words."""
    since: float
    until: float
    rows: tuple[UsageRow, ...]
    total: UsageRow
