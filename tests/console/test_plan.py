"""The page of the plan: what runs and is to start, walked by keyboard, replayed, and of a thousand GPUs with thousands of bars."""

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, Route, expect

from tests.console.stage import FLING, Person, Stage, box_of, processor_time
from tests.support.waiting import wait_until

BARS = 5000
MOST_DRAWN = 1000
"""Elements of the chart, however many bars there are: a path for each state, a name where there is room, what is behind."""


LEAST_BETWEEN_S = 0.7
"""Between two questions of a replay for a plan."""


@pytest.fixture(scope="module")
def busy(stage: Stage) -> Stage:
    """A gang runs, a second waits for it, one with a deadline that cannot be met, and an array."""
    stage.clear()
    with stage.client() as client:
        asks = {"run": "sleep 600", "estimate": "40m", "resources": {"gpus": 6}}
        client.submit({**asks, "name": "first"})
        wait_until(lambda: client.job("first").job.status == "RUNNING", "the first to run")
        client.submit({**asks, "name": "second"})
        client.submit({**asks, "name": "third", "finish_within": "30m"})
        client.submit(
            {"run": "sleep 600", "name": "sweep", "array": "0-5", "estimate": "1h", "resources": {"gpus": 1}}
        )
    return stage


def bars(page: Page) -> dict[str, str]:
    """What the table says, by name."""
    page.get_by_role("button", name="As a table").click()
    rows = page.get_by_role("table", name="What runs where and when").get_by_role("row")
    expect(rows.nth(1)).to_be_visible()
    found = {row.get_by_role("rowheader").inner_text(): row.inner_text() for row in rows.all()[1:]}
    page.get_by_role("button", name="As a table").click()
    return found


@pytest.mark.usefixtures("busy")
def test_what_runs_and_what_is_to_start(person: Callable[[str], Person]) -> None:
    admin = person("admin")
    admin.sign_in()
    page = admin.open("/plan")
    expect(page.locator("[data-bar]").first).to_be_visible()
    found = bars(page)
    assert "running" in found["first"]
    assert "planned" in found["second"] or "held" in found["second"]
    assert "sweep × 2" in found
    chart = page.get_by_role("group", name="What runs where and when")
    chart.focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tooltip")).to_be_visible()
    admin.picture("plan")
    admin.audit()
    page.get_by_text("first", exact=True).first.hover()
    expect(page.get_by_role("tooltip")).to_contain_text("running")
    with admin.stage.client() as client:
        first = client.job("first").job.id
    page.get_by_text("first", exact=True).first.click()
    expect(page).to_have_url(f"{admin.stage.url}/jobs/{first}")


@pytest.mark.usefixtures("busy")
def test_a_past_decision_is_shown_and_left_again(person: Callable[[str], Person]) -> None:
    page = person("admin").sign_in()
    page.goto(page.url.rstrip("/") + "/plan")
    expect(page.locator("[data-bar]").first).to_be_visible()
    page.get_by_role("button", name="Decision before").click()
    expect(page.get_by_text("As of")).to_be_visible()
    assert "decision=dec-" in page.url
    earliest = page.get_by_text("No earlier decision is recorded")

    def moved(before: str) -> bool:
        return earliest.count() > 0 or page.url != before

    while not earliest.count():
        before = page.url
        page.get_by_role("button", name="Decision before").click()
        wait_until(partial(moved, before), "another decision")
    page.get_by_role("button", name="As a table").click()
    second = page.get_by_role("rowheader", name="second")
    expect(page.get_by_role("rowheader", name="first")).to_be_visible()
    expect(second).to_have_count(0)
    page.get_by_role("button", name="Back to now").click()
    expect(page.get_by_text("The newest decision")).to_be_visible()
    expect(second).to_be_visible()
    with page.expect_request("**/v1/decisions/*/plan?*"):
        page.get_by_role("button", name="Play the day").click()
    expect(page.get_by_text("The newest decision")).to_be_visible(timeout=30_000)
    slider = page.get_by_role("slider", name="Moment whose plan is shown")
    slider.focus()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_text("is recorded").or_(page.get_by_text("As of"))).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_text("The newest decision")).to_be_visible()


