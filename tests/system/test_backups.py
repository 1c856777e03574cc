"""A backup of a running dispatcher, restored after it was killed: real processes, for both stores."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbeds.dispatchers import Dispatchers
from tests.testbeds.etcd import EtcdCluster

pytestmark = pytest.mark.system


@pytest.fixture(params=["embedded", "etcd"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EtcdCluster | None]:
    if request.param == "embedded":
        yield None
        return
    with EtcdCluster(tmp_path / "etcd", 1) as cluster:
        yield cluster


async def test_what_a_restored_store_forgot_is_found_again_and_nothing_runs_twice_at_once(
    tmp_path: Path, cluster: EtcdCluster | None
) -> None:
    """One job had not been placed when the backup was made, one ran and has ended since; both sides of the difference are made up."""
    async with Dispatchers(tmp_path / "world", cluster, "a") as world:
        config, backup = str(world.folder / "a.yaml"), str(tmp_path / "backup")
        short = await world.submit(10.0)
        late = await _held(world, 8.0)
        await world.running(short)
        assert ", checked" in world.run("store", "backup", backup, "--config", config)
        await world.admin.act("release", [late])
        await world.running(late)
        await world.until(lambda: _is(world, short, "SUCCEEDED"), "the short one is over")
        said = _refused(world, "store", "restore", backup, "--replace", "--config", config)
        assert "in use by process" in said or "a dispatcher leads" in said

        world.signal("a", signal.SIGKILL)
        world.processes.started["a"].wait()
        said = _refused(world, "store", "restore", backup, "--config", config)
        assert "--replace" in said
        assert "restored federation as of" in world.run(
            "store", "restore", backup, "--replace", "--config", config
        )
        world.start("a")
        assert await world.faults() == []
        assert len(world.placements(late)) == 1, "what ran is not started again"
        assert len(world.placements(short)) == 1, "nor what has ended since"
        await world.until(lambda: "reconciled" in world.said("a"), "all sites are heard")
        history = [event.text for event in await world.admin.history(late)]
        assert any("the restored store is older" in text for text in history)

        # What was signed after the backup is gone, and said to be; the rest is whole.
        asking = ("ledger", "verify", "--server", world.urls, "--token", world.token)
        assert "finding: " in _refused(world, *asking)
        for head in (world.folder / "a").glob("ledger.head.*"):
            head.unlink()
        world.run(*asking)


def _refused(world: Dispatchers, *words: str) -> str:
    with pytest.raises(AssertionError) as caught:
        world.run(*words)
    return str(caught.value)


async def _held(world: Dispatchers, run_s: float) -> str:
    """A job that was held before it had a place. One that was quicker is let go, and may run as any other."""
    while True:
        job = await world.submit(run_s)
        await world.admin.act("hold", [job])
        if (await world.admin.job(job)).job.epoch == 0:
            return job
        await world.admin.act("release", [job])


async def _is(world: Dispatchers, job: str, status: str) -> bool:
    return bool((await world.admin.job(job)).job.status == status)
