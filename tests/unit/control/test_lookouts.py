"""Outlooks: made aside of lines that are longer than a window, used by the next windows, and dropped where they are old or there are none."""

from collections.abc import Sequence

import pytest

from federator.control.record.decisions import DecisionLog
from federator.control.turns import lookouts, waiting_line
from federator.control.turns.lookouts import Certificates, Lookouts
from federator.model.outlook import Outlook, Proof
from federator.model.plans import Plan
from federator.model.snapshot import Problem
from federator.planning.world import window
from federator.settings import RetentionSettings
from federator.solving.child import ChildSolver
from federator.solving.inline import InlineSolver
from federator.solving.outlook import look_ahead
from federator.solving.plan_check import prove
from federator.telemetry import METRICS
from federator.wire.decisions import ReplayResult
from tests.support.dispatch import World, make_world
from tests.support.waiting import PATIENCE_S


class Here:
    """Makes outlooks in this process, or none."""

    def __init__(self, *, any_: bool = True) -> None:
        self.any, self.closed = any_, False
        self.asked: list[tuple[Problem, list[int]]] = []
        self.certified: list[str] = []

    async def look_ahead(self, problem: Problem, counts: Sequence[int], *, limit_s: float) -> Outlook | None:
        assert limit_s > 0.0
        self.asked.append((problem, list(counts)))
        return look_ahead(problem, counts) if self.any else None

    async def certify(self, problem: Problem, plan: Plan, *, limit_s: float) -> Proof | None:
        assert limit_s > 0.0
        self.certified.append(plan.decision)
        return prove(problem, plan) if self.any else None

    async def close(self) -> None:
        self.closed = True


async def crowded(monkeypatch: pytest.MonkeyPatch, jobs: int = 24) -> World:
    """More kinds of work than a window holds, on four GPUs."""
    monkeypatch.setattr(window, "EVALUATIONS", 60)
    monkeypatch.setattr(window, "MOST_JOBS", 12)
    world = await make_world()
    await world.add_site("home")
    world.core.turn.observer.line.evaluations = 60
    for number in range(jobs):
        await world.submit(resources={"gpus": "A100:1"}, estimate=f"{3600 + 60 * (number % 6)}s")
    return world


async def test_the_next_windows_are_chosen_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world, here = await crowded(monkeypatch), Here()
    observer = world.core.turn.observer
    await observer.look()
    assert observer.line.outside == {}
    asks = Lookouts(observer, here)
    await asks.once()
    ((problem, counts),) = here.asked
    assert sum(counts) == 24
    assert len(problem.snapshot.jobs) == len(counts) == 6
    snapshot = await observer.look()
    assert observer.line.outside
    assert len(snapshot.jobs) <= 12
    await asks.once()
    assert here.asked[1][0].warm_prices, "the next one begins with the prices of the last"