@pytest.mark.usefixtures("busy")
def test_only_one_owners_work_and_only_one_sites(person: Callable[[str], Person]) -> None:
    admin = person("admin")
    admin.sign_in()
    asked: list[str] = []
    admin.page.on("request", lambda request: asked.append(request.url))
    page = admin.open("/plan?owner=nobody")
    page.get_by_role("button", name="As a table").click()
    expect(page.get_by_text("Nothing runs or is planned in this time.")).to_be_visible()
    assert not any(url.endswith("/v1/events") for url in asked), "a plan is asked for at its own pace"
    owner = page.get_by_label("Owner")
    expect(owner).to_have_value("nobody")
    owner.fill("admin")
    page.get_by_label("Site").select_option("north")
    page.get_by_label("Queue").fill("default")
    page.get_by_label("Queue").press("Enter")
    expect(page.get_by_role("rowheader", name="first")).to_be_visible()
    expect(page).to_have_url(f"{admin.stage.url}/plan?site=north&queue=default&owner=admin")


def test_the_day_is_played_from_its_first_decision(person: Callable[[str], Person]) -> None:
    """Where there are more of them than the API gives at once."""
    someone = person("admin")
    page = someone.sign_in()
    first_at = time.time() - 85_000.0
    rows = [{"id": f"dec-{n}", "at": first_at + n * 0.4, "stages": "quick, search"} for n in range(20_000)]

    def listed(route: Route) -> None:
        query = {name: float(value[0]) for name, value in parse_qs(urlsplit(route.request.url).query).items()}
        found = [row for row in rows if query["since"] <= float(str(row["at"])) < query["until"]]
        route.fulfill(body=json.dumps(found[-int(query["last"]) :]), content_type="application/json")

    plan = json.dumps(a_large_plan(first_at, 1, 1))
    page.route("**/v1/decisions?*", listed)
    page.route(
        "**/v1/decisions/*/plan?*", lambda route: route.fulfill(body=plan, content_type="application/json")
    )
    someone.open("/plan")
    with page.expect_request("**/v1/decisions/*/plan?*") as asked:
        page.get_by_role("button", name="Play the day").click()
    assert "/dec-0/" in asked.value.url


def test_bars_of_the_day_that_are_not_drawn_are_told(person: Callable[[str], Person]) -> None:
    someone = person("admin")
    page = someone.sign_in()
    at = time.time()
    row = {"id": "dec-1", "at": at - 60, "stages": "quick, search"}
    page.route("**/v1/decisions?*", lambda route: route.fulfill(json=[row]))
    plan = a_large_plan(at - 60, 4, 4)
    page.route(
        "**/v1/decisions/*/plan?*",
        lambda route: route.fulfill(json=plan | {"bars": plan["bars"][:10], "total": 10}),
    )
    asked: list[str] = []

    def paged(route: Route) -> None:
        asked.append(route.request.url)
        route.fulfill(json=plan | {"total": 23_000, "next_after": "more"})

    page.route("**/v1/plan?*", paged)
    someone.open("/plan")
    asked.clear()
    page.get_by_role("button", name="Decision before").click()
    expect(page.get_by_text("3,000 bars of the day more than are drawn")).to_be_visible()
    assert [url.count("after=more") for url in asked[-4:]] == [0, 1, 1, 1]


