"""What a person sees while it runs: one picture on a terminal, lines of text in a pipe.

Everything in the picture comes from `GET /v1/overview`, which anyone may read; times are those of the world's clock, as in the reasons,
so that a forecast and a deadline can be compared at a glance. It fits a terminal of 100 columns and 35 rows.
"""

import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Protocol, Self

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from federator.cli.layout import Column, table
from federator.cli.output import status
from federator.cli.phrases import NONE, duration, gpus, plain, usd
from federator.model.capacity import LEASE_ENDED
from federator.model.jobs import TERMINAL
from federator.wire.http import JobRow, LeaseRow, Overview, QueueRow, SiteRow

NARROW = 100
FRAME_EVERY_S = 5.0
"""In a pipe, the state of everything is summed up this often (real seconds)."""
NOTES = 4


class Frame(msgspec.Struct, frozen=True):
    """One picture. `outage` says why `overview` is an old one; empty: it is fresh."""

    title: str
    phase: str
    overview: Overview
    began_at: float
    notes: tuple[str, ...] = ()
    outage: str = ""
    console: str = ""
    """Where a browser shows the same."""


class Screen(Protocol):
    """Where the demonstration shows itself."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def say(self, line: str) -> None:
        """Something has happened."""
        ...

    def draw(self, frame: Frame) -> None:
        """This is how things stand."""
        ...


class LiveScreen:
    """A picture that is drawn again and again, on a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, screen=True, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def say(self, line: str) -> None:
        """The frame has it among its notes."""

    def draw(self, frame: Frame) -> None:
        """Draw it in place of the last one."""
        self._live.update(picture(frame, self._console.width, self._console.height), refresh=True)


