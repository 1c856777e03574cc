"""What a browser fetches until the first page is there: how much, and nothing that waits for something else that could have been known."""

from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

from tests.console.stage import Person

MOST_BYTES = 100_000
FETCHED = """() => performance.getEntriesByType("resource").map((each) =>
  ({path: new URL(each.name).pathname, type: each.initiatorType, starts: each.startTime, ends: each.responseEnd, bytes: each.transferSize}))"""


def test_first_view_is_small_and_without_detours(person: Callable[[str], Person]) -> None:
    page = person("admin").sign_in()
    page.goto("about:blank")
    page.context.new_cdp_session(page).send("Network.clearBrowserCache")
    page.go_back()
    expect(page.get_by_role("table", name="Sites and")).to_contain_text("north")
    fetched: list[dict[str, Any]] = page.evaluate(FETCHED)
    (frame,) = page.evaluate(
        "performance.getEntriesByType('navigation').map(({transferSize, responseEnd}) => [transferSize, responseEnd])"
    )
    assert frame[0] + sum(each["bytes"] for each in fetched) < MOST_BYTES
    modules = [each for each in fetched if each["path"].endswith(".js")]
    (start,) = (each for each in modules if each["path"].endswith("/main.js"))
    assert len({each["path"] for each in modules}) == len(modules) > 5
    late = [each["path"] for each in modules if each["starts"] > start["ends"]]
    assert not late, "asked for once something else had been read"
