"""An agent that calls what it was given, or what another site has, a job of its own: it cancels nothing in anybody's name, and fills no ledger."""

import pytest

from federator.control.submission import local_jobs
from federator.model.events import LedgerKind
from federator.model.jobs import JobStatus
from tests.support.dispatch import BOB, World
from tests.unit.control.test_local_jobs import a_world, adopt, lines, local

TIMES = 12


async def a_planned_job(world: World) -> str:
    job = await world.submit(BOB, resources={"gpus": 2})
    await world.turn()
    assert world.job(job).status is JobStatus.RUNNING
    return job


@pytest.mark.parametrize("owner", ["ada", "bob"])
async def test_a_planned_job_is_not_cancelled_in_anybodys_name(owner: str) -> None:
    world = await a_world()
    job = await a_planned_job(world)
    placed = world.placement(job)
    spec = world.core.records.spec_bytes(placed.spec_hash).decode()
    forged = local(world, job=job, placement=placed.id, owner=owner, spec=spec, cancelled_by=owner)
    await adopt(world, forged)
    await world.turn()
    assert world.job(job).status is JobStatus.RUNNING
    assert [line.job for line in await lines(world) if line.kind is LedgerKind.LOSS] == [""], "it is noted"


async def test_the_same_lie_told_again_and_again_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_jobs, "MOST_A_DAY", 3)
    world = await a_world()
    await world.add_site("other")
    job = await a_planned_job(world)
    placed = world.placement(job)
    (stranger,) = {"lab", "other"} - set(placed.members)
    forged = local(world, job=job, placement=placed.id, owner="bob", cancelled_by="bob")
    for _ in range(TIMES):
        await adopt(world, forged, member=stranger)
    assert world.job(job).status is JobStatus.RUNNING
    assert len([line for line in await lines(world) if line.kind is LedgerKind.LOSS]) == 3
