"""Gangs over several members: reserved on all, run when all have accepted, and over only when each part is."""

from typing import Any

import msgspec
import pytest

from federator.control.reports.fencing import RESERVE_WITHIN_S
from federator.model.events import LedgerKind
from federator.model.jobs import Job, JobStatus, TerminalReason
from federator.model.placements import Cause, Order, Placement, PlacementStatus
from federator.store.memory import MemoryStore
from federator.wire.http import Verb
from tests.support.dispatch import ADA, ADMIN, FakeSite, World, make_world

S = PlacementStatus


async def a_lab(**fields: Any) -> tuple[World, FakeSite, FakeSite, str]:
    """A site of two hosts, and a gang with a rank on each, which they have heard of."""
    world = await make_world()
    world.core.fences.begin()
    one = await world.add_site("lab")
    two = await world.add_member("lab", "lab-2")
    for site in (one, two):
        site.report(self_fencing=True)
    job = await world.submit(nodes=2, resources={"gpus": 4}, **fields)
    await world.place(job, "lab", "lab-2")
    return world, one, two, job


async def running(**fields: Any) -> tuple[World, FakeSite, FakeSite, str]:
    """The same, both ranks running."""
    world, one, two, job = await a_lab(**fields)
    await world.obey()
    assert world.job(job).status is JobStatus.RUNNING
    return world, one, two, job


def now(world: World, placement: Placement) -> Placement:
    return world.core.records.placements[placement.id]


def owed(world: World, member: str) -> dict[str, Order]:
    """What the dispatcher tells this member."""
    hub = world.core.hub
    return {
        name: hub.desired.entry(placement, member).order
        for name, placement in world.core.records.open_placements.items()
        if member in placement.members
    }


async def test_it_is_reserved_on_all_and_told_to_run_when_the_last_has_accepted() -> None:
    world, one, two, job = await a_lab()
    placement = world.placement(job)
    assert (placement.order, placement.status) == (Order.RESERVE, S.ASSIGNED)
    await two.say(placement, S.ACCEPTED)
    assert now(world, placement).order is Order.RESERVE
    await one.say(placement, S.ACCEPTED)
    placement = now(world, placement)
    assert (placement.order, placement.status) == (Order.RUN, S.ACCEPTED)
    entries = [world.core.hub.desired.entry(placement, name) for name in ("lab", "lab-2")]
    assert [entry.ranks for entry in entries] == [(0,), (1,)]
    assert {entry.rendezvous for entry in entries} == {"lab.example:4000"}, "where rank 0 is"
    await two.say(placement, S.RUNNING, started_at=world.clock.now())
    assert world.job(job).status is JobStatus.STARTING
    await one.say(placement, S.RUNNING, started_at=world.clock.now())
    assert world.job(job).status is JobStatus.RUNNING


async def test_a_placement_at_one_member_is_told_to_run_at_once_and_nothing_new() -> None:
    world = await make_world()
    await world.add_site("lab", nodes=2)
    job = await world.submit(nodes=2)
    placement = await world.place(job, "lab", "lab")
    assert (placement.order, placement.parts) == (Order.RUN, ())
    entry = msgspec.to_builtins(world.core.hub.desired.entry(placement, "lab"))
    assert "rendezvous" not in entry


async def test_it_succeeds_when_all_its_parts_have_and_is_booked_once_for_all_its_gpus() -> None:
    world, one, two, job = await running()
    world.clock.advance(600.0)
    await one.finish(job)
    assert world.job(job).status is JobStatus.RUNNING
    world.clock.advance(600.0)
    await two.finish(job)
    assert world.job(job).status is JobStatus.SUCCEEDED
    lines = [line for line in await world.core.views.ledger() if line.kind is LedgerKind.USAGE]
    assert [line.gpu_s for line in lines] == [pytest.approx(8 * 1200.0)]
    assert world.job(job).gpu_s == pytest.approx(8 * 1200.0)
    assert world.core.records.open_placements == {}


