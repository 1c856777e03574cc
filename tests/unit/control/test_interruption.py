"""The whole life of a spot lease that is taken back: notice, saving, the job's return, and another start that is paid for honestly."""

from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from federator.hub.desired import DesiredPlacements
from federator.kernel.errors import Conflict
from federator.model.capacity import InstanceStatus, LeaseStatus, Market
from federator.model.jobs import JobStatus
from federator.model.placements import Cause, Order, PlacementStatus
from federator.model.sites import SiteKind
from federator.wire.link import JoinRequest
from tests.support.dispatch import ADA, OFFER, FakeSite, World, make_world
from tests.unit.control.test_bursting import POLICIES, until_rented

SPOT = msgspec.structs.replace(OFFER, name="r1/p4/spot", market=Market.SPOT, price_usd_h=8.0)
JOB: dict[str, Any] = {
    "resources": {"gpus": 4},
    "estimate": "1h",
    "finish_within": "4h",
    "checkpoint": {"grace": "10m"},
}


@pytest.fixture
async def world() -> World:
    """One site that is full for hours, and a cloud with both markets."""
    world = await make_world()
    world.provider.catalogue = [OFFER, SPOT]
    await world.add_site("lab", nodes=1, gpus=4)
    await world.policies(POLICIES.replace("per_day: 100", "per_day: 1000"))
    await world.submit(resources={"gpus": 4}, estimate="9h", max_duration="9h", name="filler")
    await world.turn()
    await world.core.executor.poll()
    return world


async def running(world: World, **fields: Any) -> tuple[str, FakeSite]:
    """A job that runs on a spot machine."""
    job = await world.submit(**(JOB | fields))
    await until_rented(world, job)
    await world.core.executor.step()
    world.clock.advance(300)
    cloud = await world.boot(world.leases()[0])
    await world.obey()
    assert world.job(job).status is JobStatus.RUNNING
    assert world.placement(job).market is Market.SPOT
    world.clock.advance(1800)
    return job, cloud


async def executor(world: World, passes: int = 1) -> None:
    for _ in range(passes):
        await world.core.executor.poll()
        await world.core.executor.step()


async def test_an_interrupted_job_saves_itself_and_finishes_on_demand_before_its_deadline(
    world: World,
) -> None:
    job, _ = await running(world, finish_within="3h8m")
    spot = world.leases()[0]
    world.provider.interrupt(spot.id)
    await executor(world)
    assert world.job(job).status is JobStatus.SUSPENDING
    assert world.placement(job).order is Order.STOP
    assert world.leases()[0].status is LeaseStatus.DRAINING
    await world.obey()
    assert world.job(job).status is JobStatus.PENDING
    assert "takes the machine back" in world.job(job).because
    await executor(world, 3)
    (gone,) = world.leases()
    assert gone.status is LeaseStatus.GONE, (
        "given back as soon as it is empty: nobody pays for the rest of the notice"
    )
    (instance,) = await world.provider.instances("federation")
    assert gone.billed_usd == pytest.approx(instance.billed_usd)
    await until_rented(world, job)
    await world.core.executor.step()
    world.clock.advance(300)
    cloud = await world.boot(world.leases()[1])
    await world.obey()
    assert world.placement(job).market is Market.ON_DEMAND, (
        "the interrupted offer is avoided, and the slack is gone"
    )
    world.clock.advance(4860)
    await cloud.finish(job)
    done = world.job(job)
    assert done.status is JobStatus.SUCCEEDED
    assert done.outcome is not None
    assert done.outcome.missed_deadline is False


