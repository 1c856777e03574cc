"""Remarks about a plan as a whole: they name a promise and stop nothing."""

from typing import Any

import pytest
from msgspec.structs import replace

from federator.model.capacity import Shape
from federator.model.plans import Plan, Severity
from federator.model.rules import CapRow, CapUnit, Effect, Filter
from federator.model.snapshot import Problem
from federator.planning.checks import check, check_actions
from tests.support.findings import fatal_subjects
from tests.support.worlds import (
    HOUR,
    NOW,
    a_job,
    a_lease,
    a_plan,
    a_pool,
    a_world,
    an_offer,
    bursting,
    placed,
    proof,
    rented,
)


def remarks(problem: Problem, plan: Plan) -> set[tuple[str, int]]:
    """What is said; and nothing of it may be fatal."""
    findings = check(problem, plan)
    assert all(finding.severity is Severity.REMARK for finding in findings)
    assert fatal_subjects(findings) == frozenset()
    return {(finding.subject, finding.promise) for finding in findings}


def test_a_job_that_the_plan_forgets_is_remarked() -> None:
    world = a_world([a_job("job-a"), a_job("job-b")])
    assert remarks(world, a_plan(waiting=["job-a"])) == {("job-b", 10)}


def test_an_empty_reason_is_none() -> None:
    plan = a_plan(waiting=["job-a"])
    blank = replace(plan, waiting=(replace(plan.waiting[0], because=" ", why=None),))
    assert remarks(a_world([a_job()]), blank) == {("job-a", 10)}


def test_part_of_a_plan_is_not_remarked_upon() -> None:
    assert check_actions(a_world([a_job()]), a_plan()) == ()


def test_a_job_that_waits_beside_free_gpus_is_remarked() -> None:
    assert remarks(a_world([a_job()], [a_pool()]), a_plan(waiting=["job-a"])) == {("job-a", 13)}


@pytest.mark.parametrize(
    "pool",
    [
        a_pool(open=False),
        a_pool(ready_at=NOW + 60.0),
        a_pool(free=(Shape(1, 64_000, 262_144, 2),)),
        a_pool(lends_to=("batch",)),
        a_pool(model="H100"),
        a_lease(),
    ],
)
def test_gpus_that_the_job_may_not_use_or_does_not_fit_are_not_idle_for_it(pool: Any) -> None:
    world = a_world([a_job(gpus=2, models=("A100",))], [pool], rules=[bursting()])
    assert remarks(world, a_plan(waiting=["job-a"])) == set()


@pytest.mark.parametrize("rule", [Filter("p", Effect.DENY), CapRow("p", CapUnit.JOBS, 0)])
def test_gpus_that_a_policy_withholds_are_not_idle(rule: Any) -> None:
    assert remarks(a_world([a_job()], [a_pool()], rules=[rule]), a_plan(waiting=["job-a"])) == set()


def test_gpus_that_the_plan_gives_away_are_not_idle() -> None:
    first, second, pool = a_job("job-a", nodes=2, gpus=4), a_job("job-b"), a_pool()
    assert remarks(a_world([first, second], [pool]), a_plan(placed(first, pool), waiting=["job-b"])) == set()


def test_a_job_in_its_backoff_leaves_gpus_idle_with_reason() -> None:
    assert remarks(a_world([a_job(not_before_at=NOW + 1.0)], [a_pool()]), a_plan(waiting=["job-a"])) == set()


def test_a_job_without_gpus_is_not_what_gpus_are_idle_for() -> None:
    assert remarks(a_world([a_job(gpus=0)], [a_pool()]), a_plan(waiting=["job-a"])) == set()


def test_a_rental_beside_free_owned_gpus_that_are_soon_enough_is_remarked() -> None:
    for deadline_at, expected in ((NOW + HOUR, {("job-a", 11)}), (NOW + HOUR - 1.0, set())):
        job = a_job(deadline_at=deadline_at, speed={"A100": 1.0, "H100": 9.0})
        fast = an_offer(model="H100")
        evidence = proof(job, fast, burst_finish_at=NOW + 540.0 + HOUR / 9)
        world = a_world([job], [a_pool()], [fast], [bursting()])
        assert remarks(world, a_plan(rented(job, fast, evidence=evidence))) == expected
