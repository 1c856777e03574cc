"""A job that reads the outputs of others is planned with how much that is and where it lies."""

from typing import Any

import pytest

from federator.control.record.rows import OutputPart, Outputs
from federator.model.datasets import OUTPUTS, DatasetRule
from federator.model.jobs import Input, JobStatus
from federator.model.sites import Member, Site, SiteKind
from federator.planning.wording.told import because_of
from tests.support.dispatch import World, make_world

POLICIES = """
apiVersion: federator/v1
kind: Queue
metadata: {name: default}
spec: {met_deadline_usd_per_gpu_hour: 20, max_duration: 2h}
---
apiVersion: federator/v1
kind: Links
metadata: {name: links}
spec:
  between_regions: {gbit_per_s: 1, usd_per_gb: 0.08}
  rows: [{from: dispatcher, to: near, gbit_per_s: 10}]
---
apiVersion: federator/v1
kind: Residency
metadata: {name: all-data-stays}
spec: {data: {}, only: {sites: [nowhere]}, reason: it stays}
"""
MAKER: dict[str, Any] = {"name": "make", "resources": {"gpus": 4}, "outputs": ["data"]}
READER: dict[str, Any] = {"resources": {"gpus": 4}, "estimate": "1h"}
SIZE = 149_900_000_000


async def add_site(world: World, name: str, *hosts: str) -> None:
    await world.put(Site(name=name, kind=SiteKind.ONPREM, region=name))
    for host in hosts or (name,):
        await world.put(Member(id=host, site=name, public_key=""))
        world.connect(host, 1, 4, "A100")


async def a_world(policies: str = POLICIES, *hosts: str) -> tuple[World, str]:
    """A job that has been done at `hall`, and what it has left."""
    world = await make_world()
    await world.policies(policies)
    await add_site(world, "hall", *hosts)
    maker = await world.submit(**MAKER)
    await world.turn()
    placement = world.placement(maker)
    await world.sites[placement.members[0]].finish(maker)
    part = OutputPart(member=hosts[0] if hosts else "hall", digest="0" * 64, size_bytes=SIZE)
    await world.put(Outputs(maker, placement.id, placement.epoch, (part,)))
    return world, maker


async def reader(world: World, maker: str, **fields: Any) -> str:
    job = await world.submit(**READER | {"inputs": {"from": maker, "name": "data"}} | fields)
    await world.core.turn.once()
    return job


async def test_it_is_drawn_to_the_site_that_made_what_it_reads() -> None:
    world, maker = await a_world()
    await add_site(world, "a-far")
    job = await reader(world, maker)
    placement = world.placement(job)
    assert (placement.site, placement.moves) == ("hall", None)
    explanation = await world.core.views.explain(world.job(job))
    (far,) = [site.text for site in explanation.sites if site.site == "a-far"]
    assert "150 GB from dispatcher: 20m and 12.00 USD" in far


async def test_where_that_site_is_full_it_is_brought_from_the_dispatcher_over_the_cheaper_link() -> None:
    world, maker = await a_world()
    await reader(world, maker)
    await add_site(world, "a-far")
    await add_site(world, "near")
    job = await reader(world, maker)
    placement = world.placement(job)
    assert placement.site == "near"
    assert placement.moves is not None
    assert (placement.moves.moved_bytes, placement.moves.usd) == (150 * 10**9, 0.0)
    assert "150 GB from dispatcher: 2m" in because_of(placement, world.clock.now())


async def test_another_host_of_the_site_has_not_got_it() -> None:
    world, maker = await a_world(POLICIES, "hall-1", "hall-2")
    job = await reader(world, maker)
    view = world.core.turn.observer.jobs.of(world.job(job))
    assert view.inputs == (Input(OUTPUTS, 150 * 10**9),)


async def test_that_a_host_has_joined_is_seen_at_the_next_look() -> None:
    world, maker = await a_world()
    job = await world.submit(**READER | {"inputs": {"from": maker, "name": "data"}})
    observer = world.core.turn.observer
    view = observer.jobs.of(world.job(job))
    for kept_at in ("hall",), ():
        rules = observer.snapshot(imagined=view).rules
        datasets = {rule.uri: rule.kept_at for rule in rules if isinstance(rule, DatasetRule)}
        assert datasets["outputs/hall"] == kept_at
        await world.add_member("hall", "hall-2")


@pytest.mark.parametrize("without", ["Links", "size"])
async def test_without_links_and_for_little_nothing_is_said(without: str) -> None:
    policies = "\n---\n".join(each for each in POLICIES.split("\n---\n") if "kind: Links" not in each)
    world, maker = await a_world(policies if without == "Links" else POLICIES)
    if without == "size":
        (known,) = world.core.records.outputs.values()
        (part,) = known.parts
        small = OutputPart(part.member, part.digest, 999_999)
        await world.put(Outputs(known.job, known.placement, known.epoch, (small,)))
    job = await reader(world, maker)
    assert world.core.turn.observer.jobs.of(world.job(job)).inputs == ()
    assert world.job(job).status is not JobStatus.PENDING


async def test_a_task_reads_its_own_part_of_an_array_and_a_job_all_of_it() -> None:
    world = await make_world()
    await world.policies(POLICIES)
    await add_site(world, "hall")
    await add_site(world, "near")
    await world.submit(**MAKER | {"array": "1-2"})
    await world.turn()
    ((array, tasks),) = world.core.records.arrays.items()
    for task in tasks.values():
        placement = world.placement(task.id)
        await world.sites[placement.site].finish(task.id)
        part = OutputPart(placement.site, "0" * 64, 10**9 * (task.array_index or 0))
        await world.put(Outputs(task.id, placement.id, placement.epoch, (part,)))
    reads = READER | {"inputs": {"from": array, "name": "x"}}
    whole = await world.submit(**reads)
    await world.submit(**reads | {"array": "1-2", "after": {"each": array}})
    own = [
        job.id for name, jobs in world.core.records.arrays.items() if name != array for job in jobs.values()
    ]
    views = world.core.turn.observer.jobs
    found = {job: views.of(world.job(job)).inputs for job in (whole, *own)}
    assert [sum(each.size_bytes or 0 for each in inputs) for inputs in found.values()] == [
        3 * 10**9,
        10**9,
        2 * 10**9,
    ]
    assert {each.uri for each in found[whole]} == {"outputs/hall", "outputs/near"}
