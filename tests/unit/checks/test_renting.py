"""Each limit on renting, broken alone: permission, justification, and money in the worst case."""

from typing import Any

import pytest
from msgspec.structs import replace

from federator.model.capacity import Market
from federator.model.plans import Plan, Severity
from federator.model.rules import (
    BurstMode,
    CapRow,
    CapUnit,
    Effect,
    Filter,
    Period,
    PoolSelector,
    Rule,
    Scope,
    Window,
)
from federator.model.snapshot import Problem, SpendView
from federator.planning.checks import check
from tests.support.worlds import (
    HOUR,
    NOW,
    a_job,
    a_lease,
    a_plan,
    a_world,
    an_offer,
    bursting,
    busy,
    placed,
    proof,
    rented,
    worst_usd,
)

IN_TIME: dict[str, Any] = {"deadline_at": NOW + 2 * HOUR}
WORST_USD = 10.0 * (540.0 + 7200.0 + 60.0) / 3600.0
"""Of the job and the offer that the builders make."""


def blamed(problem: Problem, plan: Plan) -> set[tuple[str, int]]:
    """Who is at fault, and for which promise."""
    return {(f.subject, f.promise) for f in check(problem, plan) if f.severity is Severity.FATAL}


def test_a_justified_rental_passes_without_a_word() -> None:
    job, offer = a_job(**IN_TIME), an_offer()
    assert check(a_world([job], offers=[offer], rules=[bursting()]), a_plan(rented(job, offer))) == ()


# -- The offer ---------------------------------------------------------------------------------------------------------


def test_an_offer_that_is_gone_is_found() -> None:
    job, offer = a_job(**IN_TIME), an_offer()
    assert blamed(a_world([job], rules=[bursting()]), a_plan(rented(job, offer))) == {("job-a", 4)}


def test_an_offer_is_rented_for_the_site_it_joins() -> None:
    job, offer = a_job(**IN_TIME), an_offer()
    wrong = rented(job, offer, site="home")
    assert blamed(a_world([job], offers=[offer], rules=[bursting()]), a_plan(wrong)) == {("job-a", 4)}


def test_an_offer_that_failed_lately_is_left_alone_until_its_time() -> None:
    job = a_job(**IN_TIME)
    for until, expected in ((NOW + 1.0, {("job-a", 4)}), (NOW, set())):
        offer = an_offer(avoid_until_at=until)
        world = a_world([job], offers=[offer], rules=[bursting()])
        assert blamed(world, a_plan(rented(job, offer))) == expected


def test_no_more_instances_are_rented_than_are_to_be_had() -> None:
    offer = an_offer(available=2)
    jobs = [a_job(f"job-{name}", **IN_TIME) for name in "abc"]
    world = a_world(jobs, offers=[offer], rules=[bursting()])
    assert blamed(world, a_plan(*(rented(job, offer) for job in jobs))) == {("job-c", 4)}


@pytest.mark.parametrize(
    "size",
    [
        {"gpus": 5},
        {"nodes": 2, "gpus": 3},
        {"nodes": 4, "gpus": 3, "machines": 3},
        {"cpus_milli": 65_000},
        {"memory_mib": 262_145},
    ],
)
def test_what_is_rented_must_hold_the_whole_gang(size: dict[str, Any]) -> None:
    machines = size.pop("machines", 1)
    job, offer = a_job(**IN_TIME, **size), an_offer()
    rent = rented(job, offer, machines=machines, committed_usd=machines * worst_usd(job, offer))
    assert blamed(a_world([job], offers=[offer], rules=[bursting()]), a_plan(rent)) == {("job-a", 3)}


@pytest.mark.parametrize(("machines", "promise"), [(2, None), (3, 6), (0, 4), (4, 4)])
def test_a_gang_is_given_as_many_instances_as_it_fills_and_no_more(
    machines: int, promise: int | None
) -> None:
    job, offer = a_job(**IN_TIME, nodes=2, gpus=3), an_offer(available=3)
    rent = rented(job, offer, machines=machines, committed_usd=machines * worst_usd(job, offer))
    found = blamed(a_world([job], offers=[offer], rules=[bursting()]), a_plan(rent))
    assert ("job-a", promise) in found if promise else not found


def test_each_instance_counts_for_caps_and_for_what_is_committed() -> None:
    job, offer = a_job(**IN_TIME, nodes=2, gpus=3), an_offer()
    worst = 2 * worst_usd(job, offer)
    right = rented(job, offer, machines=2, committed_usd=worst)
    for unit, limit in ((CapUnit.INSTANCES, 1.0), (CapUnit.USD_PER_H, 19.0), (CapUnit.USD, worst - 1.0)):
        period = Period.DAY if unit is CapUnit.USD else Period.NOW
        for spare, expected in ((0.0, {("job-a", 6)}), (1.0, set())):
            cap = CapRow("cap", unit, limit + spare, period=period)
            assert blamed(a_world([job], offers=[offer], rules=(bursting(), cap)), a_plan(right)) == expected
    short = rented(job, offer, machines=2, committed_usd=worst / 2)
    assert blamed(a_world([job], offers=[offer], rules=[bursting()]), a_plan(short)) == {("job-a", 6)}


