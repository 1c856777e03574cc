"""Parts of GPUs at sites with a scheduler of their own: a rank gets the part that it is booked for, from that scheduler itself, and nobody gets it twice."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from federator.model.jobs import Accelerators, JobSpec, Resources
from federator_agent.core import events as ev
from federator_agent.core.lent_capacity import HostPool, Lending, Seen, Slot, free_seen, seat_together
from federator_agent.core.lent_capacity import Site as Owner
from federator_agent.core.state import PlacementRecord
from federator_agent.staging_errors import StagingRefused
from tests.contract.runtimes import factories_kube, factories_slurm
from tests.contract.runtimes.world import RuntimeWorld
from tests.support.waiting import until
from tests.testbeds.kubernetes.cluster import NAMESPACE
from tests.testbeds.required import need

OWNER = Owner(name="here", pools=(), lend=Lending())
HOLDS = "echo share $FEDERATOR_GPU_SHARE of $FEDERATOR_GPUS_PER_NODE; until [ -e stop ]; do sleep 0.1; done"


class Cut(NamedTuple):
    """A way to cut GPUs, at one site."""

    world: RuntimeWorld
    pool: str
    milli: int
    parts: int
    given: Callable[[str], Any]
    """What the cluster says that a rank has, by placement."""
    due: Any
    """What it should say of one with one part."""


def half_or_less(milli: int) -> JobSpec:
    gpus = Accelerators(count=1, share_milli=milli)
    return JobSpec(name="job", run=HOLDS, resources=Resources(gpus=gpus, cpus_milli=10))


async def pool_of(cut: Cut, free: int | None = None) -> tuple[Seen, HostPool]:
    """The pool as it is seen, once so many parts of it are free."""

    def found() -> tuple[Seen, HostPool] | None:
        for event in reversed(cut.world.told):
            if isinstance(event, ev.CapacitySeen):
                seen = event.seen
                pool = next((each for each in seen.pools if each.name == cut.pool), None)
                if pool is None or free not in (None, parts_in(seen, pool)):
                    return None
                return seen, pool
        return None

    seen: tuple[Seen, HostPool] = await until(found, f"{free} parts of {cut.pool} to be free")
    return seen


def parts_in(seen: Seen, pool: HostPool) -> int:
    return sum(host.share_milli // pool.cut_milli for host in seen.hosts[pool.name])


async def seated(cut: Cut, spec: JobSpec, free: int | None = None) -> PlacementRecord:
    """A placement of it, on a part that the agent's core has found free."""
    seen, pool = await pool_of(cut, free)
    assert not pool.suits(spec.resources)
    slots = seat_together(free_seen(OWNER, pool, seen, {}), pool, (0,), spec.resources, "")
    assert slots is not None
    return record_on(cut, spec, slots)


def record_on(cut: Cut, spec: JobSpec, slots: tuple[Slot, ...]) -> PlacementRecord:
    made = cut.world.record(spec, pool=cut.pool)
    record = PlacementRecord(entry=made.entry, slots=slots)
    cut.world.records[made.entry.placement] = record
    return record


@pytest.fixture(params=["mig_at_kube", "slices_at_kube", "mig_at_slurm", "shards_at_slurm"])
async def cut(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cut]:
    async for made in globals()[request.param](tmp_path):
        made.world.begin()
        observing = asyncio.create_task(made.world.runtime.observe())
        yield made
        observing.cancel()
        await made.world.close()


async def mig_at_kube(folder: Path) -> AsyncIterator[Cut]:
    """Two instances that are half of an A100 each, by the name that the device plugin gives them; and no pools in the site file."""
    async for cut in _kube(folder, "nvidia.com/mig-3g.40gb", "a100-mig-3g.40gb", 500, 2):
        yield cut


async def slices_at_kube(folder: Path) -> AsyncIterator[Cut]:
    """Two slices of time that the site file calls a quarter each."""
    pool = factories_kube.pool(name="quarters", resource="nvidia.com/gpu.shared", part_milli=250)
    async for cut in _kube(folder, pool.resource, pool.name, 250, 2, pools=(pool,)):
        yield cut


