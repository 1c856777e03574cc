"""The same no-op jobs through a real Slurm on this machine, so that there is something to compare with."""

import asyncio
import time
from pathlib import Path

from tests.bench.figures import Figure
from tests.bench.harness import Bench
from tests.bench.measuring import median
from tests.testbeds.slurm import Slurm, missing

AT_ONCE = 32
NO_OP = "#!/bin/sh\nexec true\n"
NOTE = """\
Slurm as Debian packages it, with its own defaults for scheduling: slurmctld and one slurmd of 200 slots on this machine, without accounting, cgroups or
munge. Jobs are submitted with `sbatch`, which is how people do; end to end they are one array, the fastest way that it has.
"""


async def run(bench: Bench) -> list[Figure]:
    """Everything on one cluster; nothing where Slurm is not installed."""
    if lack := missing():
        bench.say(f"left out: {lack}")
        return []
    async with Slurm(bench.folder / "slurm", cpus=200) as slurm:
        started_ms, commands_ms = await _start(bench, slurm)
        submit_s = await _submit(slurm, bench.many(300))
        bench.say("submitted one by one")
        count = bench.many(300)
        begun = time.perf_counter()
        await slurm.submit(NO_OP, f"--array=0-{count - 1}", "--output=/dev/null")
        await slurm.idle()
        array_s = time.perf_counter() - begun
    return [
        Figure("Slurm: sbatch, 32 at once", bench.many(300) / submit_s, "jobs/s"),
        Figure("Slurm: the command sbatch", median(commands_ms), "ms"),
        Figure("Slurm: submit to process started, median", median(started_ms), "ms"),
        Figure("Slurm: no-op jobs end to end", count / array_s, "jobs/s"),
    ]


async def _start(bench: Bench, slurm: Slurm) -> tuple[list[float], list[float]]:
    started_ms, commands_ms = [], []
    for number in range(bench.many(20)):
        out = bench.folder / f"start-{number}"
        begun_at, begun = time.time(), time.perf_counter()
        await slurm.submit("#!/bin/sh\nexec date +%s.%N\n", f"--output={out}")
        commands_ms.append((time.perf_counter() - begun) * 1000)
        started_ms.append((await _printed(out) - begun_at) * 1000)
        await slurm.idle()
    return started_ms, commands_ms


async def _printed(out: Path) -> float:
    while True:
        text = out.read_text() if out.exists() else ""
        if text.endswith("\n"):
            return float(text)
        await asyncio.sleep(0.01)


async def _submit(slurm: Slurm, count: int) -> float:
    """Seconds in which so many are accepted; they are held, so that nothing else runs meanwhile, and cancelled afterwards."""
    numbers = iter(range(count))

    async def client() -> None:
        for _ in numbers:
            await slurm.submit(NO_OP, "--hold", "--output=/dev/null")

    begun = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(AT_ONCE)))
    took_s = time.perf_counter() - begun
    await slurm.command("scancel", "--state=PENDING", "--partition=main")
    await slurm.idle()
    return took_s
