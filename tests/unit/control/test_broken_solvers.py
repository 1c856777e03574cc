"""A solver that is late, dead, raises, or answers nonsense: every turn still commits a valid plan, and every job starts that can."""

import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from federator.control.turns.lookouts import Lookouts
from federator.model.jobs import JobStatus
from federator.model.plans import Action, Place, Plan
from federator.model.snapshot import Problem
from federator.planning.checks import check
from federator.planning.world import window
from federator.ports import Solver
from federator.settings import TurnSettings
from federator.solving.child import ChildSolver
from federator.solving.frames import STAGES
from federator.solving.inline import InlineSolver
from tests.support.dispatch import World, make_world
from tests.support.waiting import PATIENCE_S
from tests.unit.control.test_bursting import POLICIES
from tests.unit.control.test_lookouts import Here

replace = msgspec.structs.replace
Spoil = Callable[[Plan], tuple[Action, ...]]


def _each(change: Callable[[Place], Action]) -> Spoil:
    return lambda plan: tuple(change(action) for action in plan.actions if isinstance(action, Place))


NONSENSE: dict[str, Spoil] = {
    "everything twice": lambda plan: plan.actions * 2,
    "a site that is not there": _each(lambda action: replace(action, site="nowhere")),
    "a pool that is not there": _each(lambda action: replace(action, pool="none")),
    "an older job": _each(lambda action: replace(action, revision=action.revision - 1)),
    "jobs that nobody has submitted": _each(lambda action: replace(action, job="j" + action.job[1:-1])),
    "no ranks": _each(lambda action: replace(action, members=(), sessions=())),
    "a rank too many": _each(
        lambda action: replace(action, members=action.members * 2, sessions=action.sessions * 2)
    ),
    "a session that has ended": _each(lambda action: replace(action, sessions=("gone",) * len(action.sessions))),
    "all of it where the first is": lambda plan: tuple(
        replace(a, site=plan.actions[0].site, members=plan.actions[0].members, sessions=plan.actions[0].sessions)
        for a in plan.actions
        if isinstance(a, Place) and isinstance(plan.actions[0], Place)
    ),
}  # fmt: skip


class Mad(InlineSolver):
    """Spoils its plan, or part of it."""

    def __init__(self, spoil: Spoil) -> None:
        self.spoil, self.spoiled = spoil, 0

    async def decide(self, problem: Problem, **limits: Any) -> Plan | None:
        """As it should be, spoiled."""
        plan = await super().decide(problem, **limits)
        assert plan is not None
        self.spoiled += bool(plan.actions)
        return replace(plan, winner="lp", actions=self.spoil(plan)) if plan.actions else plan


