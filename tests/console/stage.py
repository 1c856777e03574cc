"""A dispatcher with a site, and a browser that looks at its console: what tests of the pages share.

The browser shares nothing between contexts, so each person has one. A page fails its test when it logs an error, breaks the content security policy, or
asks for anything from elsewhere.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from playwright.sync_api import Browser, ConsoleMessage, Error, FloatRect, Locator, Page, Playwright, Request

from federator.cli.demo.processes import Processes
from federator.client import Client, JobFilter
from federator.model.jobs import TERMINAL, JobStatus
from federator_agent.config import UNWATCHED_VARIABLE
from tests.support.waiting import PATIENCE_S, wait_until
from tests.testbeds.console import AXE, CHROMIUM
from tests.testbeds.ports import free_ports

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WIDE, NARROW = 1280, 390
PICTURES = os.environ.get("FEDERATOR_PICTURES", "")
"""A folder in which `picture` keeps what pages look like; empty: it does not."""
EXPECTED = (
    "the server responded with a status of 4",
    "the server responded with a status of 5",
    "net::ERR_",
    "Error during WebSocket handshake",
)
"""What the browser logs of answers that are refusals, and of a dispatcher that is down: a page handles these."""

LAST_SEEN = 60
"""Lines of what a page asked for and logged that are told when its test fails."""

FLING = """async () => {
  const area = document.querySelector(".gantt-scroll");
  let drawn = 0, worst = 0;
  const began = performance.now();
  for (let turn = 0; turn < 60; turn++) {
    if (turn === 30) area.scrollTop = area.scrollHeight / 2;
    const key = turn % 20 < 8 ? "+" : turn % 20 < 12 ? "ArrowRight" : "-";
    area.dispatchEvent(new KeyboardEvent("keydown", {key, shiftKey: key === "ArrowRight", bubbles: true}));
    const from = performance.now();
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    worst = Math.max(worst, performance.now() - from);
    drawn = Math.max(drawn, Number(document.querySelector(".gantt").dataset.drawn));
  }
  return {frames: 60, drawn, mean: (performance.now() - began) / 60, worst};
}"""
"""Moves and zooms the plan sixty times; says how much was drawn at most, and how many milliseconds a frame took on average and at most."""


REPLAY_S = 200.0
"""A replay of policies takes a few seconds of processor time, and gives way to whatever else this machine does."""


class _Measured(Processes):
    """Those whose agents look at GPUs, with what they need to find a driver."""

    def __init__(self, folder: Path, driver: Mapping[str, str]) -> None:
        super().__init__(folder)
        self._driver = driver

    @property
    def environment(self) -> dict[str, str]:
        """Without what would keep agents from looking."""
        usual = super().environment
        return {name: usual[name] for name in usual if name != UNWATCHED_VARIABLE} | dict(self._driver)


class Stage:
    """A dispatcher and the agent of a site `north` with eight pretended GPUs, as real processes in one folder."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, object] | None = None,
        driver: Mapping[str, str] | None = None,
    ) -> None:
        """`driver`: the environment in which agents find GPUs; without it they do not look."""
        self.folder = folder
        self.processes = Processes(folder) if driver is None else _Measured(folder, driver)
        self.port = free_ports(1)[0]
        given = {
            "state_dir": str(folder / "state"),
            "server": {"port": self.port},
            "link": {"report_every_s": 1},
            "limits": {"policy_replay_s": REPLAY_S},
        }
        (folder / "dispatcher.yaml").write_text(json.dumps(given | dict(settings or {})))
        self.tokens: dict[str, str] = {}

    def __enter__(self) -> Self:
        self.serve()
        self.tokens["admin"] = (self.folder / "state/admin.token").read_text().strip()
        return self

    def __exit__(self, *_: object) -> None:
        self.processes.end_all()
        for process in self.processes.started.values():
            process.wait()

    @property
    def url(self) -> str:
        """Where the dispatcher answers."""
        return f"http://127.0.0.1:{self.port}"

    def serve(self) -> None:
        """Start the dispatcher, for the first time or again, and return once it answers."""
        address = self.folder / "state/address"
        address.unlink(missing_ok=True)
        config = str(self.folder / "dispatcher.yaml")
        self.processes.start("dispatcher", "federator", ["serve", "--config", config])
        wait_until(
            lambda: address.exists() or "dispatcher" in self.processes.ended(), "the dispatcher to answer"
        )
        assert address.exists(), self.processes.log_file("dispatcher").read_text()

    def kill(self) -> None:
        """End the dispatcher at once."""
        self.processes.kill("dispatcher")

    def site(self, name: str = "north", gpus: int = 8, model: str = "A100") -> None:
        """Join a site, and wait until it is ready."""
        made = self.federator("token", "create", "--site", name, "--kind", "onprem").splitlines()[0]
        pool = {"name": "main", "model": model, "gpus_per_node": gpus}
        document = {
            "site": name,
            "kind": "onprem",
            "dispatcher": self.url,
            "state_dir": str(self.folder / name),
            "report_every": "1s",
            "pools": [pool | {"cpus_per_node": 32, "memory_per_node": "64GiB"}],
        }
        file = self.folder / f"{name}.yaml"
        file.write_text(json.dumps(document))
        self._run("federator_agent", "join", "--config", str(file), "--token", made)
        self.processes.start(f"agent-{name}", "federator_agent", ["serve", "--config", str(file)])
        with self.client() as client:
            wait_until(
                lambda: any(each.name == name and each.status == "READY" for each in client.sites()),
                f"{name} to be ready",
            )

    def person(self, name: str, role: str = "user", *more: str) -> str:
        """The token of somebody, made when first asked for; `more` of the command's options."""
        if name not in self.tokens:
            said = self.federator("token", "create", "--name", name, "--role", role, *more)
            self.tokens[name] = said.splitlines()[0]
        return self.tokens[name]

    def clear(self) -> None:
        """Take sites back that are drained, end all jobs, and wait until they have ended."""
        living = JobFilter(status=",".join(each for each in JobStatus if each not in TERMINAL), collapse=True)
        with self.client() as client:
            for site in client.sites():
                if site.draining:
                    client.undrain(site.name)
            left = [each.id for each in client.jobs(living).jobs]
            if left:
                client.act("cancel", left)
            wait_until(lambda: not client.jobs(living).jobs, "what was left to end")

    def client(self, name: str = "admin") -> Client:
        """The Python client as that person."""
        return Client(self.url, self.tokens[name])

    def federator(self, *words: str, name: str = "admin") -> str:
        """Run the command as that person; what it prints."""
        return self._run("federator", *words, FEDERATOR_TOKEN=self.tokens[name])

    def _run(self, program: str, *words: str, **environment: str) -> str:
        known = {"FEDERATOR_SERVER": self.url, "HOME": str(self.folder)}
        done = subprocess.run(
            [sys.executable, "-m", program, *words],
            env=self.processes.environment | known | environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout


@contextmanager
def processor_time(page: Page) -> Iterator[Callable[[], float]]:
    """How many seconds of a processor the page's thread has taken since."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def so_far_s() -> float:
        found = session.send("Performance.getMetrics")["metrics"]
        return float(next(each["value"] for each in found if each["name"] == "TaskDuration"))

    before_s = so_far_s()
    yield lambda: so_far_s() - before_s
    session.detach()


def launch(playwright: Playwright) -> Browser:
    """The machine's own Chromium, which reaches nothing outside of it."""
    return playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))


