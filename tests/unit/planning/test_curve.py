"""What each earlier finish costs, between when a job is expected, and what a place takes from others."""

from msgspec.structs import replace

from federator.model.capacity import Market, Shape
from federator.model.snapshot import PoolView, Problem
from federator.planning.explanations.explain import explain_waiting
from federator.planning.explanations.ranges import ranges
from federator.planning.plans.greedy import plan_greedily
from federator.planning.plans.preview import preview
from federator.solving.decide import decide
from tests.support.worlds import HOUR, NOW, a_job, a_pool, a_world, an_offer, bursting, busy

LONG = a_job("long", gpus=4, models=("A100",), run_s=2 * HOUR, run_low_s=HOUR, run_high_s=3 * HOUR, max_duration_s=4 * HOUR)  # fmt: skip
SPOT = an_offer("spot", market=Market.SPOT, price_usd_h=4.0)
ON_DEMAND = an_offer("dear")


def full_until(hours: float, site: str = "home") -> PoolView:
    """One host that is busy for so long."""
    work = busy(f"p-{site}", "j", gpus=4, cpus_milli=1000, memory_mib=1024, ends_at=NOW + hours * HOUR)
    return a_pool(site, nodes=1, busy=(work,), free=(Shape(0, 63_000, 261_120),))


def a_problem(hours: float = 4.0) -> Problem:
    return a_world([], [full_until(hours)], [SPOT, ON_DEMAND], [bursting()])


def test_each_earlier_finish_costs_more_and_home_in_its_turn_costs_nothing() -> None:
    points = preview(a_problem(), LONG).curve
    assert [(point.site, point.pool) for point in points] == [
        ("acme-eu", "dear"),
        ("acme-eu", "spot"),
        ("home", "gpu"),
    ]
    assert [point.finish_at for point in points] == sorted(point.finish_at for point in points)
    assert [point.cost_usd for point in points] == sorted((point.cost_usd for point in points), reverse=True)
    dear, _, home = points
    assert (home.finish_at, home.cost_usd) == (NOW + 6 * HOUR, 0.0)
    assert dear.cost_usd == round(10.0 * (540.0 + 2 * HOUR + 60.0) / HOUR, 4)
    assert dear.finish_at == NOW + 540.0 + 2 * HOUR
    assert (dear.finish_low_at, dear.finish_high_at) == (NOW + 540.0 + HOUR, NOW + 540.0 + 3 * HOUR)
    assert all(point.in_time is None for point in points)


def test_what_is_dearer_and_no_sooner_is_left_out() -> None:
    problem = a_world([], [full_until(0.1)], [SPOT, ON_DEMAND], [bursting()])
    (home,) = preview(problem, LONG).curve
    assert home.site == "home"


def test_what_no_policy_lets_rent_is_no_way_to_be_done_sooner() -> None:
    problem = a_world([], [full_until(4.0)], [SPOT, ON_DEMAND], [])
    assert [point.site for point in preview(problem, LONG).curve] == ["home"]


def test_the_price_of_meeting_the_deadline_is_that_of_the_cheapest_way_that_does() -> None:
    found = preview(a_problem(), replace(LONG, deadline_at=NOW + 2.6 * HOUR))
    assert [point.in_time for point in found.curve] == [True, True, False]
    assert found.deadline_usd == found.curve[1].cost_usd
    late = preview(a_problem(), replace(LONG, deadline_at=NOW + HOUR))
    assert late.deadline_usd is None
    relaxed = preview(a_problem(), replace(LONG, deadline_at=NOW + 9 * HOUR))
    assert relaxed.deadline_usd == 0.0


def test_a_waiting_job_has_a_curve_and_a_range_too() -> None:
    problem = a_world([LONG], [full_until(4.0)], [SPOT], [bursting()])
    found = explain_waiting(problem, plan_greedily(problem), "long")
    assert [point.site for point in found.curve] == ["acme-eu", "home"]
    assert (found.expected_start_at, found.expected_finish_at) == (NOW + 4 * HOUR, NOW + 6 * HOUR)
    start, finish = ranges(LONG, NOW, NOW + 4 * HOUR, NOW + 6 * HOUR, waits=True)
    assert (found.start_low_at, found.start_high_at) == start
    assert (found.finish_low_at, found.finish_high_at) == finish


def test_what_starts_now_starts_now_and_only_its_end_is_uncertain() -> None:
    problem = a_world([LONG], [a_pool()])
    found = explain_waiting(problem, plan_greedily(problem), "long")
    assert found.start_low_at == found.start_high_at == NOW
    assert (found.finish_low_at, found.finish_high_at) == (NOW + HOUR, NOW + 3 * HOUR)


def test_places_that_cost_the_same_are_called_ties() -> None:
    problem = a_world([a_job("one")], [a_pool("a"), a_pool("b"), a_pool("dear", price_usd_gpu_h=0.5)])
    sites = explain_waiting(problem, plan_greedily(problem), "one").sites
    assert {site.site: site.tie for site in sites} == {"a": True, "b": True, "dear": False}
    dear = next(site for site in sites if site.site == "dear")
    assert dear.direct_usd == dear.extra_cost_usd == 0.5


def test_what_a_start_takes_from_others_is_said_where_there_are_prices() -> None:
    """Two jobs that only fit one after the other: a free GPU is worth what it saves the one that waits."""
    jobs = [a_job(f"j-{n}", gpus=4, deadline_at=NOW + 1.5 * HOUR, value_usd=100.0) for n in range(2)]
    problem = a_world(jobs, [a_pool(nodes=1)])
    plan = decide(problem)
    assert plan.prices, "the solver has finished"
    started = next(action.job for action in plan.actions)
    (site,) = explain_waiting(problem, plan, started).sites
    assert sum(site.congestion.values()) > 1.0
    assert all("of home/home-1/gpu" in scarce for scarce in site.congestion)
    assert explain_waiting(problem, plan_greedily(problem), started).sites[0].congestion == {}
