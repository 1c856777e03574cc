"""Advice to a waiting job keeps its word: whoever does what it says and plans again finds the reason gone, in at least 95 of 100 random cases, whether greedy alone plans or all stages do.

Gone means that the job starts, or that something of another kind keeps it. It is not a theorem: what is added is reckoned from what the plan left, and the
next plan may give it to others. Half of the cases are of odd little worlds, in which every filter and policy occurs, half of crowded ones, in which jobs
wait for each other. Who is advised nothing is counted, too. `pytest -rP` prints the figures by kind of reason.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from federator.model.plans import Plan, Waiting
from federator.model.rights import MAX_PRIORITY
from federator.model.snapshot import Problem
from federator.planning.explanations.changes import apply
from federator.planning.explanations.explain import explain_waiting
from federator.planning.explanations.higher_priority import PriorityTrials
from federator.planning.plans.greedy import plan_greedily
from federator.solving.decide import decide
from tests.bench.solver.instances import Instance, Parameters
from tests.support.examples import NIGHTLY, examples
from tests.support.worlds import worlds_at_random

CASES = examples(100)
"""Of each kind of world."""
GONE = 0.95 if NIGHTLY else 0.9
"""A hundred cases are a coarse measure."""
MOST_ALIKE = CASES // 6
"""So many of one reason are tried in little worlds: those that only time lifts are many, and say little."""
ROOM = {"busy", "held"}
"""Two words for one reason."""
NOTHING_TO_DO = {"", "reclaiming"}
"""No site is connected and nothing is for rent; or others make room already."""
MOST_UNTOLD = CASES // 20
"""So many more may have no advice: no way is known that ends at a place with room."""
Planner = Callable[[Problem], Plan]
both = pytest.mark.parametrize("planner", [plan_greedily, decide])
the_same_worlds = settings(
    max_examples=examples(200), deadline=None, derandomize=True, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)  # fmt: skip
pytestmark = pytest.mark.timeout(900)
"""At night a thousand plans and explanations take minutes of a processor by all stages, and many times that where others use it too."""


@dataclass
class Kept:
    """What was advised, by reason; how often the reason was gone then, and how often the job started; and for which reasons nothing was."""

    planner: Planner
    told: Counter[str] = field(default_factory=Counter)
    gone: Counter[str] = field(default_factory=Counter)
    started: Counter[str] = field(default_factory=Counter)
    untold: Counter[str] = field(default_factory=Counter)

    def hold(self, problem: Problem, plan: Plan, waiting: Waiting) -> None:
        """Do what the job is advised to, and plan again."""
        found = explain_waiting(problem, plan, waiting.job)
        advice = next((each for each in found.remedies if not each.certain), None)
        if advice is None:
            self.untold[waiting.reason] += 1
            return
        assert any(advice.text in line for line in found.changes)
        reason = waiting.reason
        assert reason, waiting
        again = self.planner(apply(problem, advice.changes))
        now = next((each.reason for each in again.waiting if each.job == waiting.job), None)
        self.told[reason] += 1
        self.started[reason] += now is None
        self.gone[reason] += now != reason and not {now, reason} <= ROOM

    def judge(self, kinds: int) -> None:
        """At least 95 of 100, over enough cases of enough kinds, and hardly anybody without advice."""
        shares = {
            name: f"{self.gone[name]} of {count}, {self.started[name]} start"
            for name, count in self.told.most_common()
        }
        print(f"{self.gone.total()} of {self.told.total()}, {self.started.total()} start:", shares)  # noqa: T201 - the figures of the docs
        print("without advice:", dict(self.untold))  # noqa: T201 - likewise
        assert self.told.total() == CASES
        assert len(self.told) >= kinds, shares
        assert self.gone.total() >= GONE * CASES, shares
        assert sum(self.untold[name] for name in self.untold.keys() - NOTHING_TO_DO) <= MOST_UNTOLD


@both
def test_in_odd_little_worlds(planner: Planner) -> None:
    kept = Kept(planner)

    @the_same_worlds
    @given(worlds_at_random(most_jobs=12))
    def try_one(problem: Problem) -> None:
        if kept.told.total() == CASES:
            return
        plan = planner(problem)
        for waiting in plan.waiting:
            if kept.told.total() < CASES and kept.told[waiting.reason] < MOST_ALIKE:
                kept.hold(problem, plan, waiting)

    try_one()
    kept.judge(kinds=15)


@both
def test_in_crowded_worlds(planner: Planner) -> None:
    kept = Kept(planner)
    for problem in _crowded():
        plan = planner(problem)
        for waiting in plan.waiting[::2]:
            if kept.told.total() < CASES:
                kept.hold(problem, plan, waiting)
        if kept.told.total() == CASES:
            break
    kept.judge(kinds=5)


@both
def test_a_job_that_is_given_the_priority_that_it_is_advised_starts_earlier(planner: Planner) -> None:
    """The forecast at home that finds it knows no rental and no displaced work, and the solver may choose another order."""
    outcome = Counter[str]()
    for problem in _crowded():
        plan, trials = planner(problem), PriorityTrials(problem)
        for waiting in plan.waiting[::4]:
            advice = trials.lowest((waiting.job,), MAX_PRIORITY)
            if waiting.expected_start_at is None or advice is None:
                continue
            again = planner(apply(problem, advice.changes))
            then = next((each.expected_start_at for each in again.waiting if each.job == waiting.job), 0.0)
            outcome["earlier" if then is not None and then < waiting.expected_start_at else "not"] += 1
        if outcome.total() >= CASES // 2:
            break
    print(outcome)  # noqa: T201 - the figures of the docs
    assert outcome.total() >= CASES // 4
    assert outcome["earlier"] >= 0.8 * outcome.total(), outcome


def _crowded() -> Iterator[Problem]:
    for seed in range(examples(100)):
        yield Instance(Parameters(jobs=24, sites=3, seed=seed)).problem()
