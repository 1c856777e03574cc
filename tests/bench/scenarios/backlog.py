"""100,000 jobs that wait: what the dispatcher holds in memory, how soon it answers, how soon it is back, and what work beside them costs."""

import asyncio
import json
import time

from federator.cli.demo.federation import DemoFederation
from federator.client.jobs import JobFilter
from tests.bench.figures import Better, Figure
from tests.bench.harness import Bench
from tests.bench.load import request_bytes, send_all
from tests.bench.measuring import child, cpu_s, percentile, resident_mb, turns
from tests.bench.scenarios.finish import SOLVER, through

MOST_RUNS = 3
TASKS = 1000
SITE = {
    "site": "slots",
    "kind": "onprem",
    "pools": [
        {"name": "cpu", "nodes": 1, "cpus_per_node": 64, "memory_per_node": "256GiB"},
        {"name": "gpu", "model": "A100", "gpu_memory": "80GiB", "nodes": 1, "gpus_per_node": 8,
         "cpus_per_node": 64, "memory_per_node": "512GiB"},
    ],
}  # fmt: skip
NOTE = """\
90 arrays of 1,000 tasks and 10,000 jobs that all differ (a third of them with deadlines), each for at least one GPU; the site has eight, and they are taken.
Answers are timed one after another over one connection that stays open. Back to serving: from the start of the process after `kill -9` to its first
"ready". The no-op jobs come last in the line and run on the site's 64 free CPU slots, past all that waits.
"""


def single(number: int) -> bytes:
    """One of the jobs that all differ."""
    job = {
        "name": f"single-{number}",
        "run": f"sleep 86400  # seed {number}",
        "resources": {"gpus": f"A100:{1 + number % 3}", "cpus": 1 + number % 4, "memory": f"{1 + number % 97}GiB"},
        "estimate": f"{10 + number % 1000}m",
        "max_duration": "24h",
        "priority": 40 + number % 11,
        "labels": {"seed": str(number % 50)},
    }  # fmt: skip
    if number % 3 == 0:
        job["finish_within"] = f"{24 + number % 48}h"
    return json.dumps(job).encode()


async def run(bench: Bench) -> list[Figure]:
    """Fill it, ask it, kill it, and let others work beside it."""
    arrays, singles = bench.many(90), bench.many(10_000)
    async with bench.federation([]) as world:
        begun = time.perf_counter()
        tasks = await _fill(bench, world, arrays, singles)
        bench.say(f"{tasks + singles} jobs in {time.perf_counter() - begun:.1f} s")
        filled_mb = resident_mb(bench.pid(world, "dispatcher"))
        figures = await _ask(bench, world)
        figures.append(Figure("queued, memory after filling", filled_mb, "MB", 500, Better.LESS))
        world.kill_dispatcher()
        begun = time.perf_counter()
        await world.start_dispatcher()
        back_s = time.perf_counter() - begun
        figures.append(Figure("queued, restart to serving", back_s, "s", 10, Better.LESS))
        await world.start_sites([SITE])
        figures += await _work_beside(bench, world)
        pid = bench.pid(world, "dispatcher")
        figures.append(Figure("queued, memory after work", resident_mb(pid), "MB", 500, Better.LESS))
        figures.append(Figure("queued, solver's memory", resident_mb(child(pid, SOLVER)), "MB"))
    return figures


async def _fill(bench: Bench, world: DemoFederation, arrays: int, singles: int) -> int:
    """Submit them; how many tasks the arrays have in all."""
    size = bench.many(TASKS)
    people = [await world.as_person(name) for name in ("ada", "bob", "cleo")]
    for number in range(arrays):
        document = {
            "name": f"sweep-{number}",
            "run": "sleep 86400",
            "array": f"0-{size - 1}",
            "resources": {"gpus": "A100:1", "cpus": 1},
            "estimate": f"{10 + number}m",
            "max_duration": "4h",
        }
        await people[number % len(people)].submit(document)
    lines = b"\n".join(single(number) for number in range(singles)) + b"\n"
    batch = request_bytes("POST", world.server, "/v1/jobs", world.admin_token, lines, "application/x-ndjson")
    await send_all(world.server, [batch], 1)
    return arrays * size


async def _ask(bench: Bench, world: DemoFederation) -> list[Figure]:
    """How long answers take while everything waits."""
    newest = (await world.admin.jobs(JobFilter(), limit=100)).jobs
    array = (await world.admin.jobs(JobFilter(name="sweep-0"), limit=50)).jobs
    middle, oldest = newest[len(newest) // 2].id, array[0].id
    paths = {
        "list, first page": "/v1/jobs",
        "list, by status": "/v1/jobs?status=PENDING",
        "list, by queue": "/v1/jobs?queue=default",
        "list, one's own": "/v1/jobs?mine=true",
        "list, by name": "/v1/jobs?name=sweep-0",
        "list, by label": "/v1/jobs?label=seed%3D7",
        "list, last page": f"/v1/jobs?after={oldest}",
        "show": f"/v1/jobs/{middle}",
        "show, by name": "/v1/jobs/single-0",
        "explain, seen by the turn": f"/v1/jobs/{oldest}/explain",
        "explain, far back": f"/v1/jobs/{middle}/explain",
        "overview": "/v1/overview",
        "metrics": "/metrics",
    }
    figures = []
    for what, path in paths.items():
        took_s = await _times(world, path, bench.many(200))
        figures.append(Figure(f"queued, {what}, median", percentile(took_s, 50) * 1000, "ms"))
        figures.append(Figure(f"queued, {what}, p99", percentile(took_s, 99) * 1000, "ms", 50, Better.LESS))
    return figures


async def _times(world: DemoFederation, path: str, count: int) -> list[float]:
    """Seconds that each of so many answers takes, one after another."""
    return await send_all(
        world.server, [request_bytes("GET", world.server, path, world.admin_token)] * count, 1
    )


async def _work_beside(bench: Bench, world: DemoFederation) -> list[Figure]:
    """Turns and starts while the queue is full."""
    while not (await world.admin.jobs(JobFilter(status="RUNNING"), limit=1)).total:
        await asyncio.sleep(0.1)
    await through(world, bench.many(20), "warm")
    count, pid = bench.many(1000), bench.pid(world, "dispatcher")
    before, used_s = await turns(world.server), cpu_s(pid)
    asked_s: list[float] = []
    asking = asyncio.ensure_future(_keep_asking(world, asked_s))
    begun = time.perf_counter()
    await through(world, count, "counted")
    took_s = time.perf_counter() - begun
    used_ms = (cpu_s(pid) - used_s) / count * 1000
    asking.cancel()
    later = await turns(world.server)
    turn_ms = (later[1] - before[1]) / max(1.0, later[0] - before[0]) * 1000
    return [
        Figure("queued, no-op jobs beside them", count / took_s, "jobs/s", against="no-op jobs end to end"),
        Figure("queued, dispatcher's CPU per no-op job", used_ms, "ms/job"),
        Figure("queued, one turn on average", turn_ms, "ms", better=Better.LESS),
        Figure("queued, list while jobs run, p99", percentile(asked_s, 99) * 1000, "ms", better=Better.LESS),
    ]


async def _keep_asking(world: DemoFederation, took_s: list[float]) -> None:
    """List the first page again and again, until cancelled."""
    while True:
        took_s += await _times(world, "/v1/jobs", 1)
        await asyncio.sleep(0.05)
