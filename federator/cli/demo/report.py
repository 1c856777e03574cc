"""The end of the demonstration: what came of it, and what to type next."""

import shutil
import sys
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from federator.cli.demo.result import Check, Compared, JobResult, Result
from federator.cli.demo.screen import clock
from federator.cli.demo.story import StoryResult
from federator.cli.layout import Column, table
from federator.cli.output import facts, show, status
from federator.cli.phrases import NONE, usd
from federator.kernel.quantities import format_duration


def show_end(told: StoryResult, width: int) -> None:
    """Jobs, checks, money, GPU-hours, and why things are as they are."""
    result = told.result
    show(
        heading(f"What happened, in {result.took_s:.0f} s"),
        table(result.jobs, _job_columns(result), width=width),
        Text(""),
        facts(_sums(result)),
    )
    show_checks(result.checks)


def _sums(result: Result) -> list[tuple[str, str | Text]]:
    cap = "" if result.cap_usd is None else f", capped at {usd(result.cap_usd)}"
    rentals = f"{len(result.leases)} rental{'' if len(result.leases) == 1 else 's'}"
    hours = ", ".join(f"{site} {spent:.2f}" for site, spent in result.gpu_hours.items() if spent)
    return [
        ("deadlines met", f"{result.met} of {len(result.due)}" if result.due else "nothing was due"),
        ("money", f"{usd(result.spent_usd)} (pretended) spent on {rentals}{cap}"),
        ("GPU-hours", hours),
    ]


def show_compared(rows: tuple[Compared, ...], width: int) -> None:
    """The same work under each scheduler, side by side."""
    show(
        heading("The same jobs, sites and prices, simulated"),
        table(rows, COMPARED, width=width),
        Text("threshold rents after 30 min of waiting; isolated keeps each job at its home", style="dim"),
    )


def show_checks(checks: tuple[Check, ...]) -> None:
    """What must hold, each with what was seen."""
    show(heading("What was checked"), *(_check(check) for check in checks))


def heading(text: str) -> RenderableType:
    """A line above a part."""
    return Text(f"\n{text}", style="bold cyan")


def next_steps(server: str, token: str, console: str, folder: Path) -> list[str]:
    """What to type while the federation is left up."""
    command = own_command()
    return [
        f"export FEDERATOR_SERVER={server} FEDERATOR_TOKEN={token}",
        f"{command} top",
        f"xdg-open {console}    # the console, in a browser",
        f"{command} explain review-figures",
        f"{command} demo --stop {folder}    # ends it and removes its folder",
    ]


def own_command() -> str:
    """How `federator` is typed here: its name where the path has it, else where it is."""
    beside = Path(sys.executable).with_name("federator")
    if shutil.which("federator") or not beside.exists():
        return "federator"
    here = Path.cwd()
    return str(beside.relative_to(here) if beside.is_relative_to(here) else beside)


def _check(check: Check) -> Text:
    mark, style = ("ok  ", "green") if check.holds else ("FAIL", "bold red")
    line = Text(f"{mark}  ", style=style)
    line.append(f"{check.name}: ", style="bold" if not check.holds else "")
    line.append(check.seen, style="" if not check.holds else "dim")
    return line


def _job_columns(result: Result) -> tuple[Column[JobResult], ...]:
    return (
        Column("JOB", lambda row: row.name),
        Column("OWNER", lambda row: row.owner),
        Column("STATE", lambda row: status(row.status)),
        Column("GPUS", lambda row: str(row.gpus or NONE), right=True),
        Column("SITE", lambda row: row.site),
        Column("STARTED", lambda row: clock(row.started_at, result.began_at), right=True),
        Column("ENDED", lambda row: clock(row.finished_at, result.began_at), right=True),
        Column("DUE", lambda row: clock(row.deadline_at, result.began_at), right=True),
        Column("DEADLINE", _met),
        Column("TRIES", lambda row: str(row.attempts), right=True),
    )


COMPARED: tuple[Column[Compared], ...] = (
    Column("SCHEDULER", lambda row: "Federator" if row.scheduler == "ours" else row.scheduler),
    Column(
        "DEADLINES MET", lambda row: f"{row.due - row.missed} of {row.due}" if row.due else NONE, right=True
    ),
    Column("MISSED", lambda row: _missed(row.missed), right=True),
    Column("RENT", lambda row: usd(row.rented_usd), right=True),
    Column("MEAN WAIT", lambda row: format_duration(row.wait_mean_s), right=True),
    Column("DONE", lambda row: f"{row.done} of {row.jobs}", right=True),
)


def _missed(number: int) -> Text:
    return Text(str(number), style="red" if number else "green")


def _met(row: JobResult) -> Text:
    if row.met is None:
        return Text(NONE)
    return Text("met", style="green") if row.met else Text("missed", style="red")