class PlainScreen:
    """Lines of text, for pipes and logs: what happens, and every few seconds how things stand."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._drawn_s = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def say(self, line: str) -> None:
        """A line."""
        self._console.print(Text(line), soft_wrap=True)

    def draw(self, frame: Frame) -> None:
        """A line that sums everything up, if the last one is old enough."""
        if time.monotonic() - self._drawn_s >= FRAME_EVERY_S:
            self._drawn_s = time.monotonic()
            self.say(f"  {moment(frame.overview.now, frame.began_at)}  {_summary(frame)}")


def open_screen(console: Console) -> Screen:
    """The screen that suits where output goes."""
    drawable = console.is_terminal and not console.is_dumb_terminal
    return LiveScreen(console) if drawable else PlainScreen(console)


def clock(at: float | None, began_at: float) -> str:
    """The time of day that explanations speak of too, `14:05`; `+3d` for what is days after the start."""
    return NONE if at is None else moment(at, began_at).partition(" ")[0]


def moment(at: float, began_at: float) -> str:
    """The same with the time of day also when it is days after the start: `+3d 14:05`."""
    days = int(max(0.0, at - began_at) // 86400)
    return f"{f'+{days}d ' if days else ''}{datetime.fromtimestamp(at, UTC):%H:%M}"


def money(overview: Overview) -> str:
    """Spent, committed and capped."""
    caps = [cap for cap in overview.caps if cap.unit == "usd"]
    capped = f", capped at {usd(min(cap.limit for cap in caps))} a {caps[0].period}" if caps else ""
    return f"{usd(overview.spent_usd)} spent, {usd(overview.committed_usd)} committed{capped}"


def picture(frame: Frame, width: int, height: int) -> RenderableType:
    """One frame, at most that high: jobs get what room the rest leaves, and notes what the jobs leave."""
    overview, width = frame.overview, max(width, 60)
    parts: list[RenderableType] = [_head(frame), _sites_and_queues(overview, width)]
    left = height - 1 - 3 - (1 + max(len(overview.sites), len(overview.queues)))
    if overview.leases or overview.caps:
        rented = [lease for lease in overview.leases if lease.status not in LEASE_ENDED][:3]
        rented = rented or list(overview.leases[:1])
        parts.append(Text(f"\nRented: {money(overview)}", style="bold cyan"))
        parts.append(table(rented, _lease_columns(frame), width=width) if rented else Text("nothing", "dim"))
        left -= 3 + len(rented)
    shown = sorted(sorted(overview.jobs, key=_urgency)[: max(1, left - 3)], key=lambda job: job.id)
    done = sum(job.status in TERMINAL for job in overview.jobs)
    parts.append(Text(f"\nJobs: {done} of {len(overview.jobs)} done", style="bold cyan"))
    parts.append(table(shown, _job_columns(frame), width=width))
    notes = max(0, min(NOTES, left - 3 - len(shown)))
    recent = frame.notes[len(frame.notes) - notes :]
    parts += [Text(note, style="dim", no_wrap=True, overflow="ellipsis") for note in recent]
    return Group(*parts)


def _head(frame: Frame) -> RenderableType:
    when = moment(frame.overview.now, frame.began_at)
    first = Text(f"{when}  {frame.title}", style="bold", no_wrap=True, overflow="ellipsis")
    second = Text(frame.outage or frame.phase, no_wrap=True, overflow="ellipsis")
    second.stylize("bold white on red" if frame.outage else "bold green")
    link = f"In a browser: {frame.console}" if frame.console else ""
    return Group(first, second, Text(link, no_wrap=True, overflow="ignore"))


def _sites_and_queues(overview: Overview, width: int) -> RenderableType:
    """Beside each other."""
    grid = Table.grid(padding=(0, 3, 0, 0))
    grid.add_row(
        table(overview.sites, _SITE_COLUMNS, width=width), table(overview.queues, _QUEUE_COLUMNS, width=width)
    )
    return grid


def _age(row: SiteRow) -> str:
    return NONE if row.age_s is None else duration(row.age_s)


_SITE_COLUMNS: Sequence[Column[SiteRow]] = (
    Column("SITE", lambda row: row.name),
    Column("KIND", lambda row: row.kind),
    Column("GPUS", lambda row: str(row.gpus), right=True),
    Column("BUSY", lambda row: Text(str(row.busy), style="green" if row.busy else ""), right=True),
    Column("GANG", lambda row: row.largest_gang),
    Column(
        "REPORT", lambda row: status(row.status) if row.status != "READY" else Text(_age(row)), right=True
    ),
)
_QUEUE_COLUMNS: Sequence[Column[QueueRow]] = (
    Column("QUEUE", lambda row: row.queue),
    Column("GPUS", lambda row: str(row.gpus), right=True),
    Column("OWED", lambda row: str(row.guaranteed_gpus or NONE), right=True),
    Column("LIMIT", lambda row: NONE if row.limit_gpus is None else str(row.limit_gpus), right=True),
    Column("WAIT", lambda row: str(row.pending or NONE), right=True),
)


def _lease_columns(frame: Frame) -> Sequence[Column[LeaseRow]]:
    return (
        Column("OFFER", lambda row: row.offer.split("/")[1] if row.offer.count("/") > 1 else row.offer),
        Column("STATE", lambda row: status(row.status)),
        Column("GPUS", lambda row: str(row.gpus), right=True),
        Column("USD/H", lambda row: f"{row.price_usd_h:.2f}", right=True),
        Column("BILLED", lambda row: usd(row.billed_usd), right=True),
        Column("ASKED", lambda row: clock(row.requested_at, frame.began_at), right=True),
        Column("READY", lambda row: clock(row.ready_at, frame.began_at), right=True),
        Column("BECAUSE", lambda row: row.failure or row.because, flow="cut"),
    )


def _job_columns(frame: Frame) -> Sequence[Column[JobRow]]:
    return (
        Column("JOB", lambda row: row.label),
        Column("GPUS", lambda row: gpus(row.nodes, row.gpus, row.models)),
        Column("STATE", lambda row: status(row.status)),
        Column("SITE", lambda row: row.site),
        Column("FINISH", lambda row: _finish(row, frame.began_at), right=True),
        Column("DUE", lambda row: clock(row.deadline_at, frame.began_at), right=True),
        Column("BECAUSE", _because, flow="cut"),
    )


def _because(row: JobRow) -> str:
    """The reason, without what the columns before it say."""
    return row.because.removeprefix(f"running at {row.site}: ").removeprefix(f"done at {row.site}")


def _finish(row: JobRow, began_at: float) -> Text:
    """When it finished; before that, `~` and the forecast at home, red when that is past the deadline."""
    if row.status in TERMINAL:
        return Text(clock(row.finished_at, began_at), style="red" if row.missed_deadline else "green")
    if row.home_finish_at is None:
        return Text(NONE)
    late = row.deadline_at is not None and row.home_finish_at > row.deadline_at
    return Text(f"~{clock(row.home_finish_at, began_at)}", style="red" if late else "")


def _urgency(job: JobRow) -> tuple[bool, bool, str]:
    return job.status in TERMINAL, job.status == "PENDING", job.id


def _summary(frame: Frame) -> str:
    overview = frame.overview
    if frame.outage:
        return frame.outage
    sites = "  ".join(f"{plain(site.name)} {site.busy}/{site.gpus}" for site in overview.sites)
    counts = Counter(job.status for job in overview.jobs)
    jobs = ", ".join(f"{count} {name.lower()}" for name, count in sorted(counts.items()))
    rented = [lease for lease in overview.leases if lease.status not in LEASE_ENDED]
    leases = "".join(f" | {lease.gpus} GPUs rented: {lease.status}" for lease in rented)
    return f"busy: {sites} | {jobs} | {money(overview)}{leases}"
