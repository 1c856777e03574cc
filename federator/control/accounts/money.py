"""Money counted against caps: what is paid and what is committed in the worst case.

A cap on a period counts the whole of every lease that overlaps the period. That errs on the safe side (a lease over midnight counts on both
days) and needs no splitting of bills: promise 6 is an upper bound.
"""

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from federator.control.accounts.concrete_rules import of_owner
from federator.control.accounts.selection import rented_by, taken_by
from federator.control.record.records import Records
from federator.model.capacity import LEASE_ENDED, Lease, Market
from federator.model.jobs import Job
from federator.model.placements import Placement
from federator.model.rules import CapRow, CapUnit, Each, Period, Rule, admits_queue, in_scope, selects
from federator.model.snapshot import SpendView
from federator.planning.rules.periods import period_start

DEARER = 1.05
"""A bill that grows this much faster than the price that was rented for shows a price that has risen; below it, it is the clocks."""


class Affordable(NamedTuple):
    """Until when a machine can be paid for, and what ends it."""

    until_at: float
    because: str


class JobLimit(NamedTuple):
    """The most that a job may cost, and the policy that says so; empty: the job itself."""

    usd: float | None
    policy: str = ""


def outstanding_usd(lease: Lease) -> float:
    """What this lease may still cost, beyond what is billed."""
    return 0.0 if lease.status in LEASE_ENDED else max(0.0, lease.committed_usd - lease.billed_usd)


def paid_usd(lease: Lease) -> float:
    """Its bill so far, and the data that is moved to it."""
    return lease.billed_usd + lease.egress_usd


def rate_usd_h(lease: Lease) -> float:
    """What it costs by the hour now: as it was rented, or more where its bill shows more."""
    price = lease.offer.price_usd_h
    return lease.pace_usd_h if lease.pace_usd_h > DEARER * price else price


def paid_until_at(lease: Lease) -> float:
    """When the lease will have cost all that is committed for it. What is free of charge is so for ever."""
    if lease.offer.price_usd_h <= 0:
        return math.inf
    begun_at = lease.launched_at or lease.requested_at
    ends_at = begun_at + lease.committed_usd / lease.offer.price_usd_h * 3600
    if lease.billed_until_at is None:
        return ends_at
    return min(ends_at, lease.billed_until_at + outstanding_usd(lease) / rate_usd_h(lease) * 3600)


def job_limit(records: Records, job: Job, labels: dict[str, str] | None = None) -> JobLimit:
    """The least of the job's own `max_cost` and the budgets for each job that are about it. `labels`: of one that is not on record."""
    limit = JobLimit(job.max_cost_usd)
    for row in records.policies.rules:
        if not (isinstance(row, CapRow) and row.each is Each.JOB):
            continue
        if labels is None:
            labels = records.spec(job.spec_hash).labels
        about = in_scope(row.scope, queue=job.queue, owner=job.owner, labels=labels)
        if about and (limit.usd is None or row.limit < limit.usd):
            limit = JobLimit(row.limit, row.policy)
    return limit


def affordable(records: Records, lease: Lease, budgets: dict[str, Affordable]) -> Affordable:
    """When all that is committed for the lease is used up, or all that the job which pays for it may cost, or a budget (see `strained_budgets`)."""
    own = Affordable(paid_until_at(lease), "its machine has cost nearly all that was committed for it")
    found = [own, budgets.get(lease.id, own)]
    payer = records.jobs.get(lease.payer)
    limit = JobLimit(None) if payer is None else job_limit(records, payer)
    if (
        payer is not None
        and limit.usd is not None
        and lease.billed_until_at is not None
        and lease.offer.price_usd_h > 0
    ):
        until_at = _spends_by(records, payer, lease, limit.usd - payer.spent_usd)
        what = f"policy {limit.policy}" if limit.policy else "its max_cost"
        because = f"the job has cost nearly all that {what} lets it cost ({limit.usd:g} USD)"
        found.append(Affordable(until_at, because))
    return min(found, key=lambda each: each.until_at)


def _spends_by(records: Records, payer: Job, lease: Lease, left_usd: float) -> float:
    """When so much more will have been spent on all the machines that the job pays for, this one among them."""
    paid = [
        each
        for each in records.leases.values()
        if each.status not in LEASE_ENDED
        and (each.payer or (each.evidence.job if each.evidence else "")) == payer.id
        and (each.billed_until_at or each.launched_at)
    ]
    rate_usd_s = sum(rate_usd_h(each) for each in paid) / 3600
    first_at = lease.billed_until_at or 0.0
    ahead_usd = sum(
        rate_usd_h(each) / 3600 * (first_at - (each.billed_until_at or each.launched_at or first_at))
        for each in paid
    )
    return first_at + (left_usd - ahead_usd) / rate_usd_s


def strained_budgets(records: Records, now: float) -> dict[str, Affordable]:
    """By lease: until when budgets that no longer hold what is committed let it run.

    Nothing is rented beyond a budget; but one may be lowered, or new, or prices may have risen. Then all that it counts may run until it is spent.
    """
    found: dict[str, Affordable] = {}
    for row in spend_rows(records):
        counted = [lease for lease in _in_period(records, row, now) if _counts(records, row, lease)]
        still = [lease for lease in counted if lease.status not in LEASE_ENDED]
        spent_usd = sum(map(paid_usd, counted)) + _moved_usd(records, row, now)
        if not row.hard or spent_usd + sum(map(outstanding_usd, still)) <= row.limit + 1e-6:
            continue
        rate_usd_s = sum(map(rate_usd_h, still)) / 3600
        unbilled = sum(rate_usd_h(lease) / 3600 * (now - _unbilled_since(lease, now)) for lease in still)
        left_usd = row.limit - spent_usd - unbilled
        until_at = now + left_usd / rate_usd_s if rate_usd_s > 0 else math.inf
        period = "" if row.period is Period.TOTAL else f" per {row.period}"
        whose = f" for {row.share}" if row.share else ""
        because = f"policy {row.policy} stops it: its {row.limit:g} USD{period}{whose} are nearly spent"
        for lease in still:
            if lease.id not in found or until_at < found[lease.id].until_at:
                found[lease.id] = Affordable(until_at, because)
    return found