def box_of(drawn: Locator) -> FloatRect:
    """Where it is, once it is. What a page draws anew has no box for a moment."""
    boxes: list[FloatRect] = []

    def seen() -> bool:
        box = drawn.bounding_box()
        boxes.extend([box] if box else [])
        return bool(box)

    wait_until(seen, "it to be drawn")
    return boxes[-1]


class Person:
    """Somebody at a browser."""

    def __init__(self, page: Page, stage: Stage, name: str) -> None:
        self.page, self.stage, self.name = page, stage, name
        self.faults: list[str] = []
        self.seen: list[str] = []
        """What the page asked for and logged, with the time of day; shown when its test fails."""
        self.elsewhere: tuple[str, ...] = ()
        """Addresses beside the dispatcher's that the browser may go to."""
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("request", self._see)
        page.on("response", lambda answer: self._note(f"{answer.status} {answer.url}"))
        self._cut = False
        """Something that a page asked for was given up, because the network of this machine has changed."""
        page.on("requestfailed", self._give_up)

    def sign_in(self) -> Page:
        """Sign in by typing the token; the page afterwards."""
        self._load(self.stage.url, self.page.get_by_label("Token"))
        self.page.get_by_label("Token").fill(self.stage.person(self.name))
        self.page.get_by_role("button", name="Sign in", exact=True).click()
        self.page.get_by_role("navigation").wait_for()
        return self.page

    def open(self, path: str) -> Page:
        """Open a page of the console."""
        self._load(self.stage.url + path, self.page.locator("h1").first)
        return self.page

    def _load(self, url: str, shown: Locator) -> None:
        """Go there and see that, at the first or a later try: other tests change this machine's network, and a browser then gives up what it loads."""

        def is_loaded() -> bool:
            self._cut = False
            with suppress(Error):
                self.page.goto(url)
            wait_until(lambda: self._cut or shown.is_visible(), f"{url} to be shown")
            return not self._cut

        wait_until(is_loaded, f"{url} to be loaded whole")

    def audit(self) -> None:
        """Fail for every finding of axe on the page as it is, in both themes."""
        for theme in ("light", "dark"):
            self.page.emulate_media(color_scheme=theme)
            self.page.evaluate(AXE.read_text())
            found: dict[str, Any] = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            told = [
                f"{each['id']} ({each['impact']}): {node['target']} {node['failureSummary']}"
                for each in found["violations"]
                for node in each["nodes"][:3]
            ]
            assert not told, f"{theme}: " + "\n".join(told)

    def picture(self, name: str) -> None:
        """Keep what the page looks like, wide and narrow, light and dark, in the folder that FEDERATOR_PICTURES names."""
        if not PICTURES:
            return
        for width in (WIDE, NARROW):
            self.page.set_viewport_size({"width": width, "height": 900})
            for theme in ("light", "dark"):
                self.page.emulate_media(color_scheme=theme)
                self.page.wait_for_timeout(100)
                self.page.screenshot(path=f"{PICTURES}/{name}-{width}-{theme}.png", full_page=True)
        self.page.set_viewport_size({"width": WIDE, "height": 900})

    def report(self) -> str:
        """Where it is, and what it asked for and logged last."""
        return "\n".join([f"{self.name} at {self.page.url}:", *self.seen[-LAST_SEEN:]])

    def _note(self, what: str) -> None:
        self.seen.append(f"{datetime.now(UTC):%H:%M:%S.%f} {what}")

    def _give_up(self, request: Request) -> None:
        self._cut |= "ERR_NETWORK_CHANGED" in (request.failure or "")
        self._note(f"{request.failure} {request.url}")

    def _hear(self, message: ConsoleMessage) -> None:
        self._note(f"{message.type}: {message.text}")
        if message.type == "error" and not any(each in message.text for each in EXPECTED):
            self.faults.append(message.text)

    def _see(self, request: Any) -> None:
        self._note(f"{request.method} {request.url}")
        of_others = self.elsewhere and request.frame.url.startswith(self.elsewhere)
        known = (self.stage.url, "data:", "blob:", *self.elsewhere)
        if not of_others and not request.url.startswith(known):
            self.faults.append(f"asked for {request.url}")


AT_BROWSERS: list[Person] = []
"""Those of the test that runs."""


@contextmanager
def people(browser: Browser, stage: Stage) -> Iterator[Callable[[str], Person]]:
    """Makes people at browsers of their own; in the end none of their pages has logged a fault."""
    made: list[Person] = []
    AT_BROWSERS[:] = []

    def person(name: str) -> Person:
        context = browser.new_context(viewport={"width": WIDE, "height": 900})
        context.set_default_timeout(20_000)
        made.append(Person(context.new_page(), stage, name))
        AT_BROWSERS.append(made[-1])
        return made[-1]

    try:
        yield person
    finally:
        for each in made:
            each.page.context.close()
    faults = [fault for each in made for fault in each.faults]
    assert not faults, faults
