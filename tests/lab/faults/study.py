"""Many seeds, one after another or in several processes: each is a world of its own, so they share nothing."""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.lab.faults.drawing import SMALL, Size
from tests.lab.faults.running import Outcome, play


def outcomes(first: int, count: int, workers: int = 1, size: Size = SMALL) -> Iterator[Outcome]:
    """What the seeds from `first` on come to, in their order."""
    seeds, one = range(first, first + count), partial(play, size=size)
    if workers <= 1:
        yield from map(one, seeds)
        return
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        yield from pool.map(one, seeds)


def story(outcome: Outcome, replay: str) -> str:
    """Of a seed with findings: what was broken, what went before it, and how to see all of it."""
    lines = [f"seed {outcome.seed} breaks a promise:"]
    for finding in outcome.findings:
        what = f"promise {finding.promise}" if finding.promise else "beside the promises"
        lines.append(f"  {what}, at {finding.at_s:.3f} s: {finding.what}")
    lines += ["the last that happened:", *(f"  {line}" for line in outcome.last)]
    lines.append(f"all of it, exactly as it was: {replay}")
    return "\n".join(lines)
