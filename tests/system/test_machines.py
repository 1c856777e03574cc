"""One gang over two machines that are rented for it: real processes, the machines of the local provider, and nothing left behind."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from federator.cli.demo.federation import DemoFederation
from federator.cli.demo.world import PROVIDER, Document
from federator.model.jobs import JobStatus
from federator_providers.local.folder import InstanceFolder
from tests.support.waiting import until
from tests.system.test_spot import POLICIES

SPEED = 15.0
"""Slow enough that agents on a busy machine answer within the time that a reservation lasts."""

JOB: dict[str, Any] = {
    "name": "gang",
    "nodes": 2,
    "run": 'test "$FEDERATOR_NUM_NODES" = 2 && test "$WORLD_SIZE" = 2 && test -n "$MASTER_ADDR" && echo rank $FEDERATOR_NODE_RANK',
    "resources": {"gpus": "A100:1"},
    "estimate": "5m",
    "placement": {"kinds": ["cloud"]},
}


class CloudFederation(DemoFederation):
    """Machines of one GPU each."""

    def _settings(self) -> Document:
        settings = super()._settings()
        offer = {"instance_type": "a2-highgpu-1g", "market": ["on-demand"], "boot_delay": "2m"}
        settings["providers"][PROVIDER]["settings"] |= {"offers": [offer]}
        return settings


@pytest.fixture
async def federation(tmp_path: Path) -> AsyncIterator[DemoFederation]:
    (tmp_path / "world").mkdir()
    made = CloudFederation(tmp_path / "world", SPEED)
    try:
        await made.start_dispatcher()
        await made.apply_policies(POLICIES)
        yield made
    finally:
        await made.end()


@pytest.mark.system
@pytest.mark.timeout(600)
async def test_a_gang_runs_over_two_machines_that_are_rented_for_it(federation: DemoFederation) -> None:
    admin = federation.admin
    (job,) = (await admin.submit(JOB)).jobs
    done = await admin.wait(job)
    assert done.job.status is JobStatus.SUCCEEDED, done.job.because
    leases = await admin.leases()
    assert len(leases) >= 2
    assert len(leases) % 2 == 0, (
        "both or none, also where a machine was too slow to join and they were rented again"
    )
    for rank in range(2):
        query = {"node": str(rank), "placement": done.job.placement or ""}
        path, headers = f"/v1/jobs/{job}/logs", {"Accept": "*/*"}
        async with admin.transport.open("GET", path, query=query, headers=headers) as answer:
            assert f"rank {rank}".encode() in await answer.read()

    async def all_gone() -> bool:
        return all(lease.status == "GONE" for lease in await admin.leases())

    await until(all_gone, "the end of both machines")
    assert not any(InstanceFolder(federation.machines / lease.id).is_on() for lease in leases)
