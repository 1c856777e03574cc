"""The small modules that all pages are made of, run where they run: values that are followed, words for numbers, fields, tables and a job in time."""

from typing import Any

from playwright.sync_api import Page, expect

from tests.console.test_drawings import run

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
