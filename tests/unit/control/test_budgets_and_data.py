"""Moving data is money: a budget counts it, also where nothing is rented."""

import pytest

from federator.model.jobs import JobStatus
from tests.support.dispatch import World, make_world

POLICIES = """
apiVersion: federator/v1
kind: Dataset
metadata: {name: images}
spec: {uri: "s3://images", size: 100GB, replicas: [{site: far}]}
---
apiVersion: federator/v1
kind: Links
metadata: {name: ways}
spec: {rows: [{from: far, to: lab, gbit_per_s: 10, usd_per_gb: 0.1}]}
---
apiVersion: federator/v1
kind: Budget
metadata: {name: lease_budget}
spec: {usd: {per_day: %s}}
"""


async def submit_beside(usd: str) -> tuple[World, str]:
    """A job that has to have 10 USD worth of data brought to the lab."""
    world = await make_world()
    await world.add_site("lab", gpus=4)
    await world.policies(POLICIES % usd)
    job = await world.submit(resources={"gpus": 4}, estimate="1h", inputs=[{"uri": "s3://images"}])
    await world.turn()
    return world, job


async def test_data_that_a_budget_leaves_no_money_for_is_not_moved() -> None:
    world, job = await submit_beside("5")
    assert world.job(job).status is JobStatus.PENDING
    explanation = await world.core.views.explain(world.job(job))
    assert "Budget/lease_budget" in explanation.policies
    assert any("Budget/lease_budget" in site.text for site in explanation.sites)


async def test_data_that_is_moved_counts() -> None:
    world, job = await submit_beside("15")
    assert world.job(job).status is JobStatus.RUNNING
    (row,) = world.core.views.budgets()
    assert round(row.spent + row.committed, 2) == 10.0
    second = await world.submit(resources={"gpus": 4}, estimate="1h", inputs=[{"uri": "s3://images/more"}])
    await world.sites["lab"].finish(job)
    await world.turn()
    assert world.job(second).status is JobStatus.PENDING


@pytest.mark.parametrize(("period", "days", "forgotten"), [("total", 400, False), ("per_day", 40, True)])
async def test_what_a_budget_counts_is_not_forgotten_with_its_job(
    period: str, days: int, forgotten: bool
) -> None:
    world, job = await submit_beside("15")
    await world.policies((POLICIES % "15").replace("per_day", period))
    await world.sites["lab"].finish(job)
    await world.turn()
    world.clock.advance(days * 86400.0)
    await world.core.sweeper.retention.sweep()
    (row,) = world.core.views.budgets()
    assert round(row.spent, 2) == (0.0 if forgotten else 10.0)
    assert (job not in world.core.records.jobs) is forgotten
