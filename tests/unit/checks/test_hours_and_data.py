"""Calendars, hours and moved data, each broken alone: the checker blames the job that starts where it may not, or that costs more than it may."""

import pytest
from msgspec.structs import replace

from federator.model.datasets import DatasetRule, Link, LinkRule, Moves, Spot
from federator.model.jobs import Input
from federator.model.plans import Plan, Severity
from federator.model.rules import (
    CapRow,
    CapUnit,
    Effect,
    Filter,
    Opening,
    Period,
    PoolSelector,
    Rule,
    Scope,
    Window,
)
from federator.model.snapshot import Problem
from federator.planning.checks import check
from tests.support.worlds import (
    HOUR,
    NOW,
    a_job,
    a_plan,
    a_pool,
    a_world,
    an_offer,
    bursting,
    placed,
    rented,
    worst_usd,
)

TO_11_PM = Window(from_minute=1200, to_minute=1380)
"""It is 22:13:20 on a Tuesday: this closes in 46 minutes and 40 seconds."""
MONDAYS = Window(days=(0,))
SIZE, TAKES_S = 100 * 10**9, 800.0
"""Bytes, and how long they take at a gigabit a second."""


def blamed(problem: Problem, plan: Plan) -> set[tuple[str, int]]:
    """Who is at fault, and for which promise."""
    return {(f.subject, f.promise) for f in check(problem, plan) if f.severity is Severity.FATAL}


@pytest.mark.parametrize(
    ("opening", "run_h", "saves", "found"),
    [
        (Opening("nights", PoolSelector(), windows=(TO_11_PM,)), 1.0, False, False),
        (Opening("nights", PoolSelector(), windows=(MONDAYS,)), 0.1, True, True),
        (Opening("nights", PoolSelector(), windows=(MONDAYS, TO_11_PM)), 0.1, True, False),
        (Opening("nights", PoolSelector(), closed=(TO_11_PM,)), 0.1, True, True),
        (Opening("nights", PoolSelector(sites=("edge",)), closed=(TO_11_PM,)), 0.1, True, False),
        (Opening("nights", PoolSelector(), windows=(TO_11_PM,), stops=True), 0.7, False, False),
        (Opening("nights", PoolSelector(), windows=(TO_11_PM,), stops=True), 0.8, False, True),
        (Opening("nights", PoolSelector(), windows=(TO_11_PM,), stops=True), 0.8, True, False),
        (Opening("ever", PoolSelector(), closed=(Window(until_at=NOW),)), 0.1, False, False),
        (
            Opening(
                "soon", PoolSelector(), closed=(Window(first_at=NOW + 9, until_at=NOW + 11),), stops=True
            ),
            0.1,
            False,
            True,
        ),
        (
            Opening("far", PoolSelector(), closed=(Window(first_at=NOW + 240 * HOUR),), stops=True),
            241.0,
            False,
            True,
        ),
        (
            Opening("show", PoolSelector(), closed=(TO_11_PM,), but_for=Scope(queues=("other",))),
            0.1,
            True,
            True,
        ),
        (
            Opening("show", PoolSelector(), closed=(TO_11_PM,), but_for=Scope(owners=("ada",))),
            0.1,
            True,
            False,
        ),
    ],
)
def test_a_place_takes_work_while_its_calendar_is_open_and_what_it_would_stop_only_if_that_ends_before(
    opening: Opening, run_h: float, saves: bool, found: bool
) -> None:
    job, pool = a_job(run_s=run_h * HOUR, max_duration_s=None, saves=saves), a_pool()
    problem = a_world([job], [pool], rules=[opening])
    assert blamed(problem, a_plan(placed(job, pool))) == ({("job-a", 0)} if found else set())


def test_a_rule_that_has_a_first_and_a_last_moment_holds_between_them() -> None:
    job, pool = a_job(), a_pool()
    for window, denied in (
        (Window(first_at=NOW), True),
        (Window(first_at=NOW + 1.0), False),
        (Window(until_at=NOW + 1.0), True),
        (Window(until_at=NOW), False),
    ):
        problem = a_world([job], [pool], rules=[Filter("event", Effect.DENY, window=window)])
        assert blamed(problem, a_plan(placed(job, pool))) == ({("job-a", 0)} if denied else set())


def test_what_moving_its_data_costs_counts_for_budgets_at_home_and_away() -> None:
    """100 GB at 9 cents each."""
    data = DatasetRule("data", "s3://data", SIZE, (Spot("store"),), {})
    links = LinkRule("links", None, Link(1.0, 0.09), ())
    job, pool, offer = a_job(inputs=(Input("s3://data"),)), a_pool(), an_offer()
    moves = Moves(moved_bytes=SIZE, seconds=TAKES_S, usd=9.0, source="store")
    at_home = placed(job, pool, moves=moves)
    rent_usd = worst_usd(replace(job, max_duration_s=(job.max_duration_s or 0.0) + TAKES_S), offer)
    away = rented(job, offer, moves=moves, committed_usd=rent_usd)
    for action, usd in ((at_home, 9.0), (away, 9.0 + rent_usd)):
        for cap_usd in (usd, usd - 0.1):
            cap = CapRow("budget", CapUnit.USD, cap_usd, period=Period.DAY)
            rules: list[Rule] = [data, links, cap, bursting(for_waiting=True)]
            found = blamed(a_world([job], [pool], [offer], rules), a_plan(action))
            assert found == (set() if cap_usd == usd else {("job-a", 6)}), (action, cap_usd)
    wrong = replace(at_home, moves=replace(moves, usd=1.0))
    assert blamed(a_world([job], [pool], [offer], [data, links]), a_plan(wrong)) == {("job-a", 6)}
