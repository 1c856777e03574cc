"""Recorded decisions replay to the same bytes, whichever way they were come by."""

import asyncio
import time
from itertools import pairwise
from typing import Any

import msgspec

from federator.kernel.clock import SystemClock
from federator.model.jobs import JobStatus
from federator.model.plans import Place, Plan, StageReport
from federator.model.reasons import GreedyAlone
from federator.model.snapshot import Problem
from federator.settings import TurnSettings
from federator.solving.inline import InlineSolver
from federator.wire.decisions import ReplayResult
from tests.support.dispatch import World, make_world
from tests.support.waiting import until


async def replayed(world: World) -> list[ReplayResult]:
    """Every recorded decision, run again."""
    decisions = world.core.decisions
    decisions.solver = InlineSolver()
    return [await decisions.replay(row.id) for row in decisions.rows()]


async def test_a_decision_of_the_fast_path_replays() -> None:
    """Only part of its plan was committed; the record holds what was decided."""
    world = await make_world()
    await world.add_site("lab", nodes=1, gpus=4)
    short = await world.submit(resources={"gpus": 1}, estimate="10s")
    long = await world.submit(resources={"gpus": 1}, estimate="3h")
    await world.turn()
    assert world.job(short).status is world.job(long).status is JobStatus.RUNNING
    assert world.placement(short).winner_reason == GreedyAlone(situation="fast-path")
    assert [row.actions for row in world.core.decisions.rows()] == [1, 1]
    assert await replayed(world) == [ReplayResult(identical=True)] * 2


async def test_a_decision_without_its_late_solver_replays() -> None:
    world = await make_world()
    world.core.turn.settings = TurnSettings(solver=True)
    await world.add_site("lab", nodes=1, gpus=4)
    job = await world.submit(resources={"gpus": 1}, estimate="3h")
    await world.turn()
    assert world.placement(job).winner_reason == GreedyAlone(situation="solver-failed")
    assert await replayed(world) == [ReplayResult(identical=True)]


class Unfinished(InlineSolver):
    """Gives up its last stage."""

    async def decide(self, problem: Problem, **limits: Any) -> Plan | None:
        plan = await super().decide(problem, **{**limits, "stages": ("greedy",)})
        given_up = StageReport(stage="lp", completed=False, note="the limit on iterations was reached")
        return plan and msgspec.structs.replace(plan, stages=(*plan.stages, given_up))


async def test_a_decision_with_a_stage_given_up_replays_with_those_that_completed() -> None:
    world = await make_world()
    world.core.turn.settings = TurnSettings(solver=True)
    world.core.turn.solver = Unfinished()
    await world.add_site("lab", nodes=1, gpus=4)
    await world.submit(resources={"gpus": 1}, estimate="3h")
    await world.turn()
    assert await replayed(world) == [ReplayResult(identical=True)]


class Wrong(InlineSolver):
    """Its plans start every job at a site that is not there."""

    async def decide(self, problem: Problem, **limits: Any) -> Plan | None:
        plan = await super().decide(problem, **{**limits, "stages": ("greedy",)})
        assert plan is not None
        actions = tuple(msgspec.structs.replace(action, site="nowhere") for action in plan.actions)
        return msgspec.structs.replace(plan, winner="lp", actions=actions)


async def test_a_plan_that_the_checker_rejects_is_kept_beside_the_one_that_was_committed() -> None:
    world = await make_world()
    world.core.turn.settings = TurnSettings(solver=True)
    world.core.turn.solver = Wrong()
    await world.add_site("lab", nodes=1, gpus=4)
    job = await world.submit(resources={"gpus": 1}, estimate="3h")
    await world.turn()
    assert world.job(job).status is JobStatus.RUNNING
    rejected, committed = world.core.decisions.rows()
    assert (rejected.winner, rejected.actions) == ("lp", 0)
    assert (committed.winner, committed.actions) == ("greedy", 1)
    assert world.placement(job).decision == committed.id
    _, plan = await world.core.decisions.load(rejected.id)
    assert [action.site for action in plan.actions if isinstance(action, Place)] == ["nowhere"]


async def test_turns_keep_their_distance_while_events_keep_coming() -> None:
    world = await make_world()
    turn = world.core.turn
    turn.settings = TurnSettings(solver=False, minimum_gap_s=0.2, coalesce_s=0.0)
    turns: list[float] = []

    async def once() -> None:
        turns.append(time.monotonic())
        turn.wake()

    turn.once = once  # type: ignore[method-assign]
    began = time.monotonic()
    task = asyncio.create_task(turn.run())
    await until(lambda: len(turns) >= 4, "four turns")
    task.cancel()
    assert all(at - began >= 0.19 * number for number, at in enumerate(turns))


async def test_planning_rests_for_as_long_as_it_took_while_events_keep_coming() -> None:
    world = await make_world()
    turn = world.core.turn
    turn.settings = TurnSettings(solver=False, minimum_gap_s=0.0, coalesce_s=0.0)
    turns: list[float] = []

    async def once() -> None:
        turns.append(time.monotonic())
        await asyncio.sleep(0.1)
        turn.wake()

    turn.once = once  # type: ignore[method-assign]
    task = asyncio.create_task(turn.run())
    await until(lambda: len(turns) >= 4, "four turns")
    task.cancel()
    assert all(after - before >= 0.19 for before, after in pairwise(turns))


async def test_a_turn_begins_at_once_when_nothing_was_going_on() -> None:
    world = await make_world()
    turn = world.core.turn
    turn.clock = SystemClock()  # else the heartbeat never waits
    turn.settings = TurnSettings(solver=False, minimum_gap_s=0.01, coalesce_s=3600.0)
    turns: list[float] = []

    async def once() -> None:
        turns.append(time.monotonic())

    turn.once = once  # type: ignore[method-assign]
    task = asyncio.create_task(turn.run())
    await until(lambda: len(turns) == 1, "the first turn")
    await asyncio.sleep(0.05)  # longer than the gap: now it is idle
    turn.wake()
    await until(lambda: len(turns) == 2, "a turn at once")
    task.cancel()
