"""Two policy sets are simulated in a child process, within limits."""

import asyncio
from pathlib import Path

import pytest

from federator.kernel.errors import TooLarge
from federator.model.sites import SiteKind
from federator.settings import LimitSettings
from federator.solving.policy_trials import ChildTrials
from federator.wire.contrast import PolicyTrial
from federator.wire.recorded import RecordedJob, RecordedPool, RecordedSite, RecordedWorld

QUEUE = "apiVersion: federator/v1\nkind: Queue\nmetadata: {name: %s}\nspec: {max_duration: 1d}\n"
POOL = RecordedPool(name="main", model="A100", nodes=1, gpus_per_node=4, cpus_milli_per_node=64_000, memory_mib_per_node=500_000)  # fmt: skip
TRIAL = PolicyTrial(
    world=RecordedWorld(taken_at=7200.0, sites=(RecordedSite(name="lab", kind=SiteKind.ONPREM, pools=(POOL,)),)),
    jobs=tuple(
        RecordedJob(id=f"job-{n}", name=f"j{n}", queue="q", owner="ada", ready_at=60.0 * n, run_s=600.0, ended=True, gpus=4, cpus_milli=1000, memory_mib=1000)
        for n in range(3)
    ),
    since_at=0.0,
    in_force=QUEUE % "q",
    proposed=QUEUE % "other",
)  # fmt: skip


async def test_both_sides_are_simulated_elsewhere() -> None:
    # It gives way to whatever else this machine does.
    outcome = await ChildTrials(LimitSettings(policy_replay_s=280.0)).run(TRIAL)
    assert outcome.contrast is not None, outcome.fault
    total = outcome.contrast.total
    assert (total.before.jobs, total.before.refused, total.after.refused) == (3, 0, 3)
    assert outcome.contrast.changes == ("Queue/other is new", "Queue/q is removed")
    assert outcome.troubles == ()


async def test_it_ends_in_time() -> None:
    trials = ChildTrials(LimitSettings(policy_replay_s=0.3))
    with pytest.raises(TooLarge, match="longer than 0"):
        await trials.run(TRIAL)
    assert not _children()


async def test_who_goes_away_leaves_no_process() -> None:
    trials = ChildTrials(LimitSettings())
    asked = asyncio.create_task(trials.run(TRIAL))
    while not (children := _children()):
        await asyncio.sleep(0.01)
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    assert not children & _children()


def _children() -> set[int]:
    """Those of this process that simulate."""
    found = Path("/proc/self/task").glob("*/children")
    pids = {int(pid) for file in found for pid in file.read_text().split()}
    return {pid for pid in pids if b"policy_trial" in Path(f"/proc/{pid}/cmdline").read_bytes()}
