"""Rentals that policies do not leave to a plan: advised and never made, or made once a person has approved them."""

from typing import Any

import msgspec
import pytest

from federator.control.leases.proposals import approve, wanted_usd
from federator.kernel.errors import Forbidden, NotFound
from federator.model.jobs import JobStatus
from federator.model.plans import ProposalKind
from tests.support.dispatch import ADA, ADMIN, OFFER, World, make_world

QUEUE = """
apiVersion: federator/v1
kind: Queue
metadata: {name: default}
spec: {max_duration: 2h, met_deadline_usd_per_gpu_hour: 20}
---
apiVersion: federator/v1
kind: BurstPolicy
metadata: {name: cautious}
spec: {when: %s}
"""
JOB: dict[str, Any] = {"resources": {"gpus": 4}, "estimate": "1h"}
WORST_USD = OFFER.price_usd_h * (OFFER.delay_s + 7200 + 30 + 300 + OFFER.teardown_s) / 3600


async def a_world(when: str) -> World:
    """Home is full for hours, so that a deadline of two needs a machine at once."""
    world = await make_world()
    await world.add_site("lab", gpus=4)
    await world.policies(QUEUE % when)
    await world.submit(resources={"gpus": 4}, estimate="5h", max_duration="6h", name="filler")
    await world.turn()
    await world.core.executor.poll()
    return world


async def ledger(world: World, kind: str) -> list[str]:
    return [entry.what for entry in await world.core.views.ledger() if entry.what.startswith(kind)]


async def test_an_advisory_policy_rents_nothing_and_tells_once_what_it_would_have_rented() -> None:
    world = await a_world("{advisory: true}")
    job = await world.submit(**JOB, finish_within="88m")
    for _ in range(2):
        await world.core.turn.once()
        world.clock.advance(5)
    plan = await world.core.turn.once()
    assert not world.leases()
    assert plan is not None
    (proposal,) = plan.proposals
    assert (proposal.kind, proposal.job, proposal.policy) == (
        ProposalKind.ADVICE,
        job,
        "BurstPolicy/cautious",
    )
    assert proposal.committed_usd == pytest.approx(WORST_USD)
    (line,) = await ledger(world, "advice")
    assert "BurstPolicy/cautious only advises: it would have rented cloudy/r1/p4/on-demand" in line
    assert "advice" in [event.kind for event in await world.core.views.events(job, None)]


async def test_without_need_nothing_is_advised() -> None:
    world = await a_world("{advisory: true}")
    await world.submit(**JOB, finish_within="20h")
    plan = await world.core.turn.once()
    assert plan is not None
    assert not plan.proposals


async def test_what_is_over_the_amount_waits_until_it_is_approved() -> None:
    world = await a_world("{approval_above: 40}")
    job = await world.submit(**JOB, finish_within="88m")
    await world.core.turn.once()
    assert not world.leases()
    explanation = await world.core.views.explain(world.job(job))
    assert any(f"federator burst approve {job}" in site.change for site in explanation.sites)
    usd = wanted_usd(world.core.records, job)
    assert usd == pytest.approx(WORST_USD)
    await approve(
        world.core.records, world.core.turn.event_writer, ADMIN, job, usd=usd, reason="the paper is due"
    )
    await world.core.turn.once()
    assert world.job(job).status is JobStatus.PLACED
    assert world.leases()[0].committed_usd <= usd
    assert len(await ledger(world, "approval")) == 1


async def test_what_is_below_the_amount_needs_nobody() -> None:
    world = await a_world("{approval_above: 60}")
    job = await world.submit(**JOB, finish_within="88m")
    await world.core.turn.once()
    assert world.job(job).status is JobStatus.PLACED
    with pytest.raises(NotFound, match="waits for approval"):
        wanted_usd(world.core.records, job)


async def test_an_approval_of_less_is_not_enough_and_users_cannot_approve() -> None:
    world = await a_world("{approval_above: 40}")
    job = await world.submit(**JOB, finish_within="88m")
    await world.core.turn.once()
    with pytest.raises(Forbidden):
        await approve(world.core.records, world.core.turn.event_writer, ADA, job, usd=100.0, reason="")
    await approve(world.core.records, world.core.turn.event_writer, ADMIN, job, usd=45.0, reason="")
    await world.core.turn.once()
    assert world.job(job).status is JobStatus.PENDING


async def test_an_approval_is_for_one_rental() -> None:
    world = await a_world("{mode: always, approval_above: 40}")
    job = await world.submit(**JOB, finish_within="20h")
    await world.core.turn.once()
    records, event_writer = world.core.records, world.core.turn.event_writer
    usd = wanted_usd(records, job)
    await approve(records, event_writer, ADMIN, job, usd=usd, reason="once")
    await world.core.turn.once()
    await world.core.executor.step()
    await world.core.executor.poll()
    (lease,) = world.leases()
    assert world.job(job).approved_usd == 0.0
    await world.boot(lease)
    await world.turn()
    world.provider.vanish(lease.id)
    for _ in range(3):
        world.clock.advance(600)
        await world.core.executor.poll()
        await world.core.executor.step()
        await world.core.turn.once()
    assert world.job(job).status is JobStatus.PENDING
    assert len(world.leases()) == 1, "the second is for a person to decide"
    assert len(await ledger(world, "approval")) == 2, "who is told of it again"
    await approve(records, event_writer, ADMIN, job, usd=wanted_usd(records, job), reason="once more")
    await world.core.turn.once()
    assert len(world.leases()) == 2


async def test_without_an_amount_what_people_were_told_is_approved_and_not_what_a_plan_wants_by_now() -> None:
    world = await a_world("{approval_above: 40}")
    job = await world.submit(**JOB, finish_within="88m")
    await world.core.turn.once()
    for provider, offers in list(world.core.inventory.offers.items()):
        dearer = [msgspec.structs.replace(each, price_usd_h=1.5 * each.price_usd_h) for each in offers]
        world.core.inventory.offered(provider, dearer)
    plan = await world.core.turn.once()
    assert plan is not None
    assert plan.proposals[0].committed_usd == pytest.approx(1.5 * WORST_USD)
    (row,) = world.core.views.burst().proposals
    assert row.worst_usd == pytest.approx(WORST_USD)
    await world.core.policy_service.approve(ADMIN, job, None, "the paper is due")
    assert world.job(job).approved_usd == pytest.approx(WORST_USD)
    await world.core.turn.once()
    assert not world.leases()
    assert wanted_usd(world.core.records, job) == pytest.approx(1.5 * WORST_USD), "it is told anew"
    await world.core.policy_service.approve(ADMIN, job, None, "it is worth that, too")
    await world.core.turn.once()
    assert len(world.leases()) == 1