class Unreliable(InlineSolver):
    """Late, dead, raising or mad, as the dice fall."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)

    async def decide(self, problem: Problem, **limits: Any) -> Plan | None:
        """Any of it."""
        fate = self.dice.choice(["late", "mad", "starved", "well"])
        if fate == "late":
            return None
        if fate == "starved":
            return await super().decide(problem, **(limits | {"stages": ("greedy",)}))
        spoil: Spoil = (
            self.dice.choice(list(NONSENSE.values())) if fate == "mad" else lambda plan: plan.actions
        )
        return await Mad(spoil).decide(problem, **limits)


async def _world(solver: Solver, **settings: Any) -> World:
    world = await make_world()
    world.core.turn.settings = TurnSettings(solver=True, fast_path=False, **settings)
    world.core.turn.solver = solver
    await world.add_site("lab", nodes=2, gpus=4)
    await world.add_site("attic", nodes=1, gpus=2)
    return world


@pytest.mark.parametrize("sort", NONSENSE)
async def test_nonsense_of_any_sort_costs_the_solver_its_plan_and_no_job_its_start(sort: str) -> None:
    solver = Mad(NONSENSE[sort])
    world = await _world(solver)
    jobs = [
        await world.submit(nodes=nodes, resources={"gpus": gpus}) for nodes, gpus in ((2, 3), (1, 2), (1, 1))
    ]
    await world.turn()
    assert solver.spoiled
    assert [world.job(job).status for job in jobs] == [JobStatus.RUNNING] * 3
    assert {world.placement(job).winner for job in jobs} == {"greedy"}


async def test_who_waits_is_told_why_under_fallback_too() -> None:
    """Nothing of an explanation comes from the solver: place by place it is why not, and what would help."""
    world = await _world(Mad(NONSENSE["everything twice"]))
    first, second = [await world.submit(nodes=2, resources={"gpus": 3}, estimate="1h") for _ in range(2)]
    await world.turn()
    assert world.placement(first).winner == "greedy"
    found = await world.core.views.explain(world.job(second))
    assert found.status is JobStatus.PENDING
    assert {(site.site, site.filter) for site in found.sites} == {("lab", "busy"), ("attic", "gpus-per-node")}
    assert found.expected_start_at is not None
    assert found.changes


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_the_solver_does_all_jobs_are_done_and_never_more_than_fit(seed: int) -> None:
    world = await _world(Unreliable(seed))
    dice = Random(seed)
    jobs = [
        await world.submit(
            nodes=dice.choice([1, 1, 2]), resources={"gpus": dice.randint(1, 4)}, estimate="1h"
        )
        for _ in range(12)
    ]
    for _ in range(40):
        await world.turn()
        running = [world.placement(job) for job in jobs if world.job(job).status is JobStatus.RUNNING]
        assert sum(placement.gpus for placement in running if placement.site == "lab") <= 8
        assert sum(placement.gpus for placement in running if placement.site == "attic") <= 2
        for placement in running:
            await world.sites[placement.site].finish(placement.job)
        if all(world.job(job).terminal for job in jobs):
            break
    assert {world.job(job).status for job in jobs} == {JobStatus.SUCCEEDED}


DIES = """
import os, pathlib, signal, sys
from federator.solving import decide, linear, local_search, worker

def die(*_args, **_fields):
    pathlib.Path(%r).touch()
    os.kill(os.getpid(), signal.SIGKILL)

%s = die
sys.argv[1:] = sys.argv[3:]
worker.main()
"""
"""The worker, but in one stage it leaves a mark and is gone."""
WITHIN = {
    "greedy": "decide._first", "lead": "decide.lead_starts", "lp": "linear.solve", "local-search": "local_search.improve",
}  # fmt: skip
"""What each stage is done by."""


@pytest.mark.parametrize("stage", WITHIN)
async def test_a_child_that_is_killed_in_whatever_stage_costs_the_turn_nothing_but_its_plan(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(STAGES) <= WITHIN.keys()
    mark, program, python = tmp_path / "mark", tmp_path / "worker.py", tmp_path / "python"
    program.write_text(DIES % (str(mark), WITHIN[stage]))
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {program} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(window, "MOST_JOBS", 20)
    solver = ChildSolver()
    world = await _world(solver, solver_limit_s=PATIENCE_S)
    await world.policies(POLICIES)
    await world.core.executor.poll()
    for number in range(24):
        fields: dict[str, Any] = {"finish_within": f"{110 + 30 * (number % 3)}m", "value": "90 USD"}
        await world.submit(
            resources={"gpus": 1 + number % 3}, estimate=f"{60 + number}m", max_duration="3h", **fields
        )
    if stage == "lead":
        await Lookouts(world.core.turn.observer, Here()).once()
    monkeypatch.setattr(sys, "executable", str(python))
    try:
        plan = await world.turn()
    finally:
        await solver.close()
    assert mark.exists(), "it came to that stage"
    assert solver.restarts == 1
    assert world.core.turn.last is not None
    problem, _ = world.core.turn.last
    assert bool(problem.leads) == (stage == "lead")
    assert plan is not None
    assert plan.winner == "greedy"
    assert not check(problem, plan)
    assert world.core.records.open_placements
