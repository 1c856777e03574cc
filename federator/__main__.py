"""Entry point of the `federator` command, and of `python -m federator`."""

import gc
import sys

GC_OBJECTS = 200_000
"""So many new objects before garbage is looked for: more than a verb imports, all of which is kept."""


def main() -> None:
    """Run the command and exit with its code."""
    gc.set_threshold(GC_OBJECTS)
    from federator.cli.app import run_command

    code = run_command(sys.argv[1:])
    gc.freeze()  # so that Python does not look through all of it as it ends
    sys.exit(code)


if __name__ == "__main__":
    main()
