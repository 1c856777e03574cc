"""GPUs that a site reports as ailing: they are out of the plan, and people see why."""

from msgspec.structs import replace

from federator.model.jobs import JobStatus
from federator.model.sites import AilingGpu, SiteStatus
from tests.support.dispatch import make_world


async def test_a_site_with_an_ailing_gpu_goes_on_with_the_others_and_says_why() -> None:
    world = await make_world()
    site = await world.add_site("lab", nodes=1, gpus=4)
    ill = AilingGpu(site.pool.name, f"{site.pool.name}/0", 2, "it is lost from the bus")
    report = world.core.inventory.members["lab"].report
    assert report is not None
    (pool,) = report.pools
    (host,) = pool.free
    site.report(pools=(replace(pool, free=(replace(host, gpus=3),), lent_gpus=3),), ailing=(ill,))
    (row,) = world.core.views.sites()
    assert (row.status, row.because, row.gpus, row.busy) == (SiteStatus.READY, "", 3, 0)
    assert row.pools[0].ailing == (ill,)
    whole = await world.submit(resources={"gpus": 4}, name="whole")
    most = await world.submit(resources={"gpus": 3}, name="most")
    await world.turn()
    assert world.job(whole).status is JobStatus.PENDING
    assert world.job(most).status is JobStatus.RUNNING
