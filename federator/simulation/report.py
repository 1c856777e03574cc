"""The report of a study: one HTML page of tables, schedulers side by side. The rows behind each figure are in the schedules."""

from collections.abc import Sequence
from html import escape

from federator.simulation.study import Mean, Study, Summary

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
.half { color: var(--soft); font-weight: 400; } .bad { color: #c43d5a; }
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


def page(study: Study, lead: str = "", title: str = "", plots: str = "") -> str:
    """The report as HTML. `lead` is HTML before the table, `plots` is HTML after it."""
    sections = (
        section("Side by side", _about_table(study), _table(study.summaries), wide=True),
        plots,
        section("Can this be true?", "", _checks(study), wide=True),
    )
    title = title or f"{study.trace} on {study.world}"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head><body>'
        f"<h1>{escape(title)}</h1><p>{escape(_about(study))}</p>"
        f'{lead}<div class="grid2">{"".join(sections)}</div></body></html>\n'
    )


def section(title: str, about: str, content: str, *, wide: bool = False) -> str:
    """A box of the page with its heading; a wide one takes the whole row."""
    mark = ' class="wide"' if wide else ""
    return f"<section{mark}><h2>{escape(title)}</h2><p>{escape(about)}</p>{content}</section>"


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
