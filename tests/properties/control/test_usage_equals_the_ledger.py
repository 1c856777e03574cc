"""Chargeback may not differ from the ledger: whatever is grouped by, rows add up to what the ledger says, to the cent."""

from collections.abc import AsyncIterator
from decimal import Decimal
from fractions import Fraction
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from federator.control.queries.usage_report import UsageSums, add_lines, whole_cents
from federator.model.events import LedgerEntry, LedgerKind
from federator.wire.usage import KEYS, Key, UsageRow
from tests.support.examples import examples

NAMES = st.sampled_from(["", "ada", "ben", "vision/train"])
AMOUNTS = st.one_of(st.just(0.0), st.floats(0.0, 1e5), st.sampled_from([0.005, 0.004999, 1 / 3, 0.015, 1e-9]))
UNTIL_AT = 1_800_000_000.0
LINES = st.builds(
    LedgerEntry,
    id=st.just("le-1"),
    at=st.floats(UNTIL_AT - 1e7, UNTIL_AT + 1e4),
    kind=st.sampled_from(LedgerKind),
    who=st.just("dispatcher"),
    what=st.just("x"),
    queue=NAMES,
    owner=NAMES,
    team=NAMES,
    site=NAMES,
    model=NAMES,
    market=st.sampled_from(["owned", "spot", "on-demand", ""]),
    gpu_s=st.floats(0.0, 1e6),
    usd=AMOUNTS,
    power_usd=AMOUNTS,
    egress_gib=st.sampled_from([0.0, 2.5]),
)


async def _each(lines: list[LedgerEntry]) -> AsyncIterator[LedgerEntry]:
    for line in lines:
        yield line


def _cents(usd: float) -> int:
    """Of an amount that must be whole cents."""
    cents = Decimal(str(usd)) * 100
    assert cents == cents.to_integral_value(), usd
    return int(cents)


@settings(max_examples=examples(100))
@given(st.lists(LINES, max_size=40), st.lists(st.sampled_from(KEYS), max_size=3))
async def test_rows_add_up_to_the_ledger(lines: list[LedgerEntry], by: list[Key]) -> None:
    sums = UsageSums(by)
    ordered = sorted(lines, key=lambda line: line.at)
    await add_lines(sums, _each(ordered), lambda line: line.team, lambda *_: True, UNTIL_AT)
    report = sums.report(whose="everybody", since=0.0, until=UNTIL_AT)
    counted = [line for line in lines if line.at < UNTIL_AT]
    exact = sum((Fraction(line.usd) for line in counted), Fraction(0))
    assert abs(sum(_cents(row.usd) for row in report.rows) - exact * 100) <= Fraction(501, 1000)
    assert _cents(report.total.usd) == sum(_cents(row.usd) for row in report.rows)
    for row in (*report.rows, report.total):
        assert _cents(row.usd) == _cents(row.owned_usd) + _cents(row.rented_usd) + _cents(row.data_usd)
    power = sum((Fraction(line.power_usd) for line in counted if line.usd or line.gpu_s), Fraction(0))
    assert abs(_cents(report.total.power_usd) - power * 100) <= Fraction(501, 1000)
    assert _cents(report.total.power_usd) == sum(_cents(row.power_usd) for row in report.rows)
    seconds = sum(line.gpu_s for line in counted)
    assert abs(sum(row.gpu_s for row in report.rows) - seconds) <= 1e-6 * (1 + seconds)
    keys = [tuple(getattr(row, key) for key in KEYS) for row in report.rows]
    assert len(set(keys)) == len(keys)


@settings(max_examples=examples(100))
@given(st.lists(st.integers(0, 10**12), max_size=30))
def test_cents_are_given_out_whole_and_to_the_nearest(amounts: list[int]) -> None:
    cents = whole_cents(amounts)
    assert sum(cents) == round(sum(amounts) / 10**7)
    assert all(abs(cent * 10**7 - amount) < 10**7 for cent, amount in zip(cents, amounts, strict=True))


async def test_a_group_has_its_own_lines() -> None:
    """Two teams, two months; rent, data and owned time apart."""
    november, december = 1_763_000_000.0, 1_765_000_000.0
    line = partial(LedgerEntry, id="le-1", who="dispatcher", what="x", owner="ada")
    use, money = LedgerKind.USAGE, LedgerKind.MONEY
    lines = [
        line(
            at=november,
            kind=use,
            team="vision",
            market="owned",
            gpu_s=3600.0,
            usd=1.004,
            energy_kwh=0.5,
            power_usd=0.15,
            co2_kg=0.2,
        ),
        line(at=november, kind=money, team="vision", market="spot", usd=2.004),
        line(at=november, kind=use, team="vision", market="spot", gpu_s=1800.0, energy_kwh=0.25),
        line(at=november, kind=money, team="speech", market="spot", usd=0.5, egress_gib=3.0),
        line(at=december, kind=money, team="vision", market="spot", usd=4.0),
    ]
    sums = UsageSums(("team", "month"))
    await add_lines(sums, _each(lines), lambda line: line.team, lambda *_: True, UNTIL_AT)
    report = sums.report(whose="everybody", since=0.0, until=UNTIL_AT)
    assert report.rows == (
        UsageRow(team="speech", month="2025-11", data_usd=0.5, usd=0.5),
        UsageRow(
            team="vision",
            month="2025-11",
            gpu_s=5400.0,
            rented_gpu_s=1800.0,
            owned_usd=1.01,
            rented_usd=2.0,
            usd=3.01,
            energy_kwh=0.75,
            power_usd=0.15,
            co2_kg=0.2,
        ),
        UsageRow(team="vision", month="2025-12", rented_usd=4.0, usd=4.0),
    )
    assert report.total.usd == 7.51, "what electricity costs is no part of it"
    assert (report.total.energy_kwh, report.total.power_usd, report.total.co2_kg) == (0.75, 0.15, 0.2)


async def test_a_day_has_what_was_used_on_it() -> None:
    """In UTC, as a month is."""
    evening, midnight = 1_764_547_199.0, 1_764_547_200.0
    line = partial(
        LedgerEntry, id="le-1", kind=LedgerKind.MONEY, who="dispatcher", what="x", owner="ada", market="spot"
    )
    sums = UsageSums(("day", "month"))
    lines = [line(at=evening, usd=1.0), line(at=midnight, usd=2.0), line(at=midnight + 5.0, usd=3.0)]
    await add_lines(sums, _each(lines), lambda line: line.team, lambda *_: True, UNTIL_AT)
    found = [(row.day, row.month, row.usd) for row in sums.report(whose="me", since=0.0, until=UNTIL_AT).rows]
    assert found == [("2025-11-30", "2025-11", 1.0), ("2025-12-01", "2025-12", 5.0)]
