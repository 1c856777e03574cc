"""Queues, teams, and what can be, is and was rented."""

from typing import Annotated

from cyclopts import App, Parameter

from federator.cli.columns import (
    alert_columns,
    lease_columns,
    offer_columns,
    queue_columns,
    reason_columns,
    team_columns,
)
from federator.cli.listing import Watch, watch_rows
from federator.cli.money_columns import (
    budget_columns,
    burst_columns,
    proposal_columns,
    spent_columns,
)
from federator.cli.output import ListOutput, Output, show_data, show_rows
from federator.cli.phrases import plain, when, when_exactly
from federator.cli.session import HERE, Connection, ask

burst = App(name="burst")


def queues(*, watch: Watch = False, output: ListOutput = "table", connection: Connection = HERE) -> None:
    """List the queues: use against guarantee and limit."""
    if watch:
        watch_rows(connection, "queues", lambda client: client.queues(), lambda _: queue_columns(), output)
        return
    rows, _ = ask(connection, lambda client: client.queues())
    show_rows(rows, queue_columns(), output, empty="no queues: apply a policy of kind Queue")


def teams(*, output: ListOutput = "table", connection: Connection = HERE) -> None:
    """List the teams: who is in them, and where they may submit. `whoami` tells your own rights."""
    rows, _ = ask(connection, lambda client: client.teams())
    show_rows(rows, team_columns(), output, empty="no teams: apply a policy of kind Team")


def waiting(*, output: ListOutput = "table", connection: Connection = HERE) -> None:
    """List why jobs wait, added up by reason, and what is kept for whom; `list --reason` shows the jobs of one."""
    found, now = ask(connection, lambda client: client.waiting())
    show_rows(found.reasons, reason_columns(now), output, empty="no job waits")
    if output in ("table", "wide"):
        for each in found.reserved:
            by = f" by policy {plain(each.policy)}" if each.policy else ""
            gpus = "GPU is" if each.gpus == 1 else "GPUs are"
            print(
                f"{each.gpus:g} {gpus} kept at {plain(each.site)}{by} for {plain(each.name)} until {when_exactly(each.until_at, now)}"
            )


def alerts(*, output: ListOutput = "table", connection: Connection = HERE) -> None:
    """List alerts, newest first: deadlines at risk, budgets that fill, rentals that wait for approval."""
    rows, now = ask(connection, lambda client: client.alerts())
    show_rows(rows, alert_columns(now), output, empty="no alerts")


def offers(*, output: ListOutput = "table", connection: Connection = HERE) -> None:
    """List what could be rented, and at what price."""
    rows, now = ask(connection, lambda client: client.offers())
    empty = "no offers: the dispatcher has no provider, or none that answers (its log says why)"
    show_rows(rows, offer_columns(now), output, empty=empty)


def leases(*, watch: Watch = False, output: ListOutput = "table", connection: Connection = HERE) -> None:
    """List what is and was rented, what it costs, and why."""
    if watch:
        watch_rows(connection, "leases", lambda client: client.leases(), lease_columns, output)
        return
    rows, now = ask(connection, lambda client: client.leases())
    show_rows(rows, lease_columns(now), output, empty="nothing has been rented")


def budgets(
    policy: str = "",
    *,
    watch: Watch = False,
    output: ListOutput = "table",
    connection: Connection = HERE,
) -> None:
    """List money spent, committed and left under each cap, and what it comes to at the end of the period. Of one policy, how it was spent over time.

    Parameters
    ----------
    policy:
        The policy, as the list names it.
    """
    if policy:
        found, now = ask(connection, lambda client: client.spending(policy))
        show_rows(found.points, spent_columns(found.cap, now), output, empty="nothing was spent")
        return
    if watch:
        watch_rows(connection, "budgets", lambda client: client.budgets(), budget_columns, output)
        return
    rows, now = ask(connection, lambda client: client.budgets())
    empty = "no caps on money: apply a policy of kind Budget, or a BurstPolicy with limits"
    show_rows(rows, budget_columns(now), output, empty=empty)


@burst.default
def status(*, output: Output = "table", connection: Connection = HERE) -> None:
    """Show whether anything may be rented, by which policies, and which rentals are only advised or wait for approval."""
    found, now = ask(connection, lambda client: client.burst())
    if output in ("json", "yaml"):
        show_data(found, output)
        return
    if found.paused:
        print(f"paused by {plain(found.paused_by)} {when(found.paused_at, now)}: nothing new is rented")
    show_rows(
        found.policies,
        burst_columns(paused=found.paused),
        output,
        empty="no policy of kind BurstPolicy: nothing is rented",
    )
    if found.proposals:
        print()
        show_rows(found.proposals, proposal_columns(), output, empty="")


@burst.command
def approve(
    job: str,
    *,
    up_to: Annotated[float | None, Parameter(name="--up-to")] = None,
    reason: Annotated[str, Parameter(name=("-m", "--reason"))] = "",
    connection: Connection = HERE,
) -> None:
    """Approve a rental that a policy leaves to a person.

    Parameters
    ----------
    job:
        The job that it is for, by id or name.
    up_to:
        What it may cost in the worst case, in USD; left out: what was proposed.
    reason:
        Why; kept with the job and in the ledger.
    """
    ask(connection, lambda client: client.approve_rental(job, usd=up_to, reason=reason))
    print("approved: the next turn rents, if it still pays")


@burst.command
def pause(*, connection: Connection = HERE) -> None:
    """Rent nothing new until resumed. What is rented goes on."""
    ask(connection, lambda client: client.pause_bursting())
    print("paused: nothing new is rented; resume with federator burst resume")


@burst.command
def resume(*, connection: Connection = HERE) -> None:
    """Let the policies decide again what may be rented."""
    ask(connection, lambda client: client.resume_bursting())
    print("resumed")
