"""A gang over two hosts of one site, with real processes: it starts on both or not at all, its ranks meet, and it ends as one."""

from pathlib import Path

import pytest

from federator.model.jobs import JobStatus
from tests.support.hosts import Hosts

pytestmark = pytest.mark.system

ADDRESSES = {"lab-a": "127.0.0.2", "lab-b": "127.0.0.3"}
"""Each of its own, so that it is seen whose was taken."""


async def test_its_ranks_meet_across_hosts_and_its_logs_and_outputs_are_one_jobs(tmp_path: Path) -> None:
    async with Hosts(tmp_path / "world") as hosts:
        await hosts.add("lab-a", ADDRESSES["lab-a"])
        await hosts.submit()
        await hosts.until(lambda: _is(hosts, JobStatus.PENDING))
        assert hosts.federation.processes.ranks() == set(), "one host alone starts none of it"
        await hosts.add("lab-b", ADDRESSES["lab-b"])
        await hosts.until(lambda: _met(hosts, 1))
        await hosts.until(lambda: _is(hosts, JobStatus.RUNNING))
        hosts.let_go()
        await hosts.until(lambda: _is(hosts, JobStatus.SUCCEEDED))
        said = [await hosts.log(rank) for rank in range(2)]
        assert [line.rpartition(" at ")[0] for line in said] == [
            "rank 0 of 2 met rank 1",
            "rank 1 of 2 met rank 0",
        ]
        places = {line.strip().rpartition(" at ")[2] for line in said}
        assert len(places) == 1
        assert places <= set(ADDRESSES.values())
        written = await hosts.federation.admin.download(hosts.job, tmp_path / "outputs")
        assert sorted(path.name for path in written) == ["rank-0", "rank-1"]
        detail = await hosts.detail()
        assert detail.job.epoch == 1
        assert detail.job.gpu_s > 0


async def test_a_host_that_loses_its_rank_stops_the_other_and_the_gang_goes_on_anew(tmp_path: Path) -> None:
    async with Hosts(tmp_path / "world") as hosts:
        for member, address in ADDRESSES.items():
            await hosts.add(member, address)
        await hosts.submit()
        await hosts.until(lambda: _met(hosts, 1))
        first = hosts.met()[0]
        (lost,) = (path.name for path in hosts.placed("lab-b", first).glob("rank-*"))
        (kept,) = (path.name for path in hosts.placed("lab-a", first).glob("rank-*"))
        assert {lost, kept} == {"rank-0", "rank-1"}
        hosts.kill("lab-b", first, int(lost[-1]))
        hosts.start("lab-b")
        await hosts.until(lambda: _met(hosts, 2))
        second = next(name for name in hosts.met() if name != first)
        assert {rank.placement for rank in hosts.federation.processes.ranks()} == {second}
        hosts.let_go()
        await hosts.until(lambda: _is(hosts, JobStatus.SUCCEEDED))
        detail = await hosts.detail()
        told = [(event.kind, event.text) async for event in hosts.federation.admin.events(hosts.job)]
        assert any(kind == "lose" and "lab-b" in text for kind, text in told), (
            "recovering, while rank 0 is stopped"
        )
        assert detail.job.epoch == 2
        assert len(detail.job.losses) == 1
        assert detail.job.losses[0].startswith("lab-b/")


async def _is(hosts: Hosts, status: JobStatus) -> bool:
    return (await hosts.detail()).job.status is status


async def _met(hosts: Hosts, attempts: int) -> bool:
    return len(hosts.met()) == attempts
