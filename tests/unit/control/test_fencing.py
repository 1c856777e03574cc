"""Only stop_within makes time a proof: D and a margin after the last answer, or after the take-over; never for work that is kept."""

from typing import Any

import msgspec
import pytest

from federator.control.reports.fencing import margin_s
from federator.kernel.clock import ManualClock
from federator.model.events import LedgerKind
from federator.model.jobs import JobStatus
from federator.model.placements import Cause, Order, PlacementStatus
from federator.store.memory import MemoryStore
from tests.support.dispatch import ADMIN, FakeSite, World, make_world

WITHIN_S = 3600.0
STOP = {"on_disconnect": {"stop_within": "1h"}}


async def a_world(store: MemoryStore | None = None, clock: ManualClock | None = None) -> World:
    world = await make_world(store, clock)
    world.core.fences.begin()
    return world


async def run_one(world: World, **fields: Any) -> tuple[FakeSite, str]:
    """A job at a site that fences; nowhere else yet."""
    lab = await world.add_site("lab")
    lab.report(self_fencing=True)
    job = await world.submit(**fields)
    await world.turn()
    assert world.job(job).status is JobStatus.RUNNING
    world.core.inventory.answered("lab")
    return lab, job


@pytest.mark.parametrize(
    ("within_s", "expected_s"), [(60.0, 30.0), (3000.0, 30.0), (3600.0, 36.0), (86400.0, 864.0)]
)
def test_the_margin_is_half_a_minute_or_one_in_a_hundred(within_s: float, expected_s: float) -> None:
    assert margin_s(within_s) == pytest.approx(expected_s)


async def test_it_is_given_up_to_the_second_and_starts_elsewhere() -> None:
    world = await a_world()
    _, job = await run_one(world, **STOP)
    first = world.placement(job)
    spare = await world.add_site("spare")
    spare.report(self_fencing=True)
    world.core.inventory.closed("lab", world.core.inventory.members["lab"].session)
    world.clock.advance(WITHIN_S + 36.0 - 1.0)
    assert await world.core.fences.step() == []
    assert world.job(job).status is JobStatus.RUNNING
    world.clock.advance(1.0)
    assert await world.core.fences.step() == [first.id]
    lost = world.core.records.placements[first.id]
    assert (lost.status, lost.order, lost.stop_acknowledged) == (PlacementStatus.LOST, Order.STOP, False)
    assert "stop_within" in world.job(job).because
    assert await world.core.fences.step() == [], "once is enough"
    spare.connect()
    spare.report(self_fencing=True)
    await world.core.turn.once()
    second = world.placement(job)
    assert (second.site, second.epoch) == ("spare", first.epoch + 1)


async def test_every_answer_counts_anew() -> None:
    world = await a_world()
    await run_one(world, **STOP)
    for _ in range(5):
        world.clock.advance(WITHIN_S + 35.0)
        assert await world.core.fences.step() == []
        world.core.inventory.answered("lab")


async def test_work_that_is_kept_is_never_given_up_by_the_clock() -> None:
    world = await a_world()
    _, job = await run_one(world)
    world.clock.advance(365 * 86400.0)
    assert await world.core.fences.step() == []
    assert world.job(job).status is JobStatus.RUNNING


async def test_a_new_dispatcher_counts_from_its_take_over() -> None:
    """It does not know when the one before last answered, and that may have been a moment ago."""
    world = await a_world()
    _, job = await run_one(world, **STOP)
    first = world.placement(job)
    store = world.core.records.store
    assert isinstance(store, MemoryStore)
    world.clock.advance(10 * WITHIN_S)
    again = await a_world(store, world.clock)
    again.clock.advance(WITHIN_S + 36.0 - 1.0)
    assert await again.core.fences.step() == []
    again.clock.advance(1.0)
    assert await again.core.fences.step() == [first.id]


async def test_it_is_not_tied_to_a_checkpoint_that_cannot_be_reached_nor_suspected() -> None:
    """It saved itself there once, for another reason; cut off, the job starts over elsewhere. That is no mark against it."""
    world = await a_world()
    _, job = await run_one(world, **STOP, checkpoint={"grace": "10s"})
    await world.put(msgspec.structs.replace(world.job(job), resume_site="lab"))
    world.clock.advance(2 * WITHIN_S)
    await world.core.fences.step()
    assert world.job(job).status is JobStatus.PENDING
    assert world.job(job).resume_site is None
    assert world.job(job).losses == ()


