"""One of our programs on a wall clock that a test may set: `python -m tests.histories.program MODULE ARGUMENTS…`.

The file that `HISTORY_CLOCK` names has the seconds by which it is wrong. The clock since boot is the machine's: no system lets that jump. Libraries are told
the right time: gRPC makes a point in time of each limit, and compares it with a clock that cannot be set here.
"""

import os
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path

CLOCK = "HISTORY_CLOCK"
OURS = "federator"
"""How the names of our modules begin."""


def wrong(real: Callable[[], float], file: Path) -> Callable[[], float]:
    """That clock, for our own modules as wrong as the file says; right where there is none."""

    def now() -> float:
        if not sys._getframe(1).f_globals.get("__name__", "").startswith(OURS):  # noqa: SLF001 - nothing else is fast enough to ask at every reading
            return real()
        try:
            return real() + float(file.read_text())
        except (OSError, ValueError):
            return real()

    return now


if __name__ == "__main__":
    time.time = wrong(time.time, Path(os.environ[CLOCK]))
    module = sys.argv[1]
    sys.argv = sys.argv[1:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
