"""What no plan costs less than, said at once: every job alone, where it costs least.

Where greedy has come to that, nobody needs to look for anything better, and it is what a certificate says of all plans. On the arrays of a world, since a turn asks it of every job and place.
"""

import numpy as np

from federator.planning.kernels import late_shares
from federator.planning.kernels import tables as t
from federator.planning.rules.rulebook import NEVER_WAIT_H
from federator.planning.scheduling.objective import Evaluator
from federator.planning.scheduling.rental_arrays import cases_of
from federator.planning.world.model_arrays import numbers_of


def least_usd(evaluator: Evaluator) -> float:
    """Every job at once at its cheapest owned place, as if nobody else were there, or never, if that is cheaper; for nothing, where it may use what is rented, or has no such place."""
    numbers = numbers_of(evaluator.world)
    ways, classes, places = numbers.ways, numbers.classes, numbers.places
    klass = numbers.class_of_way
    own = classes[klass]
    now = evaluator.world.now
    chance = late_shares(own["deadline"], now, ways["run_s"], 0.0, own["typical"], own["steep"])
    usd = ways["run_usd"] + ways["egress_usd"] + own["value"] * chance
    usd = np.where(places["kind"][ways["place"]] == t.OWNED, usd, np.inf)
    least = np.full(len(classes), np.inf)
    np.minimum.at(least, klass, usd)
    cases = cases_of(numbers, evaluator.bursting)
    first = cases.begins["usable"]
    alone = ~cases.flags[first : first + len(numbers.klass)].any(axis=1)
    by_class = np.where(np.isfinite(least), least, 0.0)
    of_jobs = np.array(numbers.klass, dtype=np.int64)
    never = cases.jobs["wait_usd_h"] * NEVER_WAIT_H + classes["value"][of_jobs]
    return float(np.minimum(by_class[of_jobs], never)[alone].sum())