@pytest.mark.parametrize(
    ("said", "becomes"),
    [
        (PlacementStatus.STOPPED, PlacementStatus.STOPPED),
        (PlacementStatus.FAILED, PlacementStatus.FAILED),
        (PlacementStatus.RUNNING, PlacementStatus.LOST),
    ],
)
async def test_a_late_word_of_the_old_attempt_does_not_disturb_the_new_one(
    said: PlacementStatus, becomes: PlacementStatus
) -> None:
    world = await a_world()
    lab, job = await run_one(world, **STOP)
    first = world.placement(job)
    spare = await world.add_site("spare")
    world.clock.advance(2 * WITHIN_S)
    await world.core.fences.step()
    spare.connect()
    spare.report(self_fencing=True)
    lab.report(paused=True)
    await world.core.turn.once()
    second = world.placement(job)
    await spare.say(second, PlacementStatus.RUNNING)
    await lab.say(first, said, cause=Cause.STOPPED)
    assert world.core.records.placements[first.id].status is becomes
    assert (world.job(job).status, world.job(job).placement) == (JobStatus.RUNNING, second.id)
    owed = world.core.records.open_placements.get(first.id)
    assert (owed is not None) == (said is PlacementStatus.RUNNING), "only what may still run is owed a stop"


async def test_a_late_word_that_changes_nothing_of_the_job_does_not_write_its_row() -> None:
    world = await a_world()
    lab = await world.add_site("lab")
    lab.report(self_fencing=True)
    job = await world.submit(on_disconnect=STOP["on_disconnect"])
    await world.core.turn.once()
    first = world.placement(job)
    world.core.inventory.closed("lab", world.core.inventory.members["lab"].session)
    world.clock.advance(2 * WITHIN_S)
    await world.core.fences.step()
    waits = world.job(job)
    before = world.core.records.revision_of(waits)
    lab.connect()
    await lab.say(first, PlacementStatus.STOPPED, cause=Cause.STOPPED)
    assert world.core.records.placements[first.id].status is PlacementStatus.STOPPED
    assert world.job(job) is waits
    assert world.core.records.revision_of(waits) == before


@pytest.mark.parametrize("heard", [PlacementStatus.STARTING, PlacementStatus.RUNNING])
async def test_the_use_of_an_attempt_that_was_given_up_is_booked_once_whenever_it_becomes_known(
    heard: PlacementStatus,
) -> None:
    """Cut off before it was heard to run, it ran all the same: its site says so when it is back."""
    world = await a_world()
    lab = await world.add_site("lab")
    lab.report(self_fencing=True)
    asked: dict[str, Any] = {**STOP, "resources": {"gpus": 1}}
    job = await world.submit(**asked)
    await world.core.turn.once()
    first, began_at = world.placement(job), world.clock.now()
    started = {"started_at": began_at} if heard is PlacementStatus.RUNNING else {}
    await lab.say(first, heard, **started)
    world.core.inventory.answered("lab")
    world.clock.advance(2 * WITHIN_S)
    await world.core.fences.step()
    ended_at = began_at + WITHIN_S
    await lab.say(first, PlacementStatus.STOPPED, cause=Cause.STOPPED, started_at=began_at, ended_at=ended_at)
    uses = [line for line in await world.core.views.ledger() if line.kind is LedgerKind.USAGE]
    assert len(uses) == 1
    assert uses[0].gpu_s > 0
    assert world.job(job).gpu_s == uses[0].gpu_s


async def test_a_late_success_of_the_old_attempt_completes_the_job() -> None:
    world = await a_world()
    lab, job = await run_one(world, **STOP)
    first = world.placement(job)
    world.clock.advance(2 * WITHIN_S)
    await world.core.fences.step()
    await lab.say(first, PlacementStatus.SUCCEEDED, exit_code=0)
    assert world.job(job).status is JobStatus.SUCCEEDED


async def test_a_cancelled_job_that_is_fenced_is_over() -> None:
    world = await a_world()
    _, job = await run_one(world, **STOP)
    await world.core.intake.cancel(ADMIN, job)
    assert world.job(job).status is JobStatus.CANCELLING
    world.clock.advance(2 * WITHIN_S)
    await world.core.fences.step()
    assert world.job(job).status is JobStatus.CANCELLED
