"""Plays the stories in this folder: what is decided, for which reason, and that the independent checker finds nothing against it."""

from typing import Any

import msgspec
import pytest

from federator.model.plans import Place, Plan, Preempt, Rent, Severity
from federator.planning.checks import check
from federator.planning.plans.greedy import plan_greedily
from federator.planning.wording.told import told_plan
from federator.solving.decide import decide
from tests.scenarios.reading import NOW, Scenario, scenarios

STORIES = list(scenarios())


def _compare(plan: Plan, expect: dict[str, Any]) -> None:
    """Everything that the story names, and no action that it does not name."""
    plan = told_plan(plan)
    starts = {a.job: a.site for a in plan.actions if isinstance(a, Place)}
    rents = {a.job: a.offer for a in plan.actions if isinstance(a, Rent)}
    stops = {a.job: a.beneficiary for a in plan.actions if isinstance(a, Preempt)}
    assert starts == expect.get("start", {})
    assert rents == expect.get("rent", {})
    assert stops == expect.get("preempt", {})
    waiting = {w.job: w for w in plan.waiting}
    assert set(waiting) == set(expect.get("wait", {}))
    for job, wanted in expect.get("wait", {}).items():
        found = waiting[job]
        assert found.kind == wanted["kind"], found
        assert wanted["says"] in found.because, found
        if "change" in wanted:
            assert wanted["change"] in found.change, found
    _compare_rest(plan, expect)


def _compare_rest(plan: Plan, expect: dict[str, Any]) -> None:
    for job, members in expect.get("members", {}).items():
        action = next(a for a in plan.actions if a.job == job)
        assert isinstance(action, Place)
        assert list(action.members) == members
        assert list(action.sessions) == [f"session-{member}" for member in members]
    for job, form in expect.get("form", {}).items():
        assert next(a.form for a in plan.actions if a.job == job) == form
    for job, words in expect.get("because", {}).items():
        action = next(a for a in plan.actions if a.job == job)
        assert words in action.because
    if "wake_min" in expect:
        assert plan.wake_at is not None
        assert (plan.wake_at - NOW) / 60 == pytest.approx(expect["wake_min"], abs=0.5)
    if "rent_usd" in expect:
        assert plan.terms["rent"] == pytest.approx(expect["rent_usd"], abs=0.01)
    if "egress_usd" in expect:
        assert plan.terms["egress"] == pytest.approx(expect["egress_usd"], abs=0.01)
        moved = sum(a.moves.usd for a in plan.actions if isinstance(a, Place | Rent) and a.moves)
        assert moved == pytest.approx(expect["egress_usd"], abs=0.01)
    if "miss_usd" in expect:
        assert plan.terms["miss"] == pytest.approx(expect["miss_usd"], abs=0.01)


@pytest.mark.parametrize("story", STORIES, ids=[story.name for story in STORIES])
def test_story(story: Scenario) -> None:
    plan = decide(story.problem)
    assert [f for f in check(story.problem, plan) if f.severity is Severity.FATAL] == []
    _compare(plan, story.expect)
    if "winner" in story.expect:
        assert plan.winner in story.expect["winner"]
        assert story.expect["winner_says"] in told_plan(plan).winner_because


@pytest.mark.parametrize("story", STORIES, ids=[story.name for story in STORIES])
def test_greedy_alone_does_the_same_unless_the_story_says_otherwise(story: Scenario) -> None:
    plan = plan_greedily(story.problem)
    assert [f for f in check(story.problem, plan) if f.severity is Severity.FATAL] == []
    _compare(plan, story.expect.get("greedy", story.expect))


@pytest.mark.parametrize("story", STORIES, ids=[story.name for story in STORIES])
def test_a_recorded_problem_replays_byte_for_byte(story: Scenario) -> None:
    recorded = msgspec.msgpack.encode(story.problem)
    again = msgspec.msgpack.decode(recorded, type=type(story.problem))
    assert msgspec.msgpack.encode(decide(again)) == msgspec.msgpack.encode(decide(story.problem))
