"""How many jobs that do nothing go through one site of many slots, from submission to their recorded ends; and what each costs, by process."""

import asyncio
import json
import time

from federator.cli.demo.federation import DemoFederation
from federator.client.jobs import JobFilter
from tests.bench.figures import Figure
from tests.bench.harness import Bench
from tests.bench.load import request_bytes, send_all
from tests.bench.measuring import child, cpu_s
from tests.bench.scenarios.start import SITE

SOLVER = "federator.solving.worker"
NOTE = """\
All jobs are submitted as one NDJSON request and are `true`; the time ends when the dispatcher shows the last as SUCCEEDED, its exit code durable. The
CPU per job is what the kernel charges to each process meanwhile: the jobs' own processes are the shim, `setsid` and `true`.
"""


async def run(bench: Bench) -> list[Figure]:
    """One burst of them, after a few to warm up."""
    count = bench.many(1000)
    async with bench.federation([SITE]) as world:
        await through(world, bench.many(20), "warm")
        dispatcher, agent = bench.pid(world, "dispatcher"), bench.pid(world, "slots")
        solver = child(dispatcher, SOLVER)
        used = cpu_s(dispatcher), cpu_s(agent), cpu_s(agent, children=True), cpu_s(solver)
        begun = time.perf_counter()
        await through(world, count, "counted")
        took_s = time.perf_counter() - begun
        central_ms = (cpu_s(dispatcher) - used[0]) / count * 1000
        solver_ms = (cpu_s(solver) - used[3]) / count * 1000
        agent_ms = (cpu_s(agent) - used[1]) / count * 1000
        jobs_ms = (cpu_s(agent, children=True) - used[2]) / count * 1000 - agent_ms
    return [
        Figure(
            "no-op jobs end to end", count / took_s, "jobs/s", 200, against="Slurm: no-op jobs end to end"
        ),
        Figure("no-op job, dispatcher's CPU", central_ms, "ms/job"),
        Figure("no-op job, solver's CPU", solver_ms, "ms/job"),
        Figure("no-op job, agent's CPU", agent_ms, "ms/job"),
        Figure("no-op job, CPU of the job's own processes", jobs_ms, "ms/job"),
    ]


async def through(world: DemoFederation, count: int, name: str) -> None:
    """Submit them, and return when all have succeeded. Nothing else may succeed meanwhile."""
    lines = b"".join(json.dumps({"command": ["true"], "name": name}).encode() + b"\n" for _ in range(count))
    batch = request_bytes("POST", world.server, "/v1/jobs", world.admin_token, lines, "application/x-ndjson")
    # Asked by status alone, the answer costs the dispatcher next to nothing.
    before = await _total(world, "SUCCEEDED")
    failed = await _total(world, "FAILED,CANCELLED,HELD")
    await send_all(world.server, [batch], 1)
    while await _total(world, "SUCCEEDED") < before + count:
        if await _total(world, "FAILED,CANCELLED,HELD") > failed:
            raise RuntimeError("a no-op job has failed")
        if dead := world.processes.ended():
            raise RuntimeError(f"{', '.join(dead)} has ended")
        await asyncio.sleep(0.1)


async def _total(world: DemoFederation, status: str) -> int:
    return (await world.admin.jobs(JobFilter(status=status), limit=1)).total
