"""Nobody takes the dispatcher down by work that is large to write down, or that cannot be written at all: the rest goes on, and people are told."""

from typing import Any

import msgspec
import pytest

from federator.control.administration.tokens import digest_of
from federator.control.leases.lease_endings import interrupted
from federator.control.record.records import Changes
from federator.control.turns import committer, set_aside, turn
from federator.control.turns.job_views import JobViews
from federator.kernel.errors import TooLarge
from federator.model.capacity import LeaseStatus
from federator.model.events import AlertKind
from federator.model.identity import Role, Token
from federator.model.jobs import JobStatus
from federator.model.placements import Order, PlacementStatus
from federator.model.plans import Plan, Rent
from federator.model.snapshot import Problem
from federator.planning.plans.greedy import plan_greedily
from federator.ports import Transaction
from tests.support.dispatch import ADMIN, OFFER, World, make_world, renting

POLICIES = renting(max_duration="4h", deadline_usd=50, usd_per_day=1_000_000)


@pytest.fixture
async def world() -> World:
    """A site with room for forty small jobs, and a cloud that has whatever is asked for."""
    world = await make_world()
    world.provider.catalogue = [msgspec.structs.replace(OFFER, available=1000)]
    await world.add_site("lab", nodes=5, gpus=8)
    await world.policies(POLICIES)
    await world.core.executor.poll()
    return world


async def gang(world: World, machines: int, name: str = "gang", **fields: Any) -> str:
    """Work that has to be rented for at once: so many whole machines."""
    return await world.submit(
        name=name,
        nodes=machines,
        resources={"gpus": 8, "cpus": 1, "memory": "1GiB"},
        placement={"kinds": ["cloud"]},
        estimate="1h",
        finish_within="90m",
        **fields,
    )


async def small(world: World, count: int, **fields: Any) -> list[str]:
    given = {"resources": {"gpus": 1, "cpus": 1, "memory": "1GiB"}, "estimate": "1h", **fields}
    return [await world.submit(name=f"small-{number}", **given) for number in range(count)]


def counted(world: World) -> list[int]:
    """The writes of every transaction from now on."""
    store, sizes = world.core.records.store, list[int]()
    commit = store.commit

    async def count(transaction: Transaction) -> int:
        sizes.append(len(transaction.puts) + len(transaction.deletes))
        return await commit(transaction)

    store.commit = count  # type: ignore[method-assign]
    return sizes


def statuses(world: World, jobs: list[str]) -> set[JobStatus]:
    return {world.job(job).status for job in jobs}


# ------------------------------------------------------------------------------------------------------- large work


async def test_rentals_of_eight_machines_and_small_starts_are_one_turn(world: World) -> None:
    """As it was found: twenty actions are more than the store takes at once, so the turn failed, again and again."""
    gangs = [await gang(world, 8, f"gang-{number}") for number in range(10)]
    jobs = await small(world, 10)
    sizes = counted(world)
    plan = await world.core.turn.once()
    assert plan is not None
    assert sum(action.machines for action in plan.actions if isinstance(action, Rent)) == 80
    assert statuses(world, gangs + jobs) == {JobStatus.PLACED}
    assert len(world.leases()) == 80
    assert sum(sizes) > world.core.records.store.MAX_OPERATIONS >= max(sizes)


async def test_a_gang_of_a_hundred_machines_is_one_transaction(world: World) -> None:
    job = await gang(world, 100)
    sizes = counted(world)
    await world.core.turn.once()
    assert world.job(job).status is JobStatus.PLACED
    assert len(world.leases()) == 100
    assert max(sizes) > 100
    acts = [e for e in await world.core.views.ledger() if e.what.startswith("rent ")]
    assert [e.what.split(":")[0] for e in acts] == [f"rent 100 × {OFFER.name}"]


