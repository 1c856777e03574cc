"""The comparison in rows of text: for each group of cases and each scheduler the means, and beside them what the prototype got.

The same rows are written as Markdown and shown in the page, so a figure cannot be two figures.
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from federator.simulation.study import Mean, mean_of
from tests.lab.comparison.judging import Row
from tests.lab.schedulers import SCHEDULERS

PROTOTYPE = {
    "multikueue_like": "race",
    "edf_threshold_30min": "threshold",
    "fifo_first_fit_threshold_30min": "fifo",
    "random_early_binding": "random",
    "priced_greedy_margin1.35": "greedy",
    "lp_integer_now_margin1.35": "ours",
}
"""The prototype's rows, by our names."""
PROTOTYPE_FILE = "online/prototype_results.csv"
HOURS, MINUTES = 1.0, 60.0


class Cells(NamedTuple):
    """A table: titles, and rows of text; the first `names` columns are words."""

    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int = 2


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """One scheduler in one group of cases."""

    group: str
    family: str
    scheduler: str
    cases: int
    means: dict[str, Mean]


MEASURES = (
    "jobs", "missed_pct", "missed_value_pct", "met_gpu_h_pct", "burst_usd", "burst_used_usd", "total_usd", "egress_usd", "loss_usd", "wait_mean_h", "wait_p95_h",
    "interactive_wait_mean_h", "interactive_wait_p95_h",
)  # fmt: skip
COLUMNS: tuple[tuple[str, str, float, int], ...] = (
    ("jobs", "jobs", 1.0, 0),
    ("missed_pct", "missed %", 1.0, 2),
    ("missed_value_pct", "missed value %", 1.0, 2),
    ("met_gpu_h_pct", "met by GPU-hours %", 1.0, 2),
    ("burst_usd", "burst USD", 1.0, 0),
    ("burst_used_usd", "of it used", 1.0, 0),
    ("egress_usd", "egress USD", 1.0, 0),
    ("total_usd", "total USD", 1.0, 0),
    ("loss_usd", "loss USD", 1.0, 0),
    ("wait_mean_h", "mean wait h", HOURS, 3),
    ("wait_p95_h", "p95 wait h", HOURS, 2),
    ("interactive_wait_mean_h", "interactive wait min", MINUTES, 1),
    ("interactive_wait_p95_h", "interactive p95 min", MINUTES, 1),
)


def groups_of(rows: Sequence[Row]) -> list[Group]:
    """Means over the cases of each group, in the order of the cases, and of the schedulers."""
    order = list(SCHEDULERS)
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.group, row.scheduler), []).append(row)
    places = {group: number for number, group in enumerate(dict.fromkeys(row.group for row in rows))}
    keys = sorted(found, key=lambda key: (places[key[0]], order.index(key[1])))
    return [_group(found[key]) for key in keys]


def _group(rows: Sequence[Row]) -> Group:
    means = {}
    for field in MEASURES:
        values = [getattr(row, field) for row in rows]
        if None not in values:
            means[field] = mean_of([float(value) for value in values])
    first = rows[0]
    return Group(
        group=first.group, family=first.family, scheduler=first.scheduler, cases=len(rows), means=means
    )


def means_table(groups: Sequence[Group]) -> Cells:
    """All measures, a line per group and scheduler."""
    used = [column for column in COLUMNS if any(column[0] in each.means for each in groups)]
    rows = [
        (each.group, each.scheduler, *(_mean(each, field, scale, digits) for field, _, scale, digits in used))
        for each in groups
    ]
    return Cells(("work", "scheduler", *(title for _, title, _, _ in used)), tuple(rows))


def _mean(group: Group, field: str, scale: float, digits: int) -> str:
    if field not in group.means:
        return "–"
    found = group.means[field]
    half = f" ± {found.half_width * scale:,.{digits}f}" if group.cases > 1 and field in SPREAD else ""
    return f"{found.value * scale:,.{digits}f}{half}"


SPREAD = frozenset({"missed_pct", "met_gpu_h_pct", "loss_usd"})
"""Measures that are shown with their intervals."""


def cases_table(rows: Sequence[Row]) -> Cells:
    """All measures, a line per case and scheduler."""
    order = list(SCHEDULERS)
    places = {case: number for number, case in enumerate(dict.fromkeys(row.case for row in rows))}
    ordered = sorted(rows, key=lambda row: (places[row.case], order.index(row.scheduler)))
    lines = [
        (
            row.case,
            row.scheduler,
            *(
                "–" if (value := getattr(row, field)) is None else f"{value * scale:,.{digits}f}"
                for field, _, scale, digits in COLUMNS
            ),
        )
        for row in ordered
    ]
    return Cells(("case", "scheduler", *(title for _, title, _, _ in COLUMNS)), tuple(lines))


AGAINST: tuple[tuple[str, str], ...] = (
    ("loss_usd", "loss"),
    ("missed_pct", "misses"),
    ("burst_usd", "burst"),
    ("wait_mean_h", "wait"),
    ("interactive_wait_mean_h", "interactive wait"),
)


def against_table(groups: Sequence[Group]) -> Cells:
    """What ours has more (+) or less (-) than each baseline, in percent of the baseline's."""
    ours = {each.group: each for each in groups if each.scheduler == "ours"}
    rows = [
        (each.group, each.scheduler, *(_change(ours[each.group], each, field) for field, _ in AGAINST))
        for each in groups
        if each.scheduler != "ours" and each.group in ours
    ]
    return Cells(("work", "ours against", *(f"{title} %" for _, title in AGAINST)), tuple(rows))


def _change(ours: Group, theirs: Group, field: str) -> str:
    if field not in ours.means or field not in theirs.means:
        return "–"
    mine, other = ours.means[field].value, theirs.means[field].value
    if not other:
        return "0" if not mine else "–"
    return f"{100.0 * (mine / other - 1.0):+.0f}"


BESIDE = (
    ("missed_pct", "missed_pct", "missed %", 1),
    ("missed_value_pct", "missed_value_pct", "missed value %", 1),
    ("burst_usd", "burst_usd", "burst USD", 0),
    ("egress_usd", "egress_usd", "egress USD", 0),
    ("loss_usd", "loss_usd", "loss USD", 0),
    ("wait_mean_h", "mean_wait_h", "mean wait h", 2),
)
"""Our measure, the prototype's column, and how both are shown."""


def prototype_table(groups: Sequence[Group], data: Path) -> Cells:
    """Beside each mean of ours over the files of a load, the prototype's."""
    file = data / PROTOTYPE_FILE
    if not file.is_file():
        return Cells((), ())
    with file.open(encoding="utf-8", newline="") as text:
        theirs = [
            (f"online, load {row['load']}", PROTOTYPE.get(row["scheduler"]), row)
            for row in csv.DictReader(text)
        ]
    rows = []
    for each in groups:
        known = [row for group, name, row in theirs if (group, name) == (each.group, each.scheduler)]
        if not known or each.cases != len(known):
            continue
        cells = [each.group, each.scheduler]
        for field, theirs_field, _, digits in BESIDE:
            other = sum(float(row[theirs_field]) for row in known) / len(known)
            cells.append(f"{each.means[field].value:,.{digits}f} / {other:,.{digits}f}")
        rows.append(tuple(cells))
    return Cells(("work", "scheduler", *(title for _, _, title, _ in BESIDE)), tuple(rows))


def as_markdown(cells: Cells) -> str:
    """The table as Markdown has it."""
    rule = ["---"] * cells.names + ["---:"] * (len(cells.titles) - cells.names)
    lines = [cells.titles, tuple(rule), *cells.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
