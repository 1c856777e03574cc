"""Entry point of the `federator` command, and of `python -m federator`."""

import sys


def main() -> None:
    """Run the command and exit with its code."""
    from federator.cli.app import run_command

    sys.exit(run_command(sys.argv[1:]))


if __name__ == "__main__":
    main()
