"""The command as a whole: its groups of verbs, and how every way of ending becomes an exit code."""

import os
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec
from types import CodeType

from cyclopts import (
    App,
    CycloptsError,
    Group,
    MissingArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from federator import __version__
from federator.cli.exit_codes import EXITS, INTERRUPTED, USAGE
from federator.kernel.errors import FederatorError

FEW = 12
"""So many commands are listed where a wrong one is named; the help lists more."""
NEAR, VERY_NEAR = 0.7, 0.8
"""How much alike two words are, of 1, to be taken for the same: with the same first letter, and with another."""
LISTING = ("--help", "-h")
INSTEAD = {"submit": "federator run --detach", "preview": "federator run --dry-run"}
"""What takes a command, for those who gave one to a verb that takes a file."""
VERBS: dict[str, dict[str, str]] = {
    "Run": {
        "submit": "federator.cli.jobs:submit",
        "run": "federator.cli.run:run",
        "rerun": "federator.cli.arrays:rerun",
        "preview": "federator.cli.explain:preview",
        "wait": "federator.cli.wait:wait",
    },
    "Watch": {
        "list": "federator.cli.jobs:list_jobs",
        "show": "federator.cli.jobs:show_job",
        "explain": "federator.cli.explain:explain",
        "logs": "federator.cli.logs:logs",
        "download": "federator.cli.logs:download",
        "series": "federator.cli.series:app",
        "service": "federator.cli.services:app",
        "top": "federator.cli.top:top",
        "plan": "federator.cli.plan:show_plan",
        "waiting": "federator.cli.capacity:waiting",
        "alerts": "federator.cli.capacity:alerts",
        "usage": "federator.cli.usage:usage",
        "efficiency": "federator.cli.efficiency:efficiency",
    },
    "Inside a running job": {
        "exec": "federator.cli.tunnels:exec_command",
        "attach": "federator.cli.attached:attach",
        "port-forward": "federator.cli.tunnels:port_forward",
        "ssh-config": "federator.cli.ssh:ssh_config",
        "ssh-proxy": "federator.cli.ssh:ssh_proxy",
        "copy": "federator.cli.copy:copy",
        "notebook": "federator.cli.notebook:notebook",
    },
    "Change": {
        "update": "federator.cli.jobs:update",
        "apply": "federator.cli.apply:apply",
        "cancel": "federator.cli.jobs:cancel",
        "hold": "federator.cli.jobs:hold",
        "release": "federator.cli.jobs:release",
        "requeue": "federator.cli.jobs:requeue",
    },
    "At a site that is cut off": {"local": "federator.cli.local:app"},
    "Sites and queues": {
        "sites": "federator.cli.sites:list_sites",
        "site": "federator.cli.sites:app",
        "drain": "federator.cli.sites:drain",
        "undrain": "federator.cli.sites:undrain",
        "reserve": "federator.cli.reservations:reserve",
        "unreserve": "federator.cli.reservations:unreserve",
        "queues": "federator.cli.capacity:queues",
        "teams": "federator.cli.capacity:teams",
    },
    "Rented capacity": {
        "offers": "federator.cli.capacity:offers",
        "leases": "federator.cli.capacity:leases",
        "budgets": "federator.cli.capacity:budgets",
        "burst": "federator.cli.capacity:burst",
    },
    "Policies and decisions": {
        "policy": "federator.cli.policies:app",
        "simulate": "federator.cli.simulate:simulate",
        "decisions": "federator.cli.decisions:app",
        "schema": "federator.cli.schema:schema",
        "solver": "federator.cli.solver:app",
        "ledger": "federator.cli.ledger:app",
    },
    "Sign in": {
        "login": "federator.cli.sign_in:login",
        "logout": "federator.cli.sign_in:logout",
        "whoami": "federator.cli.sign_in:whoami",
        "notifications": "federator.cli.notifications:notifications",
    },
    "Shell": {"completion": "federator.cli.completion:install_completion"},
    "Server": {
        "demo": "federator.cli.demo.verb:demo",
        "serve": "federator.cli.serve:serve",
        "operator": "federator.cli.operator:operator",
        "gateway": "federator.cli.gateway.gateway:gateway",
        "store": "federator.cli.store:app",
        "token": "federator.cli.tokens:app",
    },
}
"""Where each verb is, by its group. A verb's module is imported when the verb is used."""

GROUPS = {
    "burst": "Show what may be rented and what waits for approval; stop and restart renting.",
    "series": "Show jobs that are submitted again and again; pause, resume and cancel them.",
    "service": "Apply, list and show services, whose replicas answer requests; promote, roll back and delete them.",
    "local": "Submit to the agent of this host while its site is cut off; list, log, cancel and wait for such jobs.",
    "site": "Show one site, take work off it, see what it was used for, upgrade agents, revoke a host's key, declare it dead, or forget it.",
    "policy": "Show, check, try and apply policies.",
    "decisions": "Recorded decisions: list, show, replay.",
    "solver": "The optimizer on files: decide a problem, or judge a plan for one.",
    "ledger": "List the ledger; keep a copy of it, and verify that nothing in it was changed.",
    "store": "Look after the store while no dispatcher runs.",
    "token": "Make, list, rotate and revoke tokens for people and for agents.",
}
"""What the verbs that have verbs of their own are about."""


def build_app(*, listing: bool = False) -> App:
    """The command, with all verbs in their groups; `listing` is the list of all of them, which needs a line on each."""
    app = App(name="federator", help="One submit endpoint for many GPU clusters.", version=__version__)
    app["--help"].group = app["--version"].group = Group("Options", sort_key=99)
    for title, verbs in VERBS.items():
        group = Group.create_ordered(title)
        for name, where in verbs.items():
            about = GROUPS.get(name) or (_summary(where) if listing else None)
            app.command(where, name=name, group=group, help=about)
    return app


def _summary(where: str) -> str:
    """The first lines of a verb's docstring, without importing what the verb needs."""
    module, _, function = where.partition(":")
    spec = find_spec(module)
    assert spec is not None
    assert isinstance(spec.loader, SourceFileLoader)
    code = spec.loader.get_code(module)
    assert code is not None
    found = (each for each in code.co_consts if isinstance(each, CodeType) and each.co_name == function)
    return str(next(found).co_consts[0])


def run_command(words: Sequence[str]) -> int:
    """Run the command that these words are; answers its exit code."""
    return run_app(build_app(listing=not words or words[0] in LISTING), words)


def run_app(app: App, words: Sequence[str]) -> int:
    """Run one of this application's commands; every way of ending becomes an exit code."""
    try:
        code = app(_with_input(words), exit_on_error=False, print_error=False, result_action="return_value")
        print(end="", flush=True)  # while a reader that has gone is still noticed
    except CycloptsError as error:
        from federator.cli.output import say_error

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
        # Whoever read the output has enough; what is not written yet goes nowhere, else Python complains at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except OSError as error:
        from federator.cli.output import say_error

        where = f"{error.filename}: " if error.filename else ""
        say_error(f"{where}{error.strerror or error}")
        return USAGE
    return code if isinstance(code, int) else 0


def _say_faults(faults: Sequence[Exception]) -> int:
    """Each on a line of its own; the exit code of the first."""
    from federator.cli.output import say_error
    from federator.cli.phrases import plain

    for fault in faults:
        assert isinstance(fault, FederatorError)
        say_error(plain(fault.describe()))
    return next(EXITS[kind] for kind in type(faults[0]).__mro__ if kind in EXITS)


def _with_input(words: Sequence[str]) -> list[str]:
    """A lone `-`, which is standard input, as a path that is not taken for an option. What a job is to run is left alone."""
    if words and words[0] in ("run", "exec"):
        return list(words)
    return ["./-" if word == "-" else word for word in words]


def _near(word: str, known: Sequence[str]) -> str:
    """A question about the known word that is nearly this one; nothing where none is."""
    from federator.wire.nearest import nearest

    alike = [each for each in known if each.lstrip("-")[:1] == word.lstrip("-")[:1]]
    near = nearest(word, alike, NEAR) or nearest(word, known, VERY_NEAR)
    return f"; did you mean {near}?" if near else ""


def _what(error: CycloptsError) -> str:
    """What is wrong; what may be written without its option is told as `--help` has it."""
    verb = INSTEAD.get((error.command_chain or ("",))[-1])
    instead = f"; for a command write {verb} -- COMMAND" if verb else ""
    if isinstance(error, UnusedCliTokensError):
        return f"{' '.join(error.unused_tokens or ())!r}: more words than it takes{instead}"
    if isinstance(error, UnknownCommandError) and error.unused_tokens:
        names = [name for name in error.app or () if not name.startswith("-")]
        known = f"; known are {', '.join(names)}" if len(names) <= FEW else ""
        return (
            f"there is no command {error.unused_tokens[0]!r}{_near(error.unused_tokens[0], names) or known}"
        )
    if isinstance(error, UnknownOptionError):
        word = error.token.keyword or error.token.value
        near = _near(word, [name for each in error.argument_collection for name in each.names])
        of_a_command = "--" in (error.root_input_tokens or ())
        return f"there is no option {word}{near or (instead if of_a_command else '')}"
    from federator.cli.phrases import plain

    missing = error.argument if isinstance(error, MissingArgumentError) else None
    if missing is None:
        text = plain(str(error))
        return text if text.endswith("...") else text.removesuffix(".")
    bare = missing.field_info.kind is not missing.field_info.KEYWORD_ONLY
    return f"{missing.name.removeprefix('--').upper() if bare else missing.name}: is missing"
