"""Many agents: what 10,000 running placements cost the dispatcher, and how a thousand agents come back when it does."""

import asyncio
import time
from collections.abc import Awaitable

from federator.client import AsyncClient
from tests.bench.figures import Better, Figure
from tests.bench.harness import Bench
from tests.bench.measuring import cpu_s, resident_mb
from tests.support.fleet import Dispatcher, Fleet

SITES = 100
PLACEMENTS = 10_000
AGENTS = 1000
ARRAY = 5000
WATCH_S = 20.0
TRICKLE_S = 0.2
DOWN_S = 2.0
LIMIT_S = 600.0
MOST_RUNS = 3
NOTE = (
    "Simulated agents: the link, the handshake and the core are the agent's own, the host answers at once. They report every 5 s and share the machine with "
    "the dispatcher. CPU is that of the dispatcher's process in seconds a second. Planning is greedy's alone. Under 'a trickle', five jobs a second come and "
    "end beside the 10,000. Back after a restart: from when it answers until the last agent has its session; meanwhile one client submits and lists in turn."
)
JOB = {"run": "sleep 100000", "resources": {"cpus": 1}}


async def run(bench: Bench) -> list[Figure]:
    """Both, each with a dispatcher of its own."""
    return [*await _reporting(bench), *await _coming_back(bench)]


async def _reporting(bench: Bench) -> list[Figure]:
    sites, placements = bench.many(SITES), bench.many(PLACEMENTS)
    dispatcher = await _dispatcher(bench, "reporting")
    try:
        async with (
            Fleet(dispatcher, slots=placements // sites + 20) as fleet,
            AsyncClient(dispatcher.url, dispatcher.token) as people,
        ):
            await fleet.join(sites)
            await fleet.until(lambda: fleet.linked == sites, LIMIT_S)
            for first in range(0, placements, ARRAY):
                await people.submit({**JOB, "array": f"0-{min(ARRAY, placements - first) - 1}"})
            await fleet.until(lambda: len(fleet.running) >= placements, LIMIT_S)
            watch_s = WATCH_S * min(1.0, bench.scale)
            await asyncio.sleep(watch_s / 2)  # for the last starts to be told
            quiet = await _cpu_share(dispatcher, asyncio.sleep(watch_s))
            trickle = await _cpu_share(dispatcher, _trickle(people, watch_s))
            return [
                Figure("fleet, 10,000 running, CPU", quiet, "cores", 1.0, Better.LESS),
                Figure("fleet, 10,000 running and a trickle, CPU", trickle, "cores", 1.0, Better.LESS),
                Figure("fleet, 10,000 running, memory", resident_mb(dispatcher.pid), "MB"),
            ]
    finally:
        dispatcher.end()


async def _coming_back(bench: Bench) -> list[Figure]:
    agents = bench.many(AGENTS)
    dispatcher = await _dispatcher(bench, "coming-back")
    try:
        async with Fleet(dispatcher) as fleet:
            await fleet.join(agents)
            await fleet.until(lambda: fleet.linked == agents, LIMIT_S)
            dispatcher.kill()
            await fleet.until(lambda: fleet.linked == 0, LIMIT_S)
            await asyncio.sleep(DOWN_S)
            before = sum(agent.attempts for agent in fleet.agents)
            await dispatcher.start()
            asked = asyncio.create_task(_ask(dispatcher, fleet))
            back_s = await fleet.until(lambda: fleet.linked == agents, LIMIT_S)
            slowest_s = await asked
            tries = (sum(agent.attempts for agent in fleet.agents) - before) / agents
            return [
                Figure("fleet, 1,000 agents back after a restart", back_s, "s", 30.0, Better.LESS),
                Figure("fleet, slowest answer meanwhile", slowest_s * 1000, "ms", 1000.0, Better.LESS),
                Figure("fleet, attempts per agent", tries, ""),
            ]
    finally:
        dispatcher.end()


async def _dispatcher(bench: Bench, name: str) -> Dispatcher:
    folder = bench.folder / name
    folder.mkdir(parents=True)
    dispatcher = Dispatcher(folder)
    await dispatcher.start()
    return dispatcher


async def _cpu_share(dispatcher: Dispatcher, meanwhile: Awaitable[None]) -> float:
    """CPU seconds a second while something goes on."""
    used_s, began_s = cpu_s(dispatcher.pid), time.monotonic()
    await meanwhile
    return (cpu_s(dispatcher.pid) - used_s) / (time.monotonic() - began_s)


async def _trickle(people: AsyncClient, watch_s: float) -> None:
    until_s = time.monotonic() + watch_s
    while (now_s := time.monotonic()) < until_s:
        await people.submit({**JOB, "run": "true"})
        await asyncio.sleep(max(0.0, TRICKLE_S - (time.monotonic() - now_s)))


async def _ask(dispatcher: Dispatcher, fleet: Fleet) -> float:
    """Submit and list in turn until all agents are back; the seconds that the slowest answer took. What fails, fails the run."""
    slowest_s = 0.0
    async with AsyncClient(dispatcher.url, dispatcher.token, patience_s=0.0) as people:
        while fleet.linked < len(fleet.agents):
            for ask in (lambda: people.submit({**JOB, "run": "true"}), people.jobs):
                began_s = time.monotonic()
                await ask()
                slowest_s = max(slowest_s, time.monotonic() - began_s)
            await asyncio.sleep(0.02)
    return slowest_s