def test_ranks_of_a_gang_may_share_the_instance() -> None:
    job, offer = a_job(**IN_TIME, nodes=2, gpus=2), an_offer()
    assert blamed(a_world([job], offers=[offer], rules=[bursting()]), a_plan(rented(job, offer))) == set()


# -- Permission --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wants",
    [
        {"models": ("H100",)},
        {"kinds": ("onprem",)},
        {"sites": ("home",)},
        {"not_sites": ("acme-eu",)},
        {"site_labels": {"gdpr": "yes"}},
        {"spot_policy": "spot"},
    ],
)
def test_an_offer_that_the_job_does_not_want_is_found(wants: dict[str, Any]) -> None:
    job, offer = a_job(**IN_TIME, **wants), an_offer()
    assert blamed(a_world([job], offers=[offer], rules=[bursting()]), a_plan(rented(job, offer))) == {
        ("job-a", 0)
    }


@pytest.mark.parametrize(
    "rules",
    [
        [],
        [bursting(scope=Scope(queues=("batch",)))],
        [bursting(scope=Scope(owners=("bob",)))],
        [bursting(scope=Scope(labels={"team": "x"}))],
        [bursting(pools=PoolSelector(providers=("other",)))],
        [bursting(pools=PoolSelector(markets=(Market.SPOT,)))],
        [bursting(window=Window(days=(2,)))],
        [bursting(max_price_usd_h=9.99)],
        [bursting(mode=BurstMode.OFF)],
        [bursting(), bursting("off", mode=BurstMode.OFF)],
        [bursting(), Filter("residency", Effect.DENY, pools=PoolSelector(kinds=("cloud",)))],
    ],
)
def test_renting_is_closed_unless_a_policy_opens_it_for_this_job_offer_hour_and_price(
    rules: list[Filter],
) -> None:
    job, offer = a_job(**IN_TIME), an_offer()
    assert blamed(a_world([job], offers=[offer], rules=rules), a_plan(rented(job, offer))) == {("job-a", 0)}


def test_a_policy_that_is_off_denies_only_in_its_hours() -> None:
    job, offer = a_job(**IN_TIME), an_offer()
    off = bursting("off", mode=BurstMode.OFF, window=Window(days=(2,)))
    world = a_world([job], offers=[offer], rules=[bursting(), off])
    assert blamed(world, a_plan(rented(job, offer))) == set()


def test_a_policy_that_admits_exactly_this_price_opens_it() -> None:
    job, offer = a_job(**IN_TIME), an_offer()
    world = a_world([job], offers=[offer], rules=[bursting(max_price_usd_h=10.0)])
    assert blamed(world, a_plan(rented(job, offer))) == set()


def test_nothing_is_rented_while_bursting_is_paused() -> None:
    job, offer = a_job(**IN_TIME), an_offer()
    world = a_world([job], offers=[offer], rules=[bursting()], burst_paused=True)
    assert blamed(world, a_plan(rented(job, offer))) == {("job-a", 0)}


# -- Justification -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        {"home_finish_at": NOW + 2 * HOUR},  # just in time at home
        {"burst_finish_at": NOW + 2 * HOUR + 2.0},  # too late even there
        {"burst_finish_at": NOW + HOUR},  # sooner than booting and running take
        {"deadline_at": NOW + HOUR},
        {"deadline_at": None},
        {"policy": "another"},
        {"mode": "always"},
    ],
)
def test_evidence_that_does_not_justify_or_is_not_true_is_found(said: dict[str, Any]) -> None:
    job, offer = a_job(**IN_TIME), an_offer()
    wrong = rented(job, offer, evidence=proof(job, offer, **said))
    assert blamed(a_world([job], offers=[offer], rules=[bursting()]), a_plan(wrong)) == {("job-a", 0)}


@pytest.mark.parametrize(
    ("fields", "risk", "justified"),
    [
        ({"run_low_s": HOUR / 2}, 0.2, True),
        ({"run_low_s": HOUR / 2}, 0.001, False),  # not worth the rent
        ({}, 0.2, False),  # a run that is certain
    ],
)
def test_what_is_in_time_at_home_is_rented_for_only_if_its_risk_is_worth_it(
    fields: dict[str, Any], risk: float, justified: bool
) -> None:
    job, offer = a_job(**{**IN_TIME, **fields}), an_offer()
    said = proof(job, offer, home_finish_at=NOW + 1.9 * HOUR, home_risk=risk, value_usd=100.0, cost_usd=15.0)
    found = blamed(
        a_world([job], offers=[offer], rules=[bursting()]), a_plan(rented(job, offer, evidence=said))
    )
    assert found == (set() if justified else {("job-a", 0)})