async def test_the_first_failed_part_stops_the_others_and_its_end_is_the_gangs() -> None:
    world, _, two, job = await running(retry={"on": ["error"], "max": 1})
    placement = world.placement(job)
    text = "rank 1 on main/0 ended with exit code 3"
    await two.say(placement, S.FAILED, cause=Cause.EXIT, exit_code=3, detail=text)
    placement = now(world, placement)
    assert (placement.status, placement.order) == (S.RUNNING, Order.STOP)
    assert placement.order_reason.startswith(f"lab-2: {text}")
    assert world.job(job).status is JobStatus.RUNNING, "rank 0 may still run"
    events = await world.core.views.events(job, None)
    assert (events[-1].kind, events[-1].site) == ("stopping", "lab")
    await world.turn()
    placement = now(world, placement)
    assert (placement.status, placement.exit_code, placement.cause) == (S.FAILED, 3, Cause.EXIT)
    assert world.job(job).status is JobStatus.PENDING, "its retry policy applies"
    assert "lab-2: rank 1" in world.job(job).because


async def test_where_the_first_decides_the_end_of_its_part_stops_the_others_and_is_the_gangs() -> None:
    world, one, two, job = await running(success="first")
    placement = world.placement(job)
    assert {world.core.hub.desired.entry(placement, name).success for name in ("lab", "lab-2")} == {"first"}
    await one.finish(job)
    assert world.job(job).status is JobStatus.RUNNING, "rank 1 may still run"
    assert now(world, placement).order_reason == "rank 0 at lab has ended, which is the end of the job"
    assert owed(world, "lab-2") == {placement.id: Order.STOP}
    await two.run_all()
    assert (now(world, placement).status, now(world, placement).exit_code) == (S.SUCCEEDED, 0)
    assert world.job(job).status is JobStatus.SUCCEEDED


async def test_where_the_first_decides_another_parts_end_ends_nothing_and_its_failure_all() -> None:
    world, one, two, job = await running(success="first")
    await two.finish(job)
    assert now(world, world.placement(job)).order is Order.RUN
    await one.finish(job)
    assert world.job(job).status is JobStatus.SUCCEEDED
    world, one, two, job = await running(success="first")
    await two.finish(job, exit_code=4)
    assert owed(world, "lab") != {}
    await one.run_all()
    assert world.job(job).status is JobStatus.FAILED


async def test_a_failed_part_of_a_job_without_retries_is_the_jobs_end() -> None:
    world, one, two, job = await running()
    await one.finish(job, exit_code=7)
    await two.run_all()
    outcome = world.job(job).outcome
    assert outcome is not None
    assert (world.job(job).status, outcome.exit_code) == (JobStatus.FAILED, 7)
    assert outcome.reason is TerminalReason.EXIT_CODE


@pytest.mark.parametrize("order", [("lab", "lab-2"), ("lab-2", "lab")])
async def test_a_refusal_of_a_reservation_ends_it_at_once_and_the_rest_is_told_until_it_has_answered(
    order: tuple[str, str],
) -> None:
    world, _, _, job = await a_lab()
    placement = world.placement(job)
    accepting, refusing = (world.sites[name] for name in order)
    await accepting.say(placement, S.ACCEPTED)
    await refusing.say(placement, S.REFUSED, cause=Cause.CANNOT, detail="no room")
    placement = now(world, placement)
    assert (placement.status, placement.order) == (S.REFUSED, Order.STOP)
    assert world.job(job).status is JobStatus.PENDING
    assert f"{refusing.name}: no room" in world.job(job).because
    assert (world.job(job).not_before_at or 0.0) > world.clock.now(), "with a little patience"
    assert owed(world, accepting.name) == {placement.id: Order.STOP}
    await accepting.say(placement, S.STOPPED, cause=Cause.STOPPED)
    assert world.core.records.open_placements == {}
    assert now(world, placement).status is S.REFUSED


