"""The options of `federator demo`. What they do is imported when it is asked for, so that `federator --help` stays fast."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from federator.cli.planner import ready_planner


def demo(
    *,
    no_deadlines: Annotated[bool, Parameter(negative=())] = False,
    tighten: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    keep: Annotated[bool, Parameter(negative=())] = False,
    stop: Path | None = None,
    state_dir: Path | None = None,
    json: Path | None = None,
) -> int:
    """Run a whole federation on this machine: submit, plan, burst, survive a kill -9, finish.

    Takes about a minute. Time runs faster than life, GPUs are declared, money is not real; the processes are.

    Parameters
    ----------
    no_deadlines:
        Take all deadlines away: the same work then rents nothing.
    tighten:
        JOB=DURATION: that job is due so soon after it was submitted, such as nightly-embed=30m. May be repeated.
    keep:
        Leave the federation up at the end, and say how to use and stop it.
    stop:
        Folder of a demonstration that was left up: end everything in it, and remove it.
    state_dir:
        Folder to work in, new or empty, which stays; else a temporary one.
    json:
        Write what was found to this file.
    """
    from federator.cli.demo import runs

    if stop is not None:
        return runs.stop(stop)
    ready_planner()
    return runs.demonstrate(
        no_deadlines=no_deadlines, tighten=tighten, keep=keep, state_dir=state_dir, json=json
    )
