"""What a spot market does, at a person's word: `python -m federator_providers.local interrupt STATE_DIR NAME`."""

import argparse
import sys
from pathlib import Path

from federator.kernel.errors import FederatorError
from federator_providers.local.market import interrupt, sell_out


def main(arguments: list[str] | None = None) -> int:
    """Do one thing; 0, or 1 with the reason when there is no such machine."""
    parser = argparse.ArgumentParser(prog="python -m federator_providers.local", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, operand, says in (
        ("interrupt", "name", "give a machine notice: it dies when the notice is over"),
        ("sell-out", "offer", "let every launch of an offer find no capacity"),
        ("restock", "offer", "let the offer be had again"),
    ):
        one = verbs.add_parser(verb, help=says)
        one.add_argument("state_dir", type=Path, help="the provider's `state_dir`")
        one.add_argument("target", metavar=operand)
    given = parser.parse_args(arguments)
    state_dir = given.state_dir.expanduser()
    try:
        if given.verb == "interrupt":
            interrupt(state_dir, given.target)
        else:
            sell_out(state_dir, given.target, on=given.verb == "sell-out")
    except FederatorError as error:
        print(error.describe(), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
