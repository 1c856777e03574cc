"""The console in a real browser: what a first view fetches and takes, its pages before 100,000 jobs at 1,000 sites, and what 50 people who look cost the turns."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from statistics import median

import aiohttp
from playwright.async_api import Browser, Page, async_playwright

from federator.client import AsyncClient
from tests.bench.figures import Better, Figure
from tests.bench.harness import Bench
from tests.bench.load import request_bytes, send_all
from tests.bench.measuring import (
    cpu_s,
    descendants,
    first_at_the_processor,
    percentile,
    turns,
)
from tests.console.stage import FLAGS, FLING
from tests.support.fleet import Dispatcher, Fleet
from tests.testbeds.console import CHROMIUM, lacking

SITES, RUNNING, WAITING, FOLLOWERS = 1000, 5000, 95_000, 50
ARRAY = 1000
VIEWS = 5
WINDOW_S = 20.0
TRICKLE_S = 0.5
LIMIT_S = 900.0
MOST_RUNS = 1
NOTE = """\
Chromium without a screen, the dispatcher and 1,000 simulated agents, which report every 5 s, share the machine. Dispatcher and browser are scheduled in
real time, where that is allowed: other programs of a busy machine do not slow them. The first figure is the calibration loop scheduled so; the column *loop* is the
same without, and says how busy the machine was. 5,000 jobs that all differ run, and 95 arrays of
1,000 tasks wait. A first view is cold: the browser's cache is empty, who looks has signed in before, and it ends once the first site stands on the page *Now*.
Its files are the page, styles and modules; the feed brings the rows. The icon alone is what the browser takes for any page. Other pages end with their first row or bar. A frame is one step of zooming or moving
the plan with all bars in its span, until it is drawn. Turns are greedy's; two jobs a second come meanwhile, with and without followers in turn, twice
each. A follower reads what the page *Now* does. Answers are timed one after another on one connection.
"""
LOOP = "the calibration loop in real time"
LEAST = "the icon alone, as a page"
FIRST = 'section[aria-labelledby="now-sites"] tbody tr'
PAGES = {
    "now": ("/", FIRST),
    "plan": ("/plan", ".gantt-chart .bar-running"),
    "jobs": ("/jobs", "main tbody tr"),
    "sites": ("/sites", "main tbody tr"),
}
ASKED = {
    "a plan of 5,000 bars": "/v1/plan?collapse=true&limit=5000",
    "a page of 100 jobs": "/v1/jobs?collapse=true&limit=100",
    "what waits, and why": "/v1/waiting",
}
FOLLOWED = "/v1/changes?topics=sites,queues,budgets,rent,jobs,plan,alerts"
FETCHED = """() => [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
  .filter((each) => !new URL(each.name).pathname.startsWith("/v1/")).reduce((sum, each) => sum + each.transferSize, 0)"""


async def run(bench: Bench) -> list[Figure]:
    """A first view of a small federation, then all of it at a large one."""
    if lack := lacking():
        raise RuntimeError(lack)
    bench.folder.joinpath("console").mkdir()
    dispatcher = Dispatcher(bench.folder / "console")
    await dispatcher.start()
    sites = bench.many(SITES)
    try:
        async with Fleet(dispatcher, slots=RUNNING // SITES + 1) as fleet, _browser() as browser:
            await fleet.join(1)
            await fleet.until(lambda: fleet.linked == 1, LIMIT_S)
            page = await _signed_in(browser, dispatcher)
            figures = await _in_real_time()
            figures += await _least(page, dispatcher)
            figures += await _first_view(page, dispatcher, "one site")
            await fleet.join(sites - 1)
            await fleet.until(lambda: fleet.linked == sites, LIMIT_S)
            await _fill(bench, dispatcher)
            await fleet.until(lambda: len(fleet.running) >= bench.many(RUNNING), LIMIT_S)
            bench.say("filled")
            figures += await _first_view(page, dispatcher, "1,000 sites")
            figures += await _pages(page, dispatcher)
            figures += await _answers(bench, dispatcher)
            await page.context.close()
            figures += await _turns(bench, dispatcher)
        return figures
    finally:
        dispatcher.end()


async def _in_real_time() -> list[Figure]:
    """Have the dispatcher and the browser, which this process has started, run before all else, and time a loop so."""
    if not first_at_the_processor(*descendants(os.getpid())):
        return []
    code = "import os; from tests.bench.measuring import *; first_at_the_processor(os.getpid()); print(loop_rate())"
    loop = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    told, _ = await loop.communicate()
    return [Figure(LOOP, float(told), "million steps/s")]


@asynccontextmanager
async def _browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        await browser.close()


async def _signed_in(browser: Browser, dispatcher: Dispatcher) -> Page:
    page = await browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(LIMIT_S * 1000)
    await page.goto(dispatcher.url)
    await page.get_by_label("Token").fill(dispatcher.token)
    await page.get_by_role("button", name="Sign in", exact=True).click()
    await page.locator(FIRST).first.wait_for()
    return page


async def _shown_ms(page: Page, url: str, until: str) -> float:
    """Milliseconds from the begin of opening a page until that is there."""
    await page.goto("about:blank")
    await page.goto(url, wait_until="commit")
    await page.wait_for_selector(until, state="attached")
    took_ms: float = await page.evaluate("performance.now()")
    return took_ms


async def _least(page: Page, dispatcher: Dispatcher) -> list[Figure]:
    """What this browser takes on this machine for anything at all."""
    took_ms = [await _shown_ms(page, f"{dispatcher.url}/console/icon.svg", "svg") for _ in range(VIEWS)]
    return [Figure(LEAST, median(took_ms), "ms", better=Better.LESS)]


async def _first_view(page: Page, dispatcher: Dispatcher, where: str) -> list[Figure]:
    """Cold, several times; that with the median time counts."""
    network = await page.context.new_cdp_session(page)
    await network.send("Network.enable")
    took_ms, files = list[float](), 0
    for _ in range(VIEWS):
        await network.send("Network.clearBrowserCache")
        took_ms.append(await _shown_ms(page, dispatcher.url, FIRST))
        files = await page.evaluate(FETCHED)
    return [
        Figure(f"first view, {where}, files", files / 1000, "kB", 100, Better.LESS),
        Figure(f"first view, {where}", median(took_ms), "ms", 500, Better.LESS, against=LEAST),
    ]


async def _pages(page: Page, dispatcher: Dispatcher) -> list[Figure]:
    """Pages when the browser has their files, and the plan moved."""
    figures = []
    for name, (path, until) in PAGES.items():
        took_ms = [await _shown_ms(page, dispatcher.url + path, until) for _ in range(VIEWS)]
        figures.append(Figure(f"page {name}", median(took_ms), "ms", better=Better.LESS, against=LEAST))
    await _shown_ms(page, dispatcher.url + "/plan", PAGES["plan"][1])
    await page.get_by_role("button", name="24 h").click()
    moved = await page.evaluate(FLING)
    return [
        *figures,
        Figure("plan, a frame on average", moved["mean"], "ms", better=Better.LESS),
        Figure("plan, the slowest of 60 frames", moved["worst"], "ms", better=Better.LESS),
    ]


async def _fill(bench: Bench, dispatcher: Dispatcher) -> None:
    """First what runs, then what waits."""

    def one(number: int) -> bytes:
        fields = {
            "name": f"run-{number}",
            "run": "sleep 100000",
            "resources": {"cpus": 1},
            "estimate": f"{20 + number % 40}h",
        }
        return json.dumps(fields).encode()

    lines = b"\n".join(one(number) for number in range(bench.many(RUNNING))) + b"\n"
    sent = request_bytes("POST", dispatcher.url, "/v1/jobs", dispatcher.token, lines, "application/x-ndjson")
    await send_all(dispatcher.url, [sent], 1)
    async with AsyncClient(dispatcher.url, dispatcher.token) as people:
        for number in range(bench.many(WAITING // ARRAY)):
            await people.submit(
                {
                    "name": f"sweep-{number}",
                    "run": "sleep 100000",
                    "array": f"0-{ARRAY - 1}",
                    "resources": {"cpus": 1},
                    "estimate": "1h",
                }
            )


async def _answers(bench: Bench, dispatcher: Dispatcher) -> list[Figure]:
    figures = []
    for what, path in ASKED.items():
        asks = [request_bytes("GET", dispatcher.url, path, dispatcher.token)] * bench.many(50)
        took_s = await send_all(dispatcher.url, asks, 1)
        figures += [
            Figure(f"answer, {what}, median", percentile(took_s, 50) * 1000, "ms", better=Better.LESS),
            Figure(f"answer, {what}, p99", percentile(took_s, 99) * 1000, "ms", better=Better.LESS),
        ]
    return figures


async def _turns(bench: Bench, dispatcher: Dispatcher) -> list[Figure]:
    """Turns without followers and with them, in turn."""
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    told = [0]
    window_s = WINDOW_S * min(1.0, bench.scale * 10)
    async with AsyncClient(dispatcher.url, dispatcher.token) as people:
        for followed in (False, True) * 2:
            async with _followers(dispatcher, FOLLOWERS if followed else 0, told):
                found[followed].append(await _window(dispatcher, people, window_s))
    alone, beside = found[False], found[True]
    name, cpu = "a turn, nobody follows", "dispatcher's CPU, nobody follows"

    def mean(rows: list[tuple[float, float]], which: int) -> float:
        return sum(row[which] for row in rows) / len(rows)

    return [
        Figure(name, mean(alone, 0), "ms", better=Better.LESS),
        Figure("a turn, 50 follow", mean(beside, 0), "ms", better=Better.LESS, against=name),
        Figure(cpu, mean(alone, 1), "cores", better=Better.LESS),
        Figure("dispatcher's CPU, 50 follow", mean(beside, 1), "cores", better=Better.LESS, against=cpu),
        Figure(
            "told to one follower", told[0] / FOLLOWERS / (2 * window_s) / 1000, "kB/s", better=Better.LESS
        ),
    ]


async def _window(dispatcher: Dispatcher, people: AsyncClient, window_s: float) -> tuple[float, float]:
    """Milliseconds of a turn on average, and the dispatcher's CPU in seconds a second, while jobs come."""
    await asyncio.sleep(window_s / 10)
    before, used_s = await turns(dispatcher.url), cpu_s(dispatcher.pid)
    for number in range(round(window_s / TRICKLE_S)):
        await people.submit({"name": f"late-{number}", "run": "true", "resources": {"cpus": 1}})
        await asyncio.sleep(TRICKLE_S)
    after = await turns(dispatcher.url)
    turn_ms = (after[1] - before[1]) / max(1.0, after[0] - before[0]) * 1000
    return turn_ms, (cpu_s(dispatcher.pid) - used_s) / window_s


@asynccontextmanager
async def _followers(dispatcher: Dispatcher, count: int, told: list[int]) -> AsyncIterator[None]:
    """So many who read the feed; the bytes that they are sent are added to `told`."""
    headers = {"Authorization": f"Bearer {dispatcher.token}"}
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(
        dispatcher.url, headers=headers, connector=aiohttp.TCPConnector(limit=0), timeout=timeout
    ) as http:

        async def read(follows: Callable[[], Awaitable[aiohttp.ClientResponse]]) -> None:
            answer = await follows()
            answer.raise_for_status()
            async for data in answer.content.iter_any():
                told[0] += len(data)

        tasks = [asyncio.create_task(read(lambda: http.get(FOLLOWED))) for _ in range(count)]
        yield
        assert not any(task.done() for task in tasks), "they follow to the end"
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks)
