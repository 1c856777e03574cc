"""Budgets: what would exceed one is not rented, and what runs is told to save itself before one is broken, with the policy's name for a reason."""

from typing import Any

import pytest

from federator.model.capacity import LEASE_ENDED, LeaseStatus
from federator.model.jobs import JobStatus
from tests.support.dispatch import ADA, ADMIN, BOB, OFFER, World, make_world

ALWAYS = """
apiVersion: federator/v1
kind: Queue
metadata: {name: default}
spec: {max_duration: 2h}
---
apiVersion: federator/v1
kind: BurstPolicy
metadata: {name: any-time}
spec: {when: {mode: always}}
"""
JOB: dict[str, Any] = {"resources": {"gpus": 8}, "estimate": "1h", "checkpoint": {"grace": "60s"}}
WORST_USD = OFFER.price_usd_h * (OFFER.delay_s + 7200 + 60 + 300 + OFFER.teardown_s) / 3600
POLL_S = 15.0


def budget(spec: str, name: str = "lease_budget") -> str:
    return f"{ALWAYS}---\napiVersion: federator/v1\nkind: Budget\nmetadata: {{name: {name}}}\nspec: {spec}\n"


async def a_world(policies: str) -> World:
    """Nothing at home; everything that is permitted is rented at once."""
    world = await make_world()
    await world.policies(policies)
    await world.core.executor.poll()
    return world


async def why(world: World, job: str) -> str:
    return " ".join(site.text for site in (await world.core.views.explain(world.job(job))).sites)


async def pass_time(world: World, polls: int, *, stop: bool = True) -> None:
    """Poll by poll: machines boot and join, their agents obey, or with `stop` false never stop anything."""
    for _ in range(polls):
        world.clock.advance(POLL_S)
        await world.core.turn.once()
        await world.core.executor.poll()
        await world.core.executor.step()
        for lease in world.leases():
            if (
                lease.status is LeaseStatus.BOOTING
                and world.clock.now() >= lease.requested_at + OFFER.delay_s
            ):
                await world.boot(lease)
            if lease.status in LEASE_ENDED:
                world.sites.pop(lease.member, None)
        if stop:
            await world.obey()


async def test_what_would_exceed_it_is_not_rented_and_is_told_so() -> None:
    world = await a_world(budget(f"{{usd: {{per_day: {1.5 * WORST_USD:.0f}}}}}"))
    jobs = [await world.submit(**JOB) for _ in range(2)]
    await world.core.turn.once()
    assert [world.job(job).status for job in jobs] == [JobStatus.PLACED, JobStatus.PENDING]
    assert "policy Budget/lease_budget" in await why(world, jobs[1])
    assert "Budget/lease_budget" in (await world.core.views.explain(world.job(jobs[1]))).policies


async def test_one_that_only_warns_stops_nothing() -> None:
    world = await a_world(budget("{usd: {per_day: 1}, hard_stop: false}"))
    await world.submit(**JOB)
    await world.core.turn.once()
    assert len(world.leases()) == 1
    (row,) = [row for row in world.core.views.budgets() if row.policy == "Budget/lease_budget"]
    assert row.committed == pytest.approx(WORST_USD)


async def test_a_budget_of_some_queues_says_so() -> None:
    for_all = budget("{usd: {per_day: 9}}", "all").removeprefix(ALWAYS)
    world = await a_world(budget("{who: {queues: [default]}, usd: {per_day: 5}}") + for_all)
    rows = {row.policy: row.who for row in world.core.views.budgets()}
    assert (rows["Budget/lease_budget"], rows["Budget/all"]) == ("queue default", "")


async def test_each_owner_has_it_alone() -> None:
    world = await a_world(budget(f"{{each: owner, usd: {{per_day: {1.5 * WORST_USD:.0f}}}}}"))
    first, second = await world.submit(ADA, **JOB), await world.submit(ADA, **JOB)
    other = await world.submit(BOB, **JOB)
    await world.core.turn.once()
    assert world.job(first).status is JobStatus.PLACED
    assert "for ada of policy Budget/lease_budget" in await why(world, second)
    assert "can be rented" in await why(world, other)
    assert [row.share for row in world.core.views.budgets()] == ["ada"], "who has rented"