async def test_a_machine_that_is_told_itself_says_so_before_its_provider_does(world: World) -> None:
    job, cloud = await running(world)
    reclaim_at = world.clock.now() + 120.0
    heard: list[float | None] = []
    world.core.inventory.subscribe(lambda: heard.append(world.core.inventory.reclaim_at(cloud.name)))
    cloud.report(reclaim_at=reclaim_at)
    assert heard == [reclaim_at], "what wakes the executor"
    await world.core.executor.step()
    (lease,) = world.leases()
    assert (lease.status, lease.reclaim_at) == (LeaseStatus.DRAINING, reclaim_at)
    assert world.core.inventory.avoided(lease.provider, SPOT)[0] is not None
    assert world.job(job).status is JobStatus.SUSPENDING
    entry = DesiredPlacements(world.core.records, lambda *_: None).entry(world.placement(job), cloud.name)
    assert entry.grace_s == pytest.approx(90.0)
    await world.obey()
    assert "takes the machine back" in world.job(job).because


async def test_how_often_machines_of_an_offer_are_taken_back_is_learned_from_leases(world: World) -> None:
    """Half an hour and the boot of one machine, which was taken back; before, and of an offer nobody rented, the published rate."""
    seen, observer = world.core.turn.observer.interruptions, world.core.turn.observer
    job, _ = await running(world)
    assert all(
        pool.interruptions_h == pytest.approx(0.09) for pool in observer.pools() if pool.lease is not None
    ), "a machine that is still there counts too"
    world.provider.interrupt(world.leases()[0].id)
    await executor(world)
    await world.obey()
    await executor(world, 3)
    (lease,) = world.leases()
    assert lease.status is LeaseStatus.GONE
    hours = ((lease.ended_at or 0.0) - (lease.launched_at or 0.0)) / 3600.0
    views = {view.offer.name: view.interruptions_h for view in observer.offers()}
    assert seen.of(SPOT).machine_h == pytest.approx(hours)
    assert seen.of(SPOT).interruptions == 1
    assert views == {OFFER.name: 0.0, SPOT.name: pytest.approx(1.5 / (5.0 + hours), rel=0.04)}
    rows = {row.name: row for row in world.core.views.offers()}
    assert (rows[SPOT.name].interruptions, rows[SPOT.name].interruptions_h) == (1, views[SPOT.name])
    assert rows[OFFER.name].interruptions_h == 0.0
    assert world.job(job).status is JobStatus.PENDING


async def test_how_often_machines_are_taken_back_is_learned_by_zone_and_the_next_is_rented_elsewhere(
    world: World,
) -> None:
    """Half an hour and the boot of one machine, which was taken back: what is known of its offer is where each of its zones begins."""
    world.provider.zones = "r1a", "r1b"
    observer = world.core.turn.observer
    job, _ = await running(world)
    (lease,) = world.leases()
    assert lease.zone == "r1a", "nothing is known of either"
    world.provider.interrupt(lease.id)
    await executor(world)
    await world.obey()
    await executor(world, 3)
    observer.offers()
    rates_h = observer.interruptions.by_zone(SPOT)
    assert rates_h == {"": pytest.approx(0.27), "r1a": pytest.approx(0.42)}
    (row,) = [each for each in world.core.views.offers() if each.name == SPOT.name]
    assert (row.interruptions_h, row.zones_interruptions_h) == (rates_h[""], {"r1a": rates_h["r1a"]})
    world.clock.advance(901)
    await world.core.intake.cancel(ADA, job)
    other = await world.submit(**(JOB | {"spot_policy": "spot"}))
    await until_rented(world, other)
    await world.core.executor.step()
    again, _ = world.core.views.leases()
    assert again.zone == "r1b"
    for zone, expected_h in ("r1b", rates_h[""]), ("r1a", rates_h["r1a"]):
        await world.put(msgspec.structs.replace(world.core.records.leases[again.id], zone=zone))
        planned_h = [pool.interruptions_h for pool in observer.pools() if pool.lease == again.id]
        assert planned_h == [expected_h], "what runs there is planned with what its own zone is known for"


async def test_a_lease_of_an_earlier_version_has_its_zone_from_the_listing(world: World) -> None:
    world.provider.zones = "r1a", "r1b"
    await running(world)
    (lease,) = world.leases()
    await world.put(msgspec.structs.replace(lease, zone=""))
    await executor(world)
    assert world.leases()[0].zone == "r1a"


