"""Rentals for what is planned in time at home but may be late, as the checker has them; what is said at once of jobs that are alike, and of all rentals."""

from collections.abc import Sequence
from typing import Any

import pytest

from federator.model.capacity import Shape
from federator.model.datasets import DatasetRule, Link, LinkRule, Spot
from federator.model.jobs import Input
from federator.model.plans import Rent
from federator.model.snapshot import JobView
from federator.planning.checks import check
from federator.planning.plans.greedy import plan_greedily
from federator.planning.rentals.burst import Bursting
from federator.planning.rentals.candidate import BurstRejection
from federator.planning.rentals.economics import Economics, Rented
from federator.planning.scheduling.forecast import home_forecast
from federator.planning.scheduling.objective import Evaluator
from federator.planning.wording.told import told_waiting, words
from federator.planning.world.problem import World
from tests.support.worlds import HOUR, NOW, a_job, a_pool, a_world, an_offer, bursting, busy

UNSURE: dict[str, Any] = {"run_s": HOUR, "run_low_s": HOUR / 1.35 / 1.67, "run_high_s": HOUR / 1.35 * 1.67}
DATA = Input("s3://datasets/imagenet", 150 * 10**9)
DATA_RULES = (
    DatasetRule("Dataset/d", DATA.uri, None, (Spot("home"),)),
    LinkRule("Links/l", between_regions=Link(1.0, 0.08)),
)


def test_a_risk_has_to_pay_the_way_of_the_data_too_and_what_is_planned_the_checker_lets_through() -> None:
    full = a_pool(
        "home",
        nodes=1,
        free=(Shape(0, 60_000, 200_000),),
        busy=(busy("pl-1", "job-1", gpus=4, ends_at=NOW + 1.15 * HOUR),),
        price_usd_gpu_h=4.0,
    )
    for value_usd in (70.0, 71.0, 72.0, 75.0, 80.0, 120.0):
        job = a_job(deadline_at=NOW + 2.2 * HOUR, value_usd=value_usd, inputs=(DATA,), **UNSURE)
        problem = a_world([job], [full], [an_offer(region="us")], [bursting(), *DATA_RULES])
        plan = plan_greedily(problem)
        assert check(problem, plan) == (), value_usd
        assert any(isinstance(action, Rent) for action in plan.actions) == (value_usd > 100.0)


def test_of_jobs_that_are_alike_each_is_told_to_have_itself_approved() -> None:
    jobs = [a_job(name, deadline_at=NOW + 2 * HOUR, value_usd=500.0) for name in ("job-a", "job-b")]
    world = World(a_world(jobs, offers=[an_offer()], rules=[bursting(approval_above_usd=1.0)]))
    bursting_ = Bursting(world, home_forecast(world))
    for job in world.jobs:
        refusal = bursting_.case(job, world.offers(job)[0])
        assert isinstance(refusal, BurstRejection)
        assert words(refusal.reason, NOW).change.endswith(f"`federator burst approve {job.id}`")
    said = {each.job: told_waiting(each, NOW).change for each in plan_greedily(world.problem).waiting}
    assert all(f"approve {job}" in change for job, change in said.items()), said


def test_what_all_jobs_could_rent_is_weighed_at_once_and_each_as_it_would_be_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    whole = Economics.all_of

    def counted(self: Economics, jobs: Sequence[JobView]) -> list[dict[int, Rented]]:
        asked.append(len(jobs))
        return whole(self, jobs)

    offers = [
        an_offer(f"{site}/{n}", site=site, price_usd_h=2.0 + n) for site in ("eu", "us") for n in range(3)
    ]
    given = [((), 1.3), ((), 2.0), ((DATA,), 2.0), ((DATA,), 9.0)]
    jobs = [
        a_job(f"job-{number}", deadline_at=NOW + hours * HOUR, value_usd=100.0, inputs=inputs, **UNSURE)
        for number, (inputs, hours) in enumerate(given)
    ]
    world = World(a_world(jobs, offers=offers, rules=[bursting(), *DATA_RULES]))
    evaluator = Evaluator(world)
    monkeypatch.setattr(Economics, "all_of", counted)
    evaluator.score({})
    assert asked == [len(jobs)]
    for job in world.jobs:
        for place in world.offers(job):
            alone = Bursting(world, evaluator.home)
            assert evaluator.bursting.case(job, place) == alone.case(job, place)
            assert alone.case(job, place) == alone.under(bursting(), job, place)
