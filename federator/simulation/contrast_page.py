"""The head of a report on two sides: what was changed, what it comes to, by queue, and which jobs fare otherwise."""

from collections.abc import Sequence
from html import escape

from federator.kernel.quantities import format_duration
from federator.wire.contrast import Contrast, JobChange, JobFate, QueueContrast, SideSums

SHOWN = 20
"""Jobs that the page shows; the figures as JSON have more."""

STYLE = """<style>
.lead { display: grid; gap: 18px; margin-top: 18px; } .lead section { overflow-x: auto; } .lead td.text { text-align: left; white-space: normal; min-width: 52ch; }
.lead th:last-child.text { text-align: left; }
.lead td.name, .lead th.name { text-align: left; } .good { color: #2f9e5b; } .gone { color: #c43d5a; } .lead ul { margin: 4px 0 10px; padding-left: 20px; }
.lead td small { color: var(--soft); }
</style>"""
Measure = tuple[str, float, float, str, int]
"""Title, before, after, unit, and which way is better: -1 less, 1 more, 0 neither."""


def lead(contrast: Contrast, remarks: Sequence[str] = ()) -> str:
    """HTML that `report.page` takes."""
    parts = [
        _section("What changes", _changes(contrast, remarks) + _measures(contrast) + _sentence(contrast))
    ]
    if len(contrast.queues) > 1:
        parts.append(_section("By queue", _queues(contrast)))
    if contrast.jobs:
        parts.append(_section("Jobs that change most", _jobs(contrast)))
    return f'{STYLE}<div class="lead">{"".join(parts)}</div>'


def measures(before: SideSums, after: SideSums) -> list[Measure]:
    """What is compared, in order; what is nothing on both sides is left out."""
    rows: list[Measure] = [
        ("deadlines met", before.met, after.met, "", 1),
        ("mean wait", before.wait_mean_s, after.wait_mean_s, "s", -1),
        ("rent", before.rented_usd, after.rented_usd, "USD", -1),
        ("owned GPUs", before.owned_usd, after.owned_usd, "USD", -1),
        ("egress", before.egress_usd, after.egress_usd, "USD", -1),
        ("all money", before.usd, after.usd, "USD", -1),
        ("jobs refused", before.refused, after.refused, "", -1),
    ]
    return [row for row in rows if row[1] or row[2] or row[0] == "mean wait"]


def sentence(contrast: Contrast) -> str:
    """The difference in words."""
    moved = contrast.total.moved
    parts = [f"{moved:,} of {contrast.total.before.jobs:,} jobs run elsewhere"]
    parts.append(f"{contrast.sooner:,} start sooner, {contrast.later:,} later")
    if contrast.total.before.deadlines:
        parts.append(
            f"{contrast.newly_met:,} more meet their deadlines, {contrast.newly_missed:,} miss theirs now"
        )
    return "; ".join(parts) + "."


def text_of(value: float, unit: str, *, signed: bool = False) -> str:
    """A figure of `measures` for people."""
    sign = "+" if signed and value > 0 else ""
    if unit == "s":
        return sign + format_duration(value)
    if unit == "USD":
        return f"{sign}{value:,.2f}" if abs(value) < 1000 else f"{sign}{value:,.0f}"
    return f"{sign}{value:,.0f}"


def where(fate: JobFate) -> str:
    """Where a job ran."""
    if not fate.site:
        return "nowhere"
    return fate.site if fate.market in ("", "owned") else f"{fate.site} ({fate.market})"


def wait(fate: JobFate) -> str:
    """How long it waited."""
    return "never ran" if fate.wait_s is None else format_duration(fate.wait_s)


def due(fate: JobFate) -> str:
    """What became of its deadline."""
    return {None: "", True: "met", False: "missed"}[fate.met]


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def _changes(contrast: Contrast, remarks: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(change)}</li>" for change in contrast.changes)
    notes = f"<p>{escape('; '.join(remarks))}.</p>" if remarks else ""
    return (f"<ul>{items}</ul>" if items else "") + notes


def _measures(contrast: Contrast) -> str:
    rows = []
    for title, old, new, unit, better in measures(contrast.total.before, contrast.total.after):
        mark = _mark(new - old, better)
        label = f"{title}, USD" if unit == "USD" else title
        rows.append(
            f"<tr><td>{escape(label)}</td><td>{text_of(old, unit)}</td><td>{text_of(new, unit)}</td>"
            f'<td class="{mark}">{text_of(new - old, unit, signed=True)}</td></tr>'
        )
    heads = "".join(f"<th>{escape(name)}</th>" for name in ("", *contrast.names, "difference"))
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _sentence(contrast: Contrast) -> str:
    lines = [sentence(contrast)]
    lines += [f"{count:,} jobs refused: {why}" for why, count in list(contrast.refused.items())[:5]]
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def _mark(difference: float, better: int) -> str:
    if not better or abs(difference) < 0.005:
        return ""
    return "good" if difference * better > 0 else "gone"


def _queues(contrast: Contrast) -> str:
    heads = ("queue", "jobs", "moved", "deadlines met", "mean wait", "rent, USD", "owned GPUs, USD")
    body = "".join(_queue(row) for row in contrast.queues)
    head = "".join(f"<th>{title}</th>" for title in heads)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _queue(row: QueueContrast) -> str:
    old, new = row.before, row.after
    pairs = (
        (old.met, new.met, "", 1),
        (old.wait_mean_s, new.wait_mean_s, "s", -1),
        (old.rented_usd, new.rented_usd, "USD", -1),
        (old.owned_usd, new.owned_usd, "USD", -1),
    )
    cells = "".join(
        f'<td class="{_mark(b - a, better)}">{text_of(a, unit)} → {text_of(b, unit)}</td>'
        for a, b, unit, better in pairs
    )
    return f"<tr><td>{escape(row.queue)}</td><td>{old.jobs:,}</td><td>{row.moved:,}</td>{cells}</tr>"


def _jobs(contrast: Contrast) -> str:
    heads = ("job", "queue", "GPUs", "where", "wait", "deadline", "USD", f"why, {contrast.names[1]}")
    head = "".join(f"<th>{escape(title)}</th>" for title in heads[:-1])
    head += f'<th class="text">{escape(heads[-1])}</th>'
    body = "".join(_job(change) for change in contrast.jobs[:SHOWN])
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _job(change: JobChange) -> str:
    old, new = change.before, change.after
    usd = f"{old.usd:,.2f} → {new.usd:,.2f}"
    cells = (
        change.queue,
        f"{change.gpus:,}",
        arrow(where(old), where(new)),
        arrow(wait(old), wait(new)),
        arrow(due(old), due(new)),
        usd,
    )
    middle = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    why = f'<td class="text">{escape(new.because)}<br><small>{escape(old.because)}</small></td>'
    return f"<tr><td>{escape(change.job)}</td>{middle}{why}</tr>"


def arrow(old: str, new: str) -> str:
    """Both where they differ, else the one."""
    return old if old == new else f"{old} → {new}"