async def test_a_machine_that_is_given_back_was_not_taken_back(world: World) -> None:
    job, cloud = await running(world)
    await cloud.finish(job)
    for _ in range(5):
        world.clock.advance(3600)
        await executor(world)
    (lease,) = world.leases()
    assert lease.status is LeaseStatus.GONE
    world.core.turn.observer.offers()
    assert world.core.turn.observer.interruptions.of(SPOT).interruptions == 0


async def test_a_machine_that_ends_unheard_was_taken_back(world: World) -> None:
    await running(world)
    world.provider.vanish(world.leases()[0].id)
    await executor(world, 2)
    world.core.turn.observer.offers()
    assert world.core.turn.observer.interruptions.of(SPOT).interruptions == 1


async def test_the_grace_fits_into_the_notice_and_leaves_time_for_results(world: World) -> None:
    job, cloud = await running(world)
    board = DesiredPlacements(world.core.records, lambda *_: None)
    assert board.entry(world.placement(job), cloud.name).grace_s == 600.0
    world.provider.interrupt(world.leases()[0].id)
    await executor(world)
    assert 60.0 < board.entry(world.placement(job), cloud.name).grace_s < 120.0


async def test_a_job_that_asks_for_less_grace_gets_no_more(world: World) -> None:
    job, cloud = await running(world, checkpoint={"grace": "10s"})
    world.provider.interrupt(world.leases()[0].id)
    await executor(world)
    board = DesiredPlacements(world.core.records, lambda *_: None)
    assert board.entry(world.placement(job), cloud.name).grace_s == 10.0


async def test_a_checkpoint_on_a_machine_that_is_gone_ties_the_job_to_no_site(world: World) -> None:
    job, _ = await running(world)
    world.provider.interrupt(world.leases()[0].id)
    await executor(world)
    await world.obey()
    assert world.job(job).resume_site is None


async def test_a_held_job_leaves_nothing_to_resume_on_a_rented_machine(world: World) -> None:
    job, _ = await running(world)
    await world.core.intake.act_on_one(ADA, "hold", job)
    await world.obey()
    assert world.job(job).status is JobStatus.HELD
    assert world.job(job).resume_site is None
    await world.core.intake.act_on_one(ADA, "release", job)
    (filler,) = [each.id for each in world.core.records.jobs.values() if each.name == "filler"]
    await world.sites["lab"].finish(filler)
    await world.turn()
    assert world.placement(job).site == "lab", "it may start anywhere"


async def test_a_machine_that_dies_before_the_job_has_answered_costs_it_no_suspicion(world: World) -> None:
    """Three machines that were really lost make a job HELD; machines that are taken back never do."""
    job, _ = await running(world)
    world.provider.interrupt(world.leases()[0].id)
    await executor(world)
    world.clock.advance(world.provider.notice_s)
    await executor(world)
    lost = world.job(job)
    assert lost.status is JobStatus.PENDING
    assert (lost.losses, lost.errors) == ((), 0)
    (placement,) = [p for p in world.core.records.placements.values() if p.job == job]
    assert (placement.status, placement.cause) == (PlacementStatus.LOST, Cause.INTERRUPTED)
    assert world.leases()[0].status is LeaseStatus.GONE


async def test_a_notice_that_nobody_heard_is_no_suspicion_either(world: World) -> None:
    """The dispatcher was away during the whole notice: the listing still says that the machine was taken back."""
    job, _ = await running(world)
    world.provider.interrupt(world.leases()[0].id)
    world.clock.advance(world.provider.notice_s + 60)
    await executor(world)
    assert world.job(job).status is JobStatus.PENDING
    assert world.job(job).losses == ()
    assert world.core.inventory.avoided("cloudy", SPOT)[0] is not None


async def test_a_spot_machine_that_vanishes_without_notice_counts_as_a_loss(world: World) -> None:
    job, _ = await running(world)
    world.provider.vanish(world.leases()[0].id)
    await executor(world)
    assert world.job(job).status is JobStatus.PENDING
    assert len(world.job(job).losses) == 1