async def test_a_gang_that_is_larger_than_any_transaction_is_set_aside_and_the_rest_starts(
    world: World,
) -> None:
    job, jobs = await gang(world, 130), await small(world, 3)
    await world.core.turn.once()
    assert statuses(world, jobs) == {JobStatus.PLACED}
    assert (world.job(job).status, world.leases()) == (JobStatus.PENDING, [])
    row = world.core.views.row(world.job(job))
    assert row.because.startswith("it is set aside: it is 134 rows that belong together")
    assert "ask for fewer machines at once" in row.because
    assert row.because == (await world.core.views.explain(world.job(job))).because
    assert row.because == world.core.views.detail(world.job(job)).waiting.because  # type: ignore[union-attr]
    (event,) = [e for e in await world.core.views.events(job, None) if e.kind == "set-aside"]
    assert event.text == row.because
    (alert,) = await world.core.alerts.look()
    assert (alert.kind, alert.job) == (AlertKind.SET_ASIDE, job)
    assert row.because in alert.text
    assert not await world.core.alerts.look(), "it is told once"


async def test_what_is_set_aside_is_tried_again_after_a_pause_that_doubles_and_at_once_when_it_changes(
    world: World,
) -> None:
    job = await gang(world, 130)
    tries = []
    for _ in range(10):
        plan = await world.core.turn.once()
        if plan is not None and plan.actions:
            tries.append(world.clock.now())
        world.clock.advance(30)
    begun = tries[0]
    assert [at - begun for at in tries] == [0, 60, 180]
    assert world.core.turn.aside.next_at(world.clock.now()) is not None
    await world.core.intake.act_on_one(ADMIN, "hold", job)
    await world.core.intake.act_on_one(ADMIN, "release", job)
    plan = await world.core.turn.once()
    assert plan is not None
    assert [action.job for action in plan.actions] == [job]
    await world.core.intake.cancel(ADMIN, job)
    await world.core.turn.once()
    assert not world.core.turn.aside.jobs, "nothing is kept of what is over"


async def test_sixty_jobs_on_one_machine_that_is_taken_back_are_all_told(world: World) -> None:
    await small(world, 60, resources={"gpus": 0, "cpus": 1, "memory": "1GiB"}, placement={"kinds": ["cloud"]})
    jobs = [job for job in world.core.records.jobs if world.job(job).name.startswith("small")]
    owner = await gang(world, 1)
    await world.core.turn.once()
    (lease,) = [each for each in world.leases() if each.id == world.placement(owner).lease]
    for _ in range(3):
        await world.core.executor.step()
    await world.boot(lease)
    await world.put(msgspec.structs.replace(world.core.records.leases[lease.id], status=LeaseStatus.READY))
    for job in jobs:
        await world.place(job, lease.member)
        on_it = msgspec.structs.replace(world.placement(job), lease=lease.id, status=PlacementStatus.RUNNING)
        running = msgspec.structs.replace(world.job(job), status=JobStatus.RUNNING)
        await world.put(on_it, running)
    taken = msgspec.structs.replace(world.core.records.leases[lease.id], status=LeaseStatus.INTERRUPTED)
    await world.put(taken)
    sizes = counted(world)
    await interrupted(world.core.records, world.core.executor.event_writer, lease.id, "it is taken back")
    assert statuses(world, jobs) == {JobStatus.SUSPENDING}
    assert {world.placement(job).order for job in jobs} == {Order.STOP}
    assert world.core.records.leases[lease.id].status is LeaseStatus.DRAINING
    assert sum(sizes) > 180
    assert max(sizes) <= world.core.records.store.MAX_OPERATIONS


async def test_a_place_with_a_hundred_jobs_closes(world: World) -> None:
    await world.add_site("hall", nodes=20, gpus=8)
    jobs = await small(world, 100, placement={"sites": ["hall"]})
    await world.turn()
    assert statuses(world, jobs) == {JobStatus.RUNNING}
    open_hours = '{from: "22:00", to: "06:00"}'  # closed when the test begins
    await world.policies(
        "apiVersion: federator/v1\nkind: Calendar\nmetadata: {name: nights}\n"
        f"spec: {{where: {{sites: [hall]}}, open: [{open_hours}], at_close: stop}}\n"
    )
    await world.core.turn.once()
    assert statuses(world, jobs) == {JobStatus.SUSPENDING}


async def test_a_hundred_and_thirty_tokens_of_one_name_are_revoked(world: World) -> None:
    tokens = [
        Token(digest=digest_of(f"fed_{number}"), name="eve", role=Role.USER, created_at=0.0)
        for number in range(130)
    ]
    for start in range(0, 130, 100):
        await world.put(*tokens[start : start + 100])
    root = Token(digest=digest_of("fed_root"), name="root", role=Role.ADMIN, created_at=0.0)
    await world.put(root)
    assert await world.core.admission.revoke(ADMIN, "eve") == 130
    assert all(each.revoked for each in world.core.records.tokens.values() if each.name == "eve")


