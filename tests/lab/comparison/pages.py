"""The comparison written down: as JSON, as Markdown, and as a page with charts that opens without a network."""

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

import msgspec

from federator.simulation.report import STYLE
from tests.lab import plots
from tests.lab.comparison.cases import LOADS, OURS, SIGMA, VALUE_FACTOR, WAIT_USD_GPU_H
from tests.lab.comparison.equal_misses import (
    BURSTING,
    SPOT,
    curves_of,
    equal_misses_table,
    picture,
    spot_table,
)
from tests.lab.comparison.judging import Row, build
from tests.lab.comparison.offers import A100, DELAY_S, SOURCES, V100, usd_gpu_h
from tests.lab.comparison.running import Made
from tests.lab.comparison.tables import (
    Cells,
    Group,
    against_table,
    as_markdown,
    cases_table,
    groups_of,
    means_table,
    prototype_table,
)
from tests.lab.schedulers import PATIENT, SCHEDULERS

COLOUR = dict(zip(SCHEDULERS, plots.COLOURS, strict=True))
MONEY = {
    "owned GPUs": "#7fa8e0",
    "rent": "#d9822b",
    "egress": "#8a56c2",
    "missed deadlines": "#c43d5a",
}


LEAST_LOAD = min(float(load) for load in LOADS)


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Everything, for programs."""

    build: str
    builds: dict[str, int]
    """Of each build, how many simulations are by it."""
    cpu_s: float
    about: tuple[str, ...]
    rows: tuple[Row, ...]
    groups: tuple[Group, ...]
    missing: tuple[str, ...]
    failed: tuple[str, ...]
    violations: dict[str, tuple[str, ...]]
    """Of simulations in which something cannot be true, what."""


def table_of(made: Made) -> Table:
    """What was made, with means."""
    rows = [row for result in made.results for row in result.rows]
    builds = [result.build for result in made.results]
    wrong = {result.name: (*result.violations, *result.faults) for result in made.results}
    lengths = sorted({result.length_s for result in made.results if result.length_s is not None})
    return Table(
        build=build(),
        builds={name: builds.count(name) for name in sorted(set(builds))},
        cpu_s=round(sum(result.cpu_s for result in made.results), 1),
        about=(*(f"Only jobs of the first {s / 86_400.0:g} days." for s in lengths), *ABOUT),
        rows=tuple(rows),
        groups=tuple(groups_of(rows)),
        missing=tuple(made.missing),
        failed=tuple(made.failed),
        violations={name: found for name, found in wrong.items() if found},
    )


PRICES = (
    f"Ten clusters and Chronus: users' estimates are off by a factor e^N(0, {SIGMA:g}²); a met deadline is worth {VALUE_FACTOR:g} × the on-demand price of its "
    f"GPU-hours (A100 {usd_gpu_h(A100):.2f}, V100 {usd_gpu_h(V100):.2f} USD); waiting costs {WAIT_USD_GPU_H:g} USD per GPU-hour; owned GPUs cost nothing."
)
ABOUT = (
    PRICES,
    f"Clouds there: {', '.join(offer.name for offer in (*A100, *V100))} at list prices ({'; '.join(SOURCES.values())}), there after {DELAY_S / 60:g} minutes.",
    "Online: values, estimates and clouds as the files have them; waiting costs 0.085, 0.155 and 1 USD per GPU-hour in the queues of bands 0, 1 and 2 (interactive).",
    "Means over the files of a load are given with 95 % intervals (Student's t) where they are the same for several files.",
)


def markdown(table: Table, data: Path) -> str:
    """All tables; the text around them is the reader's."""
    parts = [f"Build {table.build}; {table.cpu_s / 3600:,.1f} hours of one core."]
    parts += [" ".join(table.about)]
    for title, cells in _tables(table, data):
        parts += [f"## {title}", as_markdown(cells)]
    parts += [f"## Missing\n\n{', '.join(names)}" for names in (table.missing, table.failed) if names]
    return "\n\n".join(parts) + "\n"


def _tables(table: Table, data: Path) -> list[tuple[str, Cells]]:
    found = [
        ("Spot, beside on-demand alone", spot_table(table.rows)),
        ("Burst money at equal misses", equal_misses_table(table.rows, OURS, tuple(PATIENT))),
        ("Means", means_table(table.groups)),
        ("Ours against each baseline", against_table(table.groups)),
        ("The prototype: ours / its own", prototype_table(table.groups, data)),
        ("Every case", cases_table(table.rows)),
    ]
    return [(title, cells) for title, cells in found if cells.rows]


def page(table: Table, data: Path) -> str:
    """The page: charts first, then all tables."""
    sections = [*_curves(table.rows), *_online(table.groups), *_met(table.groups), *_bills(table.groups)]
    sections += [_section(title, _html(cells), wide=True) for title, cells in _tables(table, data)]
    sections.append(_section("Can this be true?", _checks(table), wide=True))
    about = "".join(f"<p>{escape(text)}</p>" for text in table.about)
    present = dict.fromkeys(each.scheduler for each in table.groups)
    key = "".join(
        f'<span><i style="background:{COLOUR[name]}"></i>{escape(name)}</span>'
        for name in SCHEDULERS
        if name in present
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Schedulers compared</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}{plots.STYLE}</style></head><body>'
        f'<h1>Schedulers compared</h1>{about}<div class="key">{key}</div><div class="grid2">{"".join(sections)}</div></body></html>\n'
    )


