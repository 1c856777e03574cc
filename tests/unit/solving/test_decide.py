"""Stages race under one evaluator; rentals prove themselves; the same problem gives the same bytes."""

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from federator.model.capacity import Shape
from federator.model.plans import Plan, Rent
from federator.model.rules import CapRow, CapUnit, Period, Scope
from federator.model.snapshot import PoolView, Problem
from federator.planning.linear import columns
from federator.planning.linear.columns import ColumnKind
from federator.planning.plans import greedy
from federator.planning.plans.greedy import plan_greedily
from federator.planning.scheduling.objective import Evaluator, Scored
from federator.planning.wording.told import told_plan
from federator.planning.world.problem import World
from federator.solving import glop, linear
from federator.solving.decide import decide
from federator.solving.least import least_usd
from tests.support.examples import examples
from tests.support.worlds import (
    HOUR,
    NOW,
    a_job,
    a_pool,
    a_world,
    an_offer,
    bursting,
    busy,
    worlds_at_random,
)

LARGE, SMALL = 524_288, 65_536


def _contested() -> Problem:
    """Greedy gives the place with much memory away: see `tests/scenarios/solver-beats-greedy.yaml`."""
    pools = [
        a_pool("large", nodes=1, price_usd_gpu_h=0.1, memory_mib_per_node=LARGE),
        a_pool("small", nodes=1, price_usd_gpu_h=0.4, memory_mib_per_node=SMALL),
    ]
    jobs = [
        a_job("first", gpus=4, deadline_at=NOW + 1.5 * HOUR, value_usd=100.0),
        a_job("second", gpus=4, memory_mib=LARGE // 2, deadline_at=NOW + 1.6 * HOUR, value_usd=100.0),
    ]
    return a_world(jobs, pools)


def test_a_cheaper_plan_wins_and_says_why() -> None:
    plan = decide(_contested())
    assert plan.winner == "lp"
    assert "lower than greedy: it meets the deadline of second" in told_plan(plan).winner_because
    assert plan.objective_usd < plan_greedily(_contested()).objective_usd
    assert [report.stage for report in plan.stages] == ["greedy", "lp"]
    assert all(report.completed for report in plan.stages)


def test_greedy_alone_when_no_other_stage_is_asked_for() -> None:
    plan = decide(_contested(), stages=("greedy",))
    assert plan.winner == "greedy"
    assert plan == msgspec.structs.replace(plan_greedily(_contested()), winner_reason=plan.winner_reason)


def test_the_relaxation_is_a_bound_of_its_integer_model() -> None:
    evaluator = Evaluator(World(_contested()))
    table = columns.build(evaluator)
    relaxed = linear.solve(table)
    assert relaxed is not None
    priced = sum(price * value for price, value in zip(table.cost, relaxed.rounded, strict=True))
    assert priced >= relaxed.bound_usd - 1e-6


def test_the_same_problem_gives_the_same_bytes() -> None:
    assert msgspec.msgpack.encode(decide(_contested(), seed=3)) == msgspec.msgpack.encode(
        decide(_contested(), seed=3)
    )


def _full() -> PoolView:
    running = busy("p", "j", gpus=4, ends_at=NOW + 2 * HOUR)
    return a_pool(nodes=1, busy=(running,), free=(Shape(0, 64_000, 262_144),))


def test_a_rental_that_does_not_pay_is_not_in_the_plan() -> None:
    job = a_job("tight", gpus=4, deadline_at=NOW + 1.2 * HOUR, value_usd=5.0)
    plan = decide(a_world([job], [_full()], [an_offer()], [bursting()]))
    assert not [action for action in plan.actions if isinstance(action, Rent)]
    paying = msgspec.structs.replace(job, value_usd=50.0)
    plan = decide(a_world([paying], [_full()], [an_offer()], [bursting()]))
    assert [action.job for action in plan.actions if isinstance(action, Rent)] == ["tight"]


def test_the_budget_holds_for_all_stages_together() -> None:
    jobs = [a_job(f"tight-{n}", gpus=4, deadline_at=NOW + 1.2 * HOUR, value_usd=50.0) for n in range(3)]
    worst = 10.0 * (540 + 2 * HOUR + 60) / HOUR
    cap = CapRow("burst", CapUnit.USD, 2 * worst, period=Period.DAY)
    plan = decide(a_world(jobs, [_full()], [an_offer()], [bursting(), cap]))
    rented = [action for action in plan.actions if isinstance(action, Rent)]
    assert len(rented) == 2
    assert sum(action.committed_usd for action in rented) <= cap.limit + 1e-6
    assert [(waiting.job, waiting.kind) for waiting in plan.waiting] == [("tight-2", "budget")]


def test_an_unfinished_stage_contributes_nothing_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glop, "ITERATIONS", 0)
    plan = decide(_contested())
    assert plan.winner == "greedy"
    assert [(report.stage, report.completed) for report in plan.stages] == [("greedy", True), ("lp", False)]


