"""The `federator-agent` command: its arguments. What the verbs do is in `federator_agent.commands`."""

import argparse
import logging
import sys
from pathlib import Path

from federator.kernel import logs
from federator.kernel.errors import FederatorError

VERBS = (
    ("join", "bind this host to a site of a federation, once, with a one-time token"),
    ("serve", "run the agent"),
    ("status", "show what this agent has on its disk: who it is, and its placements"),
    ("check", "check the site file, the connection to the dispatcher, and that work can be started here"),
    ("pause", "take no new work from now on; what runs goes on"),
    ("resume", "take new work again"),
    ("rotate-key", "replace this agent's key with a new one; what runs and the session go on"),
    ("leave", "leave the federation; refused while work is here"),
)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; its exit code: 0 done, 1 cannot, 2 wrong usage."""
    options = _parser().parse_args(arguments)
    logs.configure(level=logging.DEBUG if options.verbose else logging.INFO)
    from federator_agent import commands

    code = 1
    try:
        code = int(getattr(commands, options.verb.replace("-", "_"))(options))
    except* FederatorError as faults:
        for each in faults.exceptions:
            print(f"federator-agent: {each}", file=sys.stderr)
    except* KeyboardInterrupt:
        code = 130
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="federator-agent", description="The process of Federator at a site."
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="log more")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    for name, says in VERBS:
        sub = verbs.add_parser(name, help=says, description=says)
        sub.add_argument(
            "--config", type=Path, help="site.yaml; without it the user data of a rented machine is read"
        )
        sub.set_defaults(verb=name)
        _add_options(name, sub)
    return parser


def _add_options(name: str, sub: argparse.ArgumentParser) -> None:
    """The options that not every verb has."""
    if name == "serve":
        sub.add_argument(
            "--moved",
            action="store_true",
            help="the state directory was moved here, and nothing of it runs where it was",
        )
    if name in ("join", "check", "status"):
        sub.add_argument("--dispatcher", default="", help="URL; default: from the site file")
        sub.add_argument(
            "--ca",
            default="",
            help="PEM file of the certificate authority to trust; default: from the site file",
        )
    if name == "join":
        sub.add_argument(
            "--new-key",
            action="store_true",
            help="join under a new key, because the old one was revoked; what runs here stays known",
        )
        sub.add_argument("--token", default="", help="one-time join token; '-' reads it from standard input")


if __name__ == "__main__":
    sys.exit(main())
