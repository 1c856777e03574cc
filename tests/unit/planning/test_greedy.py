"""What greedy commits to: whole gangs, sound actions, rentals that pay, preemption that is owed, a reason for everybody."""

from typing import Any

import pytest

from federator.model.capacity import Market, Shape
from federator.model.plans import Place, Preempt, Rent
from federator.model.rules import (
    BurstMode,
    CapRow,
    CapUnit,
    GuaranteeRow,
    PreemptRule,
    PriceKind,
    PriceTerm,
    Scope,
)
from federator.model.snapshot import BusyView, PoolView
from federator.planning.checks import check
from federator.planning.places.candidates import of_pool
from federator.planning.plans.greedy import drop_needless, plan_greedily
from federator.planning.rules.rulebook import RuleBook
from federator.planning.scheduling import list_schedule
from federator.planning.scheduling.objective import Evaluator
from federator.planning.wording.told import told_plan, told_waiting
from federator.planning.world.prices import cost
from federator.planning.world.problem import World
from tests.support.worlds import HOUR, NOW, a_job, a_lease, a_pool, a_world, an_offer, bursting, busy, changed


def full(hours: float = 2.0, **fields: object) -> PoolView:
    """A host of four GPUs, all in use."""
    running = busy("p", "j", gpus=4, cpus_milli=1000, memory_mib=1024, ends_at=NOW + hours * HOUR, **fields)
    return a_pool(nodes=1, busy=(running,), free=(Shape(0, 63_000, 261_120),))


def test_a_place_names_member_session_revision_and_price() -> None:
    plan = plan_greedily(
        a_world([a_job("gang", nodes=2, gpus=4, revision=9)], [a_pool(price_usd_gpu_h=0.5)]), seed=4
    )
    (action,) = plan.actions
    assert isinstance(action, Place)
    assert action.members == ("home-1", "home-1")
    assert (action.sessions, action.revision, action.price_usd_gpu_h) == (("session-home",) * 2, 9, 0.5)
    assert (action.expected_start_at, action.expected_end_at) == (NOW, NOW + HOUR)
    assert (plan.seed, plan.winner, plan.decision) == (4, "greedy", "dec-1")


def test_every_waiting_job_has_a_reason() -> None:
    jobs = [a_job(f"job-{n}", gpus=4, nodes=1 + n % 3) for n in range(9)] + [a_job("odd", models=("X",))]
    plan = plan_greedily(a_world(jobs, [a_pool()]))
    placed = {action.job for action in plan.actions}
    assert {waiting.job for waiting in plan.waiting} == {job.id for job in jobs} - placed
    assert all(waiting.because for waiting in told_plan(plan).waiting)


def test_the_objective_is_the_sum_of_its_terms() -> None:
    jobs = [a_job(f"job-{n}", gpus=4, deadline_at=NOW + 1.5 * HOUR) for n in range(5)]
    plan = plan_greedily(a_world(jobs, [a_pool(price_usd_gpu_h=0.2)]))
    assert plan.objective_usd == pytest.approx(sum(plan.terms.values()))
    assert plan.terms["miss"] == pytest.approx(3 * 4 * 12.0)


def test_a_rent_commits_its_worst_case_and_brings_its_evidence() -> None:
    job = a_job("tight", gpus=4, deadline_at=NOW + 1.2 * HOUR)
    (action,) = plan_greedily(a_world([job], [full()], [an_offer()], [bursting()])).actions
    assert isinstance(action, Rent)
    assert action.committed_usd == pytest.approx(10.0 * (540 + 2 * HOUR + 60) / HOUR)
    assert action.evidence.cost_usd == pytest.approx(10.0 * (540 + HOUR + 60) / HOUR)
    assert action.evidence.value_usd == pytest.approx(48.0)
    assert action.evidence.home_finish_at == NOW + 3 * HOUR
    assert (action.evidence.mode, action.evidence.policy) == ("economic", "burst")


def test_the_cheapest_offer_that_is_in_time_is_rented() -> None:
    offers = [
        an_offer("dear", price_usd_h=20.0),
        an_offer("cheap", price_usd_h=10.0),
        an_offer("slow", price_usd_h=1.0, delay_s=1200.0),
    ]
    job = a_job("tight", gpus=4, deadline_at=NOW + 1.2 * HOUR)
    (action,) = plan_greedily(a_world([job], [full()], offers, [bursting()])).actions
    assert isinstance(action, Rent)
    assert action.offer == "cheap"