# ----------------------------------------------------------------------------------------- work that always fails


async def test_an_action_that_cannot_be_written_stops_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = await small(world, 30)
    bad = jobs[7]
    place = committer.Committer.place_job

    def fails(self: Any, changes: Changes, plan: Plan, action: Any, job: Any, snapshot: Any) -> str:
        if action.job == bad:
            raise KeyError("planted")
        return place(self, changes, plan, action, job, snapshot)

    monkeypatch.setattr(committer.Committer, "place_job", fails)
    await world.core.turn.once()
    assert {job for job in jobs if world.job(job).status is JobStatus.PENDING} == {bad}
    because = world.core.views.row(world.job(bad)).because
    assert because.startswith("it is set aside: KeyError while it was planned, see the dispatcher's log")
    assert "planted" not in because, "an unforeseen error may quote what is not everybody's"


async def test_a_transaction_that_the_store_refuses_is_taken_apart(world: World) -> None:
    """Whatever the store has against one job's rows, it is found, and the other jobs of its transaction are written."""
    jobs = await small(world, 30)
    store, bad = world.core.records.store, jobs[11]
    commit = store.commit

    async def refuses(transaction: Transaction) -> int:
        if any(put.key == f"job/{bad}" for put in transaction.puts):
            raise TooLarge("etcd refuses it: request is too large")
        return await commit(transaction)

    store.commit = refuses  # type: ignore[method-assign]
    await world.core.turn.once()
    assert {job for job in jobs if world.job(job).status is JobStatus.PENDING} == {bad}
    assert "request is too large" in world.core.views.row(world.job(bad)).because


async def test_a_job_that_planning_fails_on_is_found_and_set_aside(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = await small(world, 30)
    bad = {jobs[3], jobs[20]}

    def plan(problem: Problem) -> Plan:
        assert not bad & {job.id for job in problem.snapshot.jobs}, "planted"
        return plan_greedily(problem)

    monkeypatch.setattr(turn, "plan_greedily", plan)
    monkeypatch.setattr(set_aside, "plan_greedily", plan)
    assert await world.core.turn.once() is None
    assert world.core.turn.occasion.due
    await world.core.turn.once()
    assert {job for job in jobs if world.job(job).status is JobStatus.PENDING} == bad
    kinds = {(alert.kind, alert.job) for alert in await world.core.alerts.look()}
    assert kinds == {(AlertKind.SET_ASIDE, job) for job in bad}


async def test_a_job_of_which_no_view_can_be_made_stops_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = await small(world, 10)
    imagined = JobViews.imagined

    def fails(self: Any, job: Any, spec: Any) -> Any:
        if job.id == jobs[4]:
            raise ZeroDivisionError
        return imagined(self, job, spec)

    monkeypatch.setattr(JobViews, "imagined", fails)
    await world.core.turn.once()
    assert {job for job in jobs if world.job(job).status is JobStatus.PENDING} == {jobs[4]}
    assert "ZeroDivisionError" in world.core.views.row(world.job(jobs[4])).because


async def test_a_dispatcher_that_cannot_plan_at_all_tells_people(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await small(world, 1)

    async def fails(_self: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(turn.Turn, "observe", fails)
    for _ in range(3):
        assert not await world.core.alerts.look()
        with pytest.raises(RuntimeError):
            await world.core.turn.once()
    (alert,) = await world.core.alerts.look()
    assert alert.kind is AlertKind.TURN
    assert "nothing new starts: RuntimeError" in alert.text
    monkeypatch.undo()
    await world.core.turn.once()
    assert not world.core.turn.failed


async def test_a_status_that_cannot_be_written_stops_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = await small(world, 10)
    await world.core.turn.once()
    progress, bad = world.core.progress, world.placement(jobs[2]).id
    changes = type(progress).changes_of

    def fails(self: Any, member: str, report: Any) -> Changes:
        if report.placement == bad:
            raise KeyError("planted")
        return changes(self, member, report)

    monkeypatch.setattr(type(progress), "changes_of", fails)
    await world.obey()
    assert {job for job in jobs if world.job(job).status is not JobStatus.RUNNING} == {jobs[2]}
    assert progress.anomalies > 0
