"""Recorded decisions and the ledger: what was decided on which grounds, and what it came to."""

import json

from cyclopts import App

from federator.cli.columns import decision_columns, ledger_columns
from federator.cli.exits import FAILED
from federator.cli.output import Output, show_data, show_rows
from federator.cli.phrases import plain
from federator.cli.session import HERE, Connection, ask
from federator.kernel.errors import Invalid
from federator.kernel.quantities import parse_instant

app = App(name="decisions", help="Recorded decisions: list, show, replay.")


@app.command(name="list")
def list_decisions(*, output: Output = "table", connection: Connection = HERE) -> None:
    """List recorded decisions, newest first."""
    rows, now = ask(connection, lambda client: client.decisions())
    show_rows(rows[::-1], decision_columns(now), output, empty="no recorded decisions")


@app.command
def show(decision: str, *, output: Output = "json", connection: Connection = HERE) -> None:
    """Print a decision: the problem as it was given, and the plan that came out. Always JSON or YAML."""
    answer, _ = ask(connection, lambda client: client.decision(decision))
    if output == "yaml":
        show_data(answer, output)
    else:
        print(json.dumps(answer, indent=2))


@app.command
def replay(decision: str, *, connection: Connection = HERE) -> int:
    """Decide a recorded problem again at the dispatcher; exits 1 if the plan is not the same byte for byte."""
    answer, _ = ask(connection, lambda client: client.replay(decision))
    if answer.identical:
        print("identical")
        return 0
    print("different")
    for difference in answer.differences:
        print(f"  {plain(difference)}")
    return FAILED


def ledger(
    *,
    since: str | None = None,
    job: str | None = None,
    after: str | None = None,
    limit: int = 100,
    output: Output = "table",
    connection: Connection = HERE,
) -> None:
    """List facts of the ledger, oldest first: acts, use and money.

    Parameters
    ----------
    since:
        Only from this instant on, such as 2026-12-01T00:00:00Z.
    job:
        Only of this job.
    after:
        Only after this entry: the id of the last one of the page before.
    limit:
        At most this many.
    """
    try:
        since_at = parse_instant(since) if since else None
    except ValueError as error:
        raise Invalid(str(error), field="--since") from None
    rows, _ = ask(connection, lambda client: client.ledger(since=since_at, job=job, after=after, limit=limit))
    show_rows(rows, ledger_columns(), output, empty="no entries")
