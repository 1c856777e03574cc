"""Spot or on demand: when spot is a case, what an interruption at the very end would come to, and when it must not be.

Spot here boots in 540 s, as does on-demand. The job runs an hour (66 minutes on spot, for work repeated). So on spot it is done after
4,500 s; taken back at that moment, 180 s pass, and an on-demand machine does all again in 4,140 s.
"""

from typing import Any

import pytest
from msgspec.structs import replace

from federator.model.capacity import Market, Shape
from federator.model.plans import Rent, Severity
from federator.model.rules import BurstMode
from federator.model.snapshot import JobView, OfferView, Problem
from federator.planning.checks import check
from federator.planning.places.candidates import of_offer
from federator.planning.places.interruption_rate import rework
from federator.planning.plans.greedy import plan_greedily
from federator.planning.rentals.burst import Bursting
from federator.planning.rentals.candidate import BurstCandidate, BurstRejection
from federator.planning.rentals.interruptions import INTERRUPTION_S
from federator.planning.scheduling.forecast import home_forecast
from federator.planning.wording.told import because_of, words
from federator.planning.world.problem import World
from federator.solving.decide import decide
from tests.support.worlds import (
    HOUR,
    NOW,
    SPOT_INTERRUPTIONS_H,
    a_job,
    a_pool,
    a_world,
    an_offer,
    bursting,
    busy,
    changed,
)

BOOT_S = 540.0
ON_SPOT_S = BOOT_S + rework(SPOT_INTERRUPTIONS_H) * HOUR
FRESH_S = BOOT_S + HOUR
AGAIN_S = INTERRUPTION_S + FRESH_S
ENOUGH_S = ON_SPOT_S + AGAIN_S
SPOT = an_offer("spot", market=Market.SPOT, price_usd_h=3.0)
SURE = an_offer("sure")


def a_problem(job: JobView, *offers: OfferView, mode: BurstMode = BurstMode.ECONOMIC) -> Problem:
    return a_world([job], offers=offers or (SPOT, SURE), rules=[bursting(mode=mode)])


def case_of(problem: Problem, offer: str = "spot") -> BurstCandidate | BurstRejection:
    """The case for renting it for the one job, or why there is none."""
    world = World(problem)
    place = next(n for n, at in enumerate(world.places) if at.pool == offer)
    return Bursting(world, home_forecast(world)).case(world.jobs[0], place)


def due(after_s: float, **fields: Any) -> JobView:
    return a_job(deadline_at=NOW + after_s, **fields)


def test_spot_is_a_case_while_all_could_be_done_again_on_demand_by_the_deadline() -> None:
    case = case_of(a_problem(due(ENOUGH_S)))
    assert isinstance(case, BurstCandidate)
    assert case.finish_at == pytest.approx(NOW + ON_SPOT_S)
    assert case.fallback_finish_at == pytest.approx(NOW + ENOUGH_S)
    refusal = case_of(a_problem(due(ENOUGH_S - 1.0)))
    assert isinstance(refusal, BurstRejection)
    assert refusal.situation == "too-late"
    assert "it is spot: taken back at the very end" in words(refusal.reason, NOW).text


def test_on_demand_has_no_fallback_and_needs_no_slack_for_one() -> None:
    case = case_of(a_problem(due(FRESH_S)), "sure")
    assert isinstance(case, BurstCandidate)
    assert case.fallback_finish_at is None
    assert case.finish_at == NOW + FRESH_S


def test_spot_is_rented_so_early_that_the_fallback_still_meets_the_deadline() -> None:
    """Of a whole hour to spare, a minute and a quarter of the boot are kept, where home could still take it."""
    problem = a_problem(due(ENOUGH_S + HOUR))
    full = a_pool(free=(), busy=(busy("pl-1", "job-1", nodes=2, gpus=4, ends_at=NOW + 100 * HOUR),))
    case = case_of(changed(problem, pools=(full,)))
    assert isinstance(case, BurstCandidate)
    assert case.rent_at == pytest.approx(NOW + HOUR - 60.0 - BOOT_S / 4)


