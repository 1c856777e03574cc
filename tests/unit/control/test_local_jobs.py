"""What a site has admitted while it was cut off becomes jobs of the dispatcher's: each once, with its use, whatever is repeated."""

import asyncio
from typing import Any

import msgspec
import pytest

from federator.kernel.ids import IdSource
from federator.model.allotments import Allotment, AllotmentRule, LocalJob
from federator.model.events import LedgerEntry, LedgerKind
from federator.model.jobs import JobStatus
from federator.model.placements import Cause, Order, PlacementReport, PlacementStatus
from federator.model.rights import AccessRule, Grant, Members
from federator.model.rules import PolicyRule, PolicySet, QueueTerms
from federator.wire.jobfile import encode_spec, read_job
from tests.support.dispatch import ADA, World, make_world
from tests.support.waiting import PATIENCE_S
from tests.unit.control.test_reconciliation import back, backed_up, restored, say_all

ALLOTMENT = Allotment(
    policy="Allotment/lab",
    queue="default",
    users=("ada",),
    gpu_h=10.0,
    jobs=5,
    max_duration_s=7200.0,
    max_priority=30,
    after_s=60.0,
    longest_s=86_400.0,
)
RULE = AllotmentRule("Allotment/lab", ("lab",), ALLOTMENT)


async def a_world(*rules: PolicyRule) -> World:
    world = await make_world()
    await world.add_site("lab")
    await in_force(world, *(rules or (RULE,)))
    return world


async def in_force(world: World, *rules: PolicyRule) -> None:
    version = world.core.records.policies.version + 1
    policies = PolicySet(version=version, author="root", reason="test", applied_at=0.0, rules=rules)
    await world.put(policies)


def local(world: World, file: dict[str, Any] | None = None, **fields: Any) -> LocalJob:
    ids = IdSource(world.clock)
    spec = read_job(
        {"run": "sleep 60", "name": "mine", "resources": {"gpus": 2}, **(file or {})}, now=0.0
    ).spec
    given: dict[str, Any] = {
        "job": ids.new("job"),
        "placement": ids.new("pl"),
        "spec": encode_spec(spec).decode(),
        "owner": "ada",
        "queue": "default",
        "allotment": "Allotment/lab",
        "pool": "main",
        "submitted_at": world.clock.now(),
        "max_duration_s": 3600.0,
    }
    return LocalJob(**(given | fields))


async def adopt(world: World, *jobs: LocalJob, member: str = "lab") -> tuple[str, ...]:
    return await world.core.hub.local_jobs.adopt(member, jobs)


async def lines(world: World) -> list[LedgerEntry]:
    page = await world.core.records.store.range("ledger/", limit=100)
    return [msgspec.json.decode(item.value, type=LedgerEntry) for item in page.items]


async def test_what_ran_meanwhile_is_a_job_with_its_time_and_its_use() -> None:
    world = await a_world()
    job = local(world, priority=80)
    world.clock.advance(600.0)
    assert await adopt(world, job) == (job.placement,)
    placed = world.placement(job.job)
    assert (placed.members, placed.model, placed.assigned_at) == (("lab",), "A100", job.submitted_at)
    told = {"started_at": job.submitted_at + 1, "ended_at": job.submitted_at + 301, "exit_code": 0}
    await world.sites["lab"].say(placed, PlacementStatus.SUCCEEDED, **told)
    row = world.job(job.job)
    assert (row.status, row.gpu_s, row.priority) == (JobStatus.SUCCEEDED, 600.0, 30)
    assert row.submitted_at == job.submitted_at


async def test_told_again_it_is_the_same_job() -> None:
    world = await a_world()
    job = local(world)
    await adopt(world, job)
    before = world.core.records.revision
    assert await adopt(world, job, job) == (job.placement, job.placement)
    assert world.core.records.revision == before, "nothing was written"
    assert len(world.core.records.jobs) == 1


async def test_what_was_lost_with_its_machine_waits_for_another_place_and_rents_none() -> None:
    world = await a_world()
    job = local(world)
    await adopt(world, job)
    told = {"cause": Cause.NODE_LOST, "started_at": job.submitted_at, "ended_at": world.clock.now()}
    await world.sites["lab"].say(world.placement(job.job), PlacementStatus.LOST, **told)
    row = world.job(job.job)
    assert (row.status, row.may_rent) == (JobStatus.PENDING, False)
    await world.turn()
    assert world.job(job.job).epoch == 2


async def test_it_is_never_placed_a_second_time() -> None:
    world = await a_world()
    job = local(world)
    await adopt(world, job)
    await world.turn()
    await world.turn()
    assert [row.id for row in world.core.records.placements.values()] == [job.placement]
    assert world.job(job.job).status is JobStatus.RUNNING
    told = await world.core.views.explain(world.job(job.job))
    assert "by itself while it was cut off" in told.because
    assert not told.winner, "no plan has decided it"


