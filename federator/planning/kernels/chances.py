"""How likely a deadline is missed, compiled: `chances`, in money."""
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

import math

from federator.planning.kernels.compiled import compiled
from federator.planning.kernels.tables import LOGISTIC, MOST_RATIO, SLIDE, SLIDE_LEAST_S


@compiled
def opened(way, at):
    """When a start that is planned for that moment is possible: `prices.opened_at`."""
    return way.opens if way.closes <= at < way.opens else at


@compiled
def missed(klass, way, at, waits_s):
    """The value of a job of the class, times the chance that it ends too late where it starts then, after such a wait for others: `chances.late_share`."""
    if klass.value == 0.0:
        return 0.0
    if klass.steep == 0.0:
        return klass.value if is_late(klass, way, at) else 0.0
    window, typical, steep = (
        klass.deadline - opened(way, at) + max(0.0, waits_s),
        klass.typical * way.run_s,
        klass.steep,
    )
    if window <= 0.0:
        return klass.value
    at_once = 1.0 / (1.0 + min(window / typical, MOST_RATIO) ** steep)
    if waits_s <= 0.0:
        return klass.value * at_once
    run_off_s, wait_off_s = LOGISTIC / steep * typical, SLIDE * (waits_s + SLIDE_LEAST_S)
    off_s = math.sqrt(run_off_s * run_off_s + wait_off_s * wait_off_s)
    steep = LOGISTIC * (typical + waits_s) / off_s
    return klass.value * max(at_once, 1.0 / (1.0 + min(window / (typical + waits_s), MOST_RATIO) ** steep))


@compiled
def is_late(klass, way, at):
    """Whether it is planned to end after its deadline."""
    return klass.value > 0.0 and opened(way, at) + way.run_s > klass.deadline
