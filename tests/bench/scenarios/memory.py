"""What a dispatcher and an agent with nothing to do hold in memory, and how much CPU they use meanwhile."""

import asyncio

from tests.bench.figures import Better, Figure
from tests.bench.harness import Bench
from tests.bench.measuring import child, cpu_s, resident_mb
from tests.bench.scenarios.finish import SOLVER

SITE = {
    "site": "idle",
    "kind": "onprem",
    "pools": [{"name": "cpu", "nodes": 1, "cpus_per_node": 8, "memory_per_node": "16GiB"}],
}
IDLE_S = 10.0
NOTE = "Resident memory (own and shared pages in use) of processes that have nothing to do, and the CPU that they use at it."


async def run(bench: Bench) -> list[Figure]:
    """One site, no job."""
    async with bench.federation([SITE]) as world:
        await world.admin.wait(
            (await world.admin.submit({"run": "true"})).jobs[0]
        )  # all is loaded that is ever used
        await asyncio.sleep(2.0)
        dispatcher, agent = bench.pid(world, "dispatcher"), bench.pid(world, "idle")
        used = cpu_s(dispatcher), cpu_s(agent)
        idle_s = max(1.0, IDLE_S * bench.scale)
        await asyncio.sleep(idle_s)
        return [
            Figure("idle agent, memory", resident_mb(agent), "MB", 60, Better.LESS),
            Figure("idle dispatcher, memory", resident_mb(dispatcher), "MB"),
            Figure("idle solver, memory", resident_mb(child(dispatcher, SOLVER)), "MB"),
            Figure("idle agent, CPU", (cpu_s(agent) - used[1]) / idle_s * 1000, "ms/s"),
            Figure("idle dispatcher, CPU", (cpu_s(dispatcher) - used[0]) / idle_s * 1000, "ms/s"),
        ]
