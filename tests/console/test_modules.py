"""The small modules that all pages are made of, run where they run: values that are followed, words for numbers, fields, tables and a job in time."""

from typing import Any

from playwright.sync_api import Page, expect

from tests.console.test_drawings import run
from tests.support.waiting import wait_until

TABLE = """(() => {
  window.table = new m.Table({
    caption: "Fruit", keyOf: (row) => row.name, few: 2, order: {id: "name", down: false},
    columns: [
      {id: "name", title: "Name", by: (row) => row.name, cell: (row) => {
        const link = document.createElement("a");
        link.href = "#" + row.name;
        link.textContent = row.name;
        return link;
      }},
      {id: "count", title: "Count", numeric: true, by: (row) => row.count, cell: (row) => String(row.count)},
    ],
  });
  document.querySelector("main").replaceChildren(table.element);
  table.show(given);
})()"""


def test_a_value_tells_those_who_follow_it_until_they_stop(page: Page) -> None:
    told = """(() => {
      const store = new m.Store(1), told = [];
      const stop = store.subscribe((value) => told.push(value));
      store.set(1); store.set(2); stop(); store.set(3);
      return [told, store.value];
    })()"""
    assert run(page, "store.js", told) == [[1, 2], 3]


def test_numbers_are_told_as_people_read_them(page: Page) -> None:
    def told(function: str, *values: float | None) -> list[str]:
        found: list[str] = run(page, "format.js", f"given.map((each) => m.{function}(each))", *values)
        return found

    assert told("duration", None, 0, 59.6, 3600, 90_061, 864_000) == ["–", "0 s", "1 m", "1 h", "1 d 1 h", "10 d"]  # fmt: skip
    assert told("money", None, 0, -1.5, 1234.5) == ["–", "$0.00", "\u2212$1.50", "$1,235"]
    assert told("bytes", 0, 1023, 1536, 5 * 2**40) == ["0 B", "1023 B", "1.5 KiB", "5.0 TiB"]
    assert run(page, "format.js", "[m.plural(1, 'job'), m.plural(2000, 'job'), m.gang(2, 8, 'H100'), m.gang(1, 0)]") == [
        "1 job", "2,000 jobs", "2 × 8 H100", "CPU only",
    ]  # fmt: skip


def test_a_field_says_what_is_wrong_with_it_and_that_it_is_not_any_more(page: Page) -> None:
    made = """(() => {
      window.made = m.field("Size", m.text("size"), "In GiB.");
      document.querySelector("main").replaceChildren(made.element);
    })()"""
    run(page, "form.js", made)
    field = page.get_by_label("Size")
    expect(field).to_have_accessible_description("In GiB.")
    page.evaluate("made.refuse('Too large.')")
    expect(field).to_have_accessible_description("In GiB. Too large.")
    expect(field).to_have_attribute("aria-invalid", "true")
    page.evaluate("made.refuse('')")
    expect(field).to_have_accessible_description("In GiB.")


def test_rows_are_sorted_walked_through_and_keep_the_focus(page: Page) -> None:
    rows: list[Any] = [
        {"name": "pear", "count": 2},
        {"name": "apple", "count": 1},
        {"name": "fig", "count": 3},
    ]
    run(page, "table.js", TABLE, *rows)
    table = page.get_by_role("table", name="Fruit")
    expect(table.get_by_role("rowheader")).to_have_text(["apple", "fig"])
    page.get_by_role("button", name="Show all 3").click()
    page.get_by_role("button", name="Count").click()
    expect(table.get_by_role("rowheader")).to_have_text(["fig", "pear", "apple"])
    expect(page.get_by_role("columnheader", name="Count")).to_have_attribute("aria-sort", "descending")
    table.get_by_role("link", name="fig").focus()
    page.keyboard.press("ArrowDown")
    expect(table.get_by_role("link", name="pear")).to_be_focused()
    page.evaluate("(rows) => table.show(rows)", [{**each, "count": 9 - each["count"]} for each in rows])
    expect(table.get_by_role("rowheader")).to_have_text(["apple", "pear", "fig"])
    expect(table.get_by_role("link", name="pear")).to_be_focused()
    page.evaluate("table.show([])")
    expect(page.get_by_text("Nothing here.")).to_be_visible()


def test_a_job_in_time_waits_between_its_attempts(page: Page) -> None:
    job = {"submitted_at": 0, "finished_at": 100, "status": "SUCCEEDED"}
    attempts = [
        {"attempt": 1, "assigned_at": 10, "started_at": 12, "ended_at": 40, "status": "FAILED"},
        {"attempt": 2, "assigned_at": 60, "started_at": 60, "ended_at": 100, "status": "SUCCEEDED"},
    ]
    found = run(page, "timeline.js", "m.rowsOf(given[0])", {"job": job, "attempts": attempts})
    waits = next(each for each in found if each["name"] not in ("attempt 1", "attempt 2"))
    assert [(each["from"], each["to"]) for each in waits["phases"]] == [(0, 10), (40, 60)]
    second = next(each for each in found if each["name"] == "attempt 2")
    assert (second["phases"][0]["from"], second["phases"][-1]["to"]) == (60, 100)


STREAM = """(() => {
  window.opened = [];
  window.EventSource = class {
    constructor(url) { this.url = url; window.opened.push(this); }
    close() { this.closed = true; }
    tell(data, id) { this.onmessage({data: JSON.stringify(data), lastEventId: id}); }
  };
  window.told = [];
  window.stop = m.followRows(["sites", "queues"], (present, changed) => told.push([present("sites"), present("queues"), [...changed].sort()]));
})()"""


def test_rows_are_followed_by_what_changes_of_them_and_gone_on_with_after_a_break(page: Page) -> None:
    run(page, "stream.js", STREAM)

    def tell(number: int, name: str, *, reset: bool, **rows: Any) -> Any:
        page.evaluate(
            "([number, data, id]) => opened[number].tell(data, id)",
            [number, {"reset": reset, "rows": rows}, name],
        )
        return page.evaluate("told.at(-1)")

    assert page.evaluate("opened[0].url") == "/v1/changes?topics=sites%2Cqueues"
    told = tell(
        0,
        "7",
        reset=True,
        sites={"a": {"name": "a", "gpus": 8}, "b": {"name": "b"}},
        queues={"q": {"used": 1}},
    )
    assert told == [[{"name": "a", "gpus": 8}, {"name": "b"}], [{"used": 1}], ["queues", "sites"]]
    told = tell(0, "8", reset=False, sites={"a": {"gpus": 4}, "b": None})
    assert told == [[{"name": "a", "gpus": 4}], [{"used": 1}], ["sites"]]
    page.evaluate("opened[0].onerror()")
    wait_until(lambda: page.evaluate("opened.length") == 2, "another stream")
    assert page.evaluate("[opened[0].closed, opened[1].url]") == [
        True,
        "/v1/changes?topics=sites%2Cqueues&after=8",
    ]
    told = tell(1, "9", reset=True, sites={"c": {"name": "c"}})
    assert told[0] == [{"name": "c"}], "what is told whole is in place of what was known"
    page.evaluate("stop()")
    assert page.evaluate("opened[1].closed") is True
