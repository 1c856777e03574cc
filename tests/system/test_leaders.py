"""Several dispatchers on one real etcd cluster: one leads, and when it cannot, another does; nothing is lost, and nothing runs twice."""

import asyncio
import io
import json
import signal
import tarfile
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import msgspec
import pytest

from federator.kernel.errors import Unavailable
from federator.kernel.ids import content_hash
from federator.model.ledger import Part
from tests.testbeds.dispatchers import READY_S, TERM_S, Dispatchers
from tests.testbeds.etcd import EtcdCluster
from tests.testbeds.s3 import KEY, SECRET, settings_for, shared_server

pytestmark = pytest.mark.system


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EtcdCluster]:
    with EtcdCluster(tmp_path / "etcd") as cluster:
        yield cluster


async def test_a_leader_that_is_killed_or_stopped_is_succeeded(tmp_path: Path, cluster: EtcdCluster) -> None:
    async with Dispatchers(tmp_path / "world", cluster, "abc") as world:
        long = await world.submit(8.0)
        await world.running(long)
        first = await world.leader()
        submitting = [asyncio.create_task(world.submit(0.2, client_id=f"id-{n}")) for n in range(10)]
        await asyncio.sleep(0.02)
        world.signal(first, signal.SIGKILL)
        await asyncio.gather(*submitting)  # the same client, without a word of it
        second = await world.leader(but=first)
        again = await world.admin.submit(world.job(0.2, client_id="id-3"))
        assert again.jobs[0] == await submitting[3], "a client id is known to the successor"

        # One that is asked to stop hands over at once; here only that there is a third to lead.
        world.signal(second, signal.SIGTERM)
        (third,) = set("abc") - {first, second}
        await world.until(lambda: world.leads(third), "the third leads")
        world.start(first)
        await world.submit(0.2)
        assert await world.faults() == []
        assert len(world.placements(long)) == 1, "work goes on as it was through both"

        await world.until(
            lambda: _stands_by(world, first, world.url(third)), "the first is back, and stands by"
        )
        status, problem = await world.ask(first, "GET", "/v1/jobs")
        assert (status, problem["code"]) == (503, "not-leading")
        assert world.url(third) in problem["detail"]

        # The ledger went on through all three, and so did its export.
        exported = world.folder / "ledger.jsonl"
        await world.until(lambda: _keys_in(exported) == 3, "the third has exported too")
        world.run("ledger", "verify", str(exported))


async def test_a_leader_that_slept_through_its_term_does_nothing_when_it_wakes(
    tmp_path: Path, cluster: EtcdCluster
) -> None:
    async with Dispatchers(tmp_path / "world", cluster) as world:
        long = await world.submit(7.0)
        await world.running(long)
        old = await world.leader()
        body = json.dumps(world.job(0.2)).encode()
        world.signal(old, signal.SIGSTOP)
        # Sent while it sleeps, and read by it when it wakes: before any of its tasks has looked at a clock.
        asked = [
            asyncio.create_task(world.ask(old, "POST", "/v1/jobs", data=body, timeout=60)) for _ in range(5)
        ]
        new = await world.leader(but=old)
        await world.submit(0.2)
        world.signal(old, signal.SIGCONT)
        for status, problem in await asyncio.gather(*asked):
            assert (status, problem["code"]) == (503, "not-leading")
        await world.until(world.site_ready, "the agent has gone over")
        await world.until(lambda: _stands_by(world, old), "the old one stands by")
        assert await world.leads(new)
        assert await world.faults() == []
        assert len(world.placements(long)) == 1

        # And it can lead again.
        world.signal(new, signal.SIGKILL)
        await world.until(lambda: world.leads(old), "it leads again")
        await world.submit(0.2)
        assert await world.faults() == []


async def test_a_leader_that_is_cut_off_from_etcd_steps_down_before_another_steps_up(
    tmp_path: Path, cluster: EtcdCluster
) -> None:
    async with Dispatchers(tmp_path / "world", cluster, proxied="a") as world:
        long = await world.submit(7.0)
        await world.running(long)
        assert await world.leader() == "a"
        world.cut("a")
        await world.until(lambda: world.leads("b"), "b leads")
        assert not await world.leads("a")
        await world.submit(0.2)
        world.heal("a")
        await world.until(lambda: _stands_by(world, "a"), "a stands by")
        assert "its term could not be renewed" in world.said("a")
        assert await world.faults() == []
        assert len(world.placements(long)) == 1


