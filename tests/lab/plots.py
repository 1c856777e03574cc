"""Plots as SVG by matplotlib: a report then is one file that opens without a network, and the same figures give the same bytes.

Texts and grid are of one grey on a transparent ground, so that light and dark pages work.
"""

import io
from collections.abc import Callable, Sequence
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

WIDTH, HEIGHT, ROW = 9.0, 3.0, 0.28
"""Inches; `ROW` of each row of bars."""
INK = "#777777"
HEAT = "#1f5fbf"
COLOURS = ("#1f5fbf", "#d9822b", "#2f9e5b", "#8a56c2", "#c43d5a", "#6b7280", "#b08d00", "#0f9aa8", "#7c4a1e")
STYLE = """
.key { display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 4px 0 8px; color: var(--soft); } .key i { display: inline-block; width: 11px; height: 11px;
  border-radius: 3px; margin-right: 6px; }
svg { width: 100%; height: auto; display: block; }
"""
"""What plots and their keys need of the page's style."""
Text = Callable[[float], str]


class Line(NamedTuple):
    """A named curve."""

    name: str
    colour: str
    points: Sequence[tuple[float, float]]


def lines(
    curves: Sequence[Line],
    *,
    x_text: Text,
    y_text: Text,
    x_title: str,
    y_title: str,
    log: Sequence[float] = (),
    x_low: float = 0.0,
    key: bool = False,
) -> str:
    """Curves over one axis, which begins at `x_low`; upwards it is logarithmic from 1 on where it is given marks for that. `key`: with the curves' names."""

    def draw(axes: Axes) -> None:
        for curve in curves:
            axes.plot(*zip(*curve.points, strict=True), color=curve.colour, label=curve.name, gid=curve.name)
        axes.set_xlim(left=x_low)
        if log:
            high = max((y for curve in curves for _, y in curve.points), default=10.0)
            axes.set_yscale("log")
            axes.set_ylim(1.0, max(high, 10.0))
            axes.set_yticks([mark for mark in log if mark <= max(high, 10.0)], minor=False)
            axes.minorticks_off()
        else:
            axes.set_ylim(bottom=0.0)
        axes.set(xlabel=x_title, ylabel=y_title)
        axes.xaxis.set_major_formatter(lambda value, _: x_text(value))
        axes.yaxis.set_major_formatter(lambda value, _: y_text(value))
        if key:
            axes.legend()

    return _drawn(HEIGHT, draw)


def grouped(groups: Sequence[tuple[str, Sequence[tuple[str, str, float]]]], *, y_title: str) -> str:
    """Bars of shares, from 0 to 1: for each group a name, and of each bar its name, colour and share."""

    def draw(axes: Axes) -> None:
        for number, (_, bars) in enumerate(groups):
            width = 0.8 / max(1, len(bars))
            at = [number - 0.4 + (place + 0.5) * width for place in range(len(bars))]
            axes.bar(
                at, [share for _, _, share in bars], 0.9 * width, color=[colour for _, colour, _ in bars]
            )
        axes.set_xticks(range(len(groups)), [title for title, _ in groups])
        axes.set(ylim=(0.0, 1.0), ylabel=y_title)
        axes.grid(visible=False, axis="x")
        axes.yaxis.set_major_formatter(lambda value, _: percent(value))

    return _drawn(HEIGHT, draw)


def stacked(
    rows: Sequence[tuple[str, Sequence[tuple[str, str, float]]]], *, x_text: Text, x_title: str
) -> str:
    """One bar per row, from left to right: for each part its name, colour and size."""

    def draw(axes: Axes) -> None:
        for number, (_, parts) in enumerate(rows):
            at = 0.0
            for _, colour, size in parts:
                axes.barh(number, size, 0.7, left=at, color=colour)
                at += size
        _in_rows(axes, [name for name, _ in rows], x_text, x_title)

    return _drawn(_height(len(rows)), draw)


def heat(rows: Sequence[tuple[str, Sequence[float]]], *, x_high: float, x_text: Text, x_title: str) -> str:
    """One row of cells per name; each cell is as dark as its share from 0 to 1."""

    def draw(axes: Axes) -> None:
        for number, (_, shares) in enumerate(rows):
            width = (x_high or 1.0) / max(1, len(shares))
            start = 0
            for end in range(1, len(shares) + 1):
                if end < len(shares) and round(shares[end], 2) == round(shares[start], 2):
                    continue
                dark = 0.04 + 0.96 * min(1.0, shares[start])
                axes.barh(
                    number,
                    (end - start) * width,
                    0.9,
                    left=start * width,
                    color=HEAT,
                    alpha=dark,
                    linewidth=0,
                )
                start = end
        _in_rows(axes, [name for name, _ in rows], x_text, x_title)

    return _drawn(_height(len(rows)), draw)


def timeline(
    bars: Sequence[tuple[str, str, float, float]], *, x_high: float, x_text: Text, x_title: str
) -> str:
    """Bars from a start to an end, one row per name: name, colour, start and end."""
    names = list(dict.fromkeys(bar[0] for bar in bars))

    def draw(axes: Axes) -> None:
        for name, colour, start, end in bars:
            axes.barh(names.index(name), end - start, 0.6, left=start, color=colour, alpha=0.45)
        axes.set_xlim(0.0, x_high or 1.0)
        _in_rows(axes, names, x_text, x_title)

    return _drawn(_height(len(names)), draw)


def percent(value: float) -> str:
    """A share as people read it."""
    return f"{100 * value:.3g} %"


def _in_rows(axes: Axes, names: Sequence[str], x_text: Text, x_title: str) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel(x_title)
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_formatter(lambda value, _: x_text(value))


def _height(rows: int) -> float:
    return 0.7 + ROW * rows


def _drawn(height: float, draw: Callable[[Axes], None]) -> str:
    """The element `svg`, without what stands before it in a file."""
    told = io.StringIO()
    with mpl.rc_context(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "federator",
            "font.family": "sans-serif",
            "font.size": 9.0,
            "text.color": INK,
            "axes.labelcolor": INK,
            "axes.edgecolor": INK,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.color": INK,
            "grid.alpha": 0.25,
            "xtick.color": INK,
            "ytick.color": INK,
            "legend.frameon": False,
        }
    ):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        draw(figure.subplots())
        figure.savefig(
            told,
            format="svg",
            transparent=True,
            metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")),
        )
    text = told.getvalue()
    return text[text.index("<svg") :]
