"""What was spent under a cap on money over its present period, from the ledger, in as many points as a drawing can use."""

from collections.abc import AsyncIterator

from federator.control.accounts.money import counted_in, spend_rows
from federator.control.queries.rows import budget_rows
from federator.control.record.records import Records
from federator.kernel.errors import NotFound
from federator.model.events import LedgerEntry, LedgerKind
from federator.model.rules import Period
from federator.planning.rules.periods import period_start
from federator.wire.http import BudgetRow, Spending, SpentPoint

MOST_POINTS = 120


def capped(records: Records, now: float, policy: str, period: str, share: str) -> BudgetRow:
    """The cap as a line; of several of a policy the first, unless period or share say which. Raises `NotFound`."""
    for row in budget_rows(records, now):
        if (
            row.policy == policy
            and period in ("", row.period)
            and share in ("", row.share)
            and row.period != Period.NOW
        ):
            return row
    raise NotFound(
        f"no cap of {policy!r} on money in a period", remedy="'federator budgets' shows those that there are"
    )


def since_of(records: Records, row: BudgetRow, now: float) -> float:
    """When its period began; of a total, when the first machine was rented or data moved that is on record."""
    if row.period != Period.TOTAL:
        return period_start(Period(row.period), now)
    begun = [lease.requested_at for lease in records.leases.values()]
    begun += [each.assigned_at for each in records.placements.values() if each.moves is not None]
    return min([*begun, now])


async def spending(
    records: Records, row: BudgetRow, lines: AsyncIterator[LedgerEntry], since: float, now: float
) -> Spending:
    """The curve up to now. A cap counts all of each machine that it counts at all, so it may begin above nothing: with what was billed before."""
    caps = [
        cap
        for cap in spend_rows(records)
        if (cap.policy, cap.period, cap.share) == (row.policy, row.period, row.share)
    ]
    leases, moved = counted_in(records, caps, now)
    step = max(1e-9, (now - since) / MOST_POINTS)
    buckets = [0.0] * MOST_POINTS
    async for line in lines:
        if line.kind is LedgerKind.MONEY and (line.lease in leases if line.lease else line.job in moved):
            buckets[min(MOST_POINTS - 1, max(0, int((line.at - since) / step)))] += line.usd
    spent = max(0.0, row.spent - sum(buckets))
    points = [SpentPoint(since, spent)]
    for number, usd in enumerate(buckets, start=1):
        spent += usd
        if usd or number == MOST_POINTS:
            if points[-1].at < since + (number - 1) * step:
                points.append(SpentPoint(since + (number - 1) * step, points[-1].usd))
            points.append(SpentPoint(since + number * step, spent))
    return Spending(cap=row, since=since, points=tuple(points))
