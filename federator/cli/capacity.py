"""Queues and what can be, is and was rented."""

from cyclopts import App

from federator.cli.columns import budget_columns, lease_columns, offer_columns, queue_columns
from federator.cli.output import Output, show_rows
from federator.cli.session import HERE, Connection, ask

burst = App(name="burst", help="Stop and restart the renting of capacity.")


def queues(*, output: Output = "table", connection: Connection = HERE) -> None:
    """List the queues: use against guarantee and limit."""
    rows, _ = ask(connection, lambda client: client.queues())
    show_rows(rows, queue_columns(), output, empty="no queues: apply a policy of kind Queue")


def offers(*, output: Output = "table", connection: Connection = HERE) -> None:
    """List what could be rented, and at what price."""
    rows, now = ask(connection, lambda client: client.offers())
    show_rows(rows, offer_columns(now), output, empty="no offers: the dispatcher has no provider")


def leases(*, output: Output = "table", connection: Connection = HERE) -> None:
    """List what is and was rented, what it costs, and why."""
    rows, now = ask(connection, lambda client: client.leases())
    show_rows(rows, lease_columns(now), output, empty="nothing has been rented")


def budgets(*, output: Output = "table", connection: Connection = HERE) -> None:
    """List money spent, committed and left under each cap."""
    rows, _ = ask(connection, lambda client: client.budgets())
    show_rows(rows, budget_columns(), output, empty="no caps on money: apply a policy of kind BurstPolicy")


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
