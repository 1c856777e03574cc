"""The solver on files: a plan says of itself what the judge says, and a judge believes nothing that the plan says."""

from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace

from federator.kernel.errors import Invalid
from federator.model.plans import Severity
from federator.model.rules import GuaranteeRow
from federator.model.snapshot import Problem
from federator.planning.explanations.ranges import ranges
from federator.planning.linear import columns as cut
from federator.planning.scheduling.objective import Evaluator
from federator.planning.world.problem import World
from federator.solving import plan_check
from federator.solving.certify import certify, proven_bound
from federator.solving.offline import run
from federator.solving.plan_check import judge
from federator.wire.solver_files import from_problem, read_plan, read_problem, write
from federator.wire.solver_plan import Assignment, Objective, PlanFile
from tests.support.examples import examples
from tests.support.relaxations import relaxed
from tests.support.worlds import HOUR, NOW, a_job, a_pool, a_world, an_offer, bursting, busy, worlds_at_random

at_random = settings(max_examples=examples(10), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _run(problem: Problem, *, proven: bool = False) -> PlanFile:
    ticks = count()
    return run(problem, clock=lambda: float(next(ticks)), proven=proven)


def _crowded() -> Problem:
    """One starts, one waits behind it, one is rented for, one has to be elsewhere."""
    jobs = [
        a_job("first", gpus=4, priority=90, run_low_s=HOUR / 2, run_high_s=2 * HOUR),
        a_job("second", gpus=4, run_low_s=HOUR / 2, run_high_s=2 * HOUR),
        a_job("tight", gpus=4, not_sites=("home",), deadline_at=NOW + 1.2 * HOUR),
        a_job("nowhere", models=("B7",)),
    ]
    return a_world(jobs, [a_pool(nodes=1)], [an_offer()], [bursting()])


def _by_job(plan: PlanFile) -> dict[str, Assignment]:
    return {each.job: each for each in plan.assignments}


def test_what_gpus_idle_for_is_in_the_file_and_the_judge_looks_into_it() -> None:
    soon = busy("place-1", "job-old", gpus=4, cpus_milli=64_000, memory_mib=262_144, ends_at=NOW + 600.0)
    home = a_pool("home", nodes=1, free=(), busy=(soon,), price_usd_gpu_h=1.0)
    job = a_job(gpus=4, patience_s=12 * HOUR)
    problem = a_world([job], [home, a_pool("away", nodes=1, price_usd_gpu_h=5.0)])
    plan = read_plan(write(_run(problem)))
    (told,) = plan.assignments
    assert told.reserved is not None
    assert (told.reserved.why, told.reserved.place) == ("cheaper", "home/home-1/gpu")
    assert not judge(problem, plan).findings
    for kept in (None, replace(told.reserved, until_at=NOW + 13 * HOUR)):
        claims = replace(plan, assignments=(replace(told, reserved=kept),))
        assert [finding.promise for finding in judge(problem, claims).findings] == [13]


def test_the_plan_says_where_and_when_of_every_job() -> None:
    plan = _run(_crowded())
    told = _by_job(plan)
    assert {job: each.does for job, each in told.items()} == {
        "first": "start",
        "second": "wait",
        "tight": "rent",
        "nowhere": "wait",
    }
    first, second, tight, nowhere = (told[name] for name in ("first", "second", "tight", "nowhere"))
    assert (first.site, first.pool, first.members, first.start_bucket) == ("home", "gpu", ("home-1",), 0)
    assert first.finish is not None
    assert first.finish.low_at == NOW + HOUR / 2
    assert first.finish.middle_at == NOW + HOUR
    assert first.finish.high_at == NOW + 2 * HOUR
    assert second.start is not None
    assert second.finish is not None
    start, finish = ranges(_crowded().snapshot.jobs[1], NOW, NOW + HOUR, NOW + 2 * HOUR, waits=True)
    assert start == (second.start.low_at, second.start.high_at)
    assert finish == (second.finish.low_at, second.finish.high_at)
    assert start.low_at < second.start.middle_at == NOW + HOUR < start.high_at
    assert plan.buckets_h[second.start_bucket or 0] == 1.0
    assert tight.rental is not None
    assert (tight.rental.offer, tight.market, tight.rental.policy) == ("eu/4xA100", "on-demand", "burst")
    assert nowhere.start is None
    assert nowhere.reason_kind == "filter"
    assert all(each.reason for each in plan.assignments)
    assert plan.objective.total_usd == pytest.approx(
        sum(getattr(plan.objective, name) for name in Objective.__struct_fields__ if name != "total_usd")
    )


def test_only_the_times_differ_from_run_to_run() -> None:
    first = _run(_crowded(), proven=True)
    again = run(_crowded(), clock=lambda: 5.0, proven=True)
    assert [stage.wall_s for stage in first.stages] != [stage.wall_s for stage in again.stages]
    assert write(_timeless(first)) == write(_timeless(again))


def _timeless(plan: PlanFile) -> PlanFile:
    assert plan.certificate is not None
    return replace(
        plan,
        stages=tuple(replace(stage, wall_s=0.0) for stage in plan.stages),
        certificate=replace(plan.certificate, wall_s=0.0),
    )


@at_random
@given(problem=worlds_at_random())
def test_what_is_run_is_judged_valid_and_to_cost_what_it_says(problem: Problem) -> None:
    problem = read_problem(write(from_problem(problem)))
    verdict = judge(problem, read_plan(write(_run(problem), packed=True)))
    assert verdict.differences == ()
    assert not [finding for finding in verdict.findings if finding.severity is Severity.FATAL]


@at_random
@given(problem=worlds_at_random())
def test_the_bound_is_below_what_the_plan_comes_to(problem: Problem) -> None:
    plan = _run(problem, proven=True)
    certificate = plan.certificate
    assert certificate is not None
    assert certificate.completed_usd is not None
    assert certificate.bound_usd <= plan.objective.total_usd + 1e-4
    assert certificate.model_usd <= certificate.completed_usd + 1e-4
    if certificate.gap is not None:
        assert certificate.gap >= 0.0


@at_random
@given(problem=worlds_at_random())
def test_any_prices_prove_a_bound(problem: Problem) -> None:
    table = cut.build(Evaluator(World(problem)))
    solved = relaxed(table)
    assert solved is not None
    best = proven_bound(table, solved.duals)
    assert best == pytest.approx(solved.objective, rel=1e-6, abs=1e-4)
    for factor in (0.0, 0.5, -1.0, 3.0):
        assert proven_bound(table, [price * factor for price in solved.duals]) <= solved.objective + 1e-4


def test_a_worse_plan_has_a_gap() -> None:
    """The GPUs go to one that could wait; the one whose deadline they would meet waits."""
    jobs = [a_job("idle", gpus=4), a_job("due", gpus=4, deadline_at=NOW + 1.5 * HOUR, value_usd=100.0)]
    evaluator = Evaluator(World(a_world(jobs, [a_pool(nodes=1)])))
    good, bad = certify(evaluator, {"due": 0}, {"idle": 0}) or (None, None)
    assert good is not None
    assert bad is not None
    assert good.gap == pytest.approx(0.0, abs=1e-6)
    assert good.model_usd == bad.model_usd
    assert bad.completed_usd is not None
    assert good.completed_usd is not None
    assert bad.completed_usd >= good.completed_usd + 50.0


def _moved(plan: PlanFile, job: str, **fields: object) -> PlanFile:
    each = [replace(a, **fields) if a.job == job else a for a in plan.assignments]
    return replace(plan, assignments=tuple(each))


def test_a_plan_for_more_than_there_is_breaks_a_promise() -> None:
    problem = _crowded()
    wrong = _moved(_run(problem), "second", does="start", site="home", pool="gpu", members=("home-1",))
    fatal = [f for f in judge(problem, wrong).findings if f.severity is Severity.FATAL]
    assert [(finding.promise, finding.subject) for finding in fatal] == [(4, "second")]


def test_a_plan_that_flatters_itself_is_found_out() -> None:
    problem = _crowded()
    plan = _run(problem)
    flattered = replace(plan, objective=replace(plan.objective, wait_usd=0.0))
    assert plan.objective.wait_usd > 0.01
    assert judge(problem, flattered).differences == ("wait_usd",)


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({}, ()),
        ({"model_usd": 1e-3}, ("certificate.gap",)),
        ({"model_usd": 1e9}, ("certificate.model_usd",)),
        ({"model_usd": 1e9, "gap": None}, ("certificate.model_usd",)),
        ({"bound_usd": 1e9}, ("certificate.bound_usd",)),
        ({"gap": -1.0}, ("certificate.gap",)),
        ({"completed_usd": 0.5}, ("certificate.completed_usd",)),
        ({"completed_usd": None}, ("certificate.gap",)),
        ({"completed_usd": None, "gap": None, "bound_usd": -1e6, "model_usd": -1e6}, ()),
    ],
)
def test_no_certificate_is_believed(changes: dict[str, float | None], wrong: tuple[str, ...]) -> None:
    """Who claims less than is proven is right, too."""
    problem = _crowded()
    plan = _run(problem, proven=True)
    assert plan.certificate is not None
    verdict = judge(problem, replace(plan, certificate=replace(plan.certificate, **changes)))
    assert verdict.differences == wrong
    assert verdict.certificate == replace(plan.certificate, wall_s=0.0)


