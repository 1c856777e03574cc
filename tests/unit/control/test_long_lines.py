"""A line that is longer than what a turn looks at: work goes on, everyone has a reason, and what is not seen is not forgotten."""

from collections.abc import Callable
from typing import Any

import pytest

from federator.control.turns import waiting_line
from federator.model.jobs import JobStatus
from federator.planning.world import window
from federator.wire.http import JobPatch
from tests.support.dispatch import ADA, BOB, World, make_world


@pytest.fixture(autouse=True)
def _short_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "MOST_JOBS", 12)
    monkeypatch.setattr(window, "EVALUATIONS", 60)
    monkeypatch.setattr(waiting_line, "EVALUATIONS", 60)
    monkeypatch.setattr(waiting_line, "FEWEST_EVALUATIONS", 20)
    monkeypatch.setattr(window, "MARGIN", 1)


async def crowd(world: World, count: int, **fields: Any) -> list[str]:
    """So many jobs of different length, in one queue."""
    return [
        await world.submit(resources={"gpus": "A100:1"}, estimate=f"{number + 1}h", **fields)
        for number in range(count)
    ]


async def test_every_job_of_a_long_line_runs_in_the_end() -> None:
    world = await make_world()
    site = await world.add_site("home", gpus=4)
    jobs = await crowd(world, 50)
    for _ in range(60):
        plan = await world.turn()
        if plan is None:
            break
        assert len(plan.waiting) + len(plan.actions) <= 12
        for job in jobs:
            if world.job(job).status is JobStatus.RUNNING:
                await site.finish(job)
    assert {world.job(job).status for job in jobs} <= {JobStatus.SUCCEEDED, JobStatus.RUNNING}


async def test_what_is_outside_the_window_is_told_how_many_are_before_it() -> None:
    world = await make_world()
    await world.add_site("home", gpus=4)
    jobs = await crowd(world, 40)
    plan = await world.turn()
    assert plan is not None
    last = jobs[-1]
    assert last not in {waiting.job for waiting in plan.waiting}
    row = world.core.views.row(world.job(last))
    assert row.because == "39 waiting jobs are before it, and what is free now is for them"
    assert row.expected_start_at is not None
    assert row.expected_start_at > world.clock.now()
    told = await world.core.views.explain(world.job(last))
    assert told.because == row.because
    assert {site.site: site.filter for site in told.sites}["home"] == "busy"


async def test_what_is_outside_has_the_reason_of_those_that_are_like_it() -> None:
    world = await make_world()
    await world.add_site("home", gpus=4)
    impossible = [await world.submit(resources={"gpus": "H100:1"}) for _ in range(40)]
    plan = await world.turn()
    assert plan is not None
    outside = next(job for job in reversed(impossible) if job not in world.core.turn.waiting)
    because = world.core.views.row(world.job(outside)).because
    assert because.startswith("nowhere to run")
    assert (await world.core.views.explain(world.job(outside))).because == because


async def test_a_job_that_is_changed_moves_in_the_line() -> None:
    world = await make_world()
    site = await world.add_site("home", gpus=1)
    jobs = await crowd(world, 40)
    await world.turn()
    last = jobs[-1]
    assert last not in world.core.turn.waiting
    await world.core.intake.update(ADA, last, JobPatch(priority=100))
    await site.finish(next(job for job in jobs if world.job(job).status is JobStatus.RUNNING))
    await world.turn()
    assert world.job(last).status is JobStatus.RUNNING


async def test_a_follower_joins_the_line_when_its_turn_has_come() -> None:
    world = await make_world()
    site = await world.add_site("home", gpus=4)
    first = await world.submit(name="first", resources={"gpus": "A100:1"})
    then = await world.submit(name="then", after=["first"], resources={"gpus": "A100:1"}, priority=100)
    await world.turn()
    await crowd(world, 40)
    assert world.job(then).status is JobStatus.PENDING
    await site.finish(first)
    await world.turn()
    assert world.job(then).status is JobStatus.RUNNING


async def test_cancelled_jobs_leave_the_line() -> None:
    world = await make_world()
    jobs = await crowd(world, 40)
    await world.turn()
    for job in jobs:
        await world.core.intake.cancel(ADA, job)
    assert await world.turn() is None


async def test_a_loud_owner_does_not_hide_a_queue() -> None:
    world = await make_world()
    await world.policies(QUEUES)
    await world.add_site("home", gpus=1)
    await crowd(world, 40, queue="loud", priority=90)
    quiet = await world.submit(BOB, resources={"gpus": "A100:1"}, queue="quiet", priority=10)
    await world.turn()
    assert quiet in world.core.turn.waiting


async def test_a_window_that_the_solver_is_late_for_shrinks_and_grows_again() -> None:
    world = await make_world()
    await crowd(world, 40)

    async def seen() -> int:
        await world.core.turn.once()
        return len(world.core.turn.waiting)

    whole = await seen()
    line = world.core.turn.observer.line
    line.pace(1.0)
    half = await seen()
    assert half < whole
    for _ in range(9):
        line.pace(1.0)
    assert 0 < await seen() < half
    line.pace(0.5)
    assert await seen() < half
    for _ in range(9):
        line.pace(0.1)
    assert await seen() == whole


QUEUES = """
apiVersion: federator/v1
kind: Queue
metadata: {name: loud}
spec: {max_priority: 100}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: quiet}
spec: {max_priority: 100}
"""


def _data(number: int) -> dict[str, Any]:
    return {"inputs": [f"s3://data/{number}"]}


def _forms(number: int) -> dict[str, Any]:
    return {"min_nodes": 1, "max_nodes": 2, "scaling": {1: 1.0, 2: 1.5 + number / 100}}


@pytest.mark.parametrize("fields", [_data, _forms])
@pytest.mark.parametrize(("apart", "looked_at"), [(False, 5), (True, 7)])
async def test_jobs_that_read_other_data_or_have_other_forms_are_of_other_kinds(
    fields: Callable[[int], dict[str, Any]], apart: bool, looked_at: int
) -> None:
    """Of one kind only so many are looked at as could start, and one more; these all differ, as their data does, or how well they scale."""
    world = await make_world()
    await world.add_site("home", gpus=4)
    for number in range(30):
        await world.submit(resources={"gpus": "A100:1"}, estimate="1h", **fields(number * apart))
    plan = await world.core.turn.once()
    assert plan is not None
    assert len(plan.waiting) + len(plan.actions) == looked_at
