"""Jobs of a real Slurm cluster, started for the first test that wants it."""

import asyncio
import atexit
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from federator_agent.runtime import Runtime, Surroundings
from federator_agent.slurm.runtime import SlurmRuntime
from federator_agent.slurm.settings import SlurmSettings
from tests.contract.runtimes.world import Site
from tests.testbeds.slurm import Slurm, missing


def lacking() -> str:
    """Why there is no cluster."""
    return missing()


@cache
def _cluster(cut: bool) -> Slurm:
    folder = Path(tempfile.mkdtemp(prefix="federator-slurm-"))
    settings = {
        "SchedulerParameters": "batch_sched_delay=0,sched_interval=1,bf_interval=1",
        "KillWait": "1",
        "JobAcctGatherType": "jobacct_gather/linux",
        "JobAcctGatherFrequency": "task=1",
    }
    if cut:
        slurm = Slurm(folder, nodes=1, gpus=2, shards=2, halves=2, settings=settings)
    else:
        slurm = Slurm(folder, nodes=2, gpus=8, settings=settings)
    asyncio.run(slurm.__aenter__())

    def end() -> None:
        slurm.end()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return slurm


def cluster(*, cut: bool = False) -> Slurm:
    """It; or, `cut`, one with two GPUs of two shards each, and two instances that are half a GPU."""
    # In a thread of its own: a test's event loop is already running here.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_cluster, cut).result()


def site(*, cut: bool = False, **settings: Any) -> Site:
    """Its one partition. The nodes are this host, so any directory is shared with them."""
    slurm = cluster(cut=cut)
    shared = Path(tempfile.mkdtemp(dir=slurm.folder))
    for folder in (slurm.folder, shared):
        folder.chmod(0o711)  # jobs may be another user's

    def make(around: Surroundings) -> Runtime:
        return SlurmRuntime(SlurmSettings(shared_dir=shared, conf=slurm.configuration, **settings), around)

    return Site(make, "main", alone=False)
