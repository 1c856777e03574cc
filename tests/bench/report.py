"""The results as a table for the terminal and as a page for the docs: no paths, no host names, nothing of the network."""

import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path

from federator import __version__
from tests.bench.figures import Results, Series
from tests.bench.harness import Scenario

HEADER = ("figure", "median", "least–most", "aim", "ratio", "loop", "fsync")
INTRODUCTION = """\
# {title}

<!-- Written by `python -m tests.bench --report`: do not edit. What the figures mean is in speed.md. -->

What the everyday paths cost on one machine, as `python -m tests.bench` measured it. [Why it is as fast as it is](speed.md)
is told elsewhere. Absolute numbers say as much about the machine as about Federator: compare ratios, and weigh a figure with the
calibration loops beside it.
"""
LEGEND = """\
*Median* is that of the runs, *least–most* their spread. *Ratio* compares with another figure of the same run. *Loop* and *fsync* are the
calibration, timed right before and after each run: millions of steps of a fixed loop of pure Python a second, and durable appends of 1 KiB a second.
"""


def table(results: Results, names: Sequence[str] = ()) -> list[tuple[str, ...]]:
    """One row per figure, of these scenarios or of all."""
    return [_row(results, each) for each in results.series.values() if not names or each.scenario in names]


def text_table(results: Results) -> str:
    """For the terminal."""
    rows = [HEADER, *table(results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def page(
    results: Results, scenarios: Sequence[Scenario], *, runs: int, remark: str = "", title: str = "Benchmarks"
) -> str:
    """The page."""
    parts = [INTRODUCTION.format(title=title), _circumstances(runs, remark), LEGEND]
    for scenario in scenarios:
        rows = table(results, (scenario.name,))
        if not rows:
            continue
        parts.append(f"## {scenario.name}\n")
        if scenario.note:
            parts.append(scenario.note.strip() + "\n")
        parts.append("\n".join(line(row) for row in (HEADER, ("---",) * len(HEADER), *rows)) + "\n")
        notes = [
            f"- {each.last.name}: {each.last.note}"
            for each in results.series.values()
            if each.scenario == scenario.name and each.last.note
        ]
        if notes:
            parts.append("\n".join(notes) + "\n")
    return "\n".join(parts)


def _circumstances(runs: int, remark: str) -> str:
    return "\n".join(
        [
            f"- Date: {time.strftime('%Y-%m-%d', time.gmtime())}",
            f"- Machine: {os.cpu_count()} cores, {memory_gib():.0f} GiB, {cpu_model()}",
            f"- Federator {__version__}, Python {platform.python_version()}, Linux {platform.release().split('-')[0]}",
            f"- Runs of each figure: up to {runs}",
            *([f"- {remark}"] if remark else []),
            "",
        ]
    )


def _row(results: Results, series: Series) -> tuple[str, ...]:
    figure, speed = series.last, series.calibration
    aim = (
        ""
        if figure.aim is None
        else f"{figure.better} {_number(figure.aim)}: {'reached' if series.reached else 'missed'}"
    )
    ratio = results.ratio(series)
    return (
        figure.name,
        f"{_number(series.median)} {figure.unit}",
        f"{_number(min(series.values))}–{_number(max(series.values))}",
        aim,
        "" if ratio is None else f"{_number(ratio)} × {figure.against}",
        f"{speed.loop_msteps_s:.1f}",
        _number(speed.fsyncs_s),
    )


def line(cells: Sequence[str]) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def _number(value: float) -> str:
    """Three digits that count."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def memory_gib() -> float:
    """Of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30


def cpu_model() -> str:
    """Of this machine, as it says itself."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