async def test_one_silent_member_holds_the_others_capacity_only_for_a_while() -> None:
    world, one, two, job = await a_lab()
    placement = world.placement(job)
    await one.say(placement, S.ACCEPTED)
    world.clock.advance(RESERVE_WITHIN_S - 1.0)
    assert await world.core.fences.step() == []
    world.clock.advance(1.0)
    assert await world.core.fences.step() == [placement.id]
    assert now(world, placement).status is S.REFUSED
    assert world.job(job).status is JobStatus.PENDING
    assert "lab-2 did not answer within 2m" in world.job(job).because
    await two.say(placement, S.ACCEPTED)
    assert now(world, placement).order is Order.STOP, "too late: it is not told to run"
    for site in (one, two):
        assert owed(world, site.name) == {placement.id: Order.STOP}
        await site.say(placement, S.STOPPED, cause=Cause.STOPPED)
    assert world.core.records.open_placements == {}


async def test_a_reservation_that_ran_out_as_it_was_told_to_run_stops_what_has_begun() -> None:
    world, one, two, job = await a_lab()
    placement = world.placement(job)
    for site in (one, two):
        await site.say(placement, S.ACCEPTED)
    await one.say(placement, S.STARTING)
    await two.say(placement, S.REFUSED, cause=Cause.CANNOT, detail="the reservation was not used in time")
    assert (now(world, placement).status, now(world, placement).order) == (S.STARTING, Order.STOP)
    await one.run_all()
    assert now(world, placement).status is S.REFUSED
    assert world.job(job).status is JobStatus.PENDING
    assert world.job(job).errors == 0


async def test_an_agent_that_does_not_say_where_it_is_found_is_not_told_to_run_a_part() -> None:
    """It is too old to know the field that the others need, and would not even read the order."""
    world, one, two, job = await a_lab()
    placement = world.placement(job)
    await one.say(placement, S.ACCEPTED)
    await two.say(placement, S.ACCEPTED, rendezvous="")
    assert now(world, placement).status is S.REFUSED
    assert now(world, placement).rendezvous == ""
    assert "lab-2 does not say where others reach it" in world.job(job).because


async def test_repeated_reordered_and_foreign_reports_change_nothing() -> None:
    world, one, two, job = await running()
    stranger = await world.add_member("lab", "lab-3")
    before = now(world, world.placement(job))
    revision = world.core.records.revision
    for site, status in ((one, S.RUNNING), (one, S.ACCEPTED), (two, S.STARTING), (two, S.RUNNING)):
        await site.say(before, status)
    report = await _foreign(stranger, before)
    assert report
    assert now(world, before) == before
    assert world.core.records.revision == revision


async def _foreign(stranger: FakeSite, placement: Placement) -> bool:
    """A member that has no part of it says that it failed."""
    anomalies = stranger.world.core.progress.anomalies
    told = msgspec.structs.replace(placement, members=("lab", stranger.name))
    await stranger.say(told, S.FAILED, cause=Cause.EXIT, exit_code=1)
    return stranger.world.core.progress.anomalies == anomalies + 1


async def test_a_lost_member_stops_the_other_ranks_and_the_job_waits_for_proof_of_all() -> None:
    world, one, two, job = await running()
    placement = world.placement(job)
    await two.say(placement, S.LOST, cause=Cause.NODE_LOST, detail="the machine was restarted")
    assert world.job(job).status is JobStatus.RECOVERING
    assert now(world, placement).order is Order.STOP
    await world.core.turn.once()
    assert world.job(job).status is JobStatus.RECOVERING, "rank 0 may still run"
    await one.run_all()
    assert now(world, placement).status is S.LOST
    assert world.job(job).status is JobStatus.PENDING
    assert world.job(job).losses == ("lab-2/lab-2/node-0",)