def _unbilled_since(lease: Lease, now: float) -> float:
    return lease.billed_until_at or lease.launched_at or now


def spend_rows(records: Records) -> list[CapRow]:
    """Every cap on money in a period; of those for each owner, one for everybody who has rented anything."""
    owners: list[str] = []
    rows = []
    for rule in records.policies.rules:
        if not isinstance(rule, CapRow) or rule.unit is not CapUnit.USD or rule.each is Each.JOB:
            continue
        if rule.each is Each.OWNER:
            owners = owners or sorted({renter(records, lease) for lease in records.leases.values()} - {""})
            about = [name for name in owners if not rule.scope.owners or name in rule.scope.owners]
            rows += [of_owner(rule, name) for name in about]
        else:
            rows.append(rule)
    return rows


def renter(records: Records, lease: Lease) -> str:
    """For whose job the lease was rented; empty where nobody knows any more."""
    job = records.jobs.get(lease.evidence.job) if lease.evidence else None
    return lease.owner or (job.owner if job else "")


def spend(records: Records, now: float, rules: Iterable[Rule]) -> tuple[SpendView, ...]:
    """Per cap on money: paid and committed in its present period. `rules` are a decision's, or those of `spend_rows`."""
    return tuple(_spend(records, now, rules))


def _spend(records: Records, now: float, rules: Iterable[Rule]) -> Iterator[SpendView]:
    rows: dict[tuple[str, Period, str], list[CapRow]] = {}
    for rule in rules:
        if isinstance(rule, CapRow) and rule.unit is CapUnit.USD and not rule.each:
            rows.setdefault((rule.policy, rule.period, rule.share), []).append(rule)
    for (policy, period, share), caps in sorted(rows.items()):
        counted = [
            lease
            for lease in _in_period(records, caps[0], now)
            if any(_counts(records, cap, lease) for cap in caps)
        ]
        yield SpendView(
            policy=policy,
            period=period,
            spent_usd=sum(map(paid_usd, counted)) + _moved_usd(records, caps[0], now),
            committed_usd=sum(outstanding_usd(lease) for lease in counted),
            share=share,
        )


def _in_period(records: Records, cap: CapRow, now: float) -> Iterator[Lease]:
    """The leases that overlap the cap's present period."""
    start = period_start(cap.period, now)
    return (lease for lease in records.leases.values() if lease.ended_at is None or lease.ended_at >= start)


def counted_in(records: Records, caps: Iterable[CapRow], now: float) -> tuple[set[str], set[str]]:
    """What caps of one policy, period and share count in their present period: leases, and jobs for which data was moved to owned capacity."""
    caps = list(caps)
    leases = {
        lease.id
        for cap in caps[:1]
        for lease in _in_period(records, cap, now)
        if any(_counts(records, each, lease) for each in caps)
    }
    return leases, {each.job for cap in caps[:1] for each in _moved_in_period(records, cap, now)}


def jobs_with_counted_moves(records: Records, now: float) -> set[str]:
    """Jobs that retention has to keep: a cap counts, in its present period, what data costs that was moved for them."""
    caps = [row for row in records.policies.rules if isinstance(row, CapRow) and row.unit is CapUnit.USD]
    return {p.job for cap in caps if cap.each is not Each.JOB for p in _moved_in_period(records, cap, now)}


def _moved_usd(records: Records, cap: CapRow, now: float) -> float:
    """What data costs that was moved to owned capacity in the cap's present period."""
    return sum(p.moves.usd for p in _moved_in_period(records, cap, now) if p.moves)


def _moved_in_period(records: Records, cap: CapRow, now: float) -> Iterator[Placement]:
    """The attempts on owned capacity to which data was moved, or is, and that the cap counts in its present period."""
    if cap.pools.markets and Market.OWNED not in cap.pools.markets:
        return
    start = period_start(cap.period, now)
    for placement in records.placements.values():
        priced = placement.moves is not None and placement.moves.usd > 0 and placement.lease is None
        if priced and placement.assigned_at >= start and _counts_move(records, cap, placement):
            yield placement


def _counts_move(records: Records, cap: CapRow, placement: Placement) -> bool:
    """Whether the cap is about that attempt on owned capacity. In doubt it is."""
    job = records.jobs.get(placement.job)
    if job is None or placement.site not in records.sites:
        return True
    labels = records.spec(job.spec_hash).labels
    is_job = in_scope(cap.scope, queue=job.queue, owner=job.owner, labels=labels)
    return is_job and selects(cap.pools, taken_by(records, placement))


def _counts(records: Records, cap: CapRow, lease: Lease) -> bool:
    """Whether the lease is within what the cap is about, whichever policy let it be rented. In doubt it counts."""
    job = records.jobs.get(lease.evidence.job) if lease.evidence else None
    about_it = selects(cap.pools, rented_by(lease))
    if job is None or not about_it:
        whose = not cap.scope.owners or renter(records, lease) in (*cap.scope.owners, "")
        return lease.policy == cap.policy or (
            about_it and whose and admits_queue(cap.scope.queues, lease.queue)
        )
    labels = records.spec(job.spec_hash).labels
    return in_scope(cap.scope, queue=lease.queue, owner=job.owner, labels=labels)