def test_spot_is_rented_only_while_there_is_time_to_start_again() -> None:
    spot = an_offer("spot", market=Market.SPOT, price_usd_h=3.0)
    job = a_job("tight", gpus=4, deadline_at=NOW + 4600)
    (waiting,) = plan_greedily(a_world([job], [full()], [spot, an_offer()], [bursting()])).waiting
    assert "would rent acme/eu/4xA100" in told_waiting(waiting, NOW).because
    relaxed = a_job("relaxed", gpus=4, deadline_at=NOW + 9100)
    (waiting,) = plan_greedily(a_world([relaxed], [full(9.0)], [spot, an_offer()], [bursting()])).waiting
    assert "would rent acme/spot" in told_waiting(waiting, NOW).because


def test_a_rental_that_would_not_pay_is_not_put_off_either() -> None:
    job = a_job("cheap", gpus=4, deadline_at=NOW + 2 * HOUR, value_usd=1.0)
    plan = plan_greedily(a_world([job], [full()], [an_offer()], [bursting()]))
    assert plan.waiting[0].kind == "capacity"
    assert plan.wake_at is None


def test_no_gpu_idles_for_a_rental_that_would_not_pay() -> None:
    slow = a_pool("slow", model="T4")
    job = a_job("cheap", gpus=4, speed={"T4": 0.25}, deadline_at=NOW + 2 * HOUR, value_usd=1.0)
    (action,) = plan_greedily(a_world([job], [full(), slow], [an_offer()], [bursting()])).actions
    assert isinstance(action, Place)
    assert action.site == "slow"
    worth_it = a_job("dear", gpus=4, speed={"T4": 0.25}, deadline_at=NOW + 2 * HOUR, value_usd=90.0)
    (waiting,) = plan_greedily(a_world([worth_it], [full(), slow], [an_offer()], [bursting()])).waiting
    assert waiting.kind == "later"


def test_a_cheaper_rental_now_is_taken_before_a_dearer_one_later() -> None:
    slow = an_offer("slow", price_usd_h=2.0, delay_s=3000.0)
    job = a_job("due", gpus=4, deadline_at=NOW + 3000 + HOUR + 30)
    (action,) = plan_greedily(a_world([job], [full()], [slow, an_offer()], [bursting()])).actions
    assert isinstance(action, Rent)
    assert action.offer == "slow"


def test_a_rental_forced_on_a_job_that_home_has_room_for_is_dropped() -> None:
    world = World(a_world([a_job("one")], [a_pool()], [an_offer()], [bursting(mode=BurstMode.ALWAYS)]))
    offer = next(n for n, place in enumerate(world.places) if place.offer is not None)
    evaluator = Evaluator(world)
    chosen = drop_needless(evaluator, evaluator.score({"one": offer}))
    assert not chosen.rents
    assert world.places[chosen.starts["one"]].site == "home"


def test_a_rental_is_not_taken_back_for_what_starts_beside_it_anyway() -> None:
    """The second gang gets the rented machine once the first one's start is settled, with the rental or without it."""
    host: dict[str, Any] = {"model": "H100", "nodes": 1, "gpus_per_node": 2}
    gangs = [
        a_job(
            name, queue="research", nodes=2, run_s=1800.0, run_low_s=900.0, run_high_s=HOUR, speed={"H100": 2.0},
            deadline_at=NOW + 1740.0, must=True,
        )
        for name in ("gang-0", "gang-1")
    ]  # fmt: skip
    bursts = a_job("bursts", queue="own", models=("B2",), deadline_at=NOW + HOUR + 620.0, value_usd=500.0)
    problem = a_world(
        [*gangs, bursts],
        [a_pool(**host), a_lease(price_usd_gpu_h=0.0, **host)],
        [an_offer("own-offer", model="B2", site="own-cloud", available=1)],
        [bursting()],
    )
    assert {action.job for action in plan_greedily(problem).actions} == {"gang-0", "gang-1", "bursts"}


def test_two_jobs_never_rent_more_than_is_to_be_had() -> None:
    jobs = [a_job(f"tight-{n}", gpus=4, deadline_at=NOW + 1.2 * HOUR) for n in range(3)]
    plan = plan_greedily(a_world(jobs, [full()], [an_offer(available=2)], [bursting()]))
    assert len([a for a in plan.actions if isinstance(a, Rent)]) == 2


def test_caps_on_instances_count_what_is_rented_already() -> None:
    job = a_job("tight", gpus=4, deadline_at=NOW + 1.2 * HOUR)
    lease = a_lease(
        busy=(busy("q", "k", gpus=4, cpus_milli=1000, memory_mib=1024, ends_at=NOW + 9 * HOUR),), free=()
    )
    cap = CapRow("burst", CapUnit.INSTANCES, 1.0)
    plan = plan_greedily(a_world([job], [full(), lease], [an_offer()], [bursting(), cap]))
    assert not plan.actions
    assert "cap of 1 instances of policy burst: 1 rented" in told_waiting(plan.waiting[0], NOW).because