def test_evidence_about_another_job_is_found() -> None:
    job, offer = a_job(**IN_TIME), an_offer()
    wrong = rented(job, offer, evidence=replace(proof(job, offer), job="job-b"))
    assert blamed(a_world([job], offers=[offer], rules=[bursting()]), a_plan(wrong)) == {("job-a", 0)}


def test_a_miss_at_home_that_the_offer_prevents_justifies() -> None:
    job, offer = a_job(**IN_TIME), an_offer()
    right = rented(job, offer, evidence=proof(job, offer, home_finish_at=NOW + 2 * HOUR + 1.0))
    assert blamed(a_world([job], offers=[offer], rules=[bursting()]), a_plan(right)) == set()


def test_a_faster_model_finishes_sooner_and_that_is_true() -> None:
    job, offer = a_job(**IN_TIME, speed={"A100": 2.0}), an_offer()
    quick = rented(job, offer, evidence=proof(job, offer, burst_finish_at=NOW + 540.0 + HOUR / 2))
    assert blamed(a_world([job], offers=[offer], rules=[bursting()]), a_plan(quick)) == set()


@pytest.mark.parametrize("mode", [BurstMode.ECONOMIC, None])
def test_without_a_deadline_only_a_policy_for_waiting_rents(mode: BurstMode | None) -> None:
    job, offer = a_job(), an_offer()
    plan = a_plan(rented(job, offer))
    assert blamed(a_world([job], offers=[offer], rules=[bursting(mode=mode)]), plan) == {("job-a", 0)}
    assert (
        blamed(a_world([job], offers=[offer], rules=[bursting(mode=mode, for_waiting=True)]), plan) == set()
    )


def test_a_threshold_rents_after_its_wait_and_not_before() -> None:
    job, offer = a_job(), an_offer()  # has waited for ten minutes
    plan = a_plan(rented(job, offer, evidence=proof(job, offer, mode="threshold")))
    for after_wait_s, expected in ((600.0, set()), (660.0, {("job-a", 0)})):
        rule = bursting(mode=BurstMode.THRESHOLD, after_wait_s=after_wait_s)
        assert blamed(a_world([job], offers=[offer], rules=[rule]), plan) == expected


def test_a_policy_that_always_rents_needs_no_other_reason() -> None:
    job, offer = a_job(), an_offer()
    plan = a_plan(rented(job, offer, evidence=proof(job, offer, mode="always")))
    assert blamed(a_world([job], offers=[offer], rules=[bursting(mode=BurstMode.ALWAYS)]), plan) == set()


# -- Promise 6: budgets ------------------------------------------------------------------------------------------------


def test_the_worst_case_is_what_boot_limit_and_teardown_cost() -> None:
    job, offer = a_job(**IN_TIME), an_offer()
    world = a_world([job], offers=[offer], rules=[bursting()])
    assert worst_usd(job, offer) == pytest.approx(WORST_USD)
    assert blamed(world, a_plan(rented(job, offer, committed_usd=WORST_USD))) == set()
    assert blamed(world, a_plan(rented(job, offer, committed_usd=WORST_USD - 0.01))) == {("job-a", 6)}


@pytest.mark.parametrize("late", [{"grace_s": 360.0}, {"slack_s": 360.0}])
def test_the_worst_case_holds_the_grace_and_what_may_be_late(late: dict[str, float]) -> None:
    """Six minutes more are a dollar more."""
    job = a_job(**IN_TIME, grace_s=late.get("grace_s", 0.0))
    offer = an_offer(slack_s=late.get("slack_s", 0.0))
    world = a_world([job], offers=[offer], rules=[bursting()])
    assert blamed(world, a_plan(rented(job, offer, committed_usd=WORST_USD + 1.0))) == set()
    assert blamed(world, a_plan(rented(job, offer, committed_usd=WORST_USD + 0.99))) == {("job-a", 6)}


def test_the_worst_case_is_never_less_than_the_minimum_billed() -> None:
    job, offer = a_job(**IN_TIME), an_offer(minimum_billing_s=10 * HOUR)
    world = a_world([job], offers=[offer], rules=[bursting()])
    assert blamed(world, a_plan(rented(job, offer, committed_usd=99.0))) == {("job-a", 6)}
    assert blamed(world, a_plan(rented(job, offer, committed_usd=100.0))) == set()