def test_what_is_not_claimed_is_not_proven() -> None:
    assert judge(_crowded(), _run(_crowded())).certificate is None


def test_what_cannot_be_proven_again_counts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = _crowded()
    plan = _run(problem, proven=True)
    monkeypatch.setattr(plan_check, "certify", lambda *_: None)
    verdict = judge(problem, plan)
    assert (verdict.differences, verdict.certificate) == (("certificate",), None)


def test_doing_nothing_is_a_valid_plan_that_is_told_what_it_costs() -> None:
    """What a plan leaves free the evaluator fills, so nobody gains by saying little."""
    problem = _crowded()
    nothing = PlanFile(format="federator-plan/1", taken_at=NOW, objective=Objective(total_usd=0.0))
    verdict = judge(problem, nothing)
    assert verdict.objective.total_usd > 0.0
    assert "total_usd" in verdict.differences
    assert any(finding.promise == 10 for finding in verdict.findings)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"taken_at": NOW + 1}, "$.taken_at"),
        ({"assignments": (Assignment(job="who", does="wait"),)}, "$.assignments[0].job"),
        ({"assignments": (Assignment(job="tight", does="rent"),)}, "$.assignments[0].rental"),
    ],
)
def test_a_plan_for_something_else_is_refused(change: dict[str, object], field: str) -> None:
    with pytest.raises(Invalid) as raised:
        judge(_crowded(), replace(_run(_crowded()), **change))
    assert raised.value.field == field
    assert raised.value.remedy


def test_a_place_that_is_not_there_is_a_violation_and_no_crash() -> None:
    wrong = _moved(_run(_crowded()), "first", site="moon", members=("moon-1",))
    fatal = [f for f in judge(_crowded(), wrong).findings if f.severity is Severity.FATAL]
    assert any(finding.subject == "first" and "moon" in finding.text for finding in fatal)


def test_what_has_to_make_room_is_in_the_file() -> None:
    whole = {"gpus": 4, "cpus_milli": 64_000, "memory_mib": 262_144}
    running = busy("pl-1", "job-x", **whole, ends_at=NOW + 9 * HOUR)
    pool = a_pool(nodes=1, busy=(running,), free=())
    owed = GuaranteeRow("share", "research", 4)
    problem = a_world([a_job("owed", gpus=4)], [pool], rules=[owed])
    plan = _run(problem)
    assert [(stop.placement, stop.for_job) for stop in plan.stops] == [("pl-1", "owed")]
    verdict = judge(problem, read_plan(write(plan)))
    assert not [finding for finding in verdict.findings if finding.severity is Severity.FATAL]
