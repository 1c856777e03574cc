"""The report of a study: one HTML page with everything in it, schedulers side by side.

Curves and maps are of the first seed, the table is of all. Whoever doubts a figure finds the rows that it was computed from in the schedules.
"""

from collections.abc import Sequence
from html import escape

from federator.kernel.quantities import format_duration
from federator.simulation import plots
from federator.simulation.series import QUANTILES, Series
from federator.simulation.study import Mean, Study, Summary

COLOURS = ("#1f5fbf", "#d9822b", "#2f9e5b", "#8a56c2", "#c43d5a", "#6b7280", "#b08d00", "#0f9aa8", "#7c4a1e")
DRIVERS = {
    "owned GPUs": "#7fa8e0",
    "rent, used": "#d9822b",
    "rent, boot and idle": "#f2c48d",
    "data moved": "#8a56c2",
    "missed deadlines": "#c43d5a",
}
DURATIONS_S = (1.0, 10.0, 60.0, 600.0, 3600.0, 36_000.0, 86_400.0, 864_000.0)
FACTORS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0, 10_000.0)
STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #667085; --line: #d7dce3; --page: #ffffff; --card: #f7f8fa; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #9aa4b2; --line: #394150; --page: #14181f; --card: #1b212b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1560px; padding: 28px; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 16px; margin: 0 0 2px; } p { margin: 0 0 10px; color: var(--soft); max-width: 90ch; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px 18px; min-width: 0; }
.grid2 { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 560px), 1fr)); gap: 18px; margin-top: 18px; }
.wide { grid-column: 1 / -1; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 6px 10px; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; } th:first-child, td:first-child { text-align: left; }
th { color: var(--soft); font-weight: 600; white-space: normal; vertical-align: bottom; } td.best { font-weight: 700; }
.key { display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 4px 0 8px; color: var(--soft); } .key i { display: inline-block; width: 11px; height: 11px;
  border-radius: 3px; margin-right: 6px; } .half { color: var(--soft); font-weight: 400; } .bad { color: #c43d5a; }
svg { width: 100%; height: auto; display: block; } svg text { font-size: 11.5px; fill: var(--soft); } svg .grid { stroke: var(--line); stroke-width: 1; }
"""
ROWS: tuple[tuple[str, str, float, int, str], ...] = (
    ("missed_share", "deadlines missed, %", 100.0, 2, "low"),
    ("met_share_by_gpu_h", "met, by GPU-hours, %", 100.0, 2, "high"),
    ("wait_mean_s", "mean wait, min", 1 / 60, 1, "low"),
    ("wait_p95_s", "95th wait, min", 1 / 60, 1, "low"),
    ("slowdown_mean", "mean slowdown", 1.0, 2, "low"),
    ("rented_usd", "rent, USD", 1.0, 0, "low"),
    ("owned_usd", "owned GPUs, USD", 1.0, 0, "low"),
    ("loss_usd", "loss, USD", 1.0, 0, "low"),
    ("utilisation", "own GPUs busy, %", 100.0, 1, ""),
)


def page(study: Study, lead: str = "", title: str = "") -> str:
    """The report as HTML; `lead` is HTML that stands before everything else."""
    first = study.runs[0].figures.seed
    shown = [run.series for run in study.runs if run.figures.seed == first]
    colour = {each.scheduler: COLOURS[n % len(COLOURS)] for n, each in enumerate(shown)}
    sections = [
        _section("Side by side", _about_table(study), _table(study.summaries), wide=True),
        _section("Deadlines met", "Share of jobs that met theirs, by how tight it was: time until the deadline over the run time.",
                 _key(colour) + _met(shown, colour)),
        _section("Money", "What was paid and lost, and for what.", _key(DRIVERS) + _money(shown)),
        _section("Waits", "Each point: so large a share of the jobs waited for at most so long before the first start.",
                 _key(colour) + _spread(shown, colour, "waits_s", "wait")),
        _section("Slowdown", "Time from submission to the end, over the run time, in the same way.",
                 _key(colour) + _spread(shown, colour, "slowdowns", "slowdown")),
        _section("Jobs that wait", "Submitted and not running.", _key(colour) + _over_time(shown, colour, "waiting", "jobs")),
        _section("Rented GPUs", "At every moment, busy or not.", _key(colour) + _over_time(shown, colour, "rented_gpus", "GPUs")),
    ]  # fmt: skip
    for each in shown:
        about = "Each site's own GPUs; the darker, the busier."
        sections.append(_section(f"Utilisation: {each.scheduler}", about, _heat(each), wide=len(shown) == 1))
    for each in shown:
        if each.leases:
            about = f"Each bar is a rented machine: {len(each.leases)} of them, the longest-lived first where there are very many."
            sections.append(
                _section(f"Bursts: {each.scheduler}", about, _bursts(each, colour[each.scheduler]))
            )
    sections.append(_section("Can this be true?", "", _checks(study), wide=True))
    title = title or f"{study.trace} on {study.world}"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head><body>'
        f"<h1>{escape(title)}</h1><p>{escape(_about(study))}</p>"
        f'{lead}<div class="grid2">{"".join(sections)}</div></body></html>\n'
    )


def _about(study: Study) -> str:
    options, jobs = study.options, study.runs[0].figures.jobs
    parts = [f"{jobs:,} jobs on {study.gpus:,} GPUs of their own"]
    parts += [f"deadlines at {options.deadline_k:g} × the run time"] if options.deadline_k else []
    parts += [f"estimates off by a factor e^N(0, {options.sigma:g}²)"] if options.sigma else []
    parts += [f"load × {options.load:g}"] if options.load != 1 else []
    parts += [f"capacity × {study.capacity:g}"] if study.capacity != 1 else []
    return ", ".join(parts) + ". A simulation by the production dispatcher on virtual time."


def _about_table(study: Study) -> str:
    seeds = len({run.figures.seed for run in study.runs})
    if seeds == 1:
        return "One seed: differences of a few percent may be chance."
    return f"Means over {seeds} seeds, with half the width of their 95 % intervals."


def _table(summaries: Sequence[Summary]) -> str:
    head = "".join(f"<th>{title}</th>" for _, title, _, _, _ in ROWS)
    lines = []
    for row in summaries:
        cells = []
        for field, _, scale, digits, better in ROWS:
            found = row.means[field]
            values = [each.means[field].value for each in summaries]
            best = {"low": min(values), "high": max(values)}.get(better)
            mark = ' class="best"' if len(summaries) > 1 and best is not None and found.value == best else ""
            cells.append(f"<td{mark}>{_figure(found, scale, digits, row.seeds)}</td>")
        lines.append(f"<tr><td>{escape(row.scheduler)}</td>{''.join(cells)}</tr>")
    return f"<table><thead><tr><th>scheduler</th>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _figure(mean: Mean, scale: float, digits: int, seeds: int) -> str:
    half = f' <span class="half">± {mean.half_width * scale:,.{digits}f}</span>' if seeds > 1 else ""
    return f"{mean.value * scale:,.{digits}f}{half}"


def _met(shown: Sequence[Series], colour: dict[str, str]) -> str:
    bands = [(name, count) for name, count, _ in shown[0].met_by_slack]
    groups = [
        (
            f"{name} ({count:,})",
            [(each.scheduler, colour[each.scheduler], each.met_by_slack[n][2]) for each in shown],
        )
        for n, (name, count) in enumerate(bands)
        if count
    ]
    return plots.grouped(groups, y_title="met") if groups else "<p>No job has a deadline.</p>"


def _money(shown: Sequence[Series]) -> str:
    rows = [(each.scheduler, [(name, DRIVERS[name], each.usd[name]) for name in DRIVERS]) for each in shown]
    if not any(part[2] for _, parts in rows for part in parts):
        return "<p>Nothing costs anything in this world: give sites a price, and deadlines a value.</p>"
    return plots.stacked(rows, x_text=_usd, x_title="USD")


def _spread(shown: Sequence[Series], colour: dict[str, str], field: str, what: str) -> str:
    curves = [
        plots.Line(
            each.scheduler,
            colour[each.scheduler],
            [(share, max(1.0, value)) for share, value in zip(QUANTILES, getattr(each, field), strict=True)],
        )
        for each in shown
    ]
    text = _seconds if what == "wait" else lambda value: f"{value:g} ×"
    return plots.lines(
        curves,
        x_text=plots.percent,
        y_text=text,
        x_title="share of jobs",
        y_title=what,
        log=DURATIONS_S if what == "wait" else FACTORS,
    )


def _over_time(shown: Sequence[Series], colour: dict[str, str], field: str, what: str) -> str:
    curves = [
        plots.Line(
            each.scheduler,
            colour[each.scheduler],
            [(at / 86_400.0, value) for at, value in zip(each.times_s, getattr(each, field), strict=True)],
        )
        for each in shown
    ]
    if not any(value for curve in curves for _, value in curve.points):
        return "<p>There are never any.</p>"
    return plots.lines(curves, x_text=_number, y_text=_number, x_title="days", y_title=what)


def _heat(each: Series) -> str:
    rows = sorted(each.utilisation.items())
    return plots.heat(rows, x_high=each.times_s[-1] / 86_400.0, x_text=_number, x_title="days")


def _bursts(each: Series, colour: str) -> str:
    bars = [
        (
            offer,
            colour,
            start_s / 86_400.0,
            end_s / 86_400.0,
            f"{offer}: {format_duration(end_s - start_s)}, {_usd(usd)}",
        )
        for offer, start_s, end_s, usd in each.leases
    ]
    return plots.timeline(bars, x_high=each.times_s[-1] / 86_400.0, x_text=_number, x_title="days")


def _checks(study: Study) -> str:
    wrong = [
        f"{run.figures.scheduler}, seed {run.figures.seed}: {text}"
        for run in study.runs
        for text in (*run.figures.violations, *run.figures.faults)
    ]
    if not wrong:
        return (
            "<p>In every run: no job ran twice or before it was submitted, all that succeeded ran for as long as it had to, no pool held more GPUs than it "
            "has, no cloud gave out more than its stocks hold, and each lease cost what its cloud charged and its time makes.</p>"
        )
    return "".join(f'<p class="bad">{escape(text)}</p>' for text in wrong[:50])


def _section(title: str, about: str, content: str, *, wide: bool = False) -> str:
    mark = ' class="wide"' if wide else ""
    return f"<section{mark}><h2>{escape(title)}</h2><p>{escape(about)}</p>{content}</section>"


def _key(colours: dict[str, str]) -> str:
    names = "".join(
        f'<span><i style="background:{c}"></i>{escape(name)}</span>' for name, c in colours.items()
    )
    return f'<div class="key">{names}</div>'


def _seconds(value: float) -> str:
    return format_duration(value)


def _number(value: float) -> str:
    return f"{value:,.4g}"


def _usd(value: float) -> str:
    return f"{value / 1000:,.3g}k USD" if value >= 10_000 else f"{value:,.0f} USD"
