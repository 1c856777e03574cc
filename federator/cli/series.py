"""Series: jobs that are submitted again and again. `federator submit` begins them."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from rich.console import RenderableType
from rich.text import Text

from federator.cli.layout import Column
from federator.cli.output import ListOutput, Output, facts, say, show, show_data, show_rows, status
from federator.cli.phrases import NONE, instant, plain, when, when_exactly
from federator.cli.session import HERE, Connection, ask
from federator.kernel.errors import NotFound
from federator.kernel.quantities import format_duration
from federator.wire.http import SeriesDetail, SeriesRow, Submitted

if TYPE_CHECKING:
    from federator.client import Verbs

MOST_BELOW = 10
"""Series that are shown below a list of jobs."""
app = App(name="series")
Name = Annotated[str, Parameter(help="Name of a series, your own first.")]
Owner = Annotated[str, Parameter(help="Whose it is, where several people have one of that name.")]


@app.default
def list_series(
    *,
    mine: Annotated[bool, Parameter(negative="")] = False,
    ended: Annotated[bool, Parameter(negative="")] = False,
    output: Output = "table",
    connection: Connection = HERE,
) -> None:
    """List series: when each is due next, and what stands in its way.

    Parameters
    ----------
    mine:
        Only your own.
    ended:
        Also those of which no runs come any more.
    """
    rows, now = ask(connection, lambda client: client.all_series(mine=mine, ended=ended))
    show_rows(
        rows, series_columns(now), output, empty="no series: submit a file with every, such as every: 6h"
    )


@app.command(name="show")
def show_series(
    name: Name, *, owner: Owner = "", output: Output = "table", connection: Connection = HERE
) -> None:
    """Show one series: when its runs are due, the newest of them, and why others did not come."""
    detail, now = ask(connection, lambda client: client.series(name, owner=owner))
    _show(detail, now, output)


@app.command
def pause(name: Name, *, owner: Owner = "", output: Output = "table", connection: Connection = HERE) -> None:
    """Submit no runs for now. One that is there goes on."""
    detail, _ = ask(connection, lambda client: client.pause_series(name, owner=owner))
    _show_changed(detail, output)


@app.command
def resume(name: Name, *, owner: Owner = "", output: Output = "table", connection: Connection = HERE) -> None:
    """Submit runs again, from the next that is due; those that were due meanwhile do not come."""
    detail, _ = ask(connection, lambda client: client.resume_series(name, owner=owner))
    _show_changed(detail, output)


@app.command
def cancel(name: Name, *, owner: Owner = "", output: Output = "table", connection: Connection = HERE) -> None:
    """End a series: no more runs come. One that is there goes on; `federator cancel` ends it by its own name."""
    detail, _ = ask(connection, lambda client: client.end_series(name, owner=owner))
    _show_changed(detail, output)


async def series_to_list(client: "Verbs", *, mine: bool) -> list[SeriesRow]:
    """What stands below a list of jobs; a dispatcher of an earlier version has none."""
    try:
        return await client.all_series(mine=mine)
    except NotFound:
        return []


def show_below(rows: list[SeriesRow], now: float, output: ListOutput) -> None:
    """Some series below what a list of jobs shows; where there are none, nothing."""
    if rows:
        print()
        show_rows(rows[:MOST_BELOW], series_columns(now), output, empty="")
    if len(rows) > MOST_BELOW:
        say(f"{MOST_BELOW} of {len(rows)} series; federator series for all")


def begun(submitted: Submitted) -> str:
    """What has become of a file with `every`, in a sentence."""
    due = "no more runs are due"
    if submitted.next_at is not None:
        due = f"next run at {instant(submitted.next_at)}"
    if submitted.paused:
        due = f"{submitted.paused} (federator series resume {submitted.series})"
    same = "is as it was" if submitted.repeated else "submitted"
    return f"series {submitted.series} {same}, {due}; next: federator series show {submitted.series}"


def series_columns(now: float) -> tuple[Column[SeriesRow], ...]:
    """Series: when they are due, and what comes of it."""
    return (
        Column("SERIES", lambda row: row.name, cap=24),
        Column("OWNER", lambda row: row.owner, wide=True),
        Column("QUEUE", lambda row: row.queue, wide=True),
        Column("EVERY", lambda row: row.every, cap=32),
        Column("OVERLAP", lambda row: row.overlap, wide=True),
        Column("STATUS", lambda row: status(row.status)),
        Column("NEXT RUN", lambda row: when(row.next_at, now), right=True),
        Column("RUNS", lambda row: str(row.runs), right=True, least=80),
        Column("LAST", lambda row: f"{row.last} {row.last_status}" if row.last else NONE, least=70),
        Column("BECAUSE", lambda row: row.because, flow="cut"),
    )


def _show(detail: SeriesDetail, now: float, output: Output) -> None:
    if output in ("json", "yaml"):
        show_data(detail, output)
        return
    row, every = detail.series, detail.every
    parts: list[RenderableType] = [
        facts([
            ("series", row.name),
            ("status", status(row.status)),
            ("because", row.because),
            ("owner", f"{row.owner}, queue {row.queue}"),
            ("every", row.every),
            ("from", when_exactly(every.start_at, now) if every.start_at is not None else ""),
            ("until", when_exactly(every.end_at, now) if every.end_at is not None else ""),
            ("overlap", row.overlap),
            ("submitted within", format_duration(every.submit_within_s) if every.submit_within_s else ""),
            ("next run", when_exactly(row.next_at, now)),
            ("runs", str(row.runs)),
            ("last", f"{row.last} {row.last_status}" if row.last else ""),
            ("file of", when_exactly(detail.changed_at, now)),
        ])
    ]  # fmt: skip
    if detail.notes:
        parts.append(Text("\nWhat did not come, or came late", style="bold"))
        parts += [Text(f"  {instant(note.at)}  {plain(note.text)}") for note in detail.notes]
    show(*parts)


def _show_changed(detail: SeriesDetail, output: Output) -> None:
    if output in ("json", "yaml"):
        show_data(detail, output)
        return
    line = status(detail.series.status)
    line.append(f"  {plain(detail.series.name)}  {plain(detail.series.because)}", style="default")
    show(line)
