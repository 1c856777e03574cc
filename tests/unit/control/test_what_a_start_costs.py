"""What small jobs cost a dispatcher that has nothing else to do, in counts: turns, decisions, looks and transactions.

Tests hold no times, so these can creep up unseen: a job was once decided twice, the second time when nothing was waiting any more. Whoever needs more
of something says here what for.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from federator.control.turns import turn
from federator.control.turns.observation import Observer
from federator.planning.world.problem import World as DecidedWorld
from federator.settings import TurnSettings
from federator.simulation.virtual_time import LoopClock, VirtualLoop, run
from federator.store.memory import MemoryStore
from tests.support.dispatch import World, make_world

JOBS = 20
LEARNED = 3
"""So many runs tell that work of this name is short; until then it is decided with all the rest, by the solver where there is one."""
COMMITS = 5
"""Of a job: it is accepted, it is placed, that decision is kept for replays, it runs, it has ended."""


def _count(patch: pytest.MonkeyPatch, counts: Counter[str], where: Any, name: str, what: str) -> None:
    real: Callable[..., Any] = getattr(where, name)

    def counting(*args: Any, **kwargs: Any) -> Any:
        counts[what] += 1
        return real(*args, **kwargs)

    patch.setattr(where, name, counting)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    counts: Counter[str] = Counter()
    _count(monkeypatch, counts, turn.Turn, "once", "turns")
    _count(monkeypatch, counts, turn, "plan_quickly", "quick decisions")
    _count(monkeypatch, counts, turn, "plan_greedily", "whole decisions")
    _count(monkeypatch, counts, DecidedWorld, "__init__", "decided worlds")
    _count(monkeypatch, counts, Observer, "snapshot", "looks")
    _count(monkeypatch, counts, MemoryStore, "commit", "commits")
    return counts


@asynccontextmanager
async def _turning(loop: VirtualLoop) -> AsyncIterator[World]:
    """A dispatcher with one site, which plans whenever there is an occasion; the runs of its one kind of work are known to be short."""
    world = await make_world(clock=LoopClock(loop))  # type: ignore[arg-type] # nobody moves it: time passes by itself
    await world.add_site("north")
    world.core.records.subscribe(world.core.turn.occasion.note)
    world.core.inventory.subscribe(world.core.turn.occasion.hear)
    running = asyncio.ensure_future(world.core.turn.run())
    try:
        for _ in range(LEARNED):
            await _one(world)
        yield world
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def _one(world: World) -> None:
    """A job that does nothing, from being asked for to its end."""
    job = await world.submit(name="nothing", run="true", resources={"cpus": 1})
    await asyncio.sleep(0.3)
    await world.obey()
    await asyncio.sleep(0.2)
    await world.sites["north"].finish(job)
    await asyncio.sleep(0.3)
    assert world.job(job).terminal


def test_a_job_that_does_nothing_costs_one_turn_and_one_decision(counts: Counter[str]) -> None:
    async def main(loop: VirtualLoop) -> None:
        async with _turning(loop) as world:
            counts.clear()
            for _ in range(JOBS):
                await _one(world)

    run(main)
    assert counts == {
        "turns": JOBS,
        "quick decisions": JOBS,
        "decided worlds": JOBS,
        "looks": 3 * JOBS,  # what waits, whether it still holds, what is left
        "commits": COMMITS * JOBS,
    }


def test_jobs_that_come_faster_than_turns_share_them(counts: Counter[str]) -> None:
    """Each waits no longer for that: turns follow each other as quickly as their settings let them."""
    many, every_s = 100, 0.01

    async def main(loop: VirtualLoop) -> None:
        async with _turning(loop) as world:
            counts.clear()
            jobs = []
            for _ in range(many):
                jobs.append(await world.submit(name="nothing", run="true", resources={"cpus": "100m"}))
                await asyncio.sleep(every_s)
            await asyncio.sleep(1.0)
            assert all(world.job(job).placement for job in jobs)

    run(main)
    assert counts["turns"] <= many * every_s / TurnSettings().minimum_gap_s + 2
    assert counts["quick decisions"] == counts["decided worlds"] == counts["turns"]
    assert counts["whole decisions"] == 0
    assert counts["commits"] <= many + 2 * counts["turns"]