def test_a_job_that_asks_for_spot_takes_the_risk() -> None:
    case = case_of(a_problem(due(ON_SPOT_S, spot_policy="spot")))
    assert isinstance(case, BurstCandidate)
    assert case.fallback_finish_at is None


def test_spot_that_is_late_by_itself_is_no_case_for_anybody() -> None:
    for policy in ("auto", "spot"):
        refusal = case_of(a_problem(due(ON_SPOT_S - 1.0, spot_policy=policy)))
        assert isinstance(refusal, BurstRejection)
        assert "even there it would finish at" in words(refusal.reason, NOW).text


@pytest.mark.parametrize(
    ("offers", "again_s"),
    [
        ((SPOT, SURE, an_offer("fast", delay_s=60.0)), 60.0 + HOUR),
        ((SPOT, SURE, an_offer("slow", delay_s=900.0)), FRESH_S),
        ((SPOT, SURE, an_offer("none", delay_s=60.0, available=0)), FRESH_S),
        ((SPOT, SURE, an_offer("other", delay_s=60.0, model="H100")), FRESH_S),
        ((SPOT,), ON_SPOT_S),
        ((SPOT, an_offer("sold", available=0)), ON_SPOT_S),
    ],
    ids=[
        "the fastest",
        "not a slower one",
        "one to be had",
        "one it may use",
        "none: spot again",
        "sold out",
    ],
)
def test_the_fallback_is_the_fastest_on_demand_machine_that_the_job_could_have(
    offers: tuple[OfferView, ...], again_s: float
) -> None:
    case = case_of(a_problem(due(6 * HOUR, models=("A100",)), *offers))
    assert isinstance(case, BurstCandidate)
    assert case.fallback_finish_at == pytest.approx(NOW + ON_SPOT_S + INTERRUPTION_S + again_s)


def test_money_for_one_of_them_only_is_no_fallback() -> None:
    """In the worst case spot costs 3 × 7,800 s and on-demand 10 × 7,800 s of rent: 6.50 and 21.67 USD."""
    enough = case_of(a_problem(due(6 * HOUR, max_cost_usd=28.2)))
    short = case_of(a_problem(due(6 * HOUR, max_cost_usd=28.1)))
    assert isinstance(enough, BurstCandidate)
    assert isinstance(short, BurstCandidate)
    assert enough.fallback_finish_at == pytest.approx(NOW + ENOUGH_S)
    assert short.fallback_finish_at == pytest.approx(NOW + ON_SPOT_S + INTERRUPTION_S + ON_SPOT_S)
    spent = case_of(a_problem(due(6 * HOUR, max_cost_usd=28.2, spent_usd=0.1)))
    assert isinstance(spent, BurstCandidate)
    assert spent.fallback_finish_at == short.fallback_finish_at


@pytest.mark.parametrize("mode", [BurstMode.ALWAYS, BurstMode.THRESHOLD])
def test_a_policy_that_requires_renting_takes_spot_only_where_it_is_safe_or_on_demand_is_no_safer(
    mode: BurstMode,
) -> None:
    assert isinstance(case_of(a_problem(due(ENOUGH_S), mode=mode)), BurstCandidate)
    assert isinstance(case_of(a_problem(due(ENOUGH_S - 1.0), mode=mode)), BurstRejection), (
        "on-demand would meet it"
    )
    assert isinstance(case_of(a_problem(due(FRESH_S - 1.0), mode=mode)), BurstCandidate), "nothing would"
    assert isinstance(case_of(a_problem(due(ENOUGH_S - 1.0), SPOT, mode=mode)), BurstCandidate), (
        "there is nothing else"
    )
    assert isinstance(case_of(a_problem(a_job(), mode=mode)), BurstCandidate), "nothing is due"


def test_a_gang_begins_anew_with_any_of_its_machines() -> None:
    one, two = (of_offer(SPOT).run_s(a_job(gpus=4, nodes=nodes)) for nodes in (1, 2))
    assert one == pytest.approx(rework(SPOT_INTERRUPTIONS_H) * HOUR)
    assert two == pytest.approx(rework(2 * SPOT_INTERRUPTIONS_H) * HOUR)


