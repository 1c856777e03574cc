"""What the lists of money show: budgets with a bar of how full they are, burst policies, and rentals that wait for somebody."""

from msgspec.structs import replace
from rich.text import Text

from federator.cli.layout import Column
from federator.cli.phrases import NONE, plain, usd, when
from federator.wire.administration import BurstPolicyRow, ProposalRow
from federator.wire.http import BudgetRow, SpentPoint

BAR = 12
"""Letters of a bar."""


def budget_columns(now: float) -> tuple[Column[BudgetRow], ...]:
    """Money under caps: spent, committed, and what it comes to at the end of the period."""
    return (
        Column("POLICY", lambda row: row.policy),
        Column("FOR", lambda row: row.share or row.who or "all"),
        Column("PERIOD", lambda row: row.period),
        Column("UNIT", lambda row: row.unit, wide=True),
        Column("LIMIT", _limit, right=True),
        Column("SPENT", lambda row: _amount(row.spent), right=True),
        Column("COMMITTED", lambda row: _amount(row.committed), right=True),
        Column("LEFT", lambda row: _amount(row.limit - row.spent - row.committed), right=True),
        Column("USED", bar, least=100, whole=True),
        Column(
            "FORECAST",
            lambda row: NONE if row.forecast is None else _amount(row.forecast),
            right=True,
            least=115,
        ),
        Column("ENDS", lambda row: when(row.ends_at, now), right=True, least=120),
        Column("STOPS", lambda row: "yes" if row.hard else "only warns", wide=True),
    )


def spent_columns(cap: BudgetRow, now: float) -> tuple[Column[SpentPoint], ...]:
    """Money over time under one cap."""
    return (
        Column("WHEN", lambda point: when(point.at, now)),
        Column("SPENT", lambda point: _amount(point.usd), right=True),
        Column("USED", lambda point: bar(replace(cap, spent=point.usd, committed=0.0)), whole=True),
    )


def bar(row: BudgetRow) -> Text:
    """`#` for what is spent, `+` for what is committed, and how much both are of the limit."""
    share = (row.spent + row.committed) / row.limit if row.limit > 0 else 1.0
    spent = round(BAR * min(1.0, row.spent / row.limit)) if row.limit > 0 else BAR
    used = max(spent, round(BAR * min(1.0, share)))
    style = "red" if share >= 1 else "yellow" if share >= 0.8 else "green"
    drawn = "#" * spent + "+" * (used - spent) + "." * (BAR - used)
    return Text(f"[{drawn}] {share:.0%}", style=style)


def _limit(row: BudgetRow) -> str:
    limit = _amount(row.limit).removesuffix(".00")
    return limit if row.hard else f"({limit})"


def _amount(amount: float) -> str:
    return f"{amount:,.2f}"


def burst_columns(*, paused: bool) -> tuple[Column[BurstPolicyRow], ...]:
    """Burst policies."""
    return (
        Column("POLICY", lambda row: row.policy),
        Column("MODE", lambda row: f"{row.mode}, advises only" if row.advisory else row.mode),
        Column("NOW", lambda row: "outside its hours" if not row.open else "paused" if paused else "open"),
        Column("LEASES", lambda row: str(row.leases), right=True),
        Column("APPROVAL ABOVE", lambda row: usd(row.approval_above_usd), right=True, least=100),
        Column("WHO", lambda row: plain(row.who)),
        Column("WHERE", lambda row: plain(row.where), flow="cut"),
    )


def proposal_columns() -> tuple[Column[ProposalRow], ...]:
    """Rentals that a policy only advises, or that wait to be approved."""
    return (
        Column("PROPOSAL", lambda row: row.kind),
        Column("JOB", lambda row: row.job),
        Column("NAME", lambda row: row.name, cap=24),
        Column("OWNER", lambda row: row.owner, wide=True),
        Column("QUEUE", lambda row: row.queue, wide=True),
        Column("OFFER", lambda row: row.offer),
        Column("ABOUT", lambda row: usd(row.cost_usd), right=True),
        Column("AT WORST", lambda row: usd(row.worst_usd), right=True),
        Column("BECAUSE", lambda row: row.because, flow="cut"),
    )
