"""A job does not start where it fits if waiting for another owned place costs less, all told; it says which, and until when."""

from typing import Any

from federator.model.plans import Plan
from federator.model.snapshot import Problem
from federator.planning import patience, window
from federator.planning.checks import check
from federator.planning.greedy import plan_greedily
from federator.planning.kernels import tables
from tests.support.worlds import HOUR, NOW, a_job, a_pool, a_world, busy

SOON = {"ends_at": NOW + 600.0, "gpus": 4, "cpus_milli": 64_000, "memory_mib": 262_144}


def two_places(*jobs: Any, dear: float = 5.0) -> Problem:
    """One host at home, taken for ten more minutes, for a dollar per GPU-hour; two hosts that are free and cost more."""
    home = a_pool("home", nodes=1, free=(), busy=(busy("place-1", "job-old", **SOON),), price_usd_gpu_h=1.0)
    return a_world(jobs, [home, a_pool("away", nodes=2, price_usd_gpu_h=dear)])


def starts(plan: Plan) -> list[str]:
    return [action.job for action in plan.actions]


def test_it_waits_for_the_cheaper_place_and_says_so() -> None:
    world = two_places(a_job(gpus=4))
    plan = plan_greedily(world)
    assert starts(plan) == []
    (waiting,) = plan.waiting
    assert (waiting.kind, waiting.expected_start_at) == ("later", NOW + 600.0)
    assert "home" in waiting.because
    assert check(world, plan) == ()


def test_a_little_is_not_worth_waiting_for() -> None:
    assert starts(plan_greedily(two_places(a_job(gpus=4), dear=1.2))) == ["job-a"]


def test_whom_waiting_costs_more_starts_at_once() -> None:
    assert starts(plan_greedily(two_places(a_job(gpus=4, interactive=True, priority=250)))) == ["job-a"]


def test_as_many_wait_as_the_place_can_serve_in_time() -> None:
    tasks = [a_job(f"job-{n}", gpus=4, deadline_at=NOW + 2.5 * HOUR, value_usd=500.0) for n in range(4)]
    assert len(starts(plan_greedily(two_places(*tasks)))) == 2, "home has time for two of them"


def test_what_starts_of_a_long_line_does_not_depend_on_how_long_it_is() -> None:
    tasks = [a_job(f"job-{n:03}", gpus=4) for n in range(200)]
    few, some, all_of_them = (starts(plan_greedily(two_places(*tasks[:count]))) for count in (20, 40, 200))
    assert few == []
    assert some == all_of_them == ["job-000", "job-001"], "nothing idles beside a long line"
    assert len({patience.MOST_ALIKE, tables.MOST_ALIKE, window.MARGIN}) == 1


def test_work_of_others_takes_what_a_job_declines() -> None:
    local = a_job("job-b", gpus=4, sites=("away",))
    assert starts(plan_greedily(two_places(a_job(gpus=4), local))) == ["job-b"]
