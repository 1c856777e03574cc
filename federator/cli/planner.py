"""The compiled planner of commands that plan: it is there before they begin, and who has to wait for the compiler is told so."""

import sys
import time

from federator.cli.sanitize import harmless


def ready_planner() -> None:
    """Load the compiled planner, or compile it, which takes a quarter of a minute, once for each version and kind of processor. Raises `Unavailable` where there can be none.

    A dispatcher does so before it listens: loaded in the middle of a turn, it held back what was to start by some 0.4 s.
    """
    from federator.planning import kernels
    from federator.planning.kernels import cache

    begun_s = time.monotonic()
    compiles = not cache.done()
    if compiles:
        _say("compiling the planner, once for this version and kind of processor: some 15 seconds")
    kernels.kernel()
    if compiles:
        _say(f"the planner is compiled, in {time.monotonic() - begun_s:.0f} s")


def _say(text: str) -> None:
    """Also where nobody looks: who reads the log later wants to know what took so long."""
    print(f"federator: {harmless(text)}", file=sys.stderr, flush=True)
