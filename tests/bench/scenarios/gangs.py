"""Gangs through the agent on a real Slurm, from the order to run to all ranks begun, beside `sbatch` of the same gangs in the same run."""

import asyncio
import contextlib
import time
from pathlib import Path

from tests.bench.figures import Better, Figure
from tests.bench.harness import Bench
from tests.bench.measuring import median
from tests.testbeds.slurm import Slurm, missing

NODES, GPUS = 8, 8
RANKS = 2
SETTINGS = {"SchedulerParameters": "batch_sched_delay=0,sched_interval=1,bf_interval=1"}
NOTE = """\
A Slurm of 8 nodes with 8 GPUs each, all of them on this machine, with a dispatcher and an agent beside it. A gang is two ranks with one GPU each that write
the time and end. Through the federation it is submitted to the dispatcher, staged, submitted to Slurm, held at its gate and let go; beside it `sbatch` of a script
that runs `srun` with the same ranks. Slurm's scheduler is told to look at once (`batch_sched_delay=0`), or it would be all that is measured.
"""


async def run(bench: Bench) -> list[Figure]:
    """First Slurm alone, then through the federation; nothing where Slurm is not installed."""
    if lack := missing():
        bench.say(f"left out: {lack}")
        return []
    folder = bench.folder / "slurm"
    async with Slurm(folder, nodes=NODES, gpus=GPUS, settings=SETTINGS) as slurm:
        count = bench.many(40)
        plain_s, plain_ms = await _plain(slurm, count, bench.many(5), bench.folder / "plain")
        bench.say("gangs by sbatch alone are done")
        ours_s, accepted_ms, begun_ms = await _federated(bench, slurm, count)
    return [
        Figure("Slurm: gangs of 2 by sbatch", count / plain_s, "gangs/s"),
        Figure("Slurm: sbatch to first rank begun, one gang", plain_ms, "ms"),
        Figure("gangs of 2 on Slurm", count / ours_s, "gangs/s", against="Slurm: gangs of 2 by sbatch"),
        Figure("submit to accepted by sbatch, median", median(accepted_ms), "ms", None, Better.LESS),
        Figure(
            "submit to first rank begun on Slurm, median",
            median(begun_ms),
            "ms",
            None,
            Better.LESS,
            against="Slurm: sbatch to first rank begun, one gang",
        ),
    ]


async def _plain(slurm: Slurm, count: int, singly: int, folder: Path) -> tuple[float, float]:
    """Seconds for all gangs at once to end, and milliseconds for one to begin."""
    folder.mkdir()
    script = "#!/bin/sh\nunset SLURM_GPUS_PER_TASK\nsrun --input=none sh -c 'date +%s.%N'\n"
    options = [f"--ntasks={RANKS}", "--gpus-per-task=1", "--mem-per-cpu=10", f"--output={folder}/%j"]
    began_ms = []
    for _ in range(singly):
        begun_at = time.time()
        job = await slurm.submit(script, *options)
        await slurm.idle()
        began_ms.append((float((folder / job).read_text().split()[0]) - begun_at) * 1000)
    begun = time.perf_counter()
    await asyncio.gather(*(slurm.submit(script, *options) for _ in range(count)))
    await slurm.idle()
    return time.perf_counter() - begun, median(began_ms)


async def _federated(bench: Bench, slurm: Slurm, count: int) -> tuple[float, list[float], list[float]]:
    """Seconds for all gangs to end; milliseconds until Slurm had one, and until its first rank began."""
    shared = bench.folder / "shared"
    shared.mkdir()
    settings = {"conf": str(slurm.configuration), "shared_dir": str(shared)}
    site = {"site": "slurm", "kind": "onprem", "slurm": settings}
    job = {
        "command": ["date", "+%s.%N"],
        "nodes": RANKS,
        "resources": {"gpus": 1, "cpus": 1, "memory": "10MiB"},
    }
    accepted_ms, began_ms = [], []
    async with bench.federation([site]) as world:
        for _ in range(bench.many(5)):
            begun_at = time.time()
            [submitted] = (await world.admin.submit(job)).jobs
            accepted_ms.append((await _accepted_at(world.folder) - begun_at) * 1000)
            detail = await world.admin.wait(submitted)
            assert detail.job.finished_at is not None, detail.job.because
            printed = b"".join([part async for part in world.admin.logs(submitted)])
            began_ms.append((float(printed.split()[0]) - begun_at) * 1000)
        begun = time.perf_counter()
        results = [result async for result in world.admin.submit_many([job] * count)]
        await asyncio.gather(
            *(
                world.admin.wait(name)
                for result in results
                if result.submitted
                for name in result.submitted.jobs
            )
        )
        took_s = time.perf_counter() - begun
    return took_s, accepted_ms, began_ms


async def _accepted_at(folder: Path) -> float:
    """When the agent wrote down that Slurm has a job of its one placement."""
    while True:
        for intent in folder.glob("**/slurm/pl-*"):
            with contextlib.suppress(FileNotFoundError):
                if intent.read_bytes().partition(b'"slurm_job":"')[2][:1].isdigit():
                    return intent.stat().st_mtime
        await asyncio.sleep(0.01)
