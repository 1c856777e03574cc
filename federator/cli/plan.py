"""`federator plan`: what runs where and when, as a small Gantt chart."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.text import Text

from federator.cli.layout import NARROW, PIPE_WIDTH, Column, table
from federator.cli.output import ListOutput, facts, say, show, show_csv, show_data, width
from federator.cli.phrases import NONE, counted, moment_at, plain, seconds_in, when, when_exactly
from federator.cli.session import HERE, Connection, ask
from federator.kernel.errors import Invalid, NotFound
from federator.kernel.quantities import format_duration
from federator.model.timetable import Bar, BarState, Lane
from federator.wire.timetable import PlanPage

if TYPE_CHECKING:
    from federator.client import Verbs

HOUR_S = 3600.0
SHOWN = 12
"""Bars of one lane in the chart; the rest is counted."""
MOST = 5000
PIPED = 140
"""A pipe is as wide as that here: it would take lines of any length."""
GLYPHS = {
    BarState.ENDED: ("─", "dim"), BarState.RUNNING: ("█", "green"), BarState.STARTING: ("▓", "cyan"), BarState.BOOTING: ("◇", "cyan"),
    BarState.RESERVED: ("▒", "magenta"), BarState.PLANNED: ("░", "yellow"), BarState.LOCAL: ("·", "dim"),
    BarState.KEPT: ("═", "blue"),
}  # fmt: skip
NOW = "│"
MOST_AHEAD_S, MOST_BACK_S = 30 * 24 * HOUR_S, 24 * HOUR_S


def show_plan(
    *,
    site: str = "",
    queue: str = "",
    owner: str = "",
    ahead: Annotated[str, Parameter(name=("--ahead", "--hours"))] = "12h",
    back: str = "1h",
    at: str = "",
    decision: str = "",
    output: ListOutput = "table",
    connection: Connection = HERE,
) -> None:
    """Show what runs where and when, and what is to start there: the plan of the newest decision, or of a recorded one.

    Tasks of an array that start and end together are one line. What another team runs is shown without its name.

    Parameters
    ----------
    site:
        Only at this site.
    queue:
        Only jobs of this queue and those below it.
    owner:
        Only this person's jobs.
    ahead:
        So far ahead, such as 90m or 2d, at most 30d.
    back:
        And so much of what went before, at most a day.
    at:
        The plan as it was then: how long ago, such as 5h, or an instant such as 18:00 or 2026-12-01T08:00.
    decision:
        The plan of this recorded decision, as `federator decisions list` names it.
    """
    ahead_s, back_s = _within(ahead, "--ahead", MOST_AHEAD_S), _within(back, "--back", MOST_BACK_S)

    async def asked(client: "Verbs") -> PlanPage:
        shown, name = await client.plan(limit=1), decision
        if at:
            name = await _decision_at(client, at, shown.taken_at or time.time())
        if name:
            shown = await client.plan(decision=name, limit=1)
        now = shown.taken_at or time.time()
        return await client.plan(
            decision=name,
            since=now - back_s,
            until=now + ahead_s,
            site=site,
            queue=queue,
            owner=owner,
            collapse=True,
            limit=MOST,
        )

    page, now = ask(connection, asked)
    if output == "csv":
        show_csv(page.bars)
    elif output in ("json", "yaml"):
        show_data(page, output)
    else:
        _draw(page, now, wide=output == "wide", past=bool(at or decision))


def _within(text: str, option: str, most_s: float) -> float:
    """A duration up to so many seconds; a bare number is hours."""
    seconds = seconds_in(f"{text}h" if text.strip().replace(".", "", 1).isdigit() else text, option)
    if seconds > most_s:
        raise Invalid(f"{text!r} is longer than {format_duration(most_s)}", field=option)
    return seconds


async def _decision_at(client: "Verbs", at: str, now: float) -> str:
    """The newest recorded decision up to then that planned ahead. Raises `NotFound`."""
    until_at = moment_at(at, "--at", now)
    rows = [
        row for row in await client.decisions(last=10_000) if row.at <= until_at and row.stages != "quick"
    ]
    if not rows:
        raise NotFound(
            "no decision of then is recorded",
            field="--at",
            remedy="federator decisions list shows those that are",
        )
    return rows[-1].id


def _draw(page: PlanPage, now: float, *, wide: bool, past: bool) -> None:
    taken = when_exactly(page.taken_at, now) if page.decision else "not yet"
    show(facts([("plan of", f"{page.decision or NONE}, {taken}"), ("because", page.winner)]), "")
    rows = _rows(page)
    if not rows:
        say("nothing runs or is planned there in that time")
    else:
        at = page.taken_at if past else now
        room = width() if width() < PIPE_WIDTH else PIPED
        cells = max(16, room - (78 if room >= NARROW else 52))
        show(table(rows, _columns(page, at, cells), width=width(), wide=wide), "", _legend(page.bars))
    left = page.total - len(page.bars)
    rest = [counted(left, "more bar")] if left else []
    rest += [f"{counted(page.unplanned, 'waiting job')} without a start that can be foreseen"] * bool(
        page.unplanned
    )
    rest += [f"{counted(page.outside, 'more job')} waiting for others, or for a turn to be looked at"] * bool(
        page.outside
    )
    if rest:
        show(Text(f"and {', '.join(rest)}", style="dim"))


Row = tuple[str, Bar | None, int]
"""The lane, a bar of it, and where that is none, how many more it has."""


def _rows(page: PlanPage) -> list[Row]:
    """Lane by lane, what starts first first."""
    rows: list[Row] = []
    for lane in page.lanes:
        bars = sorted(
            (bar for bar in page.bars if bar.lane == lane.key), key=lambda bar: (bar.start_at, bar.id)
        )
        title = _title(lane)
        rows += [(title, bar, 0) for bar in bars[:SHOWN]]
        rows += [(title, None, len(bars) - SHOWN)] * (len(bars) > SHOWN)
    return rows


def _title(lane: Lane) -> str:
    return f"{lane.offer} (to rent)" if lane.offer else f"{lane.site}/{lane.pool}"


def _columns(page: PlanPage, now: float, cells: int) -> tuple[Column[Row], ...]:
    return (
        Column("WHERE", lambda row: row[0], cap=28),
        Column("JOB", _what, wraps=24),
        Column("GPUS", lambda row: "" if row[1] is None else f"{row[1].gpus:g}", right=True),
        Column("OWNER", lambda row: "" if row[1] is None else row[1].owner, least=NARROW),
        Column(
            "START",
            lambda row: "" if row[1] is None else when(row[1].start_at, now),
            whole=True,
            least=NARROW,
        ),
        Column("END", lambda row: "" if row[1] is None else when(row[1].end_at, now), whole=True),
        Column(_axis(page, now, cells), lambda row: _strip(row[1], page, now, cells), whole=True),
        Column("STATE", lambda row: "" if row[1] is None else row[1].state, wide=True),
        Column("BECAUSE", lambda row: "" if row[1] is None else row[1].because, wide=True, flow="cut"),
    )


def _what(row: Row) -> str:
    bar = row[1]
    if bar is None:
        return f"and {row[2]} more"
    if bar.state is BarState.BOOTING:
        return "(machine boots)"
    if bar.state is BarState.LOCAL:
        return "(the site's own)"
    return f"{bar.name or bar.job} ×{bar.tasks}" if bar.tasks > 1 else bar.name or bar.job


def _cell(at: float, page: PlanPage, cells: int) -> int:
    return int((at - page.since_at) / (page.until_at - page.since_at) * cells)


def _axis(page: PlanPage, now: float, cells: int) -> str:
    """How far the strip reaches to both sides of now."""
    left, right = f"-{format_duration(now - page.since_at)}", f"+{format_duration(page.until_at - now)}"
    at = min(max(_cell(now, page, cells), len(left) + 1), cells - len(right) - 4)
    return (left.ljust(at) + "now").ljust(cells - len(right)) + right


def _strip(bar: Bar | None, page: PlanPage, now: float, cells: int) -> Text:
    """One line of the chart."""
    line = [" "] * cells
    mark = _cell(now, page, cells)
    if 0 <= mark < cells:
        line[mark] = NOW
    text = Text("".join(line), style="dim")
    if bar is None:
        return text
    glyph, style = GLYPHS[bar.state]
    first = max(0, min(cells - 1, _cell(bar.start_at, page, cells)))
    last = max(first + 1, min(cells, _cell(bar.end_at, page, cells)))
    drawn = Text("".join(line[:first]), style="dim")
    drawn.append(glyph * (last - first), style=style)
    drawn.append("".join(line[last:]), style="dim")
    return drawn


def _legend(bars: Sequence[Bar]) -> Text:
    there = {bar.state for bar in bars}
    text = Text()
    for state, (glyph, style) in GLYPHS.items():
        if state in there:
            text.append(f"{glyph * 2} ", style=style)
            text.append(f"{plain(state)}  ", style="dim")
    return text
