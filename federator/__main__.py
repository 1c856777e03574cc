"""Entry point of the `federator` command, and of `python -m federator`."""

import gc
import sys

GC_OBJECTS = 200_000
"""So many new objects before garbage is looked for: more than a verb imports, all of which is kept."""
SERVERS = ("serve", "operator")
"""Verbs that go on for long: they look for garbage as Python does."""


def main() -> None:
    """Run the command and exit with its code."""
    if sys.argv[1:2] not in [[verb] for verb in SERVERS]:
        gc.set_threshold(GC_OBJECTS)
    from federator.cli.app import run_command

    code = run_command(sys.argv[1:])
    if "duckdb" not in sys.modules:  # which complains of all that is left
        gc.freeze()  # so that Python does not look through all of it as it ends
    sys.exit(code)


if __name__ == "__main__":
    main()