async def _kube(
    folder: Path, resource: str, pool: str, milli: int, parts: int, **settings: object
) -> AsyncIterator[Cut]:
    need(factories_kube.lacking())
    if foreign := factories_kube.foreign():
        pytest.skip(foreign)  # nothing that could be installed is missing
    with factories_kube.devices({resource: parts}) as admin:
        site = factories_kube.site(start_within_s=3.0, **settings)

        def given(placement: str) -> Any:
            pod = admin.ask("GET", f"/api/v1/namespaces/{NAMESPACE}/pods/{placement}-0")
            asked = [each["resources"].get("limits", {}) for each in pod["spec"]["containers"]]
            return {name: count for each in asked for name, count in each.items() if "nvidia" in name}

        yield Cut(RuntimeWorld(folder, site), pool, milli, parts, given, {resource: "1"})


async def mig_at_slurm(folder: Path) -> AsyncIterator[Cut]:
    """Two instances that are half of an A100 each, by the type that gres.conf has for them."""
    async for cut in _slurm(folder, "main-a100_3g.20gb", 500, 2, "gpu:a100_3g.20gb:1"):
        yield cut


async def shards_at_slurm(folder: Path) -> AsyncIterator[Cut]:
    """Two GPUs of two shards each."""
    async for cut in _slurm(folder, "main-shared", 500, 4, "shard:1", shared={"main": 2}):
        yield cut


async def _slurm(
    folder: Path, pool: str, milli: int, parts: int, due: str, **settings: object
) -> AsyncIterator[Cut]:
    need(factories_slurm.lacking())
    slurm = factories_slurm.cluster(cut=True)
    await asyncio.wait_for(slurm.idle(), 60)

    def given(placement: str) -> Any:
        said = subprocess.run(
            ["scontrol", "show", "job", "--details", "--oneliner"],
            env=slurm.environment, check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        (job,) = (line for line in said.splitlines() if f"JobName={placement} " in line)
        return job.partition("JOB_GRES=")[2].split()[0]

    site = factories_slurm.site(cut=True, start_within_s=3.0, **settings)
    yield Cut(RuntimeWorld(folder, site), pool, milli, parts, given, due)


async def test_each_part_goes_to_one_rank_which_gets_that_and_no_more(cut: Cut) -> None:
    spec = half_or_less(cut.milli)
    held = []
    for free in range(cut.parts, 0, -1):
        record = await seated(cut, spec, free)
        assert [slot.share_milli for slot in record.slots] == [cut.milli]
        record = await cut.world.start(record, spec, await cut.world.prepare(record, spec))
        await cut.world.has_written(record, f"share {cut.milli / 1000:g} of 1")
        assert cut.given(record.entry.placement) == cut.due
        held.append(record)
    _, pool = await pool_of(cut, 0)
    assert (pool.nodes * pool.host_milli, pool.cut_milli) == (cut.parts * cut.milli, cut.milli)
    for record in held:
        cut.world.runtime.signal(record.entry.placement, (0,), "KILL")
        await cut.world.over(record)
    await pool_of(cut, cut.parts)


async def test_beyond_the_last_part_the_site_has_none(cut: Cut) -> None:
    """However the core came to believe in one more, the cluster itself keeps them apart."""
    spec = half_or_less(cut.milli)
    held = []
    for free in range(cut.parts, 0, -1):
        record = await seated(cut, spec, free)
        held.append(await cut.world.start(record, spec, await cut.world.prepare(record, spec)))
    late = record_on(cut, spec, held[-1].slots)
    with pytest.raises(StagingRefused):
        await cut.world.prepare(late, spec)
    await pool_of(cut, 0)


async def test_a_part_of_another_size_than_is_booked_is_refused(cut: Cut) -> None:
    spec = half_or_less(cut.milli)
    record = await seated(cut, spec)
    less = tuple(replace(slot, share_milli=cut.milli // 2) for slot in record.slots)
    with pytest.raises(StagingRefused, match="cut in another way"):
        await cut.world.prepare(record_on(cut, spec, less), spec)
    seen, pool = await pool_of(cut, cut.parts)
    del seen
    assert "parts of" in pool.suits(half_or_less(cut.milli * 3 // 5).resources)
