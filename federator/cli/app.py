"""The command as a whole: its groups of verbs, and how every way of ending becomes an exit code."""

import sys
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version

from cyclopts import App, CycloptsError, Group, MissingArgumentError

from federator.cli import (
    capacity,
    decisions,
    explaining,
    jobs,
    ledger,
    policies,
    reading,
    running,
    schema,
    series,
    serve,
    sign_in,
    simulate,
    sites,
    solver,
    store,
    tokens,
    top,
)
from federator.cli.demo.verb import demo
from federator.cli.exits import EXITS, INTERRUPTED, USAGE
from federator.cli.output import say_error
from federator.cli.phrases import plain
from federator.kernel.errors import FederatorError

VERBS: dict[str, dict[str, Callable[..., object]]] = {
    "Run": {"submit": jobs.submit, "run": running.run, "preview": explaining.preview, "wait": running.wait},
    "Watch": {
        "list": jobs.list_jobs,
        "show": jobs.show_job,
        "explain": explaining.explain,
        "logs": reading.logs,
        "download": reading.download,
        "series": series.app,
        "top": top.top,
    },
    "Change": {
        "update": jobs.update,
        "cancel": jobs.cancel,
        "hold": jobs.hold,
        "release": jobs.release,
        "requeue": jobs.requeue,
    },
    "Sites and queues": {
        "sites": sites.list_sites,
        "site": sites.app,
        "drain": sites.drain,
        "undrain": sites.undrain,
        "queues": capacity.queues,
        "teams": capacity.teams,
    },
    "Rented capacity": {
        "offers": capacity.offers,
        "leases": capacity.leases,
        "budgets": capacity.budgets,
        "burst": capacity.burst,
    },
    "Policies and decisions": {
        "policy": policies.app,
        "simulate": simulate.simulate,
        "decisions": decisions.app,
        "schema": schema.schema,
        "solver": solver.app,
        "ledger": ledger.app,
    },
    "Sign in": {"login": sign_in.login, "logout": sign_in.logout, "whoami": sign_in.whoami},
    "Server": {
        "demo": demo,
        "serve": serve.serve,
        "store": store.app,
        "token": tokens.app,
    },
}


def build_app() -> App:
    """The command, with all verbs in their groups."""
    app = App(name="federator", help="One submit endpoint for many GPU clusters.", version=_version)
    app["--help"].group = app["--version"].group = Group("Options", sort_key=99)
    for title, verbs in VERBS.items():
        group = Group.create_ordered(title)
        for name, verb in verbs.items():
            if isinstance(verb, App):
                verb.group = (group,)
                app.command(verb)
            else:
                app.command(verb, name=name, group=group)
    return app


def run_command(words: Sequence[str]) -> int:
    """Run the command that these words are; answers its exit code."""
    return run_app(build_app(), words)


def run_app(app: App, words: Sequence[str]) -> int:
    """Run one of this application's commands; every way of ending becomes an exit code."""
    try:
        code = app(_with_input(words), exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        verb = " ".join((app.name[0], *(error.command_chain or ()), "--help"))
        say_error(f"{_what(error)} (see {verb})")
        return USAGE
    except FederatorError as error:
        return _say_faults([error])
    except ExceptionGroup as group:
        faults, rest = group.split(FederatorError)
        if rest is not None or faults is None:
            raise
        return _say_faults(list(faults.exceptions))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has enough; nothing more may be written, not even at exit.
        sys.stdout = None
        return 0
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        say_error(f"{where}{error.strerror or error}")
        return USAGE
    return code if isinstance(code, int) else 0


def _say_faults(faults: Sequence[Exception]) -> int:
    """Each on a line of its own; the exit code of the first."""
    for fault in faults:
        assert isinstance(fault, FederatorError)
        say_error(plain(fault.describe()))
    return next(EXITS[kind] for kind in type(faults[0]).__mro__ if kind in EXITS)


def _with_input(words: Sequence[str]) -> list[str]:
    """A lone `-`, which is standard input, as a path that is not taken for an option. What a job is to run is left alone."""
    if words and words[0] == "run":
        return list(words)
    return ["./-" if word == "-" else word for word in words]


def _what(error: CycloptsError) -> str:
    """What is wrong; what may be written without its option is told as `--help` has it."""
    missing = error.argument if isinstance(error, MissingArgumentError) else None
    if missing is None:
        text = plain(str(error))
        return text if text.endswith("...") else text.removesuffix(".")
    bare = missing.field_info.kind is not missing.field_info.KEYWORD_ONLY
    return f"{missing.name.removeprefix('--').upper() if bare else missing.name}: is missing"


def _version() -> str:
    try:
        return version("federator")
    except PackageNotFoundError:
        return "unknown"
