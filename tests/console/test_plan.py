"""The page of the plan: what runs and is to start, walked by keyboard, replayed, and of a thousand GPUs with thousands of bars."""

import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, Route, expect

from tests.console.stage import Person, Stage
from tests.support.waiting import wait_until

BARS = 5000
MOST_DRAWN = 1000
"""Elements of the chart, however many bars there are: a path for each state, a name where there is room, what is behind."""


@pytest.fixture(scope="module")
def busy(stage: Stage) -> Stage:
    """A gang runs, a second waits for it, one with a deadline that cannot be met, and an array."""
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
    while page.get_by_text("No earlier decision is recorded").count() == 0:
        before = page.url
        page.get_by_role("button", name="Decision before").click()
        page.wait_for_timeout(300)
        if page.url == before:
            break
    page.get_by_role("button", name="As a table").click()
    second = page.get_by_role("rowheader", name="second")
    expect(page.get_by_role("rowheader", name="first")).to_be_visible()
    expect(second).to_have_count(0)
    page.get_by_role("button", name="Back to now").click()
    expect(page.get_by_text("The newest decision")).to_be_visible()
    expect(second).to_be_visible()
    page.get_by_role("button", name="Play the day").click()
    expect(page.get_by_text("As of")).to_be_visible()
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
    busy = page.evaluate(FLING)
    assert 0 < busy["drawn"] < MOST_DRAWN
    assert busy["mean"] < 200.0, f"milliseconds of a frame; the slowest took {busy['worst']:.0f}"


FLING = """async () => {
  const area = document.querySelector(".gantt-scroll");
  const times = [];
  let drawn = 0;
  for (let turn = 0; turn < 60; turn++) {
    if (turn === 30) area.scrollTop = area.scrollHeight / 2;
    const key = turn % 20 < 8 ? "+" : turn % 20 < 12 ? "ArrowRight" : "-";
    const before = performance.now();
    area.dispatchEvent(new KeyboardEvent("keydown", {key, shiftKey: key === "ArrowRight", bubbles: true}));
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    times.push(performance.now() - before);
    drawn = Math.max(drawn, Number(document.querySelector(".gantt").dataset.drawn));
  }
  return {mean: times.reduce((sum, each) => sum + each, 0) / times.length, worst: Math.max(...times), drawn};
}"""