async def test_etcd_loses_a_member_and_then_its_quorum_and_comes_back(
    tmp_path: Path, cluster: EtcdCluster
) -> None:
    async with Dispatchers(tmp_path / "world", cluster) as world:
        await world.leader()
        long = await world.submit(9.0)
        await world.running(long)
        cluster.kill(0)
        for _ in range(5):
            await world.submit(0.2)
        cluster.kill(1)
        world.admin.transport.patience_s = 0.0
        await world.until(lambda: _refuses(world), "nobody leads", limit_s=4 * TERM_S + READY_S)
        cluster.start(0)
        cluster.start(1)
        cluster.wait_healthy()
        world.admin.transport.patience_s = READY_S
        await world.submit(0.2)
        assert await world.faults() == []
        assert len(world.placements(long)) == 1, "work goes on without anybody who leads"


async def test_dispatchers_share_a_bucket_and_no_folder(tmp_path: Path, cluster: EtcdCluster) -> None:
    """A work directory, a log and outputs go through a change of leaders, and nobody sees the bucket's credentials."""
    s3 = settings_for(tmp_path, shared_server())
    async with Dispatchers(tmp_path / "world", cluster, "abc", s3=s3) as world:
        first = await world.leader()
        packed = tmp_path / "work.tar.gz"
        with tarfile.open(packed, "w:gz") as archive:
            (tmp_path / "said.txt").write_text("from the work directory\n")
            archive.add(tmp_path / "said.txt", "said.txt")
        digest = content_hash(packed.read_bytes())
        headers = {"Authorization": f"Bearer {world.token}"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.put(f"{world.url(first)}/v1/blobs/{digest}", data=packed.read_bytes()) as answer,
        ):
            assert answer.status == 201, await answer.text()
        script = "cat said.txt; env; for n in $(seq 60); do echo line $n; sleep 0.1; done; echo end; cp said.txt out.txt"
        submitted = await world.admin.submit(
            {"name": "files", "run": script, "workdir": f"sha256:{digest}", "outputs": ["out.txt"]}
        )
        (job,) = submitted.jobs
        await world.until(lambda: _logs(world, job, "line 5"), "it writes")
        world.signal(first, signal.SIGKILL)
        second = await world.leader(but=first)
        await world.until(lambda: _is(world, job, "SUCCEEDED"), "it is over")
        log = await _log_of(world, job)
        assert log.startswith("from the work directory\n")
        assert "".join(f"line {n}\n" for n in range(1, 61)) + "end\n" in log, "nothing is lost of it"
        world.signal(second, signal.SIGKILL)
        third = await world.leader(but=second)
        assert await _log_of(world, job) == log
        status, body = await world.fetch(third, f"/v1/jobs/{job}/outputs")
        assert status == 200
        with tarfile.open(fileobj=io.BytesIO(body)) as outputs:
            assert outputs.getnames() == ["out.txt"]
        shown = "".join(map(world.said, "abc")) + log + world.said("lab")
        assert SECRET not in shown
        assert KEY not in shown


async def _logs(world: Dispatchers, job: str, text: str) -> bool:
    return text in await _log_of(world, job)


async def _log_of(world: Dispatchers, job: str) -> str:
    status, body = await world.fetch(await world.leader(), f"/v1/jobs/{job}/logs")
    return body.decode() if status == 200 else ""


async def _is(world: Dispatchers, job: str, status: str) -> bool:
    return bool((await world.admin.job(job)).job.status == status)


def _keys_in(export: Path) -> int:
    """Of how many dispatchers it has seals."""
    whole = [line for line in export.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    return len(
        {
            part.seal.key
            for part in msgspec.json.Decoder(Part).decode_lines(b"".join(whole))
            if part.seal is not None
        }
    )


async def _stands_by(world: Dispatchers, name: str, leader: str = "") -> bool:
    """Whether it says so; and who leads, where that is asked."""
    try:
        _, answer = await world.ask(name, "GET", "/readyz")
    except (aiohttp.ClientError, OSError, TimeoutError):
        return False
    return answer.get("status") == "standby" and leader in answer.get("leader", "")


async def _refuses(world: Dispatchers) -> bool:
    try:
        await world.admin.sites()
    except Unavailable:
        return True
    return False
