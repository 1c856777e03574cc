"""What drawings reckon with, run where it runs: round numbers, lines between their points, and rows of a lane."""

from typing import Any

from playwright.sync_api import Page


def run(page: Page, module: str, code: str, *given: Any) -> Any:
    """What the code makes of the module, named `m`, and what is given, named `given`."""
    return page.evaluate(
        f'async (given) => {{ const m = await import("/console/{module}"); return {code}; }}', list(given)
    )


def bar(name: str, start: float, end: float, gpus: float, *members: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": name,
        "lane": "l",
        "state": "planned",
        "start_at": start,
        "end_at": end,
        "gpus": gpus,
        "members": list(members),
    } | fields


LANE = {"key": "l", "site": "s", "pool": "p", "gpus_per_node": 4, "members": {"one": 1, "two": 1}}


def rows(page: Page, lane: dict[str, Any], *bars: dict[str, Any]) -> dict[str, list[tuple[int, int]]]:
    (found,) = run(page, "packing.js", "m.pack([given[0]], given[1])", lane, list(bars))
    return {
        each["bar"]["id"]: [(box["row"], box["rows"]) for box in each["boxes"]] for each in found["packed"]
    }


def test_scales_are_round_and_reach_all(page: Page) -> None:
    assert run(page, "chart.js", "m.nice(0, 97, 4)") == [0, 25, 50, 75, 100]
    assert run(page, "chart.js", "m.nice(-3, 0.5, 4)") == [-3, -2, -1, 0, 1]
    for low, high in ((0, 1e-9), (0, 3.2e6), (12.5, 12.6)):
        ticks = run(page, "chart.js", "m.nice(given[0], given[1], 4)", low, high)
        assert ticks[0] <= low
        assert ticks[-1] >= high
        assert len(ticks) <= 8


def test_what_stands_below_a_chart_is_whole_and_marks_stand_above_its_lines(page: Page) -> None:
    edges = run(
        page,
        "chart.js",
        """(() => {
            const chart = new m.LineChart({label: "x", times: true});
            chart.element.style.width = "600px";
            document.body.append(chart.element);
            chart.set([{name: "cap", points: [[given[0], 400], [given[0] + 86400, 400]]}], [{at: given[0] + 80000, name: "now"}]);
            const box = chart.drawing.getBoundingClientRect();
            const words = [...chart.drawing.querySelectorAll(".chart-x")].map((each) => each.getBoundingClientRect());
            const now = chart.drawing.querySelector(".chart-word").getBoundingClientRect();
            const line = chart.drawing.querySelector(".chart-line").getBoundingClientRect();
            chart.close();
            return [Math.min(...words.map((each) => each.left)) - box.left, box.right - Math.max(...words.map((each) => each.right)), line.top - now.bottom];
        })()""",
        1_767_225_600,
    )
    assert min(edges) >= -1, edges


def test_a_line_has_values_between_its_points(page: Page) -> None:
    line = {"name": "x", "points": [[0, 10], [10, 20]]}
    assert run(page, "chart.js", "[-1, 0, 5, 10, 99].map((x) => m.valueAt(given[0], x))", line) == [
        None,
        10,
        15,
        20,
        20,
    ]
    assert run(page, "chart.js", "m.valueAt(given[0], 5)", line | {"stepped": True}) == 10


def test_work_lies_on_the_gpus_of_its_hosts_and_is_as_high(page: Page) -> None:
    found = rows(
        page,
        LANE,
        bar("a", 0, 100, 3, "two"),
        bar("b", 0, 50, 1, "two"),
        bar("c", 0, 100, 4, "one"),
        bar("d", 50, 99, 1, "two"),
    )
    assert found == {"a": [(4, 3)], "b": [(7, 1)], "c": [(0, 4)], "d": [(7, 1)]}


def test_a_gang_over_hosts_and_what_has_no_host_yet(page: Page) -> None:
    found = rows(
        page,
        LANE,
        bar("gang", 0, 10, 4, "one", "two"),
        bar("free", 0, 10, 2),
        bar("late", 5, 20, 8, "one", "two"),
    )
    assert found["free"] == [(0, 2)]
    assert found["gang"] == [(2, 4)]
    assert found["late"] == [(8, 1)], "what does not fit is below, not over other work"


def test_what_a_policy_keeps_lies_behind_the_work_of_its_lane(page: Page) -> None:
    kept = bar("kept", 0, 100, 8, state="kept")
    found = rows(page, LANE, kept, bar("a", 10, 90, 4, "one"), bar("b", 10, 90, 4, "two"))
    assert found == {"kept": [(0, 8)], "a": [(0, 4)], "b": [(4, 4)]}


def test_parts_of_gpus_and_work_on_processors_have_a_row_each(page: Page) -> None:
    shared = {**LANE, "shared": True, "gpus_per_node": 1}
    assert rows(page, shared, bar("a", 0, 10, 0.25, "one"), bar("b", 0, 10, 0.5, "one"), bar("c", 10, 20, 0.5, "one")) == {
        "a": [(0, 1)], "b": [(1, 1)], "c": [(0, 1)],
    }  # fmt: skip
    assert rows(page, LANE, bar("cpu", 0, 10, 0, "one")) == {"cpu": [(8, 1)]}
