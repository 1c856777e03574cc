"""What a second user waits for an answer while one person, or a stranger, does their worst."""

import asyncio
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import aiohttp

from federator.cli.demo.federation import DemoFederation
from tests.bench.attacks import ITEMS, LIMIT_S
from tests.bench.figures import Better, Figure
from tests.bench.harness import Bench
from tests.bench.measuring import median, percentile

ROOT = Path(__file__).parents[3]
LEAST = 200
"""Answers that are measured at least."""
LONGEST_S = 60.0
PAUSE_S = 0.01
NOTE = """\
A dispatcher for each item, its attacker in a process of its own, and a second user who lists jobs and submits one, in turn, over one connection. An
answer that has not come after a minute counts as a minute. `tests/bench/attacks.py` has the items.
"""
MOST_RUNS = 1


async def run(bench: Bench) -> list[Figure]:
    """Item by item."""
    figures = []
    least, longest_s = bench.many(LEAST), (2 * LIMIT_S + LONGEST_S) * min(1.0, bench.scale)
    for number, item in enumerate(("0 nobody", *ITEMS)):
        async with bench.federation([], folder=f"world-{number}") as world:
            took_ms = await _while_attacked(item, world, least, longest_s)
        figures += [
            Figure(f"{item}: answers, median", median(took_ms), "ms"),
            Figure(f"{item}: answers, p99", percentile(took_ms, 99), "ms", 100.0, Better.LESS),
            Figure(f"{item}: answers, longest", max(took_ms), "ms"),
        ]
    return figures


async def _while_attacked(item: str, world: DemoFederation, least: int, longest_s: float) -> list[float]:
    admin = {"Authorization": f"Bearer {world.admin_token}"}
    timeout = aiohttp.ClientTimeout(LONGEST_S)
    async with aiohttp.ClientSession(world.server, timeout=timeout) as http:
        mallory = await _token(http, admin, {"name": "mallory", "role": "user"})
        mine = await _token(http, admin, {"name": "ada", "role": "user"})
        join = await _token(http, admin, {"site": "far", "kind": "onprem"})
        attacker = None
        if item in ITEMS:
            attacker = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.bench.attacks", item, world.server, mallory, join, cwd=ROOT
            )
        try:
            return await _measure(http, {"Authorization": f"Bearer {mine}"}, attacker, least, longest_s)
        finally:
            if attacker is not None and attacker.returncode is None:
                attacker.kill()
                await attacker.wait()


async def _measure(
    http: aiohttp.ClientSession,
    headers: Mapping[str, str],
    attacker: asyncio.subprocess.Process | None,
    least: int,
    longest_s: float,
) -> list[float]:
    """Milliseconds of each answer, until the attacker is done, or so long has passed."""
    took_ms: list[float] = []
    until = time.perf_counter() + longest_s
    while len(took_ms) < least or (attacker is not None and attacker.returncode is None):
        if took_ms and time.perf_counter() > until:
            break
        begun = time.perf_counter()
        method, body = ("GET", None) if len(took_ms) % 2 else ("POST", {"run": "true"})
        try:
            async with http.request(method, "/v1/jobs", json=body, headers=headers) as answer:
                await answer.read()
        except (aiohttp.ClientError, TimeoutError):
            took_ms.append(LONGEST_S * 1000)
        else:
            took_ms.append((time.perf_counter() - begun) * 1000)
        await asyncio.sleep(PAUSE_S)
    return took_ms


async def _token(http: aiohttp.ClientSession, headers: Mapping[str, str], request: Mapping[str, str]) -> str:
    async with http.post("/v1/tokens", json=request, headers=headers) as answer:
        secret: str = (await answer.json())["secret"]
        return secret
