"""What an array of a million tasks costs: to submit, to hold, to look at, and to cancel."""

import time
from collections.abc import Awaitable

from federator.client.jobs import JobFilter
from tests.bench.figures import Better, Figure
from tests.bench.harness import Bench
from tests.bench.measuring import resident_mb

TASKS = 1_000_000
MOST_RUNS = 1
NOTE = """\
One array of a million tasks (`limits.array_tasks` is raised to that), which nothing runs: no site is connected, and turns plan its first 10,000 tasks. Each
request is made once, over a connection that is open.
"""


async def run(bench: Bench) -> list[Figure]:
    """Submit, look, and cancel."""
    tasks = bench.many(TASKS)
    async with bench.federation([], settings={"limits": {"array_tasks": TASKS}}) as world:
        client, pid = world.admin, bench.pid(world, "dispatcher")
        await client.jobs(JobFilter())
        before_mb = resident_mb(pid)
        wide = {"name": "wide", "command": ["true"], "resources": {"gpus": 1}, "array": f"0-{tasks - 1}"}
        figures = [_ms("submit", await _took_s(client.submit(wide)))]
        last = f"wide[{tasks - 1}]"
        looks: dict[str, Awaitable[object]] = {
            "list, one line": client.jobs(JobFilter(collapse=True)),
            "list, a page of tasks": client.jobs(JobFilter(name="wide")),
            "show": client.array("wide"),
            "show, its last task": client.job(last),
            "explain, its last task": client.explain(last),
            "cancel, its last 1,000 tasks": client.act(
                "cancel", [f"wide[{max(0, tasks - 1000)}-{tasks - 1}]"]
            ),
            "cancel, all": client.act("cancel", ["wide"]),
        }
        for name, look in looks.items():
            figures.append(_ms(name, await _took_s(look)))
        memory_mb = resident_mb(pid)
    figures.append(Figure("array, dispatcher's memory before", before_mb, "MB"))
    figures.append(Figure("array, dispatcher's memory after", memory_mb, "MB", 1000, Better.LESS))
    return figures


async def _took_s(request: Awaitable[object]) -> float:
    begun = time.perf_counter()
    await request
    return time.perf_counter() - begun


def _ms(name: str, took_s: float) -> Figure:
    return Figure(f"array, {name}", took_s * 1000, "ms")