def a_large_plan(now: float, sites: int, hosts: int) -> dict[str, Any]:
    """Sites with hosts of eight GPUs, and five thousand bars over half a day."""
    lanes = [
        {"key": f"site{n}/main", "site": f"site{n}", "pool": "main", "model": "H100", "gpus_per_node": 8, "members": {f"site{n}-{m}": 1 for m in range(hosts)}}
        for n in range(sites)
    ]  # fmt: skip
    made, at_once = [], hosts * 8
    for number in range(BARS):
        lane, slot = number % sites, number // sites
        start = now - 3600.0 + (slot // at_once) * 7000.0 + (slot % at_once) * 3.0
        state = "running" if start < now else "planned"
        made.append(
            {"id": f"b{number}", "lane": lanes[lane]["key"], "state": state, "start_at": start, "end_at": start + 6900.0, "gpus": 1.0,
             "job": f"job-{number}", "name": f"train-{number}", "owner": "ada", "queue": "default", "because": "it fits"}
        )  # fmt: skip
    return {
        "decision": "dec-1", "taken_at": now, "recorded": False, "winner": "lp: 1 USD lower", "since_at": now - 3600, "until_at": now + 86400,
        "lanes": lanes, "bars": made, "total": BARS, "next_after": None, "unplanned": 0, "outside": 0,
    }  # fmt: skip


@pytest.mark.usefixtures("busy")
def test_fingers_move_and_zoom_the_plan_and_open_a_job(person: Callable[[str], Person]) -> None:
    admin = person("admin")
    page = admin.sign_in()
    page.set_viewport_size({"width": 390, "height": 900})
    admin.open("/plan")
    bar = page.get_by_text("first", exact=True).first
    expect(bar).to_be_visible()
    box = box_of(bar)
    touch = page.context.new_cdp_session(page)

    def fingers(kind: str, *at: tuple[float, float]) -> None:
        points = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(at)]
        touch.send("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": points})

    def apart() -> float:
        """How many pixels lie between the starts of two bars."""
        first, second = (box_of(page.get_by_text(name, exact=True).first) for name in ("first", "second"))
        return second["x"] - first["x"]

    x, y = box["x"] + 4, box["y"] + box["height"] / 2
    before_px = apart()
    fingers("Start", (x, y), (x + 40, y))
    for step in range(1, 6):
        fingers("Move", (x, y), (x + 40 + step * 12, y))
    fingers("End")
    page.wait_for_timeout(100)
    assert apart() > before_px * 2
    axis = page.locator(".gantt-axis")
    before = axis.inner_html()
    fingers("Start", (200, y))
    for step in range(1, 9):
        fingers("Move", (200 - step * 10, y))
    fingers("End")
    page.wait_for_timeout(100)
    assert axis.inner_html() != before
    page.get_by_role("button", name="6 h", exact=True).click()
    expect(bar).to_be_visible()
    page.wait_for_timeout(100)
    box = box_of(bar)
    x, y = box["x"] + 4, box["y"] + box["height"] / 2
    for _ in range(2):
        fingers("Start", (x, y))
        fingers("End")
        if page.url.endswith("/plan"):
            expect(page.get_by_role("tooltip")).to_contain_text("running")
    expect(page.locator("h1")).to_have_text("first")


class Recorded:
    """In place of the dispatcher: what ran on a past day, and its decisions, one every ten minutes. `silent`: lists of them are not answered."""

    def __init__(self, page: Page) -> None:
        self.past = a_large_plan(time.time() - 85_000.0, 2, 4)
        for each in self.past["bars"]:
            each["state"] = "ended" if each["end_at"] < time.time() else "running"
        before = time.time() - 86_000.0
        self.decided = [
            {"id": f"dec-{n}", "at": before + n * 600.0, "stages": "quick, search"} for n in range(140)
        ]
        self.asked: list[str] = []
        self.silent = False
        self._held: list[Route] = []
        page.route("**/v1/decisions?*", self._listed)
        page.route("**/v1/decisions/*/plan?*", self._plan)
        page.route("**/v1/plan?*", lambda route: self._tell(route, self.past))

    def _listed(self, route: Route) -> None:
        self.asked.append("list")
        if self.silent:
            self._held.append(route)
        else:
            self._list(route)

    def _list(self, route: Route) -> None:
        query = {name: float(value[0]) for name, value in parse_qs(urlsplit(route.request.url).query).items()}
        found = [row for row in self.decided if query["since"] <= float(str(row["at"])) < query["until"]]
        self._tell(route, found[-int(query["last"]) :])

    def _plan(self, route: Route) -> None:
        self.asked.append("plan")
        number = int(route.request.url.split("/dec-")[1].split("/")[0])
        self._tell(
            route, {**self.past, "bars": self.past["bars"][:10], "taken_at": self.decided[number]["at"]}
        )

    def _tell(self, route: Route, what: object) -> None:
        route.fulfill(body=json.dumps(what), content_type="application/json")

    def speak(self) -> None:
        """Answer again, what was asked meanwhile first."""
        self.silent = False
        for route in self._held:
            self._list(route)


