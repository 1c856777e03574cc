"""A cap on a site's power: no more GPUs work there than may draw it, whosever they are, and what is beyond runs elsewhere or waits with the reason."""

from tests.support.dispatch import ADA, BOB, make_world

CAPPED = """
apiVersion: federator/v1
kind: Power
metadata: {name: hall}
spec: {sites: [hall], kilowatts: 2.9, gpu_watts: 700}
"""


async def test_no_more_gpus_work_at_a_site_than_its_power_is_for() -> None:
    world = await make_world()
    await world.add_site("hall", nodes=2, gpus=4)
    await world.add_site("annex", gpus=2)
    await world.policies(CAPPED)
    there = {"sites": ["hall"]}
    three = await world.submit(ADA, resources={"gpus": 3}, placement=there)
    two = await world.submit(BOB, resources={"gpus": 2}, placement=there)
    free = await world.submit(BOB, resources={"gpus": 2})
    await world.turn()
    assert [world.job(job).status for job in (three, two, free)] == ["RUNNING", "PENDING", "RUNNING"]
    assert world.placement(free).site == "annex"
    found = await world.core.views.explain(world.job(two))
    told = " ".join(site.text for site in found.sites)
    assert "limit of 4 gpus of policy Power/hall: 3 in use, this adds 2" in told
    await world.sites["hall"].finish(three)
    await world.turn()
    assert world.placement(two).site == "hall"
