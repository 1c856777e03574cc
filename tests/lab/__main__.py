"""Entry point of `python -m tests.lab`."""

import sys

from tests.lab.command import run

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
