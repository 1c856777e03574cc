"""`top`: the federation at a glance, drawn again as it changes."""

import time
from collections.abc import Iterable, Sequence
from functools import partial

from rich.console import Group, RenderableType
from rich.text import Text

from federator.cli.columns import job_columns, lease_columns, queue_columns, site_columns
from federator.cli.layout import Column, Row, table
from federator.cli.listing import watched
from federator.cli.output import console
from federator.cli.phrases import plain, seconds_in, usd
from federator.cli.session import HERE, Connection, ask
from federator.client.verbs import Verbs
from federator.wire.changes import Topic
from federator.wire.http import JobRow, Overview

TOPICS: tuple[Topic, ...] = ("sites", "queues", "leases", "budgets", "jobs", "plan")
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")


def top(*, every: str = "1s", once: bool = False, connection: Connection = HERE) -> None:
    """Show sites, queues, rented capacity, money and jobs, live; Ctrl-C ends it.

    Parameters
    ----------
    every:
        Time between two looks, at least; there is none while nothing changes.
    once:
        Draw once and leave, as for a pipe.
    """
    every_s = seconds_in(every, "--every")
    out = console()
    ask(connection, partial(_live, every_s=max(0.2, every_s), once=once or not out.is_terminal))


async def _live(client: Verbs, *, every_s: float, once: bool) -> None:
    out = console()
    if once:
        out.print(draw(await client.overview(), out.width, rows=10_000))
        return

    async def look() -> RenderableType:
        return draw(await client.overview(), out.width, out.height)

    await watched(client, TOPICS, look, every_s=every_s)


def draw(overview: Overview, width: int, rows: int) -> RenderableType:
    """One picture of everything, `rows` lines high at most."""
    parts: list[RenderableType] = [_headline(overview)]
    rented = [lease for lease in overview.leases if lease.status not in ("GONE", "FAILED")]
    parts += _section("Sites", overview.sites, site_columns(), width)
    parts += _section("Queues", overview.queues, queue_columns(), width)
    parts += _section("Rented", rented, lease_columns(overview.now), width)
    used = sum(len(lines) + 3 for lines in (overview.sites, overview.queues, rented) if lines)
    room = max(3, rows - used - 4)
    jobs = sorted(overview.jobs, key=_urgency)
    total = max(overview.jobs_total, len(jobs))
    shown = f"{min(room, len(jobs))} of {total}" if total > min(room, len(jobs)) else str(total)
    parts += _section(
        f"Jobs ({shown})", jobs[:room], job_columns(overview.now, jobs[:room], whole_ids=True), width
    )
    return Group(*parts)


def _headline(overview: Overview) -> Text:
    gpus, busy = sum(site.gpus for site in overview.sites), sum(site.busy for site in overview.sites)
    running = sum(job.status == "RUNNING" for job in overview.jobs)
    waiting = sum(job.status == "PENDING" for job in overview.jobs)
    money = f"{usd(overview.spent_usd)} spent, {usd(overview.committed_usd)} committed"
    clock = time.strftime("%H:%M:%S %Z", time.localtime(overview.now))
    return Text(
        f"{clock}  {busy}/{gpus} GPUs busy  {running} running  {waiting} waiting  {money}  {plain(overview.turn)}",
        style="bold",
    )


def _section(
    title: str, rows: Sequence[Row], columns: Iterable[Column[Row]], width: int
) -> list[RenderableType]:
    return [Text(f"\n{title}", style="bold cyan"), table(rows, columns, width=width)] if rows else []


def _urgency(job: JobRow) -> tuple[bool, bool, float]:
    """What lives before what is over, what runs before what waits, the newest first."""
    return job.status in ENDED, job.status == "PENDING", -job.submitted_at