def test_an_empty_world_is_decided() -> None:
    plan = decide(a_world())
    assert plan == Plan(
        decision="dec-1", taken_at=NOW, seed=0, winner="greedy", winner_reason=plan.winner_reason, objective_usd=0.0,
        terms=plan.terms, stages=plan.stages,
    )  # fmt: skip


def test_a_cap_that_is_already_exceeded_does_not_make_the_model_infeasible() -> None:
    pool = a_pool(nodes=1, busy=(busy("p", "j", gpus=2),), free=a_pool(gpus_per_node=2, nodes=1).free)
    jobs = [a_job("over", queue="batch"), a_job("fine")]
    cap = CapRow("q", CapUnit.GPUS, 1.0, scope=Scope(queues=("batch",)))
    plan = decide(a_world(jobs, [pool], [], [cap]))
    assert [report.stage for report in plan.stages if report.completed][:2] == ["greedy", "lp"]
    assert [action.job for action in plan.actions] == ["fine"]


def test_future_columns_stay_within_what_frees() -> None:
    """The fluid future is bounded: work beyond the free GPU-hours of a bucket goes to a later one, or is never started."""
    jobs = [a_job(f"job-{n}", gpus=4, run_s=4 * HOUR) for n in range(400)]
    evaluator = Evaluator(World(a_world(jobs, [a_pool(nodes=1)])))
    table = columns.build(evaluator)
    relaxed = linear.solve(table)
    assert relaxed is not None
    never = sum(v for v, kind in zip(relaxed.rounded, table.kind, strict=True) if kind == ColumnKind.NEVER)
    assert never > 300


def test_without_work_left_for_rentals_the_linear_stage_still_finds_the_better_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(greedy, "WORK", -1)
    plan = decide(_contested())
    assert plan.winner == "lp"


def test_where_every_job_has_the_best_place_no_other_stage_is_asked() -> None:
    problem = a_world([a_job("one", gpus=4), a_job("two", gpus=4, deadline_at=NOW + 9 * HOUR)], [a_pool()])
    plan = decide(problem)
    assert [report.stage for report in plan.stages] == ["greedy"]
    assert plan == decide(problem, stages=("greedy",)), "so it replays with the stage that completed"


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(problem=worlds_at_random())
def test_that_nothing_can_be_cheaper_is_never_said_where_something_is(problem: Problem) -> None:
    floor_usd = least_usd(Evaluator(World(problem)))
    for stages in (("greedy",), ("greedy", "lp")):
        assert decide(problem, stages=stages).objective_usd >= floor_usd - 1e-6


def test_rentals_that_a_model_decides_are_not_tried_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [a_job(f"tight-{n}", gpus=4, deadline_at=NOW + 1.2 * HOUR, value_usd=50.0) for n in range(20)]
    problem = a_world(jobs, [_full()], [an_offer()], [bursting()])
    tried: list[Evaluator] = []

    def one_by_one(evaluator: Evaluator) -> Scored:
        tried.append(evaluator)
        return evaluator.score({})

    monkeypatch.setattr("federator.solving.decide.with_rentals", one_by_one)
    plan = decide(problem, stages=("greedy", "lp"))
    assert len([action for action in plan.actions if isinstance(action, Rent)]) > 1
    assert not tried
    decide(problem, stages=("greedy",))
    assert tried, "where no model follows, they are"
