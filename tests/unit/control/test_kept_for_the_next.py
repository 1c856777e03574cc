"""A machine that idles is kept for longer where the times before say that the next job comes soon enough, and the lease says so."""

from msgspec.structs import replace

from federator.control.record.records import Flag
from federator.model.capacity import Lease, LeaseStatus
from federator.model.placements import Placement, PlacementStatus
from federator.settings import LeaseSettings
from federator.store.memory import MemoryStore
from tests.support.dispatch import OFFER, SharedClock, World, make_world
from tests.unit.control.test_bursting import POLICIES
from tests.unit.control.test_warm_machines import idle_since

IDLE_S = LeaseSettings().idle_s
MINUTE = 60.0


async def idle(*gaps: float, then_s: float = 420.0) -> World:
    """A machine that has idled for a while, and before it one that was busy for ten minutes again and again, with these pauses in between."""
    world, _ = await idle_since(OFFER)
    (lease,) = world.leases()
    await world.put(*past(world, lease, gaps))
    world.clock.advance(then_s)
    await world.core.executor.step()
    return world


def past(world: World, lease: Lease, gaps: tuple[float, ...]) -> list[object]:
    """Placements on a machine that is gone by now."""
    (model,) = [each for each in world.core.records.placements.values() if each.lease == lease.id]
    gone = replace(lease, id="lease-past", status=LeaseStatus.GONE, idle_since_at=None)
    at = world.clock.now() - 20 * 3600.0
    rows: list[object] = [gone]
    for number, gap_s in enumerate((*gaps, 0.0)):
        rows.append(_stay(model, f"pl-past-{number}", gone.id, at, at + 10 * MINUTE))
        at += 10 * MINUTE + gap_s
    return rows


def _stay(model: Placement, name: str, lease: str, since_at: float, until_at: float) -> Placement:
    done = PlacementStatus.SUCCEEDED
    return replace(model, id=name, lease=lease, assigned_at=since_at, ended_at=until_at, status=done)


async def test_it_is_kept_while_others_were_needed_about_now_and_no_longer() -> None:
    world = await idle(*[8 * MINUTE] * 6)
    (lease,) = [each for each in world.leases() if each.status is LeaseStatus.READY]
    assert (
        "of 7 times that one like it had idled as long, one was needed by then 6 times" in lease.kept_because
    )
    assert "renting again costs 6m of rent more" in lease.kept_because
    row = next(row for row in world.core.views.leases() if row.id == lease.id)
    assert row.kept_because == lease.kept_because
    world.clock.advance(2 * MINUTE)
    await world.core.executor.step()
    assert world.core.records.leases[lease.id].status is not LeaseStatus.READY


async def test_it_is_given_back_as_ever_where_others_were_needed_much_later() -> None:
    world = await idle(*[50 * MINUTE] * 6)
    assert not [each for each in world.leases() if each.status is LeaseStatus.READY]


async def test_a_dispatcher_that_has_just_started_knows_as_much() -> None:
    world = await idle(*[8 * MINUTE] * 6, then_s=200.0)
    store, clock = world.core.records.store, world.clock
    assert isinstance(store, MemoryStore)
    assert isinstance(clock, SharedClock)
    after = await make_world(store=store, clock=clock)
    clock.advance(220.0)
    await after.core.executor.step()
    (lease,) = [each for each in after.leases() if each.status is LeaseStatus.READY]
    assert "6 times" in lease.kept_because


async def test_nobody_keeps_it_where_that_is_switched_off() -> None:
    world = await idle(*[8 * MINUTE] * 6, then_s=IDLE_S - 10.0)
    lease_budget = world.core.executor.lease_budget
    lease_budget.settings = replace(lease_budget.settings, warm_s=0.0)
    world.clock.advance(10.0)
    await world.core.executor.step()
    assert not [each for each in world.leases() if each.status is LeaseStatus.READY]


async def test_nobody_keeps_it_while_renting_is_paused_or_once_its_policy_is_gone() -> None:
    for paused in (True, False):
        world = await idle(*[8 * MINUTE] * 6, then_s=IDLE_S - 10.0)
        if paused:
            await world.put(Flag("burst-paused", True, "ada", world.clock.now()))
        else:
            await world.policies(POLICIES.replace("name: deadlines", "name: others"))
        world.clock.advance(20.0)
        await world.core.executor.step()
        assert not [each for each in world.leases() if each.status is LeaseStatus.READY]