async def test_an_interruption_before_the_agent_has_joined_ends_the_machine_at_once(world: World) -> None:
    job = await world.submit(**JOB)
    await until_rented(world, job)
    await world.core.executor.step()
    (lease,) = world.leases()
    assert lease.status is LeaseStatus.BOOTING
    world.provider.interrupt(lease.id)
    await executor(world, 2)
    await world.core.executor.poll()
    (instance,) = await world.provider.instances("federation")
    assert instance.status is InstanceStatus.ENDED
    assert instance.ended_at == world.clock.now(), "nobody waits for the end of the notice"
    assert world.job(job).status is JobStatus.PENDING
    assert world.leases()[0].status is LeaseStatus.GONE


async def test_an_interrupted_offer_is_avoided_for_a_while_with_the_reason(world: World) -> None:
    await running(world)
    world.provider.interrupt(world.leases()[0].id)
    await executor(world)
    other = await world.submit(**(JOB | {"finish_within": "12h"}))
    await world.core.turn.once()
    explanation = await world.core.views.explain(world.job(other))
    assert any("took one back" in site.text for site in explanation.sites), explanation.sites
    world.clock.advance(901)
    assert world.core.inventory.avoided("cloudy", SPOT) == (None, "")


async def test_a_job_that_finishes_within_the_notice_has_succeeded(world: World) -> None:
    job, cloud = await running(world)
    world.provider.interrupt(world.leases()[0].id)
    await executor(world)
    await cloud.finish(job)
    assert world.job(job).status is JobStatus.SUCCEEDED
    await executor(world, 3)
    assert world.leases()[0].status is LeaseStatus.GONE


async def test_retry_settings_do_not_apply_to_an_interruption(world: World) -> None:
    job, _ = await running(world, retry={"on": ["error"], "max": 0})
    world.provider.interrupt(world.leases()[0].id)
    await executor(world)
    await world.obey()
    assert world.job(job).status is JobStatus.PENDING


async def test_sold_out_spot_falls_back_to_on_demand(world: World) -> None:
    job = await world.submit(**(JOB | {"finish_within": "3h8m"}))
    await until_rented(world, job)
    assert world.leases()[0].offer.market is Market.SPOT
    world.provider.sold_out.add(SPOT.name)
    await world.core.executor.step()
    assert world.leases()[0].status is LeaseStatus.FAILED
    assert world.job(job).status is JobStatus.PENDING
    await until_rented(world, job)
    assert world.leases()[1].offer.market is Market.ON_DEMAND


async def test_nobody_else_joins_as_a_machine_that_is_being_rented(world: World) -> None:
    """Whoever has its name is given its work, and is believed when it says that the machine is taken back."""
    job = await world.submit(**JOB)
    await until_rented(world, job)
    await world.core.executor.step()
    (lease,) = world.leases()
    key = Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex()
    admission = world.core.admission
    token = await admission.make_join_token("lab-2", SiteKind.ONPREM)
    with pytest.raises(Conflict, match="being rented"):
        await admission.join(token, JoinRequest(public_key=key, member=lease.member))
    with pytest.raises(Conflict, match="being rented"):
        await admission.make_join_token("lab-2", SiteKind.ONPREM, member=lease.member)
    own = await admission.make_join_token(
        lease.site, SiteKind.CLOUD, provider=lease.provider, lease=lease.id, member=lease.member
    )
    assert (await admission.join(own, JoinRequest(public_key=key))).member == lease.member


async def test_a_report_of_another_member_ends_no_lease(world: World) -> None:
    job, cloud = await running(world)
    (lease,) = world.leases()
    stranger = msgspec.structs.replace(world.core.records.members[lease.member], lease=None)
    await world.put(stranger)
    cloud.report(reclaim_at=world.clock.now() + 120)
    await executor(world)
    assert world.leases()[0].status is LeaseStatus.READY
    assert world.job(job).status is JobStatus.RUNNING
    await world.put(msgspec.structs.replace(stranger, lease=lease.id))
    await executor(world)
    assert world.leases()[0].status is LeaseStatus.DRAINING
