"""How likely a job is to miss its deadline: its run time is a forecast with a range, and so is the start of what has to wait.

Both are taken to lie about their forecast as e^x does, x being logistic: near enough a normal distribution, with more of very long ones, as there are. A wait is a sum of
other work's run times, and others may come in between, so it errs in proportion to itself (`SLIDE`). Of wait and run together that distribution is assumed again,
with the spread that the two come to.
"""

import math
from collections.abc import Callable

from federator.model.snapshot import JobView
from federator.planning.places.candidates import typical_share

LOGISTIC = 1.702
"""A logistic distribution is near a normal one of so many times its scale."""
STEEP = LOGISTIC * 2.5631
"""80 of 100 lie within 2.5631 standard deviations."""
MOST_STEEP = 50.0
MOST_RATIO = 1000.0
"""Beyond these the chance is nothing, or all; powers stay numbers."""
SLIDE = 0.7
"""How far forecast waits are off: the standard deviation of ln(wait / forecast), ten minutes added to both. Of 1,477 looks in a simulation of itp02 on 96 A100, 80 of 100 waits were between 0.25 and
2.35 times the forecast."""
SLIDE_LEAST_S = 600.0
"""As if each wait were longer by this, as far as its error goes: what starts next may be overtaken."""


def share_late(job: JobView) -> Callable[[float, float, float], float]:
    """`late_share` of one job, by start, run and wait: for who asks often."""
    if job.deadline_at is None:
        return lambda _start_at, _run_s, _waits_s: 0.0
    deadline_at, (typical, steep) = job.deadline_at, spread_of(job)
    if steep == 0.0:
        return lambda start_at, run_s, _waits_s: 1.0 if start_at + run_s > deadline_at else 0.0
    return lambda start_at, run_s, waits_s: chance(
        deadline_at - start_at, typical * run_s, steep, max(0.0, waits_s)
    )


def late_share(job: JobView, start_at: float, run_s: float, waits_s: float = 0.0) -> float:
    """How likely a job that is planned to run so long (s) from then on ends after its deadline; `waits_s`: so long from now, for others' work to end.

    `run_low_s` and `run_high_s` hold 80 of 100 runs. Without a range, as planned: 0 or 1.
    """
    return share_late(job)(start_at, run_s, waits_s)


def chance(window_s: float, typical_s: float, steep: float, waits_s: float = 0.0) -> float:
    """How likely a run of typically so long, after such a wait, is longer than its window, which begins where the wait is forecast to end. No wait makes it likelier in time."""
    from_now_s = window_s + waits_s
    if from_now_s <= 0.0:
        return 1.0
    at_once = float(1.0 / (1.0 + min(from_now_s / typical_s, MOST_RATIO) ** steep))
    if waits_s <= 0.0:
        return at_once
    steep = steeper(typical_s, steep, waits_s)
    return max(at_once, float(1.0 / (1.0 + min(from_now_s / (typical_s + waits_s), MOST_RATIO) ** steep)))


def steeper(typical_s: float, steep: float, waits_s: float) -> float:
    """How steeply the chance falls for wait and run together."""
    run_off_s, wait_off_s = LOGISTIC / steep * typical_s, SLIDE * (waits_s + SLIDE_LEAST_S)
    # As compiled: `math.hypot` differs in the last digit.
    off_s = math.sqrt(run_off_s * run_off_s + wait_off_s * wait_off_s)
    return LOGISTIC * (typical_s + waits_s) / off_s


def spread_of(job: JobView) -> tuple[float, float]:
    """The typical run over the planned one, and how steeply the chance falls with more time than that; (1, 0) where there is no range, or only the start counts."""
    job = job.of or job
    low_s, high_s = job.run_low_s, job.run_high_s
    if job.start_by_at is not None:  # of a start: how long it runs does not matter
        return 1.0, 0.0
    if not 0.0 < low_s < high_s:
        return 1.0, 0.0
    return typical_share(job), min(STEEP / math.log(high_s / low_s), MOST_STEEP)
