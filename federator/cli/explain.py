"""`explain` and `preview`: why a job waits or ran where it did, site by site, and what would change that."""

import math
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from federator.cli.apply import can_be_applied
from federator.cli.arrays import tasks_in_words
from federator.cli.job_options import AS_WRITTEN, JobOptions
from federator.cli.jobs import JobFile, the_file
from federator.cli.layout import NARROW, Column, table
from federator.cli.output import Output, facts, show, show_data, show_rows, status, width, within
from federator.cli.phrases import NONE, duration, instant, moment_at, plain, usd, when, when_exactly
from federator.cli.session import HERE, Connection, JobName, ask
from federator.kernel.errors import Invalid
from federator.kernel.quantities import format_chance
from federator.model.capacity import BurstEvidence, Market
from federator.model.jobs import TERMINAL, JobStatus
from federator.model.plans import Explanation, SiteReason
from federator.wire.http import ForecastMove, JobPatch, Preview

if TYPE_CHECKING:
    from federator.cli.jobfiles import WrittenJob
    from federator.client import Verbs

NAME_WIDTH = 24
"""On a narrow terminal a pool's name is so wide, at most."""
MOST_SITES = 12
"""Of a large federation the rest is left to the machine-readable answer."""
CENT_USD = 0.005
BAR, THIN, BAR_CELLS = "█", "▏", 24


def explain(
    job: JobName, *, since: str | None = None, output: Output = "table", connection: Connection = HERE
) -> None:
    """Say why a job waits and why not elsewhere, or why it ran where it did.

    Parameters
    ----------
    since:
        Say instead what moved its forecast since then: yesterday, 2h ago, 18:00, or an instant such as 2026-12-01T00:00:00Z.
    """
    if since is not None:
        since_at = moment_at(since, "--since", time.time())
        moves, _ = ask(connection, lambda client: client.forecasts(job, since=since_at))
        show_rows(moves, _move_columns(), output, empty="no recorded decision has looked at it since then")
        return
    explanation, now = ask(connection, lambda client: client.explain(job))
    if output in ("json", "yaml"):
        show_data(explanation, output)
    else:
        if explanation.tasks:
            show(tasks_in_words(explanation.tasks).append(f"; this is of {plain(explanation.name)}:"))
        hint = f"federator apply {job} NUMBER does what is the job's own to change"
        applies = any(can_be_applied(remedy, explanation.job) for remedy in explanation.remedies)
        show(*drawn(explanation, now, width()), *([Text(plain(hint), style="dim")] if applies else []))


def _move_columns() -> list[Column[ForecastMove]]:
    """What was foreseen from when on, and why no longer what was before."""
    return [
        Column("FROM", lambda row: instant(row.at)),
        Column("STARTS", lambda row: NONE if row.start_at is None else instant(row.start_at)),
        Column("ENDS", lambda row: NONE if row.finish_at is None else instant(row.finish_at), least=110),
        Column("BECAUSE", lambda row: "; ".join(row.because) or NONE, flow="fold"),
    ]


def preview(
    file: Path | None = None,
    /,
    *,
    job_file: JobFile = None,
    options: JobOptions = AS_WRITTEN,
    output: Output = "table",
    connection: Connection = HERE,
) -> None:
    """Say what would become of a job file if it were submitted now. Nothing is stored or uploaded.

    Parameters
    ----------
    file:
        The job file; `-` for standard input.
    """
    from federator.cli.jobfiles import read_one

    show_previews([read_one(the_file(file, job_file, "preview"), options)], output, connection)


def show_previews(jobs: "Sequence[WrittenJob]", output: Output, connection: Connection) -> None:
    """What would become of each."""
    for job in jobs:
        with job.told_in_lines():
            answer, now = ask(connection, partial(_preview, job))
        _show_preview(answer, now, output)


async def _preview(job: "WrittenJob", client: "Verbs") -> Preview:
    return await job.sent(client.preview)


def show_changes(jobs: Sequence[str], patch: JobPatch, output: Output, connection: Connection) -> int:
    """What would become of each of these jobs, if it were changed so."""
    if not jobs:
        raise Invalid("no job is named", field="JOB", remedy="write one or more ids or names")
    for job in jobs:
        answer, now = ask(connection, partial(_preview_change, job, patch))
        _show_preview(answer, now, output, "Nothing was changed.")
    return 0


async def _preview_change(job: str, patch: JobPatch, client: "Verbs") -> Preview:
    return await client.preview_change(job, patch)


def _show_preview(
    answer: Preview, now: float, output: Output, not_done: str = "Nothing was submitted."
) -> None:
    if output in ("json", "yaml"):
        show_data(answer, output)
        return
    cost = f", for about {usd(answer.cost_usd)}" if answer.cost_usd is not None else ""
    head = f"{plain(answer.name)} in queue {plain(answer.queue)}{cost}. {not_done}"
    notes = [Text(f"note: {plain(note)}", style="yellow") for note in answer.notes]
    if answer.launch:
        notes.append(Text("Each rank runs a launcher with its command; -o yaml has it.", style="dim"))
    show(Text(head, style="dim"), *notes, *drawn(answer.explanation, now, width()))