async def test_cut_off_for_longer_than_stop_within_one_members_part_is_over_and_stops_the_other() -> None:
    world, one, two, job = await running(on_disconnect={"stop_within": "1h"})
    placement = world.placement(job)
    world.core.inventory.closed("lab-2", world.core.inventory.members["lab-2"].session)
    world.clock.advance(3600.0)
    world.core.inventory.answered("lab")
    assert await world.core.fences.step() == []
    world.clock.advance(36.0)
    assert await world.core.fences.step() == [placement.id]
    assert await world.core.fences.step() == [], "the other member is answered"
    assert world.job(job).status is JobStatus.RECOVERING
    await one.run_all()
    assert (now(world, placement).status, world.job(job).status) == (S.LOST, JobStatus.PENDING)
    assert world.job(job).losses == (), "no node is suspected"
    assert owed(world, "lab-2") == {placement.id: Order.STOP}, "should it come back"
    await two.say(placement, S.STOPPED, cause=Cause.STOPPED)
    assert world.core.records.open_placements == {}


async def test_both_cut_off_it_is_over_when_the_later_one_is() -> None:
    world, _, _, job = await running(on_disconnect={"stop_within": "1h"})
    placement = world.placement(job)
    world.clock.advance(600.0)
    world.core.inventory.answered("lab")
    world.clock.advance(3036.0)
    await world.core.fences.step()
    assert now(world, placement).status is S.RUNNING
    world.clock.advance(600.0)
    await world.core.fences.step()
    assert (now(world, placement).status, world.job(job).status) == (S.LOST, JobStatus.PENDING)


async def test_parts_that_all_succeed_after_they_were_given_up_complete_the_job() -> None:
    world, one, two, job = await running(on_disconnect={"stop_within": "1h"})
    placement = world.placement(job)
    world.clock.advance(4000.0)
    await world.core.fences.step()
    assert now(world, placement).status is S.LOST
    for site, status in ((one, JobStatus.PENDING), (two, JobStatus.SUCCEEDED)):
        await site.say(placement, S.SUCCEEDED, exit_code=0, ended_at=world.clock.now())
        assert world.job(job).status is status
    lines = [line for line in await world.core.views.ledger() if line.kind is LedgerKind.USAGE]
    assert len(lines) == 1, "one attempt is booked once"


async def test_one_dead_host_of_a_site_can_be_declared_so_by_itself() -> None:
    world, one, _, job = await running()
    placement = world.placement(job)
    alone = await world.submit(name="alone")
    other = await world.place(alone, "lab")
    world.core.inventory.closed("lab-2", world.core.inventory.members["lab-2"].session)
    given_up = await world.core.sites.declare_dead(ADMIN, "lab", "its disk is gone", member="lab-2")
    assert given_up == [placement.id]
    assert now(world, other).status is S.ASSIGNED, "the other host lives"
    assert world.job(job).status is JobStatus.RECOVERING
    await one.run_all()
    assert world.job(job).status is JobStatus.PENDING
    assert "root declared lab-2 dead: its disk is gone" in world.job(job).because


async def test_a_whole_site_declared_dead_ends_its_gangs_at_once() -> None:
    world, _, _, job = await running()
    for name in ("lab", "lab-2"):
        world.core.inventory.closed(name, world.core.inventory.members[name].session)
    await world.core.sites.declare_dead(ADMIN, "lab", "burnt down")
    assert world.job(job).status is JobStatus.PENDING
    assert set(owed(world, "lab").values()) == set(owed(world, "lab-2").values()) == {Order.STOP}


VERBS = [("cancel", JobStatus.CANCELLED), ("hold", JobStatus.HELD), ("requeue", JobStatus.PENDING)]


