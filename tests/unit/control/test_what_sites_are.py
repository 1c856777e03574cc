"""What people see of a site with a scheduler of its own: what that is, and the work of its own that is in the way."""

from federator.model.sites import LocalWork
from tests.support.dispatch import make_world


async def test_a_site_is_shown_with_its_runtime_and_each_pool_with_its_local_work() -> None:
    world = await make_world()
    site = await world.add_site("lab", nodes=1, gpus=4)
    work = LocalWork(site.pool.name, nodes=1, gpus_per_node=2, queued=True)
    other = LocalWork("other", nodes=1, gpus_per_node=2)
    report = world.core.inventory.members["lab"].report
    assert report is not None
    (row,) = world.core.views.sites()
    assert (row.runtime, row.pools[0].local_work) == ("", ())
    site.report(pools=report.pools, local_work=(work, other), runtime="slurm")
    (row,) = world.core.views.sites()
    assert (row.runtime, row.pools[0].local_work) == ("slurm", (work,))