def test_using_a_lease_is_no_new_instance() -> None:
    job = a_job("tight", gpus=4, deadline_at=NOW + 1.2 * HOUR)
    caps = [CapRow("burst", CapUnit.INSTANCES, 1.0), CapRow("burst", CapUnit.USD_PER_H, 10.0)]
    (action,) = plan_greedily(a_world([job], [full(), a_lease()], [an_offer()], [bursting(), *caps])).actions
    assert isinstance(action, Place)
    assert action.lease == "lease-1"


def test_what_a_lease_is_needed_for_anyway_is_not_charged_twice() -> None:
    book, lease = RuleBook([], NOW), of_pool(a_lease())
    alone = cost(book, a_job(), lease, NOW)
    beside = cost(book, a_job(), lease, NOW, committed_until=NOW + HOUR / 2)
    within = cost(book, a_job(), lease, NOW, committed_until=NOW + 2 * HOUR)
    assert [alone.rent, beside.rent, within.rent] == pytest.approx([10.0, 5.0, 0.0])


def test_a_must_deadline_is_worth_any_permitted_price() -> None:
    job = a_job("must", gpus=4, deadline_at=NOW + 1.2 * HOUR, must=True)
    (action,) = plan_greedily(a_world([job], [full()], [an_offer(price_usd_h=5000.0)], [bursting()])).actions
    assert isinstance(action, Rent)


def test_the_most_specific_queue_prices_the_deadline() -> None:
    prices = [
        PriceTerm("all", PriceKind.MISS, 100.0, scope=Scope(queues=("research",))),
        PriceTerm("mine", PriceKind.MISS, 0.5, scope=Scope(queues=("research/vision",))),
    ]
    job = a_job("tight", gpus=4, deadline_at=NOW + 1.2 * HOUR)
    plan = plan_greedily(a_world([job], [full()], [an_offer()], [bursting(), *prices]))
    assert not plan.actions
    assert plan.terms["miss"] == pytest.approx(2.0)


def test_threshold_and_always_rent_nothing_beside_room_at_home() -> None:
    for mode in (BurstMode.THRESHOLD, BurstMode.ALWAYS):
        rule = bursting(mode=mode, after_wait_s=60.0)
        plan = plan_greedily(a_world([a_job("one")], [a_pool()], [an_offer()], [rule]))
        assert [type(action) for action in plan.actions] == [Place]


def test_a_guarantee_takes_back_the_least_that_makes_room() -> None:
    works = tuple(
        busy(
            f"p{n}",
            f"j{n}",
            cpus_milli=1000,
            memory_mib=1024,
            ends_at=NOW + 5 * HOUR,
            started_at=NOW - n * HOUR,
        )
        for n in range(1, 5)
    )
    pool = a_pool(nodes=1, busy=works, free=(Shape(0, 60_000, 258_048),))
    rule = GuaranteeRow("prod", "prod", 2)
    plan = plan_greedily(a_world([a_job("owed", gpus=2, queue="prod")], [pool], rules=[rule]))
    assert [(a.job, a.beneficiary, a.revision) for a in plan.actions if isinstance(a, Preempt)] == [
        ("j1", "owed", 3),
        ("j2", "owed", 3),
    ]


def test_who_is_not_needed_is_spared() -> None:
    works = (
        busy("p1", "small", cpus_milli=1000, memory_mib=1024, ends_at=NOW + 5 * HOUR, priority=5),
        busy("p2", "large", gpus=3, cpus_milli=1000, memory_mib=1024, ends_at=NOW + 5 * HOUR, priority=10),
    )
    pool = a_pool(nodes=1, busy=works, free=(Shape(0, 62_000, 260_096),))
    plan = plan_greedily(
        a_world([a_job("owed", gpus=3, queue="prod")], [pool], rules=[GuaranteeRow("prod", "prod", 3)])
    )
    assert [action.job for action in plan.actions] == ["large"]
    assert plan.terms["shortfall"] == pytest.approx(3 * 20.0)


def test_a_queue_within_its_own_guarantee_is_nobodys_victim() -> None:
    pool = full(queue="batch")
    rules = [GuaranteeRow("prod", "prod", 4), GuaranteeRow("batch", "batch", 4)]
    plan = plan_greedily(a_world([a_job("owed", gpus=4, queue="prod")], [pool], rules=rules))
    assert not plan.actions