async def test_a_turn_tells_its_problem_what_others_will_use(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await crowded(monkeypatch)
    await Lookouts(world.core.turn.observer, Here()).once()
    await world.turn()
    assert world.core.turn.last is not None
    problem, _ = world.core.turn.last
    assert problem.outside
    assert problem.outside == world.core.turn.observer.line.outside


async def test_an_old_one_is_not_used_nor_one_that_could_not_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await crowded(monkeypatch)
    observer = world.core.turn.observer
    await Lookouts(observer, Here()).once()
    world.clock.advance(waiting_line.OLDEST_S + 1.0)
    await observer.look()
    assert observer.line.outside == {}
    await Lookouts(observer, Here()).once()
    await observer.look()
    assert observer.line.outside
    await Lookouts(observer, Here(any_=False)).once()
    await observer.look()
    assert observer.line.outside == {}


async def test_a_short_line_asks_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    world, here = await crowded(monkeypatch, jobs=4), Here()
    asks = Lookouts(world.core.turn.observer, here)
    assert await asks.once() == 0.0
    assert here.asked == []
    await asks.close()
    assert here.closed
    await Lookouts(world.core.turn.observer, None).run()


async def test_a_child_makes_the_same_as_is_made_here(monkeypatch: pytest.MonkeyPatch) -> None:
    world, here = await crowded(monkeypatch), Here()
    await Lookouts(world.core.turn.observer, here).once()
    ((problem, counts),) = here.asked
    child = ChildSolver(10, "the published order holds")
    try:
        found = await child.look_ahead(problem, counts, limit_s=PATIENCE_S)
        assert found == look_ahead(problem, counts)
        assert found is not None
        assert await child.look_ahead(problem, [], limit_s=PATIENCE_S) is None
        assert child.restarts == 0
    finally:
        await child.close()


async def test_a_line_of_too_many_classes_asks_for_none(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It would keep the event loop busy for too long. That is told, once."""
    world, here = await crowded(monkeypatch), Here()
    monkeypatch.setattr(lookouts, "MOST_CLASSES", 5)
    before = METRICS.value("federator_outlooks_total", result="none") or 0.0
    asks = Lookouts(world.core.turn.observer, here)
    for _ in range(3):
        assert await asks.once() == 0.0
    assert here.asked == []
    assert METRICS.value("federator_outlooks_total", result="none") == before + 1
    assert caplog.text.count("more than 5 classes") == 1


async def test_where_there_is_none_it_is_asked_for_again_once_the_line_has_changed_by_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, here = await crowded(monkeypatch), Here(any_=False)
    asks = Lookouts(world.core.turn.observer, here)
    for _ in range(3):
        await asks.once()
    assert len(here.asked) == 1
    await world.submit(resources={"gpus": "A100:1"}, estimate="9h")
    await asks.once()
    assert len(here.asked) == 2, "seven classes instead of six"
    await asks.once()
    assert len(here.asked) == 2
    monkeypatch.setattr(lookouts, "AGAIN_S", 0.0)
    here.any = True
    await asks.once()
    await asks.once()
    assert len(here.asked) == 4, "and as often as ever once there is one"


async def test_a_decision_is_certified_once_in_so_many_turns() -> None:
    world, here = await make_world(), Here()
    await world.add_site("home")
    turn = world.core.turn
    certificates = Certificates(turn, world.core.decisions, here, every=2)
    for number in range(5):
        await world.submit(resources={"gpus": "A100:1"}, estimate=f"{1 + number}h")
        plan = await turn.once()
        proof = await certificates.once()
        assert plan is not None
        assert (proof is not None) == (number in {1, 3})
        assert here.certified[-1:] == ([plan.decision] if proof else here.certified[-1:])
        assert world.core.decisions.proof(plan.decision) == proof
        if proof is not None:
            assert METRICS.value("federator_decision_gap_ratio") == proof.gap
            assert METRICS.value("federator_decision_bound_usd") == proof.bound_usd
    assert len(here.certified) == 2


async def test_a_decision_that_did_nothing_is_recorded_where_it_was_certified() -> None:
    world, here = await make_world(), Here()
    await world.add_site("home", nodes=1, gpus=1)
    certificates = Certificates(world.core.turn, world.core.decisions, here, every=2)
    assert await world.core.turn.once() is None
    assert await certificates.once() is None, "nothing waits"
    for _ in range(2):
        await world.submit(resources={"gpus": "A100:1"}, estimate="1h")
    await world.core.turn.once()
    idle = await world.core.turn.once()
    assert idle is not None
    assert not idle.actions
    proof = await certificates.once()
    decisions = world.core.decisions
    assert proof is not None
    assert decisions.proof(idle.decision) == proof
    assert [row.actions for row in decisions.rows()] == [1, 0]
    again = DecisionLog(world.core.records, RetentionSettings(), InlineSolver())
    await again.load_index()
    assert again.rows() == decisions.rows()
    assert await again.replay(idle.decision) == ReplayResult(identical=True)
    none_kept = DecisionLog(world.core.records, RetentionSettings(decisions=0), InlineSolver())
    assert world.core.turn.last is not None
    await none_kept.certified(*world.core.turn.last, proof)
    assert none_kept.rows() == []


async def test_what_cannot_be_certified_is_tried_less_often_and_without_a_process_or_a_number_nothing_is() -> (
    None
):
    world, here = await make_world(), Here(any_=False)
    await world.add_site("home")
    turn = world.core.turn
    certificates = Certificates(turn, world.core.decisions, here, every=1)
    for number in range(4):
        await world.submit(resources={"gpus": "A100:1"}, estimate=f"{1 + number}h")
        await turn.once()
        assert await certificates.once() is None
    assert len(here.certified) == 2, "at the first and at the third turn"
    await Certificates(turn, world.core.decisions, here, every=0).run()
    await Certificates(turn, world.core.decisions, None, every=1).run()


async def test_a_child_certifies_as_it_is_done_here() -> None:
    world = await make_world()
    await world.add_site("home")
    await world.submit(resources={"gpus": "A100:1"}, estimate="1h")
    await world.core.turn.once()
    assert world.core.turn.last is not None
    problem, plan = world.core.turn.last
    child = ChildSolver()
    try:
        assert await child.certify(problem, plan, limit_s=PATIENCE_S) == prove(problem, plan) is not None
    finally:
        await child.close()