def test_the_fallback_is_part_of_the_evidence() -> None:
    world = World(a_problem(due(ENOUGH_S)))
    cases = Bursting(world, home_forecast(world))
    case = cases.cases(world.jobs[0])[0]
    assert cases.evidence(world.jobs[0], case).fallback_finish_at == pytest.approx(NOW + ENOUGH_S)


def test_a_job_that_keeps_its_checkpoints_elsewhere_needs_time_for_what_it_does_again_only() -> None:
    """Of ten minutes that it repeats at most, and the boot of another machine: an hour of slack less than for doing all again."""
    on_spot_s = BOOT_S + rework(SPOT_INTERRUPTIONS_H / 6) * HOUR
    enough_s = on_spot_s + INTERRUPTION_S + BOOT_S + 600.0
    case = case_of(a_problem(due(enough_s, repeats_s=600.0)))
    assert isinstance(case, BurstCandidate)
    assert case.fallback_finish_at == pytest.approx(NOW + enough_s)
    assert isinstance(case_of(a_problem(due(enough_s - 1.0, repeats_s=600.0))), BurstRejection)
    assert isinstance(case_of(a_problem(due(enough_s))), BurstRejection), "all would be lost"
    whole = case_of(a_problem(due(ENOUGH_S, repeats_s=100 * HOUR)))
    assert isinstance(whole, BurstCandidate)
    assert whole.fallback_finish_at == pytest.approx(NOW + ENOUGH_S), "no more than all of it is done again"


def test_where_the_other_machine_is_slower_the_worst_moment_is_the_beginning() -> None:
    fast = an_offer("spot", market=Market.SPOT, price_usd_h=3.0, model="H100")
    job = due(6 * HOUR, repeats_s=600.0, speed={"H100": 2.2})
    case = case_of(a_problem(job, fast, SURE))
    assert isinstance(case, BurstCandidate)
    assert case.fallback_finish_at == pytest.approx(NOW + BOOT_S + INTERRUPTION_S + BOOT_S + 600.0 + HOUR)


def test_the_checker_knows_what_is_done_again_by_itself() -> None:
    job = due(ON_SPOT_S + INTERRUPTION_S + BOOT_S + 700.0, repeats_s=600.0)
    world = a_problem(job)
    plan = plan_greedily(world)
    assert [action.offer for action in plan.actions if isinstance(action, Rent)] == ["spot"]
    assert not [found for found in check(world, plan) if found.severity is Severity.FATAL]
    lost = changed(world, jobs=(replace(job, repeats_s=None),))
    assert [found for found in check(lost, plan) if found.severity is Severity.FATAL]


MARGIN = {"run_s": HOUR, "run_low_s": HOUR / 1.35 / 1.67, "run_high_s": HOUR / 1.35 * 1.67}
"""Planned with an hour, and likelier than not done within 45 minutes."""


def test_what_is_likely_in_time_on_a_rented_machine_is_a_case_though_it_is_planned_too_late() -> None:
    late = BOOT_S + HOUR / 1.35 + 1.0
    case = case_of(a_problem(due(late, **MARGIN)), "sure")
    assert isinstance(case, BurstCandidate)
    assert case.finish_at > NOW + late
    assert case.is_now(NOW), "there is no time to lose"
    refusal = case_of(a_problem(due(late - 2.0, **MARGIN)), "sure")
    assert isinstance(refusal, BurstRejection)
    assert (refusal.situation, words(refusal.reason, NOW).change) == ("too-late", "a deadline 16m later"), (
        "advice is to be sure"
    )
    assert isinstance(case_of(a_problem(due(late, **MARGIN)), "spot"), BurstRejection), (
        "on spot it must be sure"
    )


