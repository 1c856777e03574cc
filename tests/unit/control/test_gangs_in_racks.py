"""Racks of plain hosts: what their site files say of pools, as their agents report it, decides which hosts a gang lies over."""

import pytest

from federator.model.capacity import Pool
from federator.model.jobs import JobStatus
from federator.model.sites import Member, Site, SiteKind
from federator_agent import config
from federator_agent.core.capacity_report import site_report
from federator_agent.core.events import Now
from federator_agent.core.state import State
from tests.support.dispatch import FakeSite, World, make_world

HOST = (
    "site: farm\npools: [{{name: main, model: A100, gpus_per_node: 4, cpus_per_node: 16, "
    "memory_per_node: 64GiB{labels}}}]"
)
RACKS = {"farm": "r1", "farm-2": "r2", "farm-3": "r2", "farm-4": ""}


def reported(rack: str) -> Pool:
    """The pool of a host, from its site file to its agent's report."""
    text = HOST.format(labels=f", labels: {{rack: {rack}}}" if rack else "")
    site = config.parse(text, "site.yaml", {"PATH": "/bin"}).site
    (pool,) = site_report(State(site=site), Now(0.0, 0.0)).pools
    return pool


async def a_farm() -> World:
    """One host in a rack, two in another, one in none."""
    world = await make_world()
    await world.put(Site(name="farm", kind=SiteKind.ONPREM))
    for name, rack in RACKS.items():
        await world.put(Member(id=name, site="farm", public_key=""))
        site = world.sites[name] = FakeSite(world, name, reported(rack))
        site.connect()
    return world


async def test_a_gang_that_stays_together_lies_in_one_rack() -> None:
    world = await a_farm()
    gang = await world.submit(nodes=2, resources={"gpus": 4}, placement={"together": "rack"})
    await world.turn()
    assert world.placement(gang).members == ("farm-2", "farm-3")


async def test_no_rack_takes_what_only_two_would_hold() -> None:
    world = await a_farm()
    gang = await world.submit(nodes=3, resources={"gpus": 4}, placement={"together": "rack"})
    await world.turn()
    assert world.job(gang).status is JobStatus.PENDING


@pytest.mark.parametrize(("rack", "members"), [("r1", {"farm"}), ("r2", {"farm-2", "farm-3"})])
async def test_a_job_chooses_a_rack(rack: str, members: set[str]) -> None:
    world = await a_farm()
    job = await world.submit(resources={"gpus": 1}, placement={"labels": {"rack": rack}})
    await world.turn()
    assert set(world.placement(job).members) <= members
