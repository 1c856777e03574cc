"""Compiles the planner's kernel, beside everything else: what decides meanwhile does so in plain Python, and comes to the same.

A process of its own, started by the first solver that finds nothing compiled. It ends with its parent, gives way to everybody, and leaves it to
another one that has begun already.
"""

import fcntl
import os
import sys

from federator.planning import kernels
from federator.planning.kernels import shelf
from federator.solving.parentage import die_with_parent


def main() -> None:
    """Compile, unless somebody does."""
    die_with_parent(int(sys.argv[1]))
    os.nice(19)
    folder = shelf.folder()
    if folder is None:
        return
    with (folder / "compiling").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if not kernels.prepare():
            sys.stderr.write(kernels.trouble() + "\n")


if __name__ == "__main__":
    main()
