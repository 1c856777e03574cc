"""How long it takes from asking for a job to its process being there, on an idle system."""

import asyncio
import os
import sys
import time

from federator.cli.demo.federation import DemoFederation
from tests.bench.figures import Better, Figure
from tests.bench.harness import Bench
from tests.bench.measuring import median, percentile

SITE = {
    "site": "slots",
    "kind": "onprem",
    "pools": [{"name": "cpu", "nodes": 1, "cpus_per_node": 200, "memory_per_node": "400GiB"}],
}
NOTE = """\
The job's process is `date +%s.%N`: what it prints is when it was there. The clock starts right before the request is sent. One job after another, each
when the last has ended. The command is `federator submit`, as a person types it: a Python program has to start first.
"""


async def run(bench: Bench) -> list[Figure]:
    """One job after another."""
    started_ms: list[float] = []
    ended_ms: list[float] = []
    async with bench.federation([SITE]) as world:
        for _ in range(bench.many(40)):
            begun_at = time.time()
            job = (await world.admin.submit({"command": ["date", "+%s.%N"]})).jobs[0]
            detail = await world.admin.wait(job)
            printed = b"".join([part async for part in world.admin.logs(job)])
            started_ms.append((float(printed) - begun_at) * 1000)
            assert detail.job.finished_at is not None, detail.job.because
            ended_ms.append((detail.job.finished_at - begun_at) * 1000)
            await asyncio.sleep(0.1)
        commands_ms = await _commands(bench, world)
    return [
        Figure(
            "submit to process started, median",
            median(started_ms),
            "ms",
            50,
            Better.LESS,
            against="Slurm: submit to process started, median",
        ),
        Figure("submit to process started, p95", percentile(started_ms, 95), "ms"),
        Figure("submit to end of a no-op job, median", median(ended_ms), "ms"),
        Figure(
            "the command `federator submit`", median(commands_ms), "ms", against="Slurm: the command sbatch"
        ),
    ]


async def _commands(bench: Bench, world: DemoFederation) -> list[float]:
    """Milliseconds that `federator submit` takes as a whole, from the start of its program to its end."""
    file = bench.folder / "job.yaml"
    file.write_text("run: 'true'\n")
    environment = world.processes.environment | {
        "FEDERATOR_SERVER": world.server,
        "FEDERATOR_TOKEN": world.admin_token,
    }
    took_ms = []
    for _ in range(bench.many(5)):
        begun = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "federator", "submit", str(file),
            env=environment, stdout=asyncio.subprocess.DEVNULL, cwd=os.sep,
        )  # fmt: skip
        if await process.wait():
            raise RuntimeError("federator submit has failed")
        took_ms.append((time.perf_counter() - begun) * 1000)
    return took_ms
