"""What a rental has to gain: the job that it is made for must be better off by more than its bill, whatever others gain."""

import pytest
from msgspec.structs import replace

from federator.model.capacity import Shape
from federator.model.datasets import DataSelector
from federator.model.jobs import Input
from federator.model.plans import Rent
from federator.model.rules import BurstMode, PriceKind, PriceTerm, Rule, Scope
from federator.planning.checks import check
from federator.planning.plans.greedy import plan_greedily
from federator.planning.rentals.burst import Bursting
from federator.planning.rentals.candidate import BurstCandidate, BurstRejection
from federator.planning.scheduling.forecast import home_forecast
from federator.planning.wording.told import words
from federator.planning.world.problem import World
from federator.solving.decide import decide
from tests.support.worlds import HOUR, NOW, a_job, a_pool, a_world, an_offer, bursting, busy

FULL = a_pool(
    "home",
    nodes=1,
    free=(Shape(0, 60_000, 200_000),),
    busy=(busy("pl-1", "job-1", gpus=4, ends_at=NOW + 2 * HOUR),),
)


@pytest.mark.parametrize(("value_usd", "rents"), [(5.0, []), (200.0, ["job-a"])])
def test_a_rental_pays_for_the_job_that_it_is_made_for(value_usd: float, rents: list[str]) -> None:
    """Behind it others wait whose time is dear, and nothing may be rented for them: were it gone, they would all start an hour sooner."""
    late = a_job(
        "job-a",
        gpus=4,
        queue="research/vision",
        deadline_at=NOW + 1.17 * HOUR,
        value_usd=value_usd,
        submitted_at=NOW - HOUR,
    )
    behind = [a_job(f"job-{name}", gpus=4, queue="batch") for name in "bcd"]
    rules: list[Rule] = [bursting(), PriceTerm("dear", PriceKind.WAIT, 100.0, Scope(queues=("batch",)))]
    problem = a_world([late, *behind], [FULL], [an_offer()], rules)
    for plan in (plan_greedily(problem), decide(problem)):
        assert check(problem, plan) == ()
        assert [action.job for action in plan.actions if isinstance(action, Rent)] == rents


@pytest.mark.parametrize(("wait_usd", "pays"), [(0.5, False), (50.0, True)])
def test_a_rental_against_waiting_costs_less_than_the_wait_that_it_saves(wait_usd: float, pays: bool) -> None:
    job = a_job(gpus=4)
    rules: list[Rule] = [bursting(for_waiting=True), PriceTerm("wait", PriceKind.WAIT, wait_usd)]
    world = World(a_world([job], [FULL], [an_offer()], rules))
    answer = Bursting(world, home_forecast(world)).case(job, world.offers(job)[0])
    assert isinstance(answer, BurstRejection) is not pays
    if isinstance(answer, BurstRejection):
        assert answer.situation == "no-gain"
        assert "the wait it saves is worth" in words(answer.reason, NOW).text


def test_of_a_machine_that_others_may_share_a_job_has_to_pay_its_part() -> None:
    """It takes one GPU of four."""
    rented = []
    for value_usd in (1.0, 6.0):
        jobs = [
            a_job(f"job-{name}", deadline_at=NOW + 1.17 * HOUR, value_usd=value_usd, submitted_at=NOW - HOUR)
            for name in "abcd"
        ]
        plan = plan_greedily(a_world(jobs, [FULL], [an_offer()], [bursting()]))
        rented.append(sum(isinstance(action, Rent) for action in plan.actions))
    assert rented == [0, 1]


def test_so_is_the_room_that_others_could_use_by_the_prices_of_the_model_before() -> None:
    """Four GPUs for the hour from two to three hours ahead; what a later one is worth is not asked."""
    job = a_job(gpus=4, deadline_at=NOW + 1.17 * HOUR, value_usd=5.0)
    problem = a_world([job], [FULL], [an_offer()], [bursting()])
    for usd, pays in ((0.5, False), (4.0, True)):
        world = World(
            replace(problem, warm_prices={f"hours/{FULL.key}/2h": -usd, f"hours/{FULL.key}/4h": -99.0})
        )
        home = home_forecast(world)
        assert home[job.id].usd == pytest.approx(4 * usd)
        assert isinstance(Bursting(world, home).case(job, world.offers(job)[0]), BurstRejection) is not pays


@pytest.mark.parametrize(("owned_usd", "pays"), [(0.0, False), (2.4, True)])
def test_what_its_run_at_home_would_cost_is_gained_too(owned_usd: float, pays: bool) -> None:
    """The bill is 11.67 USD, the deadline is worth 5."""
    job = a_job(gpus=4, deadline_at=NOW + 1.17 * HOUR, value_usd=5.0)
    world = World(a_world([job], [replace(FULL, price_usd_gpu_h=owned_usd)], [an_offer()], [bursting()]))
    answer = Bursting(world, home_forecast(world)).case(job, world.offers(job)[0])
    assert isinstance(answer, BurstRejection) is not pays


def test_a_policy_about_some_data_makes_no_case_for_a_job_that_reads_other_data() -> None:
    """Also where a job of the same queue and owner, which reads only such data, was asked about first."""
    rules: list[Rule] = [
        bursting("public", mode=BurstMode.ALWAYS, data=DataSelector(uris=("s3://public",))),
        bursting("any"),
    ]
    jobs = [
        a_job(f"job-{name}", inputs=(Input(uri=f"s3://{name}/set"),), deadline_at=NOW + 1.17 * HOUR)
        for name in ("public", "secret")
    ]
    world = World(a_world(jobs, [FULL], [an_offer()], rules))
    cases = Bursting(world, home_forecast(world))
    found = [cases.case(world.by_id[job.id], world.offers(job)[0]) for job in jobs]
    assert [isinstance(case, BurstCandidate) and case.policy for case in found] == ["public", "any"]
