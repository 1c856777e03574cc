"""Money counted against caps: what is paid and what is committed in the worst case.

A cap on a period counts the whole of every lease that overlaps the period. That errs on the safe side (a lease over midnight counts on both
days) and needs no splitting of bills: promise 6 is an upper bound.
"""

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from federator.control.records import Records
from federator.model.capacity import LEASE_ENDED, Lease
from federator.model.rules import CapRow, CapUnit, Period, admits_queue, in_scope, selects
from federator.model.sites import SiteKind
from federator.model.snapshot import SpendView


def period_start(period: Period, now: float) -> float:
    """When the present day, week or month began, UTC; the beginning of time for a total."""
    if period is Period.TOTAL:
        return 0.0
    if period is Period.NOW:
        return now
    day = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if period is Period.WEEK:
        day -= timedelta(days=day.weekday())
    if period is Period.MONTH:
        day = day.replace(day=1)
    return day.timestamp()


def outstanding_usd(lease: Lease) -> float:
    """What this lease may still cost, beyond what is billed."""
    return 0.0 if lease.status in LEASE_ENDED else max(0.0, lease.committed_usd - lease.billed_usd)


def paid_until_at(lease: Lease) -> float:
    """When the lease will have cost all that is committed for it. What is free of charge is so for ever."""
    if lease.offer.price_usd_h <= 0:
        return math.inf
    begun_at = lease.launched_at or lease.requested_at
    ends_at = begun_at + lease.committed_usd / lease.offer.price_usd_h * 3600
    if lease.billed_until_at is None:
        return ends_at
    return min(ends_at, lease.billed_until_at + outstanding_usd(lease) / lease.offer.price_usd_h * 3600)


def affordable_until_at(records: Records, lease: Lease) -> float:
    """When all that is committed for the lease is used up, or all that the job which pays for it may cost."""
    until_at, payer = paid_until_at(lease), records.jobs.get(lease.payer)
    free = lease.offer.price_usd_h <= 0
    if free or payer is None or payer.max_cost_usd is None or lease.billed_until_at is None:
        return until_at
    left_usd, price_usd_s = payer.max_cost_usd - payer.spent_usd, lease.offer.price_usd_h / 3600
    return min(until_at, lease.billed_until_at + left_usd / price_usd_s)


def spend(records: Records, now: float) -> tuple[SpendView, ...]:
    """Per capped policy and period: paid and committed."""
    return tuple(_spend(records, now))


def _spend(records: Records, now: float) -> Iterator[SpendView]:
    rows: dict[tuple[str, Period], list[CapRow]] = {}
    for rule in records.policies.rules:
        if isinstance(rule, CapRow) and rule.unit is CapUnit.USD:
            rows.setdefault((rule.policy, rule.period), []).append(rule)
    for (policy, period), caps in sorted(rows.items()):
        start = period_start(period, now)
        counted = [
            lease
            for lease in records.leases.values()
            if (lease.ended_at is None or lease.ended_at >= start)
            and any(_counts(records, cap, lease) for cap in caps)
        ]
        yield SpendView(
            policy=policy,
            period=period,
            spent_usd=sum(lease.billed_usd for lease in counted),
            committed_usd=sum(outstanding_usd(lease) for lease in counted),
        )


def _counts(records: Records, cap: CapRow, lease: Lease) -> bool:
    """Whether the lease is within what the cap is about, whichever policy let it be rented. In doubt it counts."""
    job = records.jobs.get(lease.evidence.job) if lease.evidence else None
    offer = lease.offer
    about_it = selects(
        cap.pools,
        site=lease.site,
        kind=SiteKind.CLOUD,
        provider=lease.provider,
        region=offer.region,
        market=offer.market,
        model=offer.model,
    )
    if job is None or not about_it:
        return lease.policy == cap.policy or (about_it and admits_queue(cap.scope.queues, lease.queue))
    labels = records.spec(job.spec_hash).labels
    return in_scope(cap.scope, queue=lease.queue, owner=job.owner, labels=labels)
