"""Jobs of a real Slurm cluster, started for the first test that wants it."""

import asyncio
import atexit
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from federator_agent.runtime import Runtime, Surroundings
from federator_agent.slurm.runtime import SlurmRuntime
from federator_agent.slurm.settings import SlurmSettings
from tests.contract.runtimes.world import Site
from tests.testbeds.slurm import Slurm, missing


def lacking() -> str:
    """Why there is no cluster."""
    return missing()


@cache
def _cluster() -> Slurm:
    folder = Path(tempfile.mkdtemp(prefix="federator-slurm-"))
    settings = {"SchedulerParameters": "batch_sched_delay=0,sched_interval=1,bf_interval=1", "KillWait": "1"}
    slurm = Slurm(folder, nodes=2, gpus=8, settings=settings)
    asyncio.run(slurm.__aenter__())

    def end() -> None:
        slurm.end()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return slurm


def site() -> Site:
    """Its one partition. The nodes are this host, so any directory is shared with them."""
    # In a thread of its own: a test's event loop is already running here.
    with ThreadPoolExecutor(1) as thread:
        slurm = thread.submit(_cluster).result()
    shared = Path(tempfile.mkdtemp(dir=slurm.folder))

    def make(around: Surroundings) -> Runtime:
        return SlurmRuntime(SlurmSettings(shared_dir=shared, conf=slurm.configuration), around)

    return Site(make, "main", alone=False)
