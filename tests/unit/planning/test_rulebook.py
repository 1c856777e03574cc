"""Rules are looked up one way: hours of the week, the most specific queue, what ages and what is added."""

from datetime import UTC, datetime

import pytest

from federator.model.rules import (
    Effect,
    Filter,
    GuaranteeRow,
    PoolSelector,
    PriceKind,
    PriceTerm,
    Scope,
    Window,
)
from federator.planning.places.candidates import of_offer, of_pool
from federator.planning.rules.openings import open_at
from federator.planning.rules.rulebook import DEFAULT_MISS_USD_GPU_H, MUST_USD, RuleBook
from tests.support.worlds import HOUR, NOW, a_job, a_pool, an_offer, bursting


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("moment", "open_"),
    [
        ("2026-11-23T08:59", False),
        ("2026-11-23T09:00", True),
        ("2026-11-23T16:59", True),
        ("2026-11-23T17:00", False),
        ("2026-11-28T12:00", False),
    ],
)
def test_a_window_is_of_days_and_minutes_with_its_end_outside(moment: str, open_: bool) -> None:
    assert open_at(Window(days=(0, 1, 2, 3, 4), from_minute=540, to_minute=1020), at(moment)) is open_


@pytest.mark.parametrize(
    ("moment", "open_"), [("2026-11-23T23:00", True), ("2026-11-24T05:59", True), ("2026-11-24T06:00", False)]
)
def test_a_window_past_midnight_belongs_to_the_day_it_begins_on(moment: str, open_: bool) -> None:
    assert open_at(Window(days=(0,), from_minute=1320, to_minute=360), at(moment)) is open_


def test_without_a_window_a_rule_always_holds() -> None:
    assert open_at(None, NOW)


def test_a_denial_outside_its_hours_is_none() -> None:
    rule = Filter("night", Effect.DENY, window=Window(days=(0,)))
    assert RuleBook([rule], at("2026-11-23T12:00")).denial(a_job(), of_pool(a_pool())) is rule
    assert RuleBook([rule], at("2026-11-24T12:00")).denial(a_job(), of_pool(a_pool())) is None


def test_value_is_the_users_then_the_most_specific_queues_then_the_default() -> None:
    job = a_job(gpus=2, deadline_at=NOW + HOUR)
    prices = [
        PriceTerm("a", PriceKind.MISS, 7.0),
        PriceTerm("b", PriceKind.MISS, 3.0, scope=Scope(queues=("research/vision",))),
        PriceTerm("c", PriceKind.MISS, 5.0, scope=Scope(queues=("research",))),
    ]
    assert RuleBook(prices, NOW).value_usd(job) == pytest.approx(6.0)
    assert RuleBook(prices[::2], NOW).value_usd(job) == pytest.approx(10.0)
    assert RuleBook([], NOW).value_usd(job) == pytest.approx(2 * DEFAULT_MISS_USD_GPU_H)
    assert RuleBook(prices, NOW).value_usd(a_job(deadline_at=NOW, value_usd=1.5)) == 1.5
    assert RuleBook(prices, NOW).value_usd(a_job(deadline_at=NOW, must=True)) == MUST_USD
    assert RuleBook(prices, NOW).value_usd(a_job(value_usd=9.0)) == 0.0


def test_waiting_costs_by_size_priority_age_and_who_waits() -> None:
    book = RuleBook([PriceTerm("w", PriceKind.WAIT, 0.1)], NOW)
    assert book.wait_usd_h(a_job(gpus=4, submitted_at=NOW)) == pytest.approx(0.4)
    assert book.wait_usd_h(a_job(gpus=4, priority=75, submitted_at=NOW)) == pytest.approx(0.8)
    assert book.wait_usd_h(a_job(gpus=4, submitted_at=NOW - 25 * HOUR)) == pytest.approx(0.8)
    assert book.wait_usd_h(a_job(gpus=4, interactive=True, submitted_at=NOW)) == pytest.approx(4.0)
    assert (
        0
        < book.wait_usd_h(a_job(gpus=0, submitted_at=NOW))
        < book.wait_usd_h(a_job(gpus=1, submitted_at=NOW))
    )


def test_a_price_of_who_waits_is_the_same_for_one_gpu_and_for_many() -> None:
    """It comes on top of the price by GPUs, and counts more with age and priority as that does."""
    book = RuleBook([PriceTerm("w", PriceKind.WAIT, 0.1), PriceTerm("w", PriceKind.WAIT_JOB, 2.0)], NOW)
    assert book.wait_usd_h(a_job(gpus=1, submitted_at=NOW)) == pytest.approx(2.1)
    assert book.wait_usd_h(a_job(gpus=4, submitted_at=NOW)) == pytest.approx(2.4)
    assert book.wait_usd_h(a_job(gpus=4, nodes=8, submitted_at=NOW)) == pytest.approx(5.2)
    assert book.wait_usd_h(a_job(gpus=4, priority=75, interactive=True, submitted_at=NOW)) == pytest.approx(
        48.0
    )


def test_a_surcharge_is_added_where_it_is_meant() -> None:
    book = RuleBook([PriceTerm("p", PriceKind.POOL, 2.0, pools=PoolSelector(kinds=("cloud",)))], NOW)
    assert book.surcharge_usd_gpu_h(a_job(), of_offer(an_offer())) == 2.0
    assert book.surcharge_usd_gpu_h(a_job(), of_pool(a_pool())) == 0.0


def test_a_borrowing_limit_is_a_cap_on_owned_gpus() -> None:
    (row,) = RuleBook([GuaranteeRow("q", "prod", 4, borrowing_limit=2)], NOW).caps
    assert row.limit == 6.0
    assert of_pool(a_pool()).selected_by(row.pools)
    assert not of_offer(an_offer()).selected_by(row.pools)


def test_a_permit_outside_its_hours_is_known_but_not_in_force() -> None:
    rule = bursting(window=Window(days=(0,)))
    book = RuleBook([rule], at("2026-11-24T12:00"))
    assert book.permits_for(a_job(), of_offer(an_offer())) == [rule]
    assert not book.in_force(rule)
