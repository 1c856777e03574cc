"""A job that may run on fewer nodes or more: what it runs on counts, what it saved is kept, and what it loses is only what was lost."""

from typing import Any

import pytest
from msgspec.structs import replace

from federator.model.events import LedgerKind
from federator.model.jobs import Job, JobStatus
from federator.model.placements import DesiredEntry, PlacementStatus
from federator.model.plans import Plan, Preempt
from federator.model.rules import PriceKind, PriceTerm
from federator.planning.rules.rulebook import RuleBook
from tests.support.dispatch import FakeSite, World, make_world

FULL: dict[str, Any] = {
    "nodes": 2,
    "min_nodes": 1,
    "max_nodes": 4,
    "scaling": {"1": 1.0, "2": 2.0, "4": 3.0},
    "resources": {"gpus": 4},
    "checkpoint": {"grace": "30s"},
    "estimate": "10h",
    "max_duration": "100h",
}
"""Form 0 has two nodes. On one it is half as fast, on four half as fast again."""


async def a_lab(hosts: int, **fields: Any) -> tuple[World, str]:
    """Hosts with an agent each, and the job, running on as many as there are."""
    world = await make_world()
    await world.add_site("lab")
    for number in range(2, hosts + 1):
        await world.add_member("lab", f"lab-{number}")
    asked = {**FULL, **fields}
    job = await world.submit(**{key: value for key, value in asked.items() if value is not None})
    await world.turn()
    assert world.job(job).status is JobStatus.RUNNING
    return world, job


def told(world: World, job: str, member: str = "lab") -> DesiredEntry:
    return world.core.hub.desired.entry(world.placement(job), member)


async def stopped_for(world: World, job: str, form: int, beneficiary: str) -> Job:
    """The job is told to go on in another form, and has saved itself."""
    records = world.core.records
    record = records.jobs[job]
    stop = Preempt(
        job=job,
        revision=records.revision_of(record),
        placement=record.placement or "",
        beneficiary=beneficiary,
        because="GPUs idle",
        form=form,
    )
    plan = Plan(
        decision="dec-1",
        taken_at=world.clock.now(),
        seed=0,
        winner="greedy",
        winner_because="",
        objective_usd=0.0,
        actions=(stop,),
    )
    committed = await world.core.turn.committer.commit(plan)
    assert committed.stale == (), committed.stale
    await world.obey()
    return world.job(job)


async def test_it_runs_on_what_there_is_and_that_is_what_counts() -> None:
    world, job = await a_lab(1)
    placement = world.placement(job)
    assert (placement.nodes, placement.gpus_per_node, placement.gpus) == (1, 4, 4)
    assert placement.form == told(world, job).form > 0
    assert told(world, job).max_duration_s == 200 * 3600.0, "half as fast, it may run twice as long"
    row = world.core.views.row(world.job(job))
    assert (row.nodes, row.width) == (1, "1 of 1-4 nodes")
    world.clock.advance(3600.0)
    await world.sites["lab"].finish(job)
    (used,) = [line for line in await world.core.views.ledger() if line.kind is LedgerKind.USAGE]
    assert used.gpu_s == 4 * 3600.0


async def test_its_run_is_learned_as_what_it_asked_for_first() -> None:
    world, job = await a_lab(1)
    world.clock.advance(3600.0)
    await world.sites["lab"].finish(job)
    runs = world.core.turn.observer.jobs.history.runs(world.job(job).queue, world.job(job).name)
    assert runs == (1800.0,), "an hour on one node is half an hour on two"


async def test_what_it_saved_is_taken_off_what_is_left_and_no_retry_is_counted() -> None:
    world, job = await a_lab(1)
    whole = world.core.turn.observer.jobs.of(world.job(job)).run_s
    await world.add_member("lab", "lab-2")
    world.clock.advance(3600.0)
    found = await stopped_for(world, job, 0, job)
    assert (found.status, found.errors, found.saved_s) == (JobStatus.PENDING, 0, 1800.0)
    assert world.core.turn.observer.jobs.of(found).run_s == pytest.approx(whole - 1800.0)


async def test_one_that_makes_room_goes_on_in_the_form_that_was_chosen_and_may_grow_again() -> None:
    world, job = await a_lab(2)
    assert world.placement(job).nodes == 2
    world.clock.advance(3600.0)
    one = next(n for n in range(1, 4) if spec_of(world, job).as_form(n).nodes == 1)
    other = await world.submit(resources={"gpus": 1})
    found = await stopped_for(world, job, one, other)
    assert (found.form, found.saved_s) == (one, 3600.0)
    await world.turn()
    assert world.placement(job).nodes == 1, "though there is room for two"
    assert told(world, job, world.placement(job).members[0]).resume
    assert world.job(job).form is None


async def test_one_that_goes_on_narrower_is_worth_what_it_was() -> None:
    world, job = await a_lab(2, finish_within="20h")
    views, now = world.core.turn.observer.jobs, world.clock.now()
    whole = views.of(world.job(job))
    one = next(n for n in range(1, 4) if spec_of(world, job).as_form(n).nodes == 1)
    kept = views.of(replace(world.job(job), form=one))
    assert (kept.nodes, kept.forms) == (1, ())
    for rules in ((), (PriceTerm("price", PriceKind.MISS, 7.0), PriceTerm("price", PriceKind.WAIT, 3.0))):
        book = RuleBook(rules, now)
        for worth in (book.value_usd, book.wait_usd_h, book.fresh_wait_usd_h):
            assert worth(kept) == pytest.approx(worth(whole))
            assert worth(kept) > 0.0


def spec_of(world: World, job: str) -> Any:
    return world.core.records.spec(world.job(job).spec_hash)


async def test_it_goes_on_without_the_host_that_is_lost() -> None:
    world, job = await a_lab(2)
    placement = world.placement(job)
    assert placement.members == ("lab", "lab-2")
    world.clock.advance(3600.0)
    await lost(world, job, "lab-2")
    found = world.job(job)
    assert (found.status, found.resume_members, found.saved_s) == (JobStatus.PENDING, ("lab",), 3600.0)
    await world.turn()
    placement = world.placement(job)
    assert (placement.nodes, placement.members) == (1, ("lab",))
    assert told(world, job).resume


async def test_a_job_of_one_form_waits_for_what_is_lost() -> None:
    world, job = await a_lab(2, min_nodes=None, max_nodes=None, scaling=None)
    world.clock.advance(3600.0)
    await lost(world, job, "lab-2")
    found = world.job(job)
    assert (found.status, found.resume_members, found.saved_s) == (JobStatus.PENDING, (), 0.0)
    await world.turn()
    assert world.job(job).status is JobStatus.PENDING


async def lost(world: World, job: str, member: str) -> None:
    """A host is gone with its rank; the other saves itself when it is told to stop for that."""
    gone: FakeSite = world.sites.pop(member)
    placement = world.placement(job)
    world.core.inventory.closed(member, world.core.inventory.members[member].session)
    await world.core.progress.lose(placement.id, f"{member} is gone", acknowledged=True, member=member)
    assert gone.name == member
    await world.obey()
    assert world.core.records.placements[placement.id].status is PlacementStatus.LOST
