"""Recorded decisions: what was decided, and from what."""

import time
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import App, Parameter, validators
from rich.console import RenderableType
from rich.text import Text

from federator.cli.columns import action_columns, decision_columns, waiting_columns
from federator.cli.layout import table
from federator.cli.output import ListOutput, Output, facts, show_data, show_rows, width
from federator.cli.output import show as show_parts
from federator.cli.phrases import counted, moment_at, usd, when_exactly
from federator.cli.session import HERE, Connection, ask
from federator.model.snapshot import Problem
from federator.wire.decisions import ToldDecision

app = App(name="decisions")
app.command("federator.cli.certify:certify", name="certify")
app.command("federator.cli.replay:replay", name="replay")


@app.command(name="list")
def list_decisions(
    *,
    last: Annotated[int, Parameter(validator=validators.Number(gte=1, lte=10_000))] = 100,
    before: str = "",
    since: str | None = None,
    until: str | None = None,
    output: ListOutput = "table",
    connection: Connection = HERE,
) -> None:
    """List recorded decisions, newest first.

    Parameters
    ----------
    last:
        So many of them.
    before:
        Only those before this one.
    since:
        Only those of so long a time until now (`2h`), or since an instant.
    until:
        Only those before so long a time, or before an instant.
    """
    asked_at = time.time()
    since_at = moment_at(since, "--since", asked_at) if since else 0.0
    until_at = moment_at(until, "--until", asked_at) if until else None
    rows, now = ask(
        connection, lambda client: client.decisions(last=last, before=before, since=since_at, until=until_at)
    )
    show_rows(rows[::-1], decision_columns(now), output, empty="no recorded decisions")


@app.command
def show(
    decision: str,
    *,
    raw: Annotated[bool, Parameter(name="--json", negative="")] = False,
    problem: Path | None = None,
    output: Output = "table",
    connection: Connection = HERE,
) -> None:
    """Show a decision: what it looked at, what it starts and stops, and why the rest waits.

    Parameters
    ----------
    raw:
        All of it as JSON: the problem that was given, and the plan that came out.
    problem:
        Write the problem to this file, and show nothing, as `federator solver run` and `federator decisions replay` take it; packed with gzip where the name ends in
        .gz.
    """
    whole = raw or output in ("json", "yaml")
    if whole or problem is not None:
        answer, _ = ask(connection, lambda client: client.decision(decision))
        if problem is not None:
            from federator.wire.solver_files import from_problem, write

            given = from_problem(msgspec.convert(answer["problem"], Problem))
            file = msgspec.structs.replace(given, recorded=answer["plan"])
            problem.write_bytes(write(file, packed=problem.suffix == ".gz"))
        if whole:
            show_data(answer, "yaml" if output == "yaml" and not raw else "json", as_it_is=True)
        return
    told, now = ask(connection, lambda client: client.told_decision(decision))
    show_parts(*_drawn(told, now, wide=output == "wide"))


def _drawn(told: ToldDecision, now: float, *, wide: bool) -> list[RenderableType]:
    """The verdict first; then what it does; then what waits."""
    plan, names = told.plan, told.names
    parts: list[RenderableType] = [facts(_verdict(told, now))]
    if plan.actions:
        parts += [
            Text("\nDoes", style="bold"),
            table(plan.actions, action_columns(names, plan.taken_at), width=width(), wide=wide),
        ]
    if plan.waiting:
        parts += [
            Text("\nLets wait", style="bold"),
            table(plan.waiting, waiting_columns(names, plan.taken_at), width=width(), wide=wide),
        ]
        if left := told.row.waiting - len(plan.waiting):
            parts.append(Text(f"and {counted(left, 'more job')}", style="dim"))
    return parts


def _verdict(told: ToldDecision, now: float) -> list[tuple[str, str]]:
    """What was decided on which grounds, and how well."""
    plan, proof = told.plan, told.row.proof
    stages = ", ".join(s.stage if s.completed else f"{s.stage} (not completed)" for s in plan.stages)
    above = (
        f"{100 * proof.gap:.2f} % above the model's bound; no plan costs less than {usd(proof.bound_usd)}"
        if proof
        else ""
    )
    looked_at = [
        counted(told.row.jobs, "waiting job"),
        counted(told.pools, "pool"),
        counted(told.offers, "offer"),
        f"policies version {told.policy_version}",
    ]
    return [
        ("decision", plan.decision),
        ("taken", when_exactly(plan.taken_at, now)),
        ("winner", f"{plan.winner}: {plan.winner_because}"),
        ("stages", stages),
        ("objective", usd(plan.objective_usd)),
        ("decision gap", above),
        ("looked at", ", ".join(looked_at)),
        ("next look", when_exactly(plan.wake_at, now)),
    ]
