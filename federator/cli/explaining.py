"""`explain` and `preview`: why a job waits or ran where it did, site by site, and what would change that."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import RenderableType
from rich.text import Text

from federator.cli.jobfiles import read_one
from federator.cli.jobs import JobName
from federator.cli.output import Column, Output, facts, show, show_data, status, table, width
from federator.cli.phrases import NONE, duration, plain, usd, when, when_exactly
from federator.cli.session import HERE, Connection, ask
from federator.kernel.errors import Invalid
from federator.model.capacity import BurstEvidence
from federator.model.jobs import TERMINAL
from federator.model.plans import Explanation, SiteReason


def explain(job: JobName, *, output: Output = "table", connection: Connection = HERE) -> None:
    """Say why a job waits and why not elsewhere, or why it ran where it did."""
    explanation, now = ask(connection, lambda client: client.explain(job))
    if output in ("json", "yaml"):
        show_data(explanation, output)
    else:
        show(*drawn(explanation, now, width()))


def preview(
    file: Path | None = None,
    /,
    *,
    job_file: Annotated[
        Path | None, Parameter(name=("-f", "--file"), help="The job file; - for standard input.")
    ] = None,
    output: Output = "table",
    connection: Connection = HERE,
) -> None:
    """Say what would become of a job file if it were submitted now. Nothing is stored or uploaded.

    Parameters
    ----------
    file:
        The job file; `-` for standard input.
    """
    path = job_file or file
    if path is None:
        raise Invalid("no job file", field="FILE", remedy="write federator preview job.yaml")
    job = read_one(path)
    answer, now = ask(connection, lambda client: client.preview(job.document))
    if output in ("json", "yaml"):
        show_data(answer, output)
        return
    cost = f", for about {usd(answer.cost_usd)}" if answer.cost_usd is not None else ""
    head = f"{plain(answer.name)} in queue {plain(answer.queue)}{cost}. Nothing was submitted."
    show(Text(head, style="dim"), *drawn(answer.explanation, now, width()))


def drawn(explanation: Explanation, now: float, width: int) -> list[RenderableType]:
    """The verdict first, then times against the deadline, then each site, then what would change it."""
    verdict = status(explanation.status)
    verdict.append(f"  {plain(explanation.because)}", style="bold")
    parts: list[RenderableType] = [verdict, facts(_times(explanation, now))]
    if explanation.sites:
        parts += ["", table(explanation.sites, _site_columns(now), width=width)]
    if explanation.changes:
        parts.append(Text("\nWhat would change it", style="bold"))
        parts += [Text(f"  - {plain(change)}") for change in explanation.changes]
    if explanation.burst is not None:
        parts += [Text("\nWhy capacity was rented", style="bold"), facts(_burst(explanation.burst, now))]
    # A decision that did nothing is not kept, and has no id here.
    kept = f" in {explanation.decision}" if explanation.decision else ""
    by = f" by {explanation.winner}" if explanation.winner else ""
    if kept or by:
        parts.append(Text(plain(f"Decided{kept}{by}."), style="dim"))
    return parts


def _times(explanation: Explanation, now: float) -> list[tuple[str, str | Text]]:
    over = explanation.status in TERMINAL
    return [
        ("runs for", explanation.run_time),
        ("started" if over else "starts", when_exactly(explanation.expected_start_at, now)),
        (
            "finished" if over else "finishes",
            _against(explanation.expected_finish_at, explanation.deadline_at, now),
        ),
        ("at home", _against(explanation.home_finish_at, explanation.deadline_at, now)),
        ("deadline", when_exactly(explanation.deadline_at, now)),
        ("policies", ", ".join(explanation.policies)),
    ]


def _against(finish_at: float | None, deadline_at: float | None, now: float) -> Text:
    """A finish, and how it stands to the deadline."""
    text = Text(when_exactly(finish_at, now))
    if finish_at is not None and deadline_at is not None:
        spare_s = deadline_at - finish_at
        said, style = (
            (f"{duration(spare_s)} to spare", "green")
            if spare_s >= 0
            else (f"{duration(-spare_s)} late", "red")
        )
        text.append(f"  {said}", style=style)
    return text


def _site_columns(now: float) -> tuple[Column[SiteReason], ...]:
    return (
        Column("SITE", lambda row: row.site),
        Column("POOL", lambda row: row.pool, least=90),
        Column("", lambda row: Text("no", style="red") if row.filter else Text("yes", style="green")),
        Column("START", lambda row: when(row.start_at, now), right=True, least=100),
        Column("FINISH", lambda row: when(row.finish_at, now), right=True),
        Column("EXTRA", lambda row: NONE if row.filter else usd(row.extra_cost_usd), right=True),
        Column("REASON", _reason, flow="fold"),
    )


def _reason(row: SiteReason) -> Text:
    """The reason, whole, because it is what was asked for."""
    text = Text(plain(row.text))
    if row.filter:
        text.append(f" [{plain(row.filter)}]", style="dim")
    if row.change:
        text.append(f"\n-> {plain(row.change)}", style="cyan")
    return text


def _burst(burst: BurstEvidence, now: float) -> list[tuple[str, str | Text]]:
    return [
        ("at home", _against(burst.home_finish_at, burst.deadline_at, now)),
        ("rented", _against(burst.burst_finish_at, burst.deadline_at, now)),
        ("costs", f"{usd(burst.cost_usd)}, worth {usd(burst.value_usd)}"),
        ("permitted by", f"{burst.policy} ({burst.mode})"),
        ("decision", burst.decision),
    ]