REFUSED: dict[str, tuple[tuple[PolicyRule, ...], dict[str, Any], str]] = {
    "the allotment is gone": ((QueueTerms(policy="q", queue="default"),), {}, "no allotment"),
    "another person": ((), {"owner": "ben"}, "not for ben"),
    "another queue": ((), {"queue": "other"}, "not for ada in queue other"),
    "for too long": ((), {"max_duration_s": 7201.0}, "for longer"),
    "for more than all of it": ((), {"file": {"resources": {"gpus": 11}}}, "more GPU-hours"),
    "no right any more": (
        (RULE, AccessRule(policy="q", queue="default", allow=(Grant(Members(users=("ben",))),))),
        {},
        "may not submit",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_should_not_have_been_is_recorded_stopped_and_counted(case: str) -> None:
    rules, fields, says = REFUSED[case]
    world = await a_world(*rules)
    job = local(world, **fields)
    world.clock.advance(100.0)
    assert await adopt(world, job) == (job.placement,)
    row, placed = world.job(job.job), world.placement(job.job)
    assert (row.status, placed.order) == (JobStatus.CANCELLING, Order.STOP)
    assert says in row.because
    assert says in placed.order_reason
    ended = {"cause": Cause.STOPPED, "started_at": job.submitted_at, "ended_at": world.clock.now()}
    await world.sites["lab"].say(placed, PlacementStatus.STOPPED, **ended)
    row = world.job(job.job)
    assert (row.status, row.gpu_s) == (JobStatus.CANCELLED, 100.0 * placed.gpus)


async def test_what_was_cancelled_at_the_site_stays_cancelled() -> None:
    world = await a_world()
    job = local(world, cancelled_by="ada")
    await adopt(world, job)
    await world.turn()
    assert world.job(job.job).status is JobStatus.CANCELLED
    assert "cancelled by ada" in world.job(job.job).because


async def test_a_cancellation_after_the_first_word_of_it_counts_too() -> None:
    world = await a_world()
    job = local(world)
    await adopt(world, job)
    await adopt(world, msgspec.structs.replace(job, cancelled_by="ada"))
    assert world.placement(job.job).order is Order.STOP
    assert world.job(job.job).status is JobStatus.CANCELLING


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"spec": '{"name": "x", "nonsense": 1}'}, "cannot be read"),
        ({"spec": '{"name": "x", "run": "true", "nodes": 1000000000}'}, "no job file may have"),
        ({"spec": '{"name": "\\u001b[2J", "run": "true"}'}, "no job file may have"),
    ],
)
async def test_what_cannot_be_a_job_is_a_loss_in_the_ledger_and_not_asked_for_again(
    fields: dict[str, Any], says: str
) -> None:
    world = await a_world()
    job = local(world, **fields)
    assert await adopt(world, job) == (job.placement,)
    assert not world.core.records.jobs
    (line,) = [line for line in await lines(world) if line.kind is LedgerKind.LOSS]
    assert says in line.what


async def test_nobody_takes_over_another_sites_job() -> None:
    world = await a_world()
    await world.add_site("other")
    job = await world.submit(ADA)
    placed = await world.place(job, "other")
    stolen = local(world, job=job, placement=placed.id, cancelled_by="ada")
    await adopt(world, stolen)
    assert world.placement(job).order is Order.RUN
    assert any("of another has its id" in line.what for line in await lines(world))


async def test_a_flood_waits_at_its_site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("federator.control.submission.local_jobs.MOST_A_DAY", 2)
    world = await a_world()
    jobs = [local(world) for _ in range(3)]
    assert len(await adopt(world, *jobs)) == 2
    world.clock.advance(86_401.0)
    assert await adopt(world, jobs[2]) == (jobs[2].placement,)


async def test_a_queue_over_its_limit_starts_nothing_new_until_it_is_not() -> None:
    world = await make_world()
    await world.add_site("lab")
    await world.policies("""
apiVersion: federator/v1
kind: Queue
metadata: {name: default}
spec: {limit: {gpus: 1}}
---
apiVersion: federator/v1
kind: Allotment
metadata: {name: lab}
spec: {sites: [lab], queue: default, users: [ada], gpu_hours: 10, max_duration: 2h}
""")
    job = local(world)
    await adopt(world, job)
    waiting = await world.submit(ADA, resources={"gpus": 1})
    await world.turn()
    assert (world.job(job.job).status, world.job(waiting).status) == (JobStatus.RUNNING, JobStatus.PENDING)
    await world.sites["lab"].finish(job.job)
    await world.turn()
    assert world.job(waiting).status is JobStatus.RUNNING


async def test_a_restored_store_takes_over_what_it_has_forgotten() -> None:
    """The agent says it again; until then the dispatcher waits, since it does not know whose work that is."""
    world = await a_world()
    backup = backed_up(world)
    job = local(world)
    await adopt(world, job)
    again = await restored(world, backup)
    back(again, world.sites["lab"])
    waiting = asyncio.create_task(again.core.reconciliation.finish())
    await adopt(again, job)
    report = PlacementReport(
        placement=job.placement,
        epoch=1,
        seq=9,
        status=PlacementStatus.RUNNING,
        at=again.clock.now(),
        job=job.job,
    )
    await say_all(again, again.sites["lab"], report)
    await asyncio.wait_for(waiting, PATIENCE_S)
    assert again.job(job.job).status is JobStatus.RUNNING
    assert again.placement(job.job).id == job.placement
