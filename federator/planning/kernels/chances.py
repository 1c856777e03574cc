"""How likely a job is to miss its deadline: its run time is a forecast with a range, and so is the start of what has to wait.

Both are taken to lie about their forecast as e^x does, x being logistic: near enough a normal distribution, with more of very long ones, as there are. A wait is a sum of
other work's run times, and others may come in between, so it errs in proportion to itself (`SLIDE`). Of wait and run together that distribution is assumed again,
with the spread that the two come to.

A plain function of numbers: compiled code calls it compiled (`compiled.shared`), Python as it stands, which needs no numba. Only the checker reckons it again by itself (`checks.evidence`).
"""

import math

LOGISTIC = 1.702
"""A logistic distribution is near a normal one of so many times its scale."""
MOST_RATIO = 1000.0
"""Beyond this the chance is nothing, or all; powers stay numbers."""
SLIDE = 0.7
"""How far forecast waits are off: the standard deviation of ln(wait / forecast), ten minutes added to both. Of 1,477 looks in a simulation of itp02 on 96 A100, 80 of 100 waits were between 0.25 and
2.35 times the forecast."""
SLIDE_LEAST_S = 600.0
"""As if each wait were longer by this, as far as its error goes: what starts next may be overtaken."""


def late_share(
    deadline_at: float, start_at: float, run_s: float, waits_s: float, typical: float, steep: float
) -> float:
    """How likely a job that is planned to run so long (s) from then on ends after its deadline (infinite: it has none); `waits_s`: so long from now, for others' work to end.

    `typical`, `steep`: the range of its run time (`world.chances.spread_of`); steep 0: as planned, so 0 or 1. No wait makes it likelier in time.
    """
    if deadline_at == math.inf:
        return 0.0
    if steep == 0.0:
        return 1.0 if start_at + run_s > deadline_at else 0.0
    waits_s = max(0.0, waits_s)
    from_now_s, typical_s = deadline_at - start_at + waits_s, typical * run_s
    if from_now_s <= 0.0:
        return 1.0
    at_once: float = 1.0 / (1.0 + min(from_now_s / typical_s, MOST_RATIO) ** steep)
    if waits_s <= 0.0:
        return at_once
    run_off_s, wait_off_s = LOGISTIC / steep * typical_s, SLIDE * (waits_s + SLIDE_LEAST_S)
    off_s = math.sqrt(run_off_s * run_off_s + wait_off_s * wait_off_s)
    together = LOGISTIC * (typical_s + waits_s) / off_s
    share: float = 1.0 / (1.0 + min(from_now_s / (typical_s + waits_s), MOST_RATIO) ** together)
    return max(at_once, share)