async def test_each_queue_has_it_alone() -> None:
    queues = "".join(
        f"---\napiVersion: federator/v1\nkind: Queue\nmetadata: {{name: {name}}}\nspec: {{max_duration: 2h}}\n"
        for name in ("a", "b")
    )
    spec = f"{{each: queue, who: {{queues: [a, b]}}, usd: {{per_week: {1.5 * WORST_USD:.0f}}}}}"
    world = await a_world(budget(spec) + queues)
    _, second, other = [await world.submit(**JOB, queue=queue) for queue in ("a", "a", "b")]
    await world.core.turn.once()
    assert len(world.leases()) == 1
    assert "for a of policy Budget/lease_budget" in await why(world, second)
    assert "can be rented" in await why(world, other)


async def test_each_job_may_cost_so_much_whatever_it_says_itself() -> None:
    world = await a_world(budget(f"{{each: job, usd: {{total: {WORST_USD - 1:.0f}}}}}"))
    long = await world.submit(**JOB, max_cost="1000 USD")
    short = await world.submit(**JOB, max_duration="1h")
    await world.core.turn.once()
    assert [world.job(job).status for job in (long, short)] == [JobStatus.PENDING, JobStatus.PLACED]
    assert "policy Budget/lease_budget leaves" in await why(world, long)


async def test_a_budget_that_is_lowered_stops_what_runs_before_it_is_broken() -> None:
    world = await a_world(budget(f"{{usd: {{per_day: {WORST_USD + 1:.0f}}}}}"))
    job = await world.submit(**JOB)
    await world.core.turn.once()
    await pass_time(world, 60)
    assert world.job(job).status is JobStatus.RUNNING
    await world.policies(budget("{usd: {per_day: 15}}"))
    await pass_time(world, 240)
    (lease,) = world.leases()
    assert lease.status is LeaseStatus.GONE
    assert 10 < lease.billed_usd <= 15
    assert world.job(job).status is JobStatus.PENDING
    assert "policy Budget/lease_budget" in await why(world, job)
    events = [event.text for event in await world.core.views.events(job, None)]
    assert any("policy Budget/lease_budget stops it" in text for text in events), events


async def test_a_price_that_doubles_breaks_no_budget() -> None:
    limit = WORST_USD + 1
    world = await a_world(budget(f"{{usd: {{per_day: {limit:.0f}}}}}"))
    job = await world.submit(**JOB)
    await world.core.turn.once()
    await pass_time(world, 40)
    world.provider.reprice(OFFER.name, 2 * OFFER.price_usd_h)
    await pass_time(world, 500)
    (lease,) = world.leases()
    assert lease.status is LeaseStatus.GONE
    assert lease.billed_usd <= WORST_USD
    assert world.job(job).status is JobStatus.PENDING


async def test_a_pause_also_stops_what_a_plan_has_asked_for_a_moment_ago() -> None:
    world = await a_world(ALWAYS)
    job = await world.submit(**JOB)
    await world.core.turn.once()
    assert world.job(job).status is JobStatus.PLACED
    await world.core.policy_service.pause_burst(ADMIN, on=True)
    await world.core.executor.step()
    assert not await world.provider.instances("federation")
    assert world.leases()[0].status is LeaseStatus.GONE
    assert world.job(job).status is JobStatus.PENDING
    await world.core.policy_service.pause_burst(ADMIN, on=False)
    await world.core.turn.once()
    await world.core.executor.step()
    assert len(await world.provider.instances("federation")) == 1


async def test_while_paused_a_rented_machine_is_used_but_not_paid_for_longer() -> None:
    world = await a_world(ALWAYS)
    first = await world.submit(**{**JOB, "resources": {"gpus": 4}})
    await world.core.turn.once()
    await pass_time(world, 30)
    assert world.job(first).status is JobStatus.RUNNING
    await world.core.policy_service.pause_burst(ADMIN, on=True)
    long = await world.submit(**{**JOB, "resources": {"gpus": 4}})
    await world.core.turn.once()
    assert world.job(long).status is JobStatus.PENDING
    assert "renting is paused" in await why(world, long)
    short = await world.submit(**{**JOB, "resources": {"gpus": 4}, "estimate": "5m"}, max_duration="10m")
    await world.core.turn.once()
    assert world.job(short).status is JobStatus.PLACED