@pytest.mark.parametrize(("value_usd", "rents"), [(30.0, True), (4.0, False)])
def test_a_chance_is_rented_for_where_it_is_worth_the_rent(value_usd: float, rents: bool) -> None:
    """The deadline is met in 2 of 3 cases, and the machine costs 11.67 USD; never to run costs 8.43 USD and the value."""
    problem = a_problem(due(BOOT_S + 0.87 * HOUR, value_usd=value_usd, **MARGIN), SURE)
    full = a_pool(free=(), busy=(busy("pl-1", "job-1", nodes=2, gpus=4, ends_at=NOW + 2 * HOUR),))
    problem = changed(problem, pools=(full,))
    plan = decide(problem, stages=("greedy", "lp"))
    rented = [action for action in plan.actions if isinstance(action, Rent)]
    assert bool(rented) == rents
    assert check(problem, plan) == ()
    if rents:
        assert "but probably sooner" in because_of(rented[0], NOW)


@pytest.mark.parametrize(("value_usd", "rents"), [(300.0, True), (20.0, False)])
def test_a_chance_of_less_than_half_is_rented_for_where_it_is_worth_the_rent(
    value_usd: float, rents: bool
) -> None:
    """It is late likelier than not: in time in one case of six. That is worth 48 USD, or 3; the machine costs 11.67."""
    problem = a_problem(due(BOOT_S + 0.5 * HOUR, value_usd=value_usd, **MARGIN), SURE)
    full = a_pool(free=(), busy=(busy("pl-1", "job-1", nodes=2, gpus=4, ends_at=NOW + 2 * HOUR),))
    problem = changed(problem, pools=(full,))
    plan = decide(problem, stages=("greedy", "lp"))
    assert [action.offer for action in plan.actions if isinstance(action, Rent)] == ["sure"] * rents
    assert check(problem, plan) == ()
    if rents:
        assert "in time with a chance of 16%" in because_of(plan.actions[0], NOW)
        less = changed(problem, jobs=(replace(problem.snapshot.jobs[0], run_low_s=0.0),))
        assert [found for found in check(less, plan) if found.severity is Severity.FATAL], "no chance at all"


def test_where_what_is_on_demand_is_sold_out_the_work_goes_on_on_such_a_machine_as_this() -> None:
    """Not on the slower one that there is none of: that would take four hours."""
    fast = an_offer("spot", market=Market.SPOT, model="H100", price_usd_h=3.0)
    job = due(10 * HOUR, run_s=4 * HOUR, run_low_s=4 * HOUR, run_high_s=4 * HOUR, max_duration_s=8 * HOUR)
    job = replace(job, speed={"H100": 2.0}, value_usd=500.0, models=("H100",))
    problem = a_problem(job, fast, an_offer("sure", available=0))
    plan = plan_greedily(problem)
    assert [action.offer for action in plan.actions if isinstance(action, Rent)] == ["spot"]
    assert check(problem, plan) == ()


def beside_a_queue(job: JobView, free_in_s: float) -> Problem:
    """Home is full until then, so that is when the job is planned to start there."""
    full = a_pool(
        nodes=1,
        free=(Shape(0, 60_000, 200_000),),
        busy=(busy("pl-1", "job-1", gpus=4, ends_at=NOW + free_in_s),),
    )
    return changed(a_problem(job, SURE), pools=(full,))


@pytest.mark.parametrize(("value_usd", "rents"), [(15.0, False), (200.0, True)])
def test_what_is_planned_just_in_time_at_home_is_rented_for_where_the_risk_is_worth_the_rent(
    value_usd: float, rents: bool
) -> None:
    problem = beside_a_queue(due(2 * HOUR, value_usd=value_usd, **MARGIN), 0.95 * HOUR)
    assert isinstance(case_of(problem, "sure"), BurstCandidate) == rents
    plan = decide(problem, stages=("greedy", "lp"))
    rented = [action for action in plan.actions if isinstance(action, Rent)]
    assert bool(rented) == rents
    assert check(problem, plan) == ()
    if rents:
        assert 0.2 < rented[0].evidence.home_risk < 0.5
        assert "in time, but with a chance of" in because_of(rented[0], NOW)


def test_a_run_that_is_certain_is_not_at_risk() -> None:
    refusal = case_of(beside_a_queue(due(2 * HOUR, value_usd=1000.0), 0.95 * HOUR), "sure")
    assert isinstance(refusal, BurstRejection)
    assert refusal.situation == "no-need"
