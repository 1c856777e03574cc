"""Promise 8: whatever was decided, and whichever stages came to their end, a recorded decision replays to the same bytes, after a restart too."""

import random
from typing import Any

import pytest
from msgspec.structs import replace

from federator.model.plans import Plan
from federator.model.snapshot import Problem
from federator.settings import TurnSettings
from federator.solving.decide import decide
from federator.solving.frames import STAGES
from federator.solving.inline import InlineSolver
from federator.wire.decisions import ReplayResult
from tests.support.dispatch import World, make_world

POLICIES = """
apiVersion: federator/v1
kind: Queue
metadata: {name: owed}
spec: {guaranteed: {gpus: 4}, met_deadline_usd_per_gpu_hour: 20, waiting_usd_per_gpu_hour: 0.2, max_duration: 2d}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: rest}
spec: {limit: {gpus: 16}, met_deadline_usd_per_gpu_hour: 5, max_duration: 2d}
---
apiVersion: federator/v1
kind: BurstPolicy
metadata: {name: deadlines}
spec: {who: {queues: [owed]}, where: {models: [A100]}, limits: {usd: {per_day: 900}, instances: 3}}
"""
SITES = ((2, 4, "A100"), (1, 8, "H100"), (3, 2, "L4"))
TURNS = 60


class Killed(InlineSolver):
    """Runs to a stage drawn for each turn, and is killed in the next: the first is that it never answers."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.reached: set[int] = set()

    async def decide(self, problem: Problem, **limits: Any) -> Plan | None:
        reached = self._chance.randrange(len(STAGES) + 1)
        self.reached.add(reached)
        if reached == 0:
            return None
        return await super().decide(problem, **{**limits, "stages": STAGES[:reached]})


async def _some_turns(world: World, chance: random.Random, solver: Killed) -> None:
    """Work comes, ends and fails, sites fall silent and come back, time passes."""
    world.core.turn.settings = TurnSettings(solver=True)
    world.core.turn.solver = solver
    for _ in range(TURNS):
        for _ in range(chance.randrange(1, 4)):
            due: dict[str, Any] = {"finish_within": f"{chance.randrange(1, 30)}h", "value": "90 USD"}
            await world.submit(
                name=f"job{chance.randrange(5)}",
                queue=chance.choice(("owed", "rest")),
                nodes=chance.choice((1, 1, 1, 2)),
                resources={"gpus": chance.choice((1, 1, 2, 4, "H100:2"))},
                estimate=f"{chance.choice((1, 30, 90, 600))}m",
                **(due if chance.random() < 0.5 else {}),
            )
        await world.turn()
        world.clock.advance(chance.choice((0.1, 7.0, 60.0)))
        running = [each for each in world.core.records.open_placements.values() if each.status == "RUNNING"]
        for placement in chance.sample(running, chance.randrange(min(5, len(running) + 1))):
            site = world.sites.get(placement.members[0])
            if site is not None:
                await site.finish(placement.job, exit_code=chance.choice((0, 0, 1)))


@pytest.mark.parametrize("seed", range(4))
async def test_every_recorded_decision_replays_to_the_same_bytes(seed: int) -> None:
    chance = random.Random(seed)
    solver = Killed(chance)
    world = await make_world()
    for number, (nodes, gpus, model) in enumerate(SITES):
        await world.add_site(f"site-{number}", nodes=nodes, gpus=gpus, model=model)
    await world.policies(POLICIES)
    await _some_turns(world, chance, solver)
    again = await make_world(world.core.records.store, world.clock)  # type: ignore[arg-type]
    await again.core.decisions.load_index()
    for number, (nodes, gpus, model) in enumerate(SITES):
        again.connect(f"site-{number}", nodes, gpus, model)
    before = len(again.core.decisions.rows())
    await _some_turns(again, chance, solver)

    third = (await make_world(world.core.records.store, world.clock)).core.decisions  # type: ignore[arg-type]
    await third.load_index()
    third.solver = InlineSolver()
    rows = third.rows()
    assert len(rows) > before > 30
    assert solver.reached == set(range(len(STAGES) + 1))
    assert len({row.checkpoint for row in rows}) < len(rows) / 3, "most are what changed since another"
    for row in rows:
        assert await third.replay(row.id) == ReplayResult(identical=True), row.id


async def test_a_decision_that_comes_out_otherwise_is_found() -> None:
    world = await make_world()
    await world.add_site("home", nodes=1, gpus=4)
    await world.submit(resources={"gpus": 1}, estimate="3h")
    await world.turn()
    log = world.core.decisions

    class Other(InlineSolver):
        async def decide(self, problem: Problem, **limits: Any) -> Plan | None:
            return decide(replace(problem, snapshot=replace(problem.snapshot, jobs=())))

    log.solver = Other()
    found = await log.replay(log.rows()[-1].id)
    assert not found.identical
    assert any("recorded: starts at home/main; now: nothing" in line for line in found.differences)