def _online(groups: Sequence[Group]) -> list[str]:
    """Curves over the load."""
    online = [each for each in groups if each.family == "online"]
    if not online:
        return []
    pictures: tuple[tuple[str, str, float, Callable[[float], str], str], ...] = (
        ("Online: deadlines missed", "missed_pct", 1.0, _number, "%"),
        ("Online: loss", "loss_usd", 1.0, _usd, "USD"),
        ("Online: rent", "burst_usd", 1.0, _usd, "USD"),
        ("Online: wait of interactive work", "interactive_wait_mean_h", 60.0, _number, "minutes"),
        ("Online: wait of all", "wait_mean_h", 1.0, _number, "hours"),
    )
    made = []
    for title, field, scale, text, unit in pictures:
        curves: dict[str, list[tuple[float, float]]] = {}
        for each in online:
            load = float(each.group.rsplit(" ", 1)[1])
            curves.setdefault(each.scheduler, []).append((load, each.means[field].value * scale))
        lines = [plots.Line(name, COLOUR[name], points) for name, points in curves.items()]
        drawn = plots.lines(
            lines, x_text=_number, y_text=text, x_title="load", y_title=unit, x_low=LEAST_LOAD
        )
        made.append(_section(title, drawn))
    return made


def _curves(rows: Sequence[Row]) -> list[str]:
    """Misses over money, one picture for each work."""
    return [
        _section(f"Misses and burst money: {work}", picture(curves, COLOUR))
        for work, curves in curves_of(rows).items()
    ]


def pictures(table: Table) -> dict[str, str]:
    """The same, each by a name as a file of its own."""
    return {
        f"bursting-{work}.svg": picture(curves, COLOUR, key=True)
        for work, curves in curves_of(table.rows).items()
    }


def _met(groups: Sequence[Group]) -> list[str]:
    """Bars of deadlines met, by GPU-hours: one chart per size, with and without clouds."""
    charts: dict[str, dict[str, list[tuple[str, str, float]]]] = {}
    for each in groups:
        if each.family in ("online", BURSTING, SPOT):
            continue
        chart, _, tightness = each.group.rpartition(", k = ")
        bar = (each.scheduler, COLOUR[each.scheduler], each.means["met_gpu_h_pct"].value / 100.0)
        bars = charts.setdefault(chart or each.group, {})
        bars.setdefault(f"k = {tightness}" if chart else "its own deadlines", []).append(bar)
    return [
        _section(f"Deadlines met, by GPU-hours: {chart}", plots.grouped(list(bars.items()), y_title="met"))
        for chart, bars in charts.items()
    ]


def _bills(groups: Sequence[Group]) -> list[str]:
    """What was paid and lost, where clouds could be rented."""
    made = []
    key = "".join(f'<span><i style="background:{c}"></i>{name}</span>' for name, c in MONEY.items())
    for group in dict.fromkeys(each.group for each in groups if each.family not in (BURSTING, SPOT)):
        found = [each for each in groups if each.group == group]
        if not any(each.means["burst_usd"].value for each in found):
            continue
        rows = [(each.scheduler, _parts(each)) for each in found]
        drawn = plots.stacked(rows, x_text=_usd, x_title="USD")
        made.append(_section(f"Money: {group}", f'<div class="key">{key}</div>{drawn}'))
    return made


def _parts(group: Group) -> list[tuple[str, str, float]]:
    usd = {field: group.means[f"{field}_usd"].value for field in ("total", "burst", "egress", "loss")}
    sizes = (
        usd["total"] - usd["burst"] - usd["egress"],
        usd["burst"],
        usd["egress"],
        usd["loss"] - usd["total"],
    )
    return [(name, colour, size) for (name, colour), size in zip(MONEY.items(), sizes, strict=True)]


def _html(cells: Cells) -> str:
    def line(mark: str, texts: Sequence[str]) -> str:
        left = ' style="text-align: left"'
        made = (f"<{mark}{left if n < cells.names else ''}>{escape(t)}</{mark}>" for n, t in enumerate(texts))
        return f"<tr>{''.join(made)}</tr>"

    head, rows = line("th", cells.titles), "".join(line("td", row) for row in cells.rows)
    return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"


def _checks(table: Table) -> str:
    wrong = [f"{name}: {text}" for name, found in table.violations.items() for text in found]
    missing = f"<p>Missing: {escape(', '.join((*table.missing, *table.failed)))}</p>" if table.missing or table.failed else ""  # fmt: skip
    if not wrong:
        return f"<p>In every simulation the laws of conservation hold, and nothing was logged as an error.</p>{missing}"
    return "".join(f'<p class="bad">{escape(text)}</p>' for text in wrong[:50]) + missing


def _section(title: str, content: str, *, wide: bool = False) -> str:
    mark = ' class="wide"' if wide else ""
    return f"<section{mark}><h2>{escape(title)}</h2>{content}</section>"


def _number(value: float) -> str:
    return f"{value:,.4g}"


def _usd(value: float) -> str:
    return f"{value / 1000:,.3g}k" if value >= 10_000 else f"{value:,.0f}"
