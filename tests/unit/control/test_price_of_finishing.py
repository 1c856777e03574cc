"""What the price curve says of an earlier finish is what a job with that limit gets."""

from typing import Any

from federator.model.capacity import Market
from federator.wire.jobfile import read_job
from tests.support.dispatch import ADA, make_world, renting
from tests.unit.control.test_bursting import until_rented


async def test_a_job_with_the_told_limit_and_value_is_rented_for() -> None:
    world = await make_world()
    await world.policies(renting(max_duration="4h", deadline_usd=0.0, usd_per_day=1000.0))
    await world.add_site("lab", nodes=1, gpus=8)
    await world.submit(name="hog", resources={"gpus": 8}, max_duration="4h", estimate="4h")
    await world.turn()
    await world.core.executor.poll()
    now = world.clock.now()
    job: dict[str, Any] = {
        "name": "next",
        "run": "x",
        "resources": {"gpus": 8},
        "estimate": "1h",
        "max_duration": "2h",
    }
    asked = {**job, "finish_within": "2h"}
    told = (await world.core.views.preview(ADA, read_job(asked, now=now))).explanation
    (soon,) = (point for point in told.curve if point.finish_at <= now + 7200)
    assert soon.market is Market.ON_DEMAND
    assert soon.cost_usd < soon.at_most_usd, "its whole limit, boot and slack"
    assert next(point for point in told.curve if point.market is Market.OWNED).at_most_usd == 0.0
    assert told.expected_finish_at is not None
    assert told.expected_finish_at > now + 7200, "nobody has said that it is worth it"
    limit = f"{soon.at_most_usd + 0.005:.2f} USD"
    agreed = {**asked, "max_cost": limit, "value": limit}
    cheaper = {**agreed, "max_cost": f"{soon.at_most_usd - 0.02:.2f} USD"}
    less = (await world.core.views.preview(ADA, read_job(cheaper, now=now))).explanation
    assert "max-cost" in {site.filter for site in less.sites}
    name = await world.submit(**{key: value for key, value in agreed.items() if key != "run"})
    await until_rented(world, name)
    placement = world.core.records.placements[world.job(name).placement or ""]
    assert placement.lease is not None
    found = (await world.core.views.explain(world.job(name))).expected_finish_at
    assert found is not None
    assert found <= now + 7200