def drawn(explanation: Explanation, now: float, width: int) -> list[RenderableType]:
    """The verdict first, then times against the deadline, then each site, then what would change it."""
    verdict = status(explanation.status)
    verdict.append(f"  {plain(explanation.because)}", style="bold")
    parts: list[RenderableType] = [verdict, facts(_times(explanation, now))]
    if explanation.sites:
        shown = sorted(explanation.sites, key=_order)[:MOST_SITES]
        # A plan is some seconds old: what it would start now has not begun.
        at_least = now if explanation.status == JobStatus.PENDING else -math.inf
        parts += ["", table(shown, _site_columns(now, at_least, width), width=width)]
        if len(shown) < len(explanation.sites):
            more = len(explanation.sites) - len(shown)
            parts.append(Text(f"  and {more} more: federator explain -o json", style="dim"))
    if len(explanation.curve) > 1:
        parts += [
            Text("\nWhat an earlier finish costs", style="bold"),
            curve(explanation, now, BAR_CELLS if width >= NARROW else BAR_CELLS // 3),
        ]
    if explanation.changes:
        parts.append(Text("\nWhat would change it", style="bold"))
        numbered = bool(explanation.remedies)
        for number, change in enumerate(explanation.changes, 1):
            parts.append(Text(f"  {f'{number}.' if numbered else '-'} {plain(change)}"))
        if any(not remedy.certain for remedy in explanation.remedies):
            parts.append(Text("  (estimates are from what waits and runs now)", style="dim"))
    if explanation.burst is not None:
        parts += [Text("\nWhy capacity was rented", style="bold"), facts(_burst(explanation.burst, now))]
    # A decision that did nothing is not kept, and has no id here.
    kept = f" in {explanation.decision}" if explanation.decision else ""
    by = f" by {explanation.winner}" if explanation.winner else ""
    if kept or by:
        parts.append(Text(plain(f"Decided{kept}{by}."), style="dim"))
    return parts


def _order(row: SiteReason) -> tuple[bool, bool, float]:
    """What could be used first, the cheapest before the dear; then what will be; in each as the answer has them."""
    return bool(row.filter), row.extra_cost_usd is None, row.extra_cost_usd or 0.0


def _times(explanation: Explanation, now: float) -> list[tuple[str, str | Text]]:
    over = explanation.status in TERMINAL
    return [
        ("runs for", explanation.run_time),
        (
            "started" if over else "starts",
            within(
                when_exactly(explanation.expected_start_at, now),
                explanation.start_low_at,
                explanation.start_high_at,
                now,
            ),
        ),
        (
            "finished" if over else "finishes",
            within(
                _against(explanation.expected_finish_at, explanation.deadline_at, now, explanation.status),
                explanation.finish_low_at,
                explanation.finish_high_at,
                now,
            ),
        ),
        ("behind", _behind(explanation, now)),
        ("at home", _against(explanation.home_finish_at, explanation.deadline_at, now)),
        ("deadline", when_exactly(explanation.deadline_at, now)),
        ("meeting it", _price_of_deadline(explanation)),
        ("policies", ", ".join(explanation.policies)),
        ("again", explanation.series),
    ]


def _behind(explanation: Explanation, now: float) -> str:
    """Some of those that are before it."""
    said = []
    for each in explanation.ahead:
        whose = f" of {each.owner}" if each.owner else ""
        gpus = f"{each.gpus:g} GPUs" if each.gpus != 1 else "1 GPU"
        what = "waits before it" if each.waits else f"at {each.site} until {when(each.until_at, now)}"
        said.append(f"{plain(each.name)}{plain(whose)} ({gpus}, {what})")
    return "; ".join(said)


def _price_of_deadline(explanation: Explanation) -> Text | str:
    """What the cheapest way that meets the deadline costs."""
    if explanation.deadline_at is None or not explanation.curve:
        return ""
    if explanation.deadline_usd is None:
        if any(point.finish_low_at <= explanation.deadline_at for point in explanation.curve):
            return Text("not sure: in time only if it runs shorter than planned", style="yellow")
        return Text("not possible: nothing that could begin now is done in time", style="red")
    if explanation.deadline_usd < CENT_USD:
        return "costs nothing"
    return f"costs {usd(explanation.deadline_usd)} or more"


def curve(explanation: Explanation, now: float, cells: int = BAR_CELLS) -> Table:
    """The small picture of price against time: a row for each finish, a bar for what it costs, and the deadline where it lies."""
    dearest = max(point.cost_usd for point in explanation.curve)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(justify="right")
    grid.add_column(justify="right")
    for _ in range(3):
        grid.add_column(overflow="fold")
    due = explanation.deadline_at
    for number, point in enumerate(explanation.curve):
        before = explanation.curve[number - 1].finish_at if number else -math.inf
        if due is not None and before <= due < point.finish_at:
            grid.add_row(*_due(due, now))
        style = "cyan" if point.in_time is None else "green" if point.in_time else "yellow"
        bar = BAR * max(1, round(cells * point.cost_usd / dearest)) if point.cost_usd >= CENT_USD else THIN
        where = f"{point.site}/{point.pool}" if point.site else "at home, in its turn"
        market = "" if point.market is Market.OWNED else f" ({point.market.value})"
        between = f"{when(point.finish_low_at, now)} .. {when(point.finish_high_at, now)}"
        price = "free" if point.cost_usd < CENT_USD else usd(point.cost_usd)
        grid.add_row(
            Text(f"  {when(point.finish_at, now)}", style=style),
            price,
            Text(bar, style=style),
            plain(f"{where}{market}"),
            Text(between, style="dim"),
        )
    if due is not None and explanation.curve[-1].finish_at <= due:
        grid.add_row(*_due(due, now))
    return grid


UNFINISHED = (JobStatus.CANCELLED, JobStatus.FAILED)


def _due(at: float, now: float) -> tuple[Text, ...]:
    return Text(f"  {when(at, now)}", style="bold"), Text(""), Text("deadline", style="bold")


def _against(finish_at: float | None, deadline_at: float | None, now: float, status: str = "") -> Text:
    """A finish, and how it stands to the deadline; one without success keeps none."""
    text = Text(when_exactly(finish_at, now))
    if finish_at is not None and deadline_at is not None and status not in UNFINISHED:
        spare_s = deadline_at - finish_at
        said, style = (
            (f"{duration(spare_s)} to spare", "green")
            if spare_s >= 0
            else (f"{duration(-spare_s)} late", "red")
        )
        text.append(f"  {said}", style=style)
    return text


def _site_columns(now: float, at_least: float, width: int) -> tuple[Column[SiteReason], ...]:
    """On a narrow terminal a pool stands below its site, and figures above the reason, which has the room of their columns. No start is before `at_least`."""

    def start(row: SiteReason) -> str:
        return when(None if row.start_at is None else max(row.start_at, at_least), now)

    def finish(row: SiteReason) -> str:
        return when(row.finish_at, now)

    def extra(row: SiteReason) -> str:
        return NONE if row.filter else usd(row.extra_cost_usd)

    def figures(row: SiteReason) -> Text:
        said = [("start", start(row)), ("finish", finish(row)), ("extra", extra(row))]
        told = [f"{name} {figure}" for name, figure in said if figure not in ("", NONE)]
        return Text("  ").join([_usable(row), *map(Text, told)]).append("\n").append_text(_reason(row))

    if width < NARROW:
        return (
            Column(
                "SITE, POOL",
                lambda row: Text("\n".join([plain(row.site), *_in_lines(plain(row.pool))])),
                wraps=NAME_WIDTH,
            ),
            Column("REASON", figures, flow="fold"),
        )
    return (
        Column("SITE", lambda row: row.site),
        Column("POOL", lambda row: row.pool),
        Column("", _usable),
        Column("START", start, right=True),
        Column("FINISH", finish, right=True),
        Column("EXTRA", extra, right=True),
        Column("REASON", _reason, flow="fold"),
    )


def _usable(row: SiteReason) -> Text:
    return Text("no", style="red") if row.filter else Text("yes", style="green")


def _in_lines(name: str) -> list[str]:
    """A long name of a pool, cut behind slashes."""
    lines = [""]
    for part in name.replace("/", "/\n").splitlines():
        if lines[-1] and len(lines[-1]) + len(part) > NAME_WIDTH:
            lines.append("")
        lines[-1] += part
    return [line for line in lines if line]


def _reason(row: SiteReason) -> Text:
    """The reason, whole, because it is what was asked for."""
    text = Text(plain(row.text))
    if row.filter:
        text.append(f" [{plain(row.filter)}]", style="dim")
    if row.tie:
        text.append("; as good as the best", style="dim")
    scarce = [f"{usd(amount)} of {plain(what)}" for what, amount in row.congestion.items() if amount > 0]
    if scarce:
        text.append(f"; takes from others {', '.join(scarce)}", style="dim")
    if row.change:
        text.append(f"\n-> {plain(row.change)}", style="cyan")
    return text


def _burst(burst: BurstEvidence, now: float) -> list[tuple[str, str | Text]]:
    return [
        ("at home", _against(burst.home_finish_at, burst.deadline_at, now)),
        *([("risk", f"{format_chance(burst.home_risk)} that it is late there")] if burst.home_risk else []),
        ("rented", _against(burst.burst_finish_at, burst.deadline_at, now)),
        ("costs", f"{usd(burst.cost_usd)}, worth {usd(burst.value_usd)}"),
        ("permitted by", f"{burst.policy} ({burst.mode})"),
        ("decision", burst.decision),
    ]