def test_the_past_goes_on_between_decisions_and_asks_for_no_frame(person: Callable[[str], Person]) -> None:
    someone = person("admin")
    page = someone.sign_in()
    recorded = Recorded(page)
    someone.open("/plan")
    slider = page.get_by_role("slider", name="Moment whose plan is shown")
    slider.focus()
    for _ in range(23):
        page.keyboard.press("PageDown")
    expect(page.get_by_text("As of 23 h")).to_be_visible()
    expect(page.locator(".gantt-chart .bar-running")).to_be_attached()
    expect(page.get_by_role("link", name="the decision")).to_be_visible()
    recorded.asked.clear()
    began_s = time.monotonic()
    page.evaluate(
        """() => {
          window.drawn = new Set();
          new MutationObserver(() => window.drawn.add(document.querySelector(".gantt-chart .bar-running")?.getAttribute("d")))
            .observe(document.querySelector(".gantt-chart"), { childList: true, subtree: true });
        }"""
    )
    moment = int(slider.input_value())
    page.keyboard.press(" ")
    expect(page.get_by_role("button", name="Pause")).to_have_attribute("aria-pressed", "true")
    wait_until(lambda: int(slider.input_value()) > moment + 1200, "two decisions to be passed")
    recorded.silent = True
    page.evaluate("drawn.clear()")
    wait_until(lambda: page.evaluate("drawn.size") > 5, "work to grow while nobody answers")
    page.keyboard.press(" ")
    expect(page.get_by_role("button", name="Play the day")).to_be_visible()
    passed, took_s = int(slider.input_value()) - moment, time.monotonic() - began_s
    assert passed <= 600 * took_s, "ten minutes a second, or less where the machine is slow"
    assert recorded.asked.count("list") <= took_s / LEAST_BETWEEN_S + 2
    assert recorded.asked.count("plan") <= passed / 600 + 2, "once for each decision"
    recorded.speak()
    someone.picture("replay")
    someone.audit()
    page.get_by_label("Speed").select_option("an hour a second")
    slider.focus()
    page.keyboard.press("End")
    expect(page.get_by_text("The newest decision")).to_be_visible()


@pytest.mark.parametrize(("sites", "hosts"), [(10, 13), (1000, 1)])
def test_five_thousand_bars_at_ten_sites_and_at_a_thousand(
    person: Callable[[str], Person], sites: int, hosts: int
) -> None:
    someone = person("admin")
    page = someone.sign_in()
    plan = json.dumps(a_large_plan(time.time(), sites, hosts))
    then = json.dumps(a_large_plan(time.time() - 90_000.0, sites, hosts))

    def answer(route: Route) -> None:
        route.fulfill(body=plan, content_type="application/json")

    page.route("**/v1/plan?*", answer)
    page.route(
        "**/v1/decisions/dec-1/plan?*",
        lambda route: route.fulfill(body=then, content_type="application/json"),
    )
    someone.open("/plan?decision=dec-1")
    expect(page.get_by_text("As of 1 d")).to_be_visible()
    expect(page.locator(".gantt-now-mark")).to_be_attached()
    page.get_by_role("button", name="Back to now").click()
    page.get_by_role("button", name="24 h").click()
    expect(page.locator(".bar-running").first).to_be_attached()
    someone.picture(f"plan-{sites}-sites")
    with processor_time(page) as taken_s:
        busy = page.evaluate(FLING)
        frame_s = taken_s() / busy["frames"]
    assert 0 < busy["drawn"] < MOST_DRAWN
    assert 0.0 < busy["mean"] <= busy["worst"]
    assert 0.0 < frame_s < 0.2, "of processor time for a frame, whatever else this machine does"
