"""Whatever the solvers behind the stages answer, the plan is valid, no dearer than the order's own starts, and says of everybody what becomes of them."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from msgspec import structs

from federator.model.plans import Severity
from federator.model.snapshot import Problem
from federator.planning.checks import check
from federator.planning.plans.greedy import plan_greedily
from federator.solving.decide import decide
from federator.solving.glop import Model, Relaxed
from tests.bench.solver.instances import Instance, Parameters
from tests.support.examples import examples
from tests.support.worlds import changed, worlds_at_random

at_random = settings(
    max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)  # fmt: skip
Spoil = Callable[[Relaxed, int], Relaxed | None]


def _noise(scale: float) -> Spoil:
    """Numbers of that size, drawn from how often it has been asked, in place of all that it answers."""

    def spoil(answer: Relaxed, asked: int) -> Relaxed:
        dice = np.random.default_rng(asked)
        noise = [dice.normal(0.0, scale, len(part)) for part in (answer.values, answer.duals)]
        return Relaxed(float(dice.normal(0.0, scale)), *noise)

    return spoil


ANSWERS: dict[str, Spoil] = {
    "no answer": lambda answer, asked: None,
    "no answer after the first": lambda answer, asked: answer if asked == 1 else None,
    "small numbers": _noise(2.0),
    "huge numbers": _noise(1e9),
    "everything at once": lambda answer, asked: answer._replace(values=answer.values + 1e6),
    "the wrong way round": lambda answer, asked: answer._replace(
        objective=-answer.objective, values=answer.values[::-1].copy()
    ),
}


def _holds(problem: Problem) -> None:
    plan = decide(problem)
    assert not [f for f in check(problem, plan) if f.severity is Severity.FATAL]
    first = plan.stages[0]
    assert first.stage == "greedy"
    assert first.objective_usd is not None
    assert plan.objective_usd <= first.objective_usd + 1e-6
    told = [entry.job for entry in plan.waiting] + [action.job for action in plan.actions]
    assert {job.id for job in problem.snapshot.jobs} <= set(told)


@pytest.mark.parametrize("sort", ANSWERS)
def test_whatever_the_linear_solver_answers(sort: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real, asked = Model.relax, Counter[str]()

    def relax(model: Model, *bounds: Any) -> Relaxed | None:
        asked["here"] += 1
        asked["ever"] += 1
        answer = real(model, *bounds)
        return None if answer is None else ANSWERS[sort](answer, asked["here"])

    @at_random
    @given(problem=worlds_at_random())
    def try_one(problem: Problem) -> None:
        asked["here"] = 0
        _holds(problem)

    monkeypatch.setattr(Model, "relax", relax)
    try_one()
    asked.clear()
    _holds(Instance(Parameters(jobs=40, sites=4)).problem())
    assert asked["ever"] >= 1, "this one is not decided without it, whatever is drawn above"


def test_numbers_that_the_linear_solver_cannot_reckon_with() -> None:
    """It raises at these, and does not answer."""
    problem = Instance(Parameters(jobs=40, sites=4)).problem()
    first, *others = problem.snapshot.jobs
    problem = changed(problem, jobs=(structs.replace(first, priced_gpus=1e300, value_usd=None), *others))
    plan = decide(problem)
    assert [(each.stage, each.completed) for each in plan.stages] == [("greedy", True), ("lp", False)]
    assert plan.actions == plan_greedily(problem).actions


@pytest.mark.parametrize("stages", [("greedy",), ("greedy", "lp"), ("lp",), ()])
@at_random
@given(problem=worlds_at_random())
def test_whichever_stages_there_is_time_for(stages: tuple[str, ...], problem: Problem) -> None:
    plan = decide(problem, stages=stages)
    assert not [f for f in check(problem, plan) if f.severity is Severity.FATAL]
    assert plan.objective_usd >= decide(problem).objective_usd - 1e-6
