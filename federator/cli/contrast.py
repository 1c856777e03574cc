"""Two simulated sides on a terminal, in files and on a page: for `policy replay` and for what-if questions of `simulate`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from federator.cli.layout import Column, table
from federator.cli.output import show, width
from federator.cli.phrases import plain
from federator.kernel.errors import Invalid

if TYPE_CHECKING:
    from federator.simulation.contrast import Contrasted
    from federator.simulation.contrast_page import Measure
    from federator.simulation.study import Study
    from federator.wire.contrast import Contrast, JobChange, QueueContrast

JOBS = 10
"""Jobs that a terminal shows."""


def show_contrast(contrast: "Contrast", remarks: Sequence[str] = ()) -> None:
    """What changes, by queue, and for whom."""
    from federator.simulation.contrast_page import measures, sentence

    parts: list[RenderableType] = [Text(f"{contrast.names[1]}: {change}") for change in contrast.changes]
    parts += [Text(remark, style="dim") for remark in remarks]
    rows = measures(contrast.total.before, contrast.total.after)
    parts += [
        Text(""),
        table(rows, _measure_columns(contrast), width=width()),
        Text("\n" + sentence(contrast)),
    ]
    parts += [
        Text(f"{count} {'job is' if count == 1 else 'jobs are'} refused: {plain(why)}")
        for why, count in list(contrast.refused.items())[:5]
    ]
    if len(contrast.queues) > 1:
        parts += [Text("\nBy queue", style="bold"), table(contrast.queues, _queue_columns(), width=width())]
    if contrast.jobs:
        shown = contrast.jobs[:JOBS]
        parts += [Text("\nChanged most", style="bold"), table(shown, _job_columns(contrast), width=width())]
    show(*parts)


def show_troubles(lines: Sequence[str]) -> int:
    """Say what cannot be true of either side; how much it is."""
    for line in lines:
        print(plain(line), file=sys.stderr)
    return len(lines)


def write_contrast(
    found: "Contrasted", study: "Study", remarks: Sequence[str], json: Path | None, report: Path | None
) -> None:
    """All figures as JSON, and the page."""
    import msgspec

    from federator.simulation.contrast_page import lead
    from federator.simulation.report import page

    if json is not None:
        told = {"contrast": found.contrast, "remarks": remarks, "study": study}
        put(json, msgspec.json.format(msgspec.json.encode(told)).decode() + "\n")
    if report is not None:
        title = f"{' and '.join(found.contrast.names)}: {study.trace} on {study.world}"
        put(report, page(study, lead(found.contrast, remarks), title))


def put(path: Path, text: str) -> None:
    """Write a file. Raises `Invalid` where it cannot be written."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Invalid(f"cannot be written: {error.strerror}", field=str(path)) from None


def writable(*paths: Path | None) -> None:
    """Before anything takes hours: these files can be written. What is there is left as it is. Raises `Invalid`, naming the first that cannot."""
    for path in paths:
        if path is None:
            continue
        there = path.exists()
        try:
            path.open("a").close()
            if not there:
                path.unlink()
        except OSError as error:
            raise Invalid(f"cannot be written: {error.strerror}", field=str(path)) from None


def _measure_columns(contrast: "Contrast") -> "list[Column[Measure]]":
    from federator.simulation.contrast_page import text_of

    def difference(row: "Measure") -> Text:
        _, old, new, unit, better = row
        style = "" if abs(new - old) < 0.005 else ("green" if (new - old) * better > 0 else "red")
        return Text(text_of(new - old, unit, signed=True), style=style)

    return [
        Column("WHAT", lambda row: f"{row[0]}, USD" if row[3] == "USD" else row[0]),
        Column(contrast.names[0].upper(), lambda row: text_of(row[1], row[3]), right=True),
        Column(contrast.names[1].upper(), lambda row: text_of(row[2], row[3]), right=True),
        Column("DIFFERENCE", difference, right=True),
    ]


def _queue_columns() -> "list[Column[QueueContrast]]":
    from federator.simulation.contrast_page import arrow, text_of

    def both(field: str, unit: str) -> "Column[QueueContrast]":
        title = {
            "met": "MET",
            "wait_mean_s": "MEAN WAIT",
            "rented_usd": "RENT USD",
            "owned_usd": "OWNED USD",
        }[field]
        return Column(
            title,
            lambda row: arrow(
                text_of(getattr(row.before, field), unit), text_of(getattr(row.after, field), unit)
            ),
            right=True,
        )

    return [
        Column("QUEUE", lambda row: row.queue),
        Column("JOBS", lambda row: f"{row.before.jobs:,}", right=True),
        Column("MOVED", lambda row: f"{row.moved:,}", right=True),
        both("met", ""),
        both("wait_mean_s", "s"),
        both("rented_usd", "USD"),
        both("owned_usd", "USD"),
    ]


def _job_columns(contrast: "Contrast") -> "list[Column[JobChange]]":
    from federator.simulation.contrast_page import arrow, due, text_of, wait, where

    return [
        Column("JOB", lambda row: row.job, cap=32),
        Column("QUEUE", lambda row: row.queue, least=110),
        Column("WHERE", lambda row: arrow(where(row.before), where(row.after))),
        Column("WAIT", lambda row: arrow(wait(row.before), wait(row.after))),
        Column("DEADLINE", lambda row: arrow(due(row.before), due(row.after))),
        Column(
            "USD",
            lambda row: arrow(text_of(row.before.usd, "USD"), text_of(row.after.usd, "USD")),
            right=True,
        ),
        Column(f"WHY, {contrast.names[1].upper()}", lambda row: row.after.because, flow="fold", least=100),
    ]
