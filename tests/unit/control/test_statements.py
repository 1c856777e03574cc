"""A site's owner sees what his machines were used for, and nobody else's."""

import pytest

from federator.kernel.clock import ManualClock
from federator.kernel.errors import Forbidden, NotFound
from federator.kernel.ids import IdSource, earliest
from federator.model.identity import Caller, Role
from tests.support.dispatch import ADMIN, World, make_world


async def used(world: World, gpus: int, hours: float, site: str) -> str:
    job = await world.submit(resources={"gpus": gpus}, placement={"sites": [site]})
    await world.turn()
    world.clock.advance(3600.0 * hours)
    world.report()
    await world.sites[site].finish(job)
    return job


async def test_a_statement_adds_up_what_was_used_at_the_site() -> None:
    world = await make_world()
    await world.add_site("lab", gpus=4)
    await world.add_site("hall", gpus=4)
    await used(world, 4, 2.0, "lab")
    await used(world, 1, 1.0, "hall")
    later_at = world.clock.now()
    await used(world, 2, 1.0, "lab")
    (row,) = await world.core.views.statement("lab", 0.0, None)
    assert (row.owner, row.attempts) == ("ada", 2)
    assert row.gpu_s == pytest.approx(10 * 3600.0, rel=0.01)
    (row,) = await world.core.views.statement("lab", later_at, None)
    assert row.attempts == 1
    assert row.gpu_s == pytest.approx(2 * 3600.0, rel=0.01)
    (row,) = await world.core.views.statement("lab", 0.0, later_at)
    assert row.attempts == 1
    assert row.gpu_s == pytest.approx(8 * 3600.0, rel=0.01)
    assert {entry.site for entry in await world.core.views.ledger(sites=("lab",))} == {"lab"}
    with pytest.raises(NotFound):
        await world.core.views.statement("nowhere", 0.0, None)


async def test_only_its_own_admin_may_read_it() -> None:
    world = await make_world()
    await world.add_site("lab", gpus=4)
    world.core.sites.allow(ADMIN, "lab")
    world.core.sites.allow(Caller("olga", Role.SITE_ADMIN, ("lab",)), "lab")
    for caller in (Caller("sam", Role.SITE_ADMIN, ("hall",)), Caller("ada", Role.USER)):
        with pytest.raises(Forbidden):
            world.core.sites.allow(caller, "lab")


def test_every_id_of_a_time_or_later_sorts_after_the_earliest_of_it() -> None:
    clock = ManualClock(1_760_000_000.0)
    ids = IdSource(clock)
    before = ids.new("le")
    clock.advance(0.001)
    assert before < earliest("le", clock.now()) <= ids.new("le")