def test_nothing_is_rented_for_a_job_that_nothing_would_end() -> None:
    job, offer = a_job(**IN_TIME, max_duration_s=None), an_offer()
    plan = a_plan(rented(job, offer, committed_usd=1e9))
    assert blamed(a_world([job], offers=[offer], rules=[bursting()]), plan) == {("job-a", 6)}


def test_what_a_job_has_spent_counts_against_its_own_cap() -> None:
    offer = an_offer()
    for spent_usd, expected in ((0.0, set()), (1.0, {("job-a", 6)})):
        job = a_job(**IN_TIME, max_cost_usd=WORST_USD + 0.5, spent_usd=spent_usd)
        assert (
            blamed(a_world([job], offers=[offer], rules=[bursting()]), a_plan(rented(job, offer))) == expected
        )


def test_a_budget_counts_what_is_spent_committed_and_rented_by_earlier_actions() -> None:
    offer = an_offer()
    jobs = [a_job("job-a", **IN_TIME), a_job("job-b", **IN_TIME)]
    plan = a_plan(*(rented(job, offer) for job in jobs))
    spend = SpendView("budget", "day", 10.0, 5.0)
    other = SpendView("budget", "month", 1000.0, 0.0)
    for limit, expected in ((15.0 + 2 * WORST_USD, set()), (15.0 + 2 * WORST_USD - 0.1, {("job-b", 6)})):
        cap = CapRow("budget", CapUnit.USD, limit, period=Period.DAY)
        world = a_world(jobs, offers=[offer], rules=[bursting(), cap], spend=[spend, other])
        assert blamed(world, plan) == expected


def test_a_budget_counts_what_the_plan_commits_where_that_is_more() -> None:
    job, offer = a_job(**IN_TIME), an_offer()
    cap = CapRow("budget", CapUnit.USD, 2 * WORST_USD)
    plan = a_plan(rented(job, offer, committed_usd=2 * WORST_USD + 1.0))
    assert blamed(a_world([job], offers=[offer], rules=[bursting(), cap]), plan) == {("job-a", 6)}


def test_a_budget_of_another_queue_is_not_touched() -> None:
    job, offer = a_job(**IN_TIME), an_offer()
    cap = CapRow("budget", CapUnit.USD, 0.0, scope=Scope(queues=("batch",)))
    assert (
        blamed(a_world([job], offers=[offer], rules=[bursting(), cap]), a_plan(rented(job, offer))) == set()
    )


@pytest.mark.parametrize(("unit", "limit"), [(CapUnit.USD_PER_H, 20.0), (CapUnit.INSTANCES, 2)])
def test_rate_and_instances_count_leases_and_earlier_rentals(unit: CapUnit, limit: float) -> None:
    offer, lease = an_offer(), a_lease(busy=(busy("pl-0", "job-0"),))  # 10 USD an hour each
    jobs = [a_job("job-a", **IN_TIME), a_job("job-b", **IN_TIME)]
    plan = a_plan(*(rented(job, offer) for job in jobs))
    world = a_world(jobs, [lease], [offer], [bursting(), CapRow("burst", unit, limit)])
    assert blamed(world, plan) == {("job-b", 6)}


@pytest.mark.parametrize(("unit", "limit"), [(CapUnit.USD_PER_H, 10.0), (CapUnit.INSTANCES, 1)])
def test_a_lease_counts_for_the_queue_it_was_rented_for(unit: CapUnit, limit: float) -> None:
    job, offer = a_job(**IN_TIME), an_offer()
    cap = CapRow("burst", unit, limit, scope=Scope(queues=("research",)))
    for queue, expected in (("batch", set()), ("research/nlp", {("job-a", 6)}), ("", {("job-a", 6)})):
        world = a_world([job], [a_lease(rented_queue=queue, ready_at=NOW + 60.0)], [offer], [bursting(), cap])
        assert blamed(world, a_plan(rented(job, offer))) == expected


def test_quotas_hold_for_rented_gpus_too() -> None:
    job, offer = a_job(**IN_TIME), an_offer()
    world = a_world([job], offers=[offer], rules=[bursting(), CapRow("quota", CapUnit.GPUS, 0)])
    assert blamed(world, a_plan(rented(job, offer))) == {("job-a", 5)}


def test_using_a_lease_adds_nothing_to_rate_and_instances() -> None:
    job, lease = a_job(), a_lease()
    rules: list[Rule] = [
        bursting(),
        CapRow("burst", CapUnit.USD_PER_H, 10.0),
        CapRow("burst", CapUnit.INSTANCES, 1),
    ]
    assert blamed(a_world([job], [lease], rules=rules), a_plan(placed(job, lease))) == set()