def test_a_preemption_rule_spares_young_work_and_equal_priority() -> None:
    rule = PreemptRule(
        "pre", Scope(queues=("prod",)), Scope(queues=("batch",)), minimum_run_s=HOUR, minimum_priority_gap=10
    )
    job = a_job("urgent", queue="prod", priority=50)
    young, equal = full(started_at=NOW - 60, priority=10), full(started_at=NOW - 2 * HOUR, priority=45)
    assert not plan_greedily(a_world([job], [young], rules=[rule])).actions
    assert not plan_greedily(a_world([job], [equal], rules=[rule])).actions
    old = full(started_at=NOW - 2 * HOUR, priority=10)
    assert [type(a) for a in plan_greedily(a_world([job], [old], rules=[rule])).actions] == [Preempt]


def test_local_work_of_a_site_is_never_stopped() -> None:
    local = BusyView(nodes=1, gpus=4, cpus_milli=1000, memory_mib=1024, ends_at=NOW + 9 * HOUR)
    pool = a_pool(nodes=1, busy=(local,), free=(Shape(0, 63_000, 261_120),))
    plan = plan_greedily(
        a_world([a_job("owed", gpus=4, queue="prod")], [pool], rules=[GuaranteeRow("prod", "prod", 4)])
    )
    assert not plan.actions


def test_a_node_that_lost_the_job_is_the_last_choice() -> None:
    pools = [a_pool("home"), a_pool("other", price_usd_gpu_h=0.0)]
    (action,) = plan_greedily(a_world([a_job("one", avoid_nodes=("home-1",))], pools)).actions
    assert isinstance(action, Place)
    assert action.site == "other"
    (action,) = plan_greedily(a_world([a_job("one", avoid_nodes=("home-1",))], pools[:1])).actions
    assert isinstance(action, Place)


def test_what_the_wake_time_is_for() -> None:
    job = a_job("relaxed", gpus=4, deadline_at=NOW + 2 * HOUR)
    plan = plan_greedily(a_world([job], [full()], [an_offer()], [bursting()]))
    assert not plan.actions
    (waiting,) = plan.waiting
    assert waiting.kind == "later"
    assert plan.wake_at is not None
    latest = NOW + 2 * HOUR - HOUR - 540
    assert NOW < plan.wake_at < latest
    assert waiting.expected_start_at == pytest.approx(plan.wake_at + 540)


def test_when_the_wake_time_has_come_it_rents() -> None:
    job = a_job("relaxed", gpus=4, deadline_at=NOW + 2 * HOUR)
    problem = a_world([job], [full()], [an_offer()], [bursting()])
    wake_at = plan_greedily(problem).wake_at
    assert wake_at is not None
    later = changed(problem, taken_at=wake_at)
    assert [type(action) for action in plan_greedily(later).actions] == [Rent]


def test_beyond_the_limit_on_work_nothing_starts_that_has_no_seat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand jobs over a hundred sites pass the limit within the first moment: what is left is estimated, and its turn comes later."""
    monkeypatch.setattr(list_schedule, "ATTEMPTS", 6)
    jobs = [a_job(f"job-{number}") for number in range(10)]
    pools = [a_pool(site) for site in ("home", "edge")]
    plan = plan_greedily(a_world(jobs, pools))
    started = [action for action in plan.actions if isinstance(action, Place)]
    assert 0 < len(started) < len(jobs)
    assert all(action.members for action in started)
    assert len(plan.waiting) == len(jobs) - len(started)


def test_work_that_takes_no_time_still_has_its_place_to_itself() -> None:
    jobs = [a_job(f"job-{n}", gpus=4, run_s=0.0, run_low_s=0.0, run_high_s=0.0) for n in range(3)]
    world = a_world(jobs, [a_pool(nodes=1, gpus_per_node=4)])
    plan = plan_greedily(world)
    assert len(plan.actions) == 1
    assert check(world, plan) == ()


@pytest.mark.parametrize(
    ("asked", "waits"),
    [
        ({}, True),
        ({"kinds": ("cloud",)}, False),
        ({"kinds": ("cloud", "edge")}, True),
        ({"sites": ("acme-eu",)}, False),
        ({"not_sites": ("edge",)}, False),
    ],
)
def test_only_a_site_that_the_job_may_use_is_waited_for(asked: dict[str, Any], *, waits: bool) -> None:
    job = a_job(gpus=1, deadline_at=NOW + 2 * HOUR, value_usd=500.0, **asked)
    world = changed(a_world([job], (), [an_offer()], [bursting()]), away=("edge",))
    planned = plan_greedily(world)
    assert bool(planned.actions) is not waits
    assert check(world, planned) == ()
