"""Plots as SVG, written here: a report then is one file that opens without a network, and needs no library.

Coordinates are in a box of `WIDTH` by a height; texts and grid take their colours from the page (`currentColor`), so that light and dark pages work.
"""

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 720.0, 64.0, 16.0, 12.0, 40.0
LINE_HEIGHT = 240.0
NAMES = 60.0
"""Room for the longest name of a scheduler, beside a row."""
ROW = 22.0
COLOURS = ("#1f5fbf", "#d9822b", "#2f9e5b", "#8a56c2", "#c43d5a", "#6b7280", "#b08d00", "#0f9aa8", "#7c4a1e")
STYLE = """
.key { display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 4px 0 8px; color: var(--soft); } .key i { display: inline-block; width: 11px; height: 11px;
  border-radius: 3px; margin-right: 6px; }
svg { width: 100%; height: auto; display: block; } svg text { font-size: 11.5px; fill: var(--soft); } svg .grid { stroke: var(--line); stroke-width: 1; }
"""
"""What plots and their keys need of the page's style."""
Text = Callable[[float], str]


class Line(NamedTuple):
    """A named curve."""

    name: str
    colour: str
    points: Sequence[tuple[float, float]]


class Scale(NamedTuple):
    """Values to places on the page; logarithmic from `low` on, where that is wanted."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    marks: Sequence[float] = ()
    """Values to write on the axis; none: some round ones."""

    def __call__(self, value: float) -> float:
        """Where the value is; one beyond the ends is at the end."""
        low, high, value = (
            self._of(self.low),
            self._of(self.high),
            self._of(max(self.low, min(self.high, value))),
        )
        return self.start + (self.end - self.start) * ((value - low) / (high - low) if high > low else 0.0)

    def _of(self, value: float) -> float:
        return math.log10(max(value, 1e-12)) if self.log else value

    def ticks(self) -> list[float]:
        """The marks, or some five round values."""
        if self.marks:
            return [mark for mark in self.marks if self.low <= mark <= self.high]
        if self.log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            return [10.0**power for power in powers if self.low <= 10.0**power <= self.high * 1.0001]
        span = self.high - self.low
        if span <= 0:
            return [self.low]
        step = 10.0 ** math.floor(math.log10(span / 5))
        step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= 6)
        first = math.ceil(self.low / step - 1e-9)
        return [number * step for number in range(first, math.floor(self.high / step + 1e-9) + 1)]


def lines(
    curves: Sequence[Line],
    *,
    x_text: Text,
    y_text: Text,
    x_title: str,
    y_title: str,
    log: Sequence[float] = (),
    x_low: float = 0.0,
) -> str:
    """Curves over one axis, which begins at `x_low`; upwards it is logarithmic from 1 on where it is given marks for that."""
    points = [point for curve in curves for point in curve.points]
    x_high, y_high = max((x for x, _ in points), default=1.0), max((y for _, y in points), default=1.0)
    low = 1.0 if log else 0.0
    x = Scale(x_low, x_high or 1.0, LEFT, WIDTH - RIGHT)
    y = Scale(low, max(y_high, 10.0 * low, 1e-9), LINE_HEIGHT - BOTTOM, TOP, bool(log), log)
    parts = [_grid(x, x_text, x_title, LINE_HEIGHT) + _levels(y, y_text, y_title)]
    for curve in curves:
        path = " ".join(f"{x(px):.1f},{y(py):.1f}" for px, py in curve.points)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{curve.colour}" stroke-width="1.8" stroke-linejoin="round">'
            f"<title>{escape(curve.name)}</title></polyline>"
        )
    return _svg(LINE_HEIGHT, parts)


def standalone(drawn: str, key: Sequence[tuple[str, str]]) -> str:
    """A drawing as a file of its own, which needs no page: with its namespace, colours for light and dark, and the names of its colours."""
    style = "text{font:12px sans-serif;fill:#777}.grid{stroke:#999;stroke-opacity:.3}"
    marks = []
    for number, (name, colour) in enumerate(key):
        x, y = WIDTH - RIGHT - 120.0, TOP + 14.0 + 17.0 * number
        marks.append(f'<rect x="{x:.1f}" y="{y - 9:.1f}" width="11" height="11" fill="{colour}"/>')
        marks.append(_text(x + 17, y, name, "start"))
    head, rest = drawn.split(">", 1)
    name = ' xmlns="http://www.w3.org/2000/svg"'
    return f"{head}{name}><style>{style}</style>{rest.removesuffix('</svg>')}{''.join(marks)}</svg>\n"


def grouped(groups: Sequence[tuple[str, Sequence[tuple[str, str, float]]]], *, y_title: str) -> str:
    """Bars of shares, from 0 to 1: for each group a name, and of each bar its name, colour and share."""
    x = Scale(0.0, float(len(groups) or 1), LEFT, WIDTH - RIGHT)
    y = Scale(0.0, 1.0, LINE_HEIGHT - BOTTOM, TOP)
    parts = [_levels(y, percent, y_title)]
    for number, (title, bars) in enumerate(groups):
        width = (x(1.0) - x(0.0)) * 0.8 / max(1, len(bars))
        start = x(number) + (x(1.0) - x(0.0)) * 0.1
        for place, (name, colour, share) in enumerate(bars):
            parts.append(
                f'<rect x="{start + place * width:.1f}" y="{y(share):.1f}" width="{max(1.0, width - 1.5):.1f}" '
                f'height="{y(0.0) - y(share):.1f}" fill="{colour}"><title>{escape(name)}: {percent(share)}</title></rect>'
            )
        parts.append(_text(x(number + 0.5), LINE_HEIGHT - BOTTOM + 16, title, "middle"))
    return _svg(LINE_HEIGHT, parts)


def stacked(
    rows: Sequence[tuple[str, Sequence[tuple[str, str, float]]]], *, x_text: Text, x_title: str
) -> str:
    """One bar per row, from left to right: for each part its name, colour and size."""
    left, height = LEFT + NAMES, TOP + BOTTOM + ROW * len(rows)
    x = Scale(0.0, max([sum(part[2] for part in parts) for _, parts in rows] + [1e-9]), left, WIDTH - RIGHT)
    parts = [_grid(x, x_text, x_title, height)]
    for number, (name, pieces) in enumerate(rows):
        y, at = TOP + ROW * number, 0.0
        parts.append(_text(left - 8, y + ROW * 0.65, name, "end"))
        for piece, colour, size in pieces:
            wide = x(at + size) - x(at)
            parts.append(
                f'<rect x="{x(at):.1f}" y="{y + 3:.1f}" width="{max(0.0, wide):.1f}" height="{ROW - 6:.1f}" fill="{colour}">'
                f"<title>{escape(name)}, {escape(piece)}: {escape(x_text(size))}</title></rect>"
            )
            at += size
    return _svg(height, parts)


def heat(rows: Sequence[tuple[str, Sequence[float]]], *, x_high: float, x_text: Text, x_title: str) -> str:
    """One row of cells per name; each cell is as dark as its share from 0 to 1."""
    left, height = LEFT + NAMES, TOP + BOTTOM + ROW * len(rows)
    x = Scale(0.0, x_high or 1.0, left, WIDTH - RIGHT)
    parts = [_grid(x, x_text, x_title, height)]
    for number, (name, shares) in enumerate(rows):
        y, width = TOP + ROW * number, (WIDTH - RIGHT - left) / max(1, len(shares))
        parts.append(_text(left - 8, y + ROW * 0.65, name, "end"))
        start = 0
        for end in range(1, len(shares) + 1):
            if end < len(shares) and round(shares[end], 2) == round(shares[start], 2):
                continue
            parts.append(
                f'<rect x="{left + start * width:.2f}" y="{y + 1:.1f}" width="{(end - start) * width + 0.1:.2f}" '
                f'height="{ROW - 2:.1f}" fill="{HEAT}" fill-opacity="{0.04 + 0.96 * min(1.0, shares[start]):.2f}">'
                f"<title>{escape(name)}: {percent(shares[start])}</title></rect>"
            )
            start = end
    return _svg(height, parts)


def timeline(
    bars: Sequence[tuple[str, str, float, float, str]], *, x_high: float, x_text: Text, x_title: str
) -> str:
    """Bars from a start to an end, one row per name: name, colour, start, end, and what is said of it."""
    names = list(dict.fromkeys(bar[0] for bar in bars))
    left, height = LEFT + 130, TOP + BOTTOM + ROW * len(names)
    x = Scale(0.0, x_high or 1.0, left, WIDTH - RIGHT)
    parts = [_grid(x, x_text, x_title, height)]
    parts += [_text(left - 8, TOP + ROW * (n + 0.65), name, "end") for n, name in enumerate(names)]
    for name, colour, start, end, said in bars:
        y = TOP + ROW * names.index(name)
        parts.append(
            f'<rect x="{x(start):.1f}" y="{y + 4:.1f}" width="{max(1.2, x(end) - x(start)):.1f}" height="{ROW - 8:.1f}" '
            f'fill="{colour}" fill-opacity="0.45"><title>{escape(said)}</title></rect>'
        )
    return _svg(height, parts)


HEAT = "#1f5fbf"


def percent(value: float) -> str:
    """A share as people read it."""
    return f"{100 * value:.3g} %"


def _levels(y: Scale, y_text: Text, y_title: str) -> str:
    """The axis of values, upwards."""
    parts = []
    for value in y.ticks():
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
        )
        parts.append(_text(LEFT - 6, y(value) + 4, y_text(value), "end"))
    middle = (LINE_HEIGHT - BOTTOM + TOP) / 2
    parts.append(
        f'<text transform="translate(13 {middle:.1f}) rotate(-90)" text-anchor="middle">{escape(y_title)}</text>'
    )
    return "".join(parts)


def _grid(x: Scale, x_text: Text, x_title: str, height: float) -> str:
    parts = []
    for value in x.ticks():
        parts.append(
            f'<line class="grid" x1="{x(value):.1f}" x2="{x(value):.1f}" y1="{TOP}" y2="{height - BOTTOM:.1f}"/>'
        )
        parts.append(_text(x(value), height - BOTTOM + 15, x_text(value), "middle"))
    parts.append(_text((x.start + x.end) / 2, height - 6, x_title, "middle"))
    return "".join(parts)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>' if text else ""


def _svg(height: float, parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH:g} {height:g}" role="img">{"".join(parts)}</svg>'
