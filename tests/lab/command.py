"""`python -m tests.lab`: the laboratory's subcommands, with the exit codes of `federator`."""

from collections.abc import Sequence

from cyclopts import App

from federator.cli.app import run_app
from tests.lab.faults.verb import faults
from tests.lab.report import report
from tests.lab.table import table


def run(words: Sequence[str]) -> int:
    """Run the subcommand that these words are; answers its exit code."""
    app = App(name="python -m tests.lab", help="Compare, plot and measure Federator, from a checkout.")
    for verb in (table, report, faults):
        app.command(verb)
    return run_app(app, words)