@pytest.mark.parametrize(("verb", "becomes"), VERBS)
async def test_cancel_hold_and_requeue_stop_all_parts(verb: Verb, becomes: JobStatus) -> None:
    world, one, two, job = await running(checkpoint={"grace": "10s"})
    await world.core.intake.act_on_one(ADA, verb, job)
    await one.run_all()
    assert not settled(world.job(job)), "one part may still run"
    await two.run_all()
    assert world.job(job).status is becomes
    if verb != "cancel":
        assert world.job(job).resume_site == "lab", "all parts have saved themselves"


@pytest.mark.parametrize(("verb", "becomes"), VERBS)
async def test_what_is_only_reserved_waits_for_nobody(verb: Verb, becomes: JobStatus) -> None:
    world, one, two, job = await a_lab()
    placement = world.placement(job)
    await one.say(placement, S.ACCEPTED)
    await world.core.intake.act_on_one(ADA, verb, job)
    assert world.job(job).status is becomes
    assert now(world, placement).status is S.REVOKED
    for site in (one, two):
        assert owed(world, site.name) == {placement.id: Order.STOP}
        await site.say(placement, S.STOPPED, cause=Cause.STOPPED)
    assert world.core.records.open_placements == {}


async def test_told_to_stop_a_rank_that_fails_for_want_of_its_peers_is_no_failure_of_the_job() -> None:
    world, one, two, job = await running()
    await world.core.intake.act_on_one(ADA, "requeue", job)
    await one.finish(job, exit_code=1)
    await two.run_all()
    assert (
        now(world, world.core.records.placements[next(iter(world.core.records.placements))]).status
        is S.STOPPED
    )
    assert (world.job(job).status, world.job(job).errors) == (JobStatus.PENDING, 0)


async def test_one_part_that_could_not_save_itself_is_nothing_to_resume_from() -> None:
    world, one, two, job = await running(checkpoint={"grace": "10s"})
    await world.core.intake.act_on_one(ADA, "requeue", job)
    await one.run_all()
    await two.say(world.placement(job), S.STOPPED, cause=Cause.STOPPED, checkpointed=False)
    assert (world.job(job).status, world.job(job).resume_site) == (JobStatus.PENDING, None)


async def test_a_restarted_dispatcher_goes_on_with_what_it_had_heard() -> None:
    world, one, two, job = await a_lab()
    placement = world.placement(job)
    await one.say(placement, S.ACCEPTED)
    store = world.core.records.store
    assert isinstance(store, MemoryStore)
    again = await make_world(store, world.clock)
    later = FakeSite(again, "lab-2", two.pool)
    later.connect()
    await later.say(placement, S.ACCEPTED)
    assert (now(again, placement).order, now(again, placement).rendezvous) == (Order.RUN, "lab.example:4000")


async def test_work_that_runs_though_only_reserved_by_older_records_is_stopped_everywhere_first() -> None:
    """The store was put back to before it was told to run: nobody knows how far the others have come."""
    world, one, two, job = await a_lab()
    placement = world.placement(job)
    await two.say(placement, S.RUNNING, started_at=world.clock.now())
    assert (now(world, placement).order, now(world, placement).ended) == (Order.STOP, False)
    await two.run_all()
    assert not now(world, placement).ended, "the other may run too"
    await one.run_all()
    assert (now(world, placement).status, world.job(job).status) == (S.STOPPED, JobStatus.PENDING)


def settled(job: Job) -> bool:
    return job.terminal or job.status in (JobStatus.PENDING, JobStatus.HELD)


async def test_of_a_host_that_is_silent_it_is_said_since_when() -> None:
    world, _, _, job = await running()
    assert not any(part.detail for part in world.core.views.detail(world.job(job)).parts)
    world.core.inventory.closed("lab-2", world.core.inventory.members["lab-2"].session)
    world.clock.advance(167)
    shown = world.core.views.detail(world.job(job))
    assert [part.detail for part in shown.parts] == ["", "not heard for 2m47s"]
    assert shown.job.because == f"{world.job(job).because}; lab-2: not heard for 2m47s"
