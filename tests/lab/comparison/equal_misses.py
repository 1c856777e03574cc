"""Money at equal misses: a scheduler that spends less may just miss more, so each is run over what makes it rent more or less, and compared where it misses as much.

Baselines have one knob, how long a job waits before a machine is rented for it; ours has another, what a met deadline is worth: in proportion to its work, or each the same. Each setting is a point, misses and
money. Between two neighbours among a baseline's best points – those that no other beats in both – its money is taken to be on the straight line: a mixture of
both settings would come to that. Where it never misses as few, its dearest point is what it is compared with, and the saving is at least that.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from tests.lab import plots
from tests.lab.comparison.judging import Row
from tests.lab.comparison.tables import Cells

BURSTING, SPOT = "bursting", "spot"


class Point(NamedTuple):
    """One setting of one scheduler."""

    setting: str
    missed_pct: float
    usd: float


class Beside(NamedTuple):
    """What a baseline pays where it misses as much. `never`: it never misses so few, and this is for the fewest."""

    usd: float
    never: bool


Curves = Mapping[str, Sequence[Point]]


def curves_of(rows: Sequence[Row]) -> dict[str, dict[str, list[Point]]]:
    """Of each work, each scheduler's points, from the fewest misses on."""
    found: dict[str, dict[str, list[Point]]] = {}
    for row in rows:
        if row.family == BURSTING:
            _, work, setting = row.case.split("/")
            point = Point(setting, row.missed_pct, row.burst_usd)
            found.setdefault(work, {}).setdefault(row.scheduler, []).append(point)
    return {
        work: {name: sorted(points, key=lambda p: (p.missed_pct, p.usd)) for name, points in curves.items()}
        for work, curves in found.items()
    }


def best(points: Sequence[Point]) -> list[Point]:
    """Those that no other beats in both, from the fewest misses on."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda p: (p.missed_pct, p.usd)):
        if not kept or point.usd < kept[-1].usd:
            kept.append(point)
    return kept


def money_at(points: Sequence[Point], missed_pct: float) -> Beside:
    """What it takes to miss no more than so much."""
    kept = best(points)
    if missed_pct < kept[0].missed_pct:
        return Beside(kept[0].usd, never=True)
    for few, many in pairwise(kept):
        if few.missed_pct <= missed_pct < many.missed_pct:
            share = (missed_pct - few.missed_pct) / (many.missed_pct - few.missed_pct)
            return Beside(few.usd + share * (many.usd - few.usd), never=False)
    return Beside(kept[-1].usd, never=False)


def equal_misses_table(rows: Sequence[Row], ours: Sequence[str], baselines: Sequence[str]) -> Cells:
    """A line for each point of ours: what it misses and pays, and what each baseline pays for the same."""
    lines = []
    for work, curves in curves_of(rows).items():
        others = [name for name in baselines if name in curves]
        for name in (name for name in ours if name in curves):
            for point in best(curves[name]):
                cells = [work, f"{name}, {point.setting}", f"{point.missed_pct:.2f}", f"{point.usd:,.0f}"]
                for other in baselines:
                    cells += _beside(curves[other], point) if other in others else ["–", "–"]
                lines.append(tuple(cells))
    titles = [title for other in baselines for title in (f"{other} USD", "less %")]
    return Cells(("work", "scheduler", "missed %", "burst USD", *titles), tuple(lines))


def _beside(theirs: Sequence[Point], point: Point) -> list[str]:
    found = money_at(theirs, point.missed_pct)
    if not found.usd:
        return ["0", "–"]
    mark = " (never so few)" if found.never else ""
    return [f"{found.usd:,.0f}{mark}", f"{100.0 * (1.0 - point.usd / found.usd):.0f}"]


def spot_table(rows: Sequence[Row]) -> Cells:
    """A line for each work and scheduler: on demand only, and with spot."""
    found: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        if row.family == SPOT:
            _, work, market = row.case.split("/")
            found.setdefault((work, row.scheduler), {})[market] = row
    lines = []
    for (work, name), markets in found.items():
        if len(markets) == 2:
            alone, both = markets["on-demand"], markets["spot"]
            less = f"{100.0 * (1.0 - both.burst_usd / alone.burst_usd):.0f}" if alone.burst_usd else "–"
            misses = (f"{alone.missed_pct:.2f}", f"{both.missed_pct:.2f}")
            lines.append((work, name, *misses, f"{alone.burst_usd:,.0f}", f"{both.burst_usd:,.0f}", less))
    titles = ("missed %, on demand", "with spot", "burst USD, on demand", "with spot", "less %")
    return Cells(("work", "scheduler", *titles), tuple(lines))


def picture(curves: Curves, colours: Mapping[str, str], *, key: bool = False) -> str:
    """Misses over money, a line for each scheduler. `key`: with their names, for a file of its own."""
    drawn = [
        plots.Line(name, colours[name], [(point.usd, point.missed_pct) for point in reversed(best(points))])
        for name, points in curves.items()
    ]
    return plots.lines(
        drawn, x_text=_usd, y_text=_plain, x_title="burst money, USD", y_title="missed, %", key=key
    )


def _usd(value: float) -> str:
    return f"{value / 1000:,.3g}k" if value >= 10_000 else f"{value:,.0f}"


def _plain(value: float) -> str:
    return f"{value:.3g}"
