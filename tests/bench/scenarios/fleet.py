"""Many agents: what 10,000 running placements cost the dispatcher, and how a thousand sites join, stand idle, and come back when it does."""

import asyncio
import os
import subprocess
import time
from collections.abc import Awaitable

from federator.client import AsyncClient
from federator.model.jobs import JobStatus
from tests.bench.figures import Better, Figure
from tests.bench.harness import Bench
from tests.bench.measuring import cpu_s, resident_mb
from tests.bench.scenarios.verbs import FEDERATOR
from tests.support.fleet import Dispatcher, Fleet

SITES = 100
PLACEMENTS = 10_000
AGENTS = 1000
ARRAY = 5000
WATCH_S = 20.0
IDLE_S = 120.0
TRICKLE_S = 0.2
DOWN_S = 2.0
LIMIT_S = 600.0
MOST_RUNS = 3
NOTE = (
    "Simulated agents: the link, the handshake and the core are the agent's own, the host answers at once. They report every 5 s and share the machine with "
    "the dispatcher. CPU is that of the dispatcher's process in seconds a second. Planning is greedy's alone. Under 'a trickle', five jobs a second come and "
    "end beside the 10,000. The 1,000 sites join by one token, 32 at a time, and then do nothing for two minutes; the job asks for one of them by name, and its time "
    "is from its submission until the client has been told its end. Back after a restart: from when it answers until the last agent has its session; meanwhile one client submits and lists in turn."
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
            figures = await _joining(bench, dispatcher, fleet, agents)
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
                *figures,
                Figure("fleet, 1,000 agents back after a restart", back_s, "s", 30.0, Better.LESS),
                Figure("fleet, slowest answer meanwhile", slowest_s * 1000, "ms", 1000.0, Better.LESS),
                Figure("fleet, attempts per agent", tries, ""),
            ]
    finally:
        dispatcher.end()


async def _joining(bench: Bench, dispatcher: Dispatcher, fleet: Fleet, sites: int) -> list[Figure]:
    """Let all sites join by one token, leave them alone, look at them, and send one of them a job."""
    began_s, used_s = time.monotonic(), cpu_s(dispatcher.pid)
    await fleet.join(sites)
    await fleet.until(lambda: fleet.linked == sites, LIMIT_S)
    joined_s, joined_cpu_s = time.monotonic() - began_s, cpu_s(dispatcher.pid) - used_s
    idle = await _cpu_share(dispatcher, asyncio.sleep(IDLE_S * min(1.0, bench.scale)))
    memory_mb = resident_mb(dispatcher.pid)
    environment = os.environ | {"FEDERATOR_SERVER": dispatcher.url, "FEDERATOR_TOKEN": dispatcher.token}
    began_s = time.monotonic()
    words = [FEDERATOR, "sites"]
    listed = await asyncio.to_thread(subprocess.check_output, words, env=environment, text=True)
    listed_s = time.monotonic() - began_s
    site = f"site-{sites * 7 // 9}"
    if site not in listed:
        raise RuntimeError(f"`federator sites` does not show {site}")
    began_s = time.monotonic()
    async with AsyncClient(dispatcher.url, dispatcher.token) as people:
        (job,) = (await people.submit({**JOB, "run": "true", "placement": {"sites": [site]}})).jobs
        ended = (await people.wait(job)).job
    done_s = time.monotonic() - began_s
    if ended.status != JobStatus.SUCCEEDED:
        raise RuntimeError(f"the job of {site} is {ended.status}")
    return [
        Figure("fleet, 1,000 sites joined and linked", joined_s, "s"),
        Figure("fleet, 1,000 sites joined and linked, CPU", joined_cpu_s, "s"),
        Figure("fleet, 1,000 idle sites, CPU", idle, "cores", 0.5, Better.LESS),
        Figure("fleet, 1,000 idle sites, memory", memory_mb, "MB"),
        Figure("fleet, the verb `sites` at 1,000 sites", listed_s * 1000, "ms"),
        Figure("fleet, a job to site 777 of 1,000", done_s * 1000, "ms", 2000.0, Better.LESS),
    ]


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
