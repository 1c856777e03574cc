"""People with different rights find different things on every page: only what they may do. On a narrow screen all of it has room for a finger."""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Browser, Route, expect

from tests.console.stage import NARROW, WIDE, Person, Stage, people
from tests.support.waiting import wait_until

LOOKING = re.compile(
    r"Light or dark|Sign out|1 h|6 h|24 h|3 d|Show (more|less) time|(Lower|Higher) rows|As a table|Decision (before|after)|Play the day|Back to now"
    r"|Moment whose plan is shown|Export as CSV|Newer|Older|Version \d+|Back|Next|.*table.*"
)
"""What changes nothing, and everybody has."""
EVERYBODY = frozenset({"ada", "bob", "eve", "pia", "sam", "admin"})
"""A submitter whose job runs, another, one whose token may only read, one of the platform team, the site's operator, and an administrator."""
CHANGES, OVERSEES, ADMINISTERS = (
    frozenset({"ada", "pia", "admin"}),
    frozenset({"pia", "admin"}),
    frozenset({"sam", "admin"}),
)
NOBODY = frozenset[str]()
PAGES: dict[str, dict[str, frozenset[str]]] = {
    "/": {},
    "/plan": {},
    "/jobs": {"Choose theirs": CHANGES},
    "/jobs/{job}": dict.fromkeys(("Requeue", "Hold", "Cancel", "Change"), CHANGES),
    "/submit": {},
    "/money": {},
    "/policies": {"Pause renting": OVERSEES},
    "/sites": {"Join a site": ADMINISTERS},
    "/sites/north": dict.fromkeys(("Drain", "Evict all", "Evict theirs"), ADMINISTERS),
    "/decisions": {},
    "/decisions/{decision}": {"Decide again": OVERSEES},
}
"""Each page with what can be done there, and who may. What is disabled until something is written counts as not there."""
TEXTS = {
    "/jobs/{job}": ("Priority", CHANGES, "It is changed by ada"),
    "/submit": ("Job file, as YAML", EVERYBODY - {"eve"}, "Your token does not submit jobs"),
    "/policies": ("The policy set", OVERSEES, "Changing them takes the role platform"),
}
"""Where something is written: by whom, and what others are told."""
DOING = """() => [...document.querySelectorAll("main button:not(.sort), main input[type=checkbox][aria-label], main [role=slider]")]
  .filter((each) => each.checkVisibility() && !each.disabled)
  .map((each) => each.getAttribute("aria-label") || each.textContent)"""
HOSTILE = "<img src=x onerror=alert(1)>"
PROSE = frozenset({"name", "owner", "queue", "site", "pool", "by", "policy", "winner"})
"""Fields whose texts others choose, beside all that hold sentences."""
SMALL = """() => [...document.querySelectorAll("button, .button, select, input, textarea, summary, nav a")]
  .filter((each) => each.checkVisibility() && !each.matches(".sort, .link"))
  .map((each) => [each.getAttribute("aria-label") || each.name || each.textContent, each.type, each.getBoundingClientRect()])
  .filter(([, type, { height }]) => height < (type === "checkbox" ? 24 : 43))
  .map(([name, type, { width, height }]) => `${name} ${type}: ${width} x ${height}`)"""


@pytest.fixture(scope="module")
def places(stage: Stage) -> dict[str, str]:
    """The job that runs, and the decision that started it."""
    for name, role, *more in (
        ("ada", "user"),
        ("bob", "user"),
        ("eve", "user", "--scope", "read"),
        ("pia", "platform"),
        ("sam", "site-admin", "--site", "north"),
    ):
        stage.person(name, role, *more)
    stage.clear()
    with stage.client("ada") as client:
        job = client.submit({"name": "theirs", "run": "sleep 900", "resources": {"gpus": 1}}).jobs[0]
        wait_until(lambda: client.job(job).job.status == "RUNNING", "the job to run")
        return {"job": job, "decision": client.job(job).decision}


@pytest.fixture(scope="module")
def everybody(browser: Browser, stage: Stage, places: dict[str, str]) -> Iterator[dict[str, Person]]:
    """All of them, signed in."""
    assert places
    with people(browser, stage) as person:
        made = {name: person(name) for name in sorted(EVERYBODY)}
        for each in made.values():
            each.sign_in()
        yield made


@pytest.mark.parametrize("path", PAGES)
def test_people_find_what_they_may_do_and_no_more(
    everybody: dict[str, Person], places: dict[str, str], path: str
) -> None:
    for name, each in everybody.items():
        page = each.open(path.format(**places))
        main = page.locator("main")
        expected = {word for word, who in PAGES[path].items() if name in who}
        for word in expected:
            expect(
                main.get_by_label(word).or_(main.get_by_role("button", name=word, exact=True)).first
            ).to_be_visible()
        if path in TEXTS:
            label, who, told = TEXTS[path]
            field = main.get_by_label(label, exact=True)
            if name in who:
                expect(field).to_be_editable()
            else:
                expect(main.get_by_text(told)).to_be_visible()
                assert field.count() == 0 or not field.is_editable()
        else:
            page.wait_for_timeout(200)
        found = {word for word in page.evaluate(DOING) if not LOOKING.fullmatch(word)}
        assert found == expected, f"{name} at {path}"
    page = everybody["admin"].page
    page.set_viewport_size({"width": NARROW, "height": 900})
    small, wide = page.evaluate(SMALL), page.evaluate("document.documentElement.scrollWidth")
    everybody["admin"].audit()
    everybody["admin"].picture(f"all{path.replace('/', '-').format(job='job', decision='decision')}")
    page.set_viewport_size({"width": WIDE, "height": 900})
    assert (small, wide) == ([], NARROW)


def _hostile(value: Any, field: str = "") -> Any:
    """An answer in which others have written markup and escape codes wherever they may write."""
    if isinstance(value, dict):
        return {name: _hostile(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_hostile(each, field) for each in value]
    if isinstance(value, str) and value and (field in PROSE or " " in value):
        return f"{value}{HOSTILE}\x1b[2J"
    return value


def test_what_others_write_stays_text_on_every_page(
    browser: Browser, stage: Stage, places: dict[str, str]
) -> None:
    with stage.client() as client:
        client.wait(client.submit({"name": "brief", "run": "true", "resources": {"gpus": 1}}).jobs[0])
        rows = msgspec.to_builtins(next(client.changes(["sites", "queues", "rent", "budgets"])).rows)
    feed = f"id: a-1\ndata: {json.dumps({'reset': True, 'rows': _hostile(rows)})}\n\n"

    def told(route: Route) -> None:
        if "/v1/changes" in route.request.url:
            route.fulfill(body=feed, content_type="text/event-stream")
        elif "/events" in route.request.url or "/logs" in route.request.url:
            route.continue_()
        else:
            answer = route.fetch()
            is_json = answer.headers.get("content-type", "").startswith("application/json")
            route.fulfill(response=answer, **({"json": _hostile(answer.json())} if is_json else {}))

    bare = []
    with people(browser, stage) as person:
        admin = person("admin")
        page = admin.sign_in()
        page.route("**/v1/**", told)
        for path in PAGES:
            admin.open(path.format(**places))
            try:
                expect(page.locator("main")).to_contain_text(HOSTILE, timeout=5000)
            except AssertionError:
                bare.append(path)
            assert page.locator("main :is(img, script, iframe)").count() == 0, path
    assert bare == ["/policies"], "nobody has written any here: test_policies has what they say"
